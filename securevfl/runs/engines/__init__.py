"""Start of a run, and its engines: virtual time in this process, or a Ray cluster."""
