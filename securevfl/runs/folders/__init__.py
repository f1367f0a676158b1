"""The folder of a run: who may write into it, and whether its files are whole."""
