"""Streams: products of a small matrix with very many columns, by 256- and 512-bit vectors.

Memory bounds them, so columns come in panels: while one panel is multiplied, its successor is
fetched into the caches, and results are written past the caches where they stand on whole lines.
One compilation serves all matrices.
"""
