"""The start of a run, and the ways of carrying it out: virtual time here, or a Ray cluster."""
