"""Fuzzers of all that is read from strangers; see `tests.fuzz.test_fuzz`."""
