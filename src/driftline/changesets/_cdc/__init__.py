"""Change data capture: the messages of other databases as changesets, patchsets and row deltas (changesets §10)."""
