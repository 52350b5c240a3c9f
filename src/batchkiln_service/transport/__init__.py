"""HTTP itself: connections, bodies, links that are signed, the firewall in front and the access log."""
