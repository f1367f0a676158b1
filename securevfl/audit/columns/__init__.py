"""Search for the columns of clients in messages, by their numbers."""
