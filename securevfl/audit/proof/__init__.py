"""Exact arguments by linear algebra over a field."""
