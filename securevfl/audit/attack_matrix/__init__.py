"""Every attack on every run of a matrix of protocols and data sets."""
