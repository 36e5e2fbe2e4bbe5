"""SQLite changesets and patchsets, byte for byte."""
