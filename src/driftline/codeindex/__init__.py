"""What changed between two builds of a code index."""
