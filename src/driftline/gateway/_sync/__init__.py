"""The sync protocol: pushes, pulls, sync rules and the live feed."""
