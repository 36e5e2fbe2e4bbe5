"""Ships deltas: durable log, push and pull, authentication, HTTP."""
