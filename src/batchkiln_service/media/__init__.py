"""The pictures and clips of the local service: drawn from a request alone, and playable."""
