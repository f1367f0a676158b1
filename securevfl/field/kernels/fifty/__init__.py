"""Kernels for the one prime 2^50 - 2^14 + 1, whose products suit the units for floating point."""
