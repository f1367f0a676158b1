"""Checks for authors of protocols."""
