"""Noise that was added to recorded messages, held against the noise that a claim promises."""
