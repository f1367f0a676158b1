"""Sessions: runs whose parties are processes of organisations, with terms, phases, results."""
