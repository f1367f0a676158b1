"""The conformance checks, by what they look at: the declaration, runs, and disturbed runs."""
