"""The steps of a diff on splits and buckets, the same on every engine: hash, match, fetch, encode."""
