"""Measurements of this machine: field kernels, rounds of protocols, straggler thresholds."""
