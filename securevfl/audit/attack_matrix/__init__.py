"""Attack matrix: every attack on every run of protocols and data sets."""
