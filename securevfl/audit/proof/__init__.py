"""Exact arguments: certificates of linear algebra, exhaustive small instances, couplings."""
