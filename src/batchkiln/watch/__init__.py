"""Watches a folder: enqueues each manifest that appears, and writes a result file beside it."""
