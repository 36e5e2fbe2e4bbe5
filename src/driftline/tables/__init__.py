"""What a table diff means: headers, keys, events, order, statistics."""
