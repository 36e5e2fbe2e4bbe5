"""CSV: the strict reader, the cut into byte ranges of complete records, and the vectorized parser."""
