"""Folds: deltas and snapshots become new snapshots, range by range of row ids."""
