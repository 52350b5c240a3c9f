"""Command-line interface: parse arguments, call the API, print results, and return an exit status."""
