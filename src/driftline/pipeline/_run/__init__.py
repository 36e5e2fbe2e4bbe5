"""A run: stages in order, their records, reports and notifications."""
