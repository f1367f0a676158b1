"""Parties that deviate: single lies, and what each gains in a small run."""

from __future__ import annotations
