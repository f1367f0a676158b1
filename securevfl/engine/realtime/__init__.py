"""Parties on a wall clock, each in a process of its own; independent of Ray."""
