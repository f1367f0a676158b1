"""From texts to numbers: parsing, encoding, scaling, fitted on training rows only."""
