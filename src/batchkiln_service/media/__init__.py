"""The pictures and clips of the local service, rendered from a request alone."""
