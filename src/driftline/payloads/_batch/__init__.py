"""Many pairs: scattered by id, compared range by range, added up, and shown as pages and CI reports."""
