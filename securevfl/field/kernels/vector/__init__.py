"""Matrix products by 256- and 512-bit vectors: arithmetic of sums, and the loops around it."""
