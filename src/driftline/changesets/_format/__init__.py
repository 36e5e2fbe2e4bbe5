"""Format: a shelf of `changesets`."""
