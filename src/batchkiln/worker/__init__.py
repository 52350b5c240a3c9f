"""Drives accounts: reads a snapshot, chooses the next action, waits, acts and records the result."""
