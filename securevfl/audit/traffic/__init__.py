"""Traffic of a run: the part that is seen without its secrets, in each of its settings."""
