"""The rules of the service as pure functions and tables: no clock, file or socket."""
