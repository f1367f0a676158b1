"""Data sets that are known by name: where they lie, their checksums, their loaders."""
