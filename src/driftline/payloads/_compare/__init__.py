"""A schema compiled into plans, the functions that compare by them, and the report."""
