"""The folder of a run: lock on writing, and check that its files are complete."""
