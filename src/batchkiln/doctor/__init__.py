"""Checks of the machine, the configuration, the queue and the service; they cost no credits."""
