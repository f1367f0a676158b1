"""Covering designs of keys: every coalition lacks enough, nobody computes too much."""

import hashlib
import itertools

import pytest

from securevfl.errors import ConfigurationError
from securevfl.field.designs import blocks_of, stream_count

# (N, T, u)
SIZES = [
    (4, 1, 1), (4, 1, 2), (7, 1, 6), (28, 1, 4), (5, 2, 2), (7, 2, 4), (10, 2, 3), (16, 2, 5),
    (10, 3, 4), (16, 3, 3), (16, 3, 6), (13, 4, 8), (16, 4, 4), (9, 3, 6), (3, 2, 2),
]  # fmt: skip


def unspanned(blocks, N, T, m):
    """All sets of T parties that no chain of meeting blocks reaches."""
    around = {}
    for A in blocks:
        for C in itertools.combinations(sorted(A), T):
            around.setdefault(C, []).append(A)
    every = itertools.combinations(range(N), T)
    return [C for C in every if not spans(around.get(C, ()), C, m)]


def spans(blocks, coalition, m):
    """Whether chains of meeting blocks reach a coalition, so that (span) holds at any points."""
    C = frozenset(coalition)
    known = {A for A in map(frozenset, blocks) if C <= A}
    new = list(known)
    while new and C not in known:
        A = min(new, key=len)  # the smallest have the most room
        new.remove(A)
        met = {A & B for B in known if len(A | B) <= m} - known
        known |= met
        new += met
    return C in known


@pytest.mark.parametrize(("N", "T", "u"), SIZES)
def test_meetings_lead_to_every_coalition_of_t_parties(N, T, u):
    blocks = blocks_of(N, T, u)
    assert unspanned(blocks, N, T, T + u) == []
    assert len(set(blocks)) == len(blocks)
    assert all(T <= len(A) < max(T + u, N) and list(A) == sorted(set(A)) for A in blocks)


@pytest.mark.parametrize(("N", "u"), [(4, 2), (7, 6), (28, 4)])
def test_no_window_can_be_spared(N, u):
    blocks = blocks_of(N, 1, u)
    for missing, A in enumerate(blocks):
        others = blocks[:missing] + blocks[missing + 1 :]
        assert unspanned(others, N, 1, 1 + u) == [(c,) for c in A]


def test_two_blocks_meet_only_where_they_have_no_more_than_m_parties_together():
    assert spans([(0, 1, 2), (0, 3, 4)], (0,), 5)
    assert not spans([(0, 1, 2), (0, 3, 4)], (0,), 4)
    assert not spans([(0, 1, 2), (0, 1, 4)], (0,), 5)
    assert spans([(0, 1, 2), (0, 2, 3), (0, 3, 4)], (0,), 4)
    assert not spans([(1, 2), (3, 4)], (0,), 5)


@pytest.mark.parametrize(
    ("size", "keys", "streams"),
    [
        ((28, 1, 4), 28, 24),
        ((1000, 1, 2), 1000, 998),
        ((28, 3, 3), 1831, 2413),
        ((28, 3, 6), 461, 1107),
        ((16, 4, 4), 347, 446),
    ],
)
def test_designs_have_these_numbers_of_keys_and_of_streams_of_a_party(size, keys, streams):
    blocks = blocks_of(*size)
    assert (len(blocks), stream_count(blocks, *size)) == (keys, streams)


def test_blocks_are_the_committed_ones():
    found = [blocks_of(*size) for size in SIZES]
    assert hashlib.sha256(repr(found).encode()).hexdigest()[:16] == "19f464cd897151eb"


@pytest.mark.parametrize(
    ("size", "says"),
    [
        ((5000, 1, 2), "4998 streams of each party.*5000 keys.*Lower privacy"),
        ((28, 4, 4), "at least 4290 streams.*20475 sets of T parties.*at most 4096 streams"),
        ((64, 3, 6), "at least 11327 streams.*41664 sets of T parties"),
        ((1000, 4, 8), "at least .* streams"),
    ],
)
def test_too_many_streams_keys_or_sets_are_refused_with_their_numbers(size, says):
    with pytest.raises(ConfigurationError, match=says):
        blocks_of(*size)
