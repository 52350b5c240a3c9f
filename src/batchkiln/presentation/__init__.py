"""The queue as people read it, on the terminal and on the dashboard, in the same words."""
