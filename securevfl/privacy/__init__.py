"""Claims that protocols state, the adversaries that they name, and the cost of noise."""
