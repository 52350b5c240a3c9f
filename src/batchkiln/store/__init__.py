"""The durable queue in SQLite."""
