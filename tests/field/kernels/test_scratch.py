"""Memory for results: aligned, used again, never while something refers to it."""

import gc

import numpy as np
import pytest

from securevfl.field.kernels import scratch

SHAPE = (3, 1 << 20)


@pytest.fixture(autouse=True)
def nothing_free(monkeypatch):
    monkeypatch.setattr(scratch._Memory, "free", [])


def place(array):
    return array.__array_interface__["data"][0]


def test_large_results_start_on_a_cache_line_and_small_ones_are_ordinary():
    large = scratch.result(SHAPE, np.uint32)
    assert (large.shape, large.dtype) == (SHAPE, np.uint32)
    assert large.flags.c_contiguous
    assert large.flags.writeable
    assert place(large) % 64 == 0
    assert scratch.result((3, 5), np.uint32).base is None
    assert scratch.result((), np.float64).shape == ()


def test_memory_is_used_again_when_nothing_refers_to_it():
    first = scratch.result(SHAPE, np.uint32)
    where = place(first)
    second = scratch.result(SHAPE, np.uint32)
    assert place(second) != where
    del first
    gc.collect()
    third = scratch.result((3, 1 << 19), np.uint64)
    assert place(third) == where
    fourth = scratch.result(SHAPE, np.uint32)
    assert len({place(second), place(third), place(fourth)}) == 3


@pytest.mark.parametrize(
    "export",
    [
        lambda a: a[1:, 5:7],
        lambda a: a.reshape(-1).view(np.uint8)[1:2],
        lambda a: a.T,
        lambda a: memoryview(a),
        lambda a: np.asarray(memoryview(a).cast("B")),
        lambda a: np.broadcast_to(a[0], (2, 1 << 20)),
        lambda a: iter(a),
    ],
)
def test_a_view_or_an_export_keeps_its_memory(export):
    first = scratch.result(SHAPE, np.uint32)
    first[:] = 7
    where, part = place(first), export(first)
    del first
    gc.collect()
    other = scratch.result(SHAPE, np.uint32)
    other[:] = 9
    assert place(other) != where
    taken = next(part) if not isinstance(part, np.ndarray | memoryview) else part
    assert np.asarray(taken).max() <= 7


def test_memory_far_larger_than_asked_and_more_than_may_be_kept_is_not_used(monkeypatch):
    large = scratch.result((4, 1 << 20), np.uint64)
    where = place(large)
    del large
    gc.collect()
    assert place(scratch.result(SHAPE, np.uint32)) != where
    monkeypatch.setattr(scratch._Memory, "free", [])
    monkeypatch.setattr(scratch, "_MOST_FREE", 1 << 20)
    large = scratch.result(SHAPE, np.uint32)
    del large
    gc.collect()
    assert scratch._Memory.free == []
