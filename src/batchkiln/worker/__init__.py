"""Drives accounts: snapshot, choose, wait, act, record."""
