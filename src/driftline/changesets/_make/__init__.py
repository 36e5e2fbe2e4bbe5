"""Make: a shelf of `changesets`."""
