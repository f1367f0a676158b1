"""Recorded runs of any protocol, and the simulation that records them."""
