"""An index built from the objects of a git repository."""
