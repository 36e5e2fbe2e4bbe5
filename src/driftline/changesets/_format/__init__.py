"""The file format: bytes, records, tables and whole files of changes."""
