"""Sealed links: the powers of an outsider, frames as they are documented, and sealed runs."""
