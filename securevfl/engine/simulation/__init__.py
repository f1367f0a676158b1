"""Parties in one process, in virtual time."""
