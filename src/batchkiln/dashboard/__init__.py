"""The web dashboard of one queue: its state, and the actions of the commands. It serves one person on loopback."""
