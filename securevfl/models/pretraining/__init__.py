"""Pre-training of a party's network on its own rows, with and without labels."""
