"""The sync gateway: durable push and pull of deltas, token checks, sync rules, flush to the lake, HTTP."""
