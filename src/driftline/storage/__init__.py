"""Object stores through obstore: verbs with conditions, paths, leases. Local files live in `driftline.files`."""
