"""JSON values and text, paths, points in time, safe patterns, and the limits of a comparison."""
