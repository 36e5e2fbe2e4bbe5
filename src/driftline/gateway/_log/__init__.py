"""The durable log of pushed deltas: its port, and its stores in SQLite and PostgreSQL."""
