"""What a person is told of the queue, for a terminal and for a web page: gathered once, in the same words."""
