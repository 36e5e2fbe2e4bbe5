"""Kernels: a shelf of `tables`."""
