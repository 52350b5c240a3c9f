"""What the operator sees and does, on a port of its own, on loopback."""
