"""Leaks and sound protocols as a package outside the library would bring them.

They subclass and compose the library's protocols, replace functions of the packages below it, and
declare and claim for themselves. They were written without looking at the verifiers.
"""
