"""The domain, pure: no I/O, no awaits, no clock reads, no randomness. It imports only itself."""
