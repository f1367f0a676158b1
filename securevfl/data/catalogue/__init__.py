"""Data sets that are known by name: where they lie, their checksums, their loaders.

A loader returns a `VerticalDataset`, and raises `DataError` if the set is not to be had or a file
is damaged.
"""
