"""Faults on demand: by configuration, at run time through `service.faults`, or by a header of a request."""
