"""Verifiers: each examines the claims that it applies to, and reports findings."""
