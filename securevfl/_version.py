"""The number of this version."""

__version__ = "0.2.0"
