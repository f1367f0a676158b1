"""Parties on a wall clock, each in a process of its own. Nothing here imports Ray."""
