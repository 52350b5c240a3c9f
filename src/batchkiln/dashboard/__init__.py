"""The web page of one queue: looks at it, and lets a person do what the commands do. On loopback, for one person."""
