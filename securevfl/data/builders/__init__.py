"""Data sets from frames, arrays and files."""
