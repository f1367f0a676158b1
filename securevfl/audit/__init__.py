"""Verdicts on what protocols claim: recorded runs, proofs, statistical tests, attacks."""
