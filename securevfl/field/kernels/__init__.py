"""Compiled loops over plain arrays: one module per instruction set or per kind of work.

`dispatch` chooses a kernel by processor, modulus and size. Nothing here checks its input; the
classes of `securevfl.field` do.
"""
