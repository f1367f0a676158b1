"""One run: its specification, start, storage, loading and use."""
