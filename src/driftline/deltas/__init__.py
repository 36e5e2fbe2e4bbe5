"""Row deltas, hybrid clocks and the one rule that merges them."""
