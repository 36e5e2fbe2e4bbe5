"""Benchmarks: driftline and its peers, alternating in one run, measured from outside."""
