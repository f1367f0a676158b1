"""Parties as processes of organisations that are apart: no driver, a carrier between them."""
