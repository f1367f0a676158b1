"""Verifiers: each examines claims that it applies to, and says what it found."""
