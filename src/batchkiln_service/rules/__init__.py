"""The rules of the service as pure functions and tables: nothing here reads a clock, a file or a socket."""
