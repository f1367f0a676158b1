"""Proofs of protocols that the engine runs."""
