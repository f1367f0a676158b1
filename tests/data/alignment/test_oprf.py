"""The pseudo-random function: by hand, its check, and the bounds of its parameters."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from securevfl.data.alignment import oprf
from securevfl.errors import RunError
from securevfl.field import binary


def agreed(own, others):
    """R and S after the check, and what R sent."""
    receiver, sender = oprf.Receiver(own, "S"), oprf.Sender(others, "R")
    choices = sender.choices(*receiver.hello())
    parts = list(receiver.matrix(choices))
    assert [part.shape for part in parts] == sender.part_shapes()
    for number, part in enumerate(parts):
        sender.take(number, part)
    return receiver, sender, parts


def test_both_have_the_same_values_of_the_same_identifiers_alone():
    receiver, sender, _ = agreed(["a", "b", "Jose\u0301"], ["b", "x", "Jos\u00e9", "y"])
    sender.check(receiver.opening(sender.challenge()))
    own, others = receiver.values(26), sender.values(26)
    same = (own[:, None] == others[None]).all(axis=2)
    assert np.argwhere(same).tolist() == [[1, 0], [2, 2]]
    assert len(np.unique(np.concatenate([own, others]), axis=0)) == 5


def test_values_by_hand():
    """S's values from its secret and its rows, and these from R's, in integers."""
    receiver, sender, _ = agreed(["a", "b"], ["b", "z"])
    session = receiver._session

    def number(row):
        return int.from_bytes(row.tobytes(), "little")

    s, q, t = number(sender._s), [*map(number, sender._q)], [*map(number, receiver._t)]
    words = [number(word) for word in binary.encode(receiver._p)]
    assert q == [one ^ (word & s) for one, word in zip(t, words, strict=True)]
    for text, value in zip(["b", "z"], sender.values(40), strict=True):
        digest = hashlib.blake2b(text.encode(), key=session, person=b"securevfl psi id").digest()
        h = int.from_bytes(digest[:16], "little") % 2**76
        start = int.from_bytes(digest[16:24], "little") % (oprf.unknowns(2) - 127)
        band = int.from_bytes(digest[24:40], "little")
        row = p = 0
        for j in range(128):
            if band >> j & 1:
                row ^= q[start + j]
                p ^= number(receiver._p[start + j])
        assert (p == h) == (text == "b")
        word = number(binary.encode(np.array([[h % 2**64, h >> 64]], np.uint64))[0])
        told = digest + (row ^ (word & s)).to_bytes(64, "little")
        wanted = hashlib.blake2b(told, digest_size=40, person=b"psi value").digest()
        assert value.tobytes() == wanted


def test_matrices_of_many_parts(monkeypatch):
    monkeypatch.setattr(oprf, "CHUNK", 128)
    monkeypatch.setattr(oprf, "_SLICE", 64)
    ids = [f"{n}" for n in range(150)]
    steps = []
    receiver, sender = (
        oprf.Receiver(ids, "S", steps.append),
        oprf.Sender(ids[9:], "R", steps.append),
    )
    parts = list(receiver.matrix(sender.choices(*receiver.hello())))
    assert [part.shape[1] for part in parts] == [2, 2, 2]
    for number, part in enumerate(parts):
        sender.take(number, part)
    sender.check(receiver.opening(sender.challenge()))
    assert np.array_equal(receiver.values(20)[9:], sender.values(20))
    assert sum(steps) == oprf.work(150, 141)


def test_an_error_in_a_column_is_found_where_the_secret_reads_that_column():
    """Who gets through has guessed a bit of s, with probability one half each."""
    receiver, sender, parts = agreed(["a"], ["b"])
    secret = np.unpackbits(sender._s.view(np.uint8), bitorder="little")
    honest = sender._q.copy()
    for value in (0, 1):
        (column,) = np.flatnonzero(secret == value)[:1]
        error = np.zeros_like(parts[0])
        error[column, 0] = 0b111  # an error of three rows
        sender._q = honest ^ (binary.transpose_bits(error) & sender._s)
        opening = receiver.opening(sender.challenge())
        if value:
            with pytest.raises(RunError, match="a matrix that encodes no set"):
                sender.check(opening)
        else:
            sender.check(opening)


def test_streams_of_one_key_differ():
    """Free rows of the encoding are zeros, and show what the stream is there."""
    streams = oprf._next_columns(oprf._streams(np.zeros((3, 16), np.uint8)), 4)
    assert len(np.unique(streams)) == 12


def test_a_set_without_an_encoding_is_refused(monkeypatch):
    monkeypatch.setattr(oprf, "solve_bands", lambda *_: None)
    receiver, sender = oprf.Receiver(["a"], "S"), oprf.Sender(["a"], "R")
    with pytest.raises(RunError, match="no encoding"):
        next(receiver.matrix(sender.choices(*receiver.hello())))


def log2_failure(count: int, unknowns: int) -> float:
    """Bound on the logarithm of the probability that a set has no encoding.

    Rows in the order of their starts take the first free unknown of their band whose coefficient
    is 1; reduced coefficients of free unknowns are independent and fair (Dietzfelbinger and Walzer
    2019, section 3). So of k rows that wait at an unknown none takes it with probability 2^-k, and
    a row before which Q wait has no pivot with probability at most 2^-(128 - Q), Q the length of a
    queue with one server. Starts are as of a Poisson process, which at most doubles the probability
    (Mitzenmacher and Upfal, theorem 5.10). The queue grows from place to place, to a limit which is
    reached after 2,000 places where the mean is 0.8.
    """
    places = unknowns - binary.BAND + 1
    mean, longest, followed = count / places, 300, min(places, 2_000)
    arrivals = np.array(
        [math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(60)]
    )
    others = np.array([arrivals[k + 1 :].sum() for k in range(59)])  # more than k begin there
    lengths = np.arange(longest)
    each = sum(n * np.minimum(1, 2.0 ** (lengths + k - binary.BAND)) for k, n in enumerate(others))
    queue, failing = np.eye(1, longest)[0], 0.0
    idle = 2.0 ** -np.arange(longest + 1)
    for place in range(followed):
        failing += (queue * each).sum() * (places - place if place == followed - 1 else 1)
        waiting = np.convolve(queue, arrivals)[: longest + 1]
        queue = (waiting * idle)[:longest] + (waiting * (1 - idle))[1:]
    return math.log2(2 * failing)


@pytest.mark.parametrize("count", [1, 1000, 10**6, oprf.MOST])
def test_a_set_has_no_encoding_with_probability_2_to_the_minus_52_at_most(count):
    assert oprf.unknowns(count) >= 1.25 * count + 128
    assert log2_failure(count, oprf.unknowns(count)) < -52


def test_the_bound_holds_where_encodings_fail_often():
    draw, mean, unknowns, tries = np.random.default_rng(4), 670, 127 + 600, 300
    failed = 0
    for _ in range(tries):
        count = draw.poisson(mean)
        bands = draw.integers(0, 2**64, (count, 2), dtype=np.uint64)
        starts = draw.integers(0, unknowns - 127, count)
        values = draw.integers(0, 2**64, (count, 2), dtype=np.uint64)
        failed += binary.solve_bands(starts, bands, values, unknowns) is None
    bound = 2 ** log2_failure(mean, unknowns) / 2  # the half is for a number of rows that is fixed
    assert 0 < failed / tries < bound


@pytest.mark.parametrize(
    ("own", "others"), [(1, 1), (0, 10**6), (10**6, 0), (2**23, 1), (10**6, 10**6), (2**24, 2**24)]
)
def test_values_are_long_enough(own, others):
    """Of different identifiers, of one set or of both; and for who searches for such a pair."""
    bits = 8 * oprf.value_bytes(own, others)
    for pairs in (own * others, own**2 / 2, others**2 / 2):
        assert pairs * 2.0**-bits <= 2.0**-40
    assert bits >= 80
    assert oprf.value_bytes(own, others) + oprf.PROOF <= 64  # as BLAKE2b gives


def test_a_receiver_of_a_few_identifiers_fits_many():
    """It says 10 and enters 150: no bound by what it says alone holds for small sets."""
    m = oprf.unknowns(10)
    hashed = oprf.hash_ids([f"{n}" for n in range(150)], bytes(32), lambda steps: None)
    solved = binary.solve_bands(oprf._starts(hashed, m), hashed[:, 3:5], oprf._oracle(hashed), m)
    assert solved is not None


@pytest.mark.parametrize(("searched", "most"), [(40, 1.7), (64, 3.1)])
def test_how_many_identifiers_a_receiver_can_fit(searched, most):
    """The least k at which 2^(76 m) (2^q e / k)^k 2^(-76 k) falls below 2^-40."""
    count = 10**6
    m = oprf.unknowns(count)
    k = count
    while 76 * m + k * (searched + math.log2(math.e) - math.log2(k) - 76) > -40:
        k += 1000
    assert k <= most * count + 50_000
