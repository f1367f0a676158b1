"""Who runs the parties, when a message arrives, what it costs, and what is kept of it."""
