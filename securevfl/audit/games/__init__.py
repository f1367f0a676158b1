"""Distinguishing games: tell two secrets apart by views of runs; rules and runs."""
