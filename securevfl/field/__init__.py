"""Exact arithmetic over a prime field, Lagrange coding, fixed point and secret-grade sampling."""

from __future__ import annotations

if __name__ != "securevfl.field":
    # The repository's root shows this folder as a link; a second copy of its classes would never
    # compare equal to the first.
    raise ImportError("import securevfl.field, not field")
