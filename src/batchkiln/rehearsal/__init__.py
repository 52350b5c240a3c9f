"""Rehearsals: run a manifest in virtual time against the local service, over a network in memory."""
