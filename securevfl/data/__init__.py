"""Data sets whose columns belong to several parties."""
