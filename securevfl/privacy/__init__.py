"""Claims of protocols, adversaries that they name, and the privacy cost of noise."""
