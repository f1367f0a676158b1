"""The ways of carrying out a run: virtual time in this process, or actors of a Ray cluster."""
