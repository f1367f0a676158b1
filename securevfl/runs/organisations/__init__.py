"""Runs whose parties are processes of organisations: their terms, phases, folders and results."""
