"""The generation API over HTTP: routes, handlers, faults and the request log."""
