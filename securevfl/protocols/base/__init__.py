"""Base classes of protocols, and their declarations, which other packages read."""
