"""Parties as processes of separate organisations: no driver, a carrier between them."""
