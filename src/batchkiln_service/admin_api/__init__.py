"""The operator's port, on loopback alone: what clients did, faults switched on and off, stuck generations ended."""
