"""What every HTTP service of driftline stands on: processes, connections, bodies, rates, one shape of errors."""
