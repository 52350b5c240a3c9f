"""The texts and figures about a queue that the terminal and the dashboard share."""
