"""HTTP: connections, bodies, signed links, the firewall and the access log."""
