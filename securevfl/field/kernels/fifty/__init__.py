"""Kernels for the prime 2^50 - 2^14 + 1, whose products suit floating point units."""
