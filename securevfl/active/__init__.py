"""Parties that lie: signed statements, verifiable dealing, and evidence against the liar."""
