"""A manifest's whole run in virtual time: the program against the local service, over a network in memory."""
