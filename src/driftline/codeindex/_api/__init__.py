"""The API of two versions: names that callers can write, and rules that say what changed (index diffs §8)."""
