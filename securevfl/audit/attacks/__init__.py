"""Attacks: what a coalition computes from its view, run on views of real transcripts."""
