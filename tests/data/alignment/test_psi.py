"""Private set intersection: against plain joins, on the curve's own terms, and on the wire."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.data.alignment.psi import (
    POINT,
    blind,
    blind_again,
    common_places,
    hash_to_curve,
    intersect,
    new_scalar,
)
from securevfl.engine import wire
from securevfl.engine.party import SERVER, Party
from securevfl.engine.security.sealing import Sealing
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.errors import DataError, RunError


class Member(Party):
    """A party that does nothing but find the common rows."""

    def __init__(self, index: int, members: list[int], ids: list[str], collector: int) -> None:
        super().__init__(index, [n for n in members if n != SERVER])
        self.members = members
        self.ids = ids
        self.collector = collector
        self.rows = np.empty(0, np.int64)

    async def setup(self) -> None:
        self.rows = await intersect(
            self, self.ids, self.members, collector=self.collector, workers=1
        )

    async def run(self) -> None:
        pass


def align(sets: dict[int, list[str]], collector: int, *, sealed: bool = False) -> Any:
    members = sorted(sets)
    parties = {n: Member(n, members, ids, collector) for n, ids in sets.items()}
    transcript = Transcript(payloads=True)
    sealing = Sealing("psi", "run", parties) if sealed else None
    simulation = Simulation(dict(parties), transcript=transcript, sealing=sealing)
    simulation.run()
    return parties, transcript


def test_p256_by_hand():
    """Blinding is multiplication on y^2 = x^3 - 3x + b, checked with integers."""
    p = 2**256 - 2**224 + 2**192 + 2**96 - 1
    b = 0x5AC635D8AA3A93E7B3EBBD55769886BC651D06B0CC53B0F63BCE3C3E27D2604B

    def add(one: Any, two: Any) -> Any:
        if one is None or two is None:
            return two if one is None else one
        (x1, y1), (x2, y2) = one, two
        if x1 == x2 and (y1 + y2) % p == 0:
            return None
        top, bottom = (3 * x1 * x1 - 3, 2 * y1) if one == two else (y2 - y1, x2 - x1)
        slope = top * pow(bottom, -1, p) % p
        x3 = (slope * slope - x1 - x2) % p
        return x3, (slope * (x1 - x3) - y1) % p

    numbers = hash_to_curve("anna").public_numbers()
    point, total = (numbers.x, numbers.y), None
    assert (point[1] ** 2 - point[0] ** 3 + 3 * point[0] - b) % p == 0
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    scalar = new_scalar()
    k = load_der_private_key(scalar, None).private_numbers().private_value  # type: ignore[union-attr]
    for bit in f"{k:b}":
        total = add(total, total)
        total = add(total, point) if bit == "1" else total
    assert blind(["anna"], scalar).tobytes() == total[0].to_bytes(32, "big")


def test_blinding_commutes_and_hides():
    one, two = new_scalar(), new_scalar()
    ids = [f"user-{n}" for n in range(20)]
    forth, back = blind_again(blind(ids, one), two), blind_again(blind(ids, two), one)
    assert np.array_equal(forth, back)
    assert not np.array_equal(blind(ids, one), blind(ids, two))
    assert len(np.unique(forth, axis=0)) == len(ids)


def test_processes_compute_what_one_computes(monkeypatch):
    monkeypatch.setattr("securevfl.data.alignment.psi._SPREAD", 2_000)
    scalar = new_scalar()
    ids = [str(n) for n in range(2_001)]
    points = blind(ids, scalar, workers=2)
    assert np.array_equal(points, blind(ids, scalar, workers=1))


def test_the_same_letters_are_the_same_identifier():
    scalar = new_scalar()
    assert np.array_equal(blind(["Jose\u0301"], scalar), blind(["Jos\u00e9"], scalar))


@given(
    st.lists(
        st.lists(st.integers(0, 30), unique=True, min_size=1, max_size=25), min_size=2, max_size=5
    )
)
@settings(max_examples=60, deadline=None)
def test_common_places_against_sets(lists):
    sets = [np.array([[n] * POINT for n in each], np.uint8) for each in lists]
    places = common_places(sets)
    found = [[each[i] for i in at] for each, at in zip(lists, places, strict=True)]
    assert all(row == found[0] for row in found)
    assert set(found[0]) == set.intersection(*map(set, lists))


@pytest.mark.parametrize("collector", [0, 2, SERVER])
def test_members_agree_with_a_plain_join(collector):
    draw = np.random.default_rng(5)
    sets = {
        n: [f"id{i}" for i in draw.permutation(120)[: 60 + 10 * n]] for n in (SERVER, 0, 1, 2, 3)
    }
    parties, _ = align(sets, collector)
    found = {n: [sets[n][row] for row in party.rows] for n, party in parties.items()}
    assert all(each == found[SERVER] for each in found.values())
    assert set(found[0]) == set.intersection(*map(set, sets.values()))


def test_no_identifier_is_on_the_wire():
    sets = {0: ["Ada Lovelace", "Alan Turing", "42"], 1: ["Alan Turing", "Emmy Noether", "42"]}
    parties, transcript = align(sets, 0, sealed=True)
    assert transcript.payloads is not None
    sent = b"".join(wire.encode(payload) for payload in transcript.payloads)
    digests = [hash_to_curve(i).public_numbers().x.to_bytes(32, "big") for i in sets[0] + sets[1]]
    for plain in [b"Turing", b"Noether", b"Lovelace", *digests]:
        assert plain not in sent
    assert len(parties[0].rows) == 2
    again = b"".join(wire.encode(payload) for payload in align(sets, 0)[1].payloads)
    columns = transcript.columns()
    for payload, kind in zip(transcript.payloads, columns["kind"], strict=True):
        if kind == "psi":  # scalars are fresh in every run
            assert all(row.tobytes() not in again for row in payload)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ({0: ["a", "b"], 1: ["c"]}, "no identifier in common"),
        ({0: ["a", "b", "a"], 1: ["a"]}, "'a' is in rows 0 and 2"),
        ({0: ["Jose\u0301", "Jos\u00e9"], 1: ["a"]}, "is in rows 0 and 1"),
        ({0: ["a"]}, "two or more"),
    ],
)
def test_unusable_sets_are_refused(sets, words):
    with pytest.raises(DataError, match=words):
        align(sets, 0)


def lying(monkeypatch, lie):
    """A collector, member 0 of two, that answers something else to member 1."""
    monkeypatch.setattr(
        "securevfl.data.alignment.psi.common_places",
        lambda sets: [common_places(sets)[0], lie],
    )
    return align({0: ["a", "b", "c"], 1: ["b", "c", "d", "e"]}, 0)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (np.array([1, -1]), r"of places from -1 to 1; .* 4 identifiers.*in \[0, 4\)"),
        (np.array([4, 0]), r"of places from 0 to 4; .* in \[0, 4\)"),
        (np.array([2, 2]), "2 places, of which 1 differ"),
        (np.array([1.0, 2.0]), r"as float64 \(2,\); they must be a row of int64"),
        (np.array([1, 2], np.int32), r"as int32 \(2,\)"),
        (np.array([[1, 2]]), r"as int64 \(1, 2\)"),
        (np.array([True, False]), "as bool"),
        ("12", "as str"),
    ],
)
def test_a_collector_s_answer_that_is_no_set_of_rows_is_refused(monkeypatch, lie, words):
    with pytest.raises(DataError, match=f"the collector, party 0, told party 1.*{words}"):
        lying(monkeypatch, lie)


@pytest.mark.parametrize("lie", [np.array([1]), np.array([0, 1, 2]), np.empty(0, np.int64)])
def test_a_collector_that_tells_members_different_numbers_is_refused(monkeypatch, lie):
    with pytest.raises(DataError, match=r"of another number\. All must have as many"):
        lying(monkeypatch, lie)


def test_an_empty_set_has_nothing_in_common():
    with pytest.raises(DataError, match="no identifier in common"):
        align({0: [], 1: ["a"]}, 0)


def test_foreign_bytes_are_refused():
    scalar = new_scalar()
    off = np.frombuffer(b"\xff" * 32, np.uint8).reshape(1, 32)  # beyond the prime
    with pytest.raises(RunError, match="no x-coordinate of P-256"):
        blind_again(off, scalar)
    with pytest.raises(RunError, match="a blinded set is an array"):
        blind_again(np.zeros((3, 31), np.uint8), scalar)
