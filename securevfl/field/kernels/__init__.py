"""Compiled loops over plain arrays: one module per instruction set or per kind of work.

`dispatch` chooses a kernel by processor, modulus and size. Nothing here checks its input; the
classes of `securevfl.field` do. Every kernel is a function with a name of its own, also those that
only pass their arguments on: compiled code is kept on disk by module and name, which the closures
of one factory share.
"""
