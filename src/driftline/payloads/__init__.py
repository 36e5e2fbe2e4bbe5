"""What equivalence of two JSON payloads means."""
