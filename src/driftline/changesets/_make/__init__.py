"""Changes made from rows, databases, recorded commands and SQL."""
