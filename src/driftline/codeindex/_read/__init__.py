"""References, artifacts and rows of an index, read."""
