"""Parties that lie: signed statements, verifiable dealing, and evidence that names the liar."""
