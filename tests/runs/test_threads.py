"""Settings of the process while a run computes."""

import gc

from securevfl.runs.threads import few_collections


def test_the_threshold_is_that_of_before_after_nested_runs():
    before = gc.get_threshold()
    with few_collections():
        assert gc.get_threshold()[0] >= 10_000
        with few_collections():
            pass
        assert gc.get_threshold()[0] >= 10_000
    assert gc.get_threshold() == before
