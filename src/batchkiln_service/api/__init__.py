"""The API over HTTP: routes, bodies, and what happens to every request."""
