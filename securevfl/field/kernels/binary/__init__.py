"""Kernels over F_2: linear systems, codes and transposition of bits."""
