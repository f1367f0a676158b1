"""Verdicts on protocols' claims: recorded runs, proofs, statistical tests, attacks."""
