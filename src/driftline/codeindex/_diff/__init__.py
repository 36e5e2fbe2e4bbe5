"""Two indexes compared: files, chunks, definitions and the public API."""
