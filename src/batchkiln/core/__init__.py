"""The domain, pure: no I/O, no await, no clock reads, no randomness; imports only itself."""
