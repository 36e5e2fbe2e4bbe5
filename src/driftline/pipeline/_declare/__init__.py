"""The pipeline file: read, checked, and held as records."""
