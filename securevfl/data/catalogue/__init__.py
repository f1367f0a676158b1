"""Data sets that are known by name: where their files are, checksums, loaders.

A loader returns a `VerticalDataset`. DataError if the set is unavailable or a file is damaged.
"""
