"""Attacks: computations of a coalition on its view of real transcripts."""
