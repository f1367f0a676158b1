"""Counts that wrap, or limits that are not kept, are found."""

import numpy as np
import pytest

from securevfl.privacy.release_counts import after_release, refuse_exceeding
from tests.oracles import counting
from tests.oracles.counting import counting_fault


def test_the_library_counts_right():
    assert counting_fault() == ""


@pytest.mark.parametrize("wrap", [16, 255, 2**16, 2**24])
def test_counts_that_wrap_are_found(monkeypatch, wrap):
    def wrapped(counts, rows, held):
        found = np.frombuffer(after_release(counts, rows, held), "<u4").copy()
        return (found % np.uint32(wrap)).tobytes()

    monkeypatch.setattr(counting, "after_release", wrapped)
    assert "releases" in counting_fault()


def test_a_limit_that_large_counts_pass_is_found(monkeypatch):
    def lenient(counts, rows, limit, who):
        if limit < 100:
            refuse_exceeding(counts, rows, limit, who)

    monkeypatch.setattr(counting, "refuse_exceeding", lenient)
    assert "is wrongly dealt with" in counting_fault()
