"""Diffs persisted below a cache root, and the schemas of their records."""
