"""Data sets from frames, arrays, files and scikit-learn's `Bunch` objects."""
