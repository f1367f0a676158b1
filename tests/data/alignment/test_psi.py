"""Private set intersection: against plain joins, on the wire, and with members that deviate."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from securevfl.data.alignment import psi
from securevfl.data.alignment.psi import common_places, intersect
from securevfl.engine import wire
from securevfl.engine.network import Signing
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
        self.rows = await intersect(self, self.ids, self.members, collector=self.collector)

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


@given(
    st.lists(
        st.lists(st.integers(0, 30), unique=True, min_size=1, max_size=25), min_size=2, max_size=5
    )
)
@settings(max_examples=60, deadline=None)
def test_common_places_against_sets(lists):
    sets = [np.array([[n] * 10 for n in each], np.uint8) for each in lists]
    places = common_places(sets)
    found = [[each[i] for i in at] for each, at in zip(lists, places, strict=True)]
    assert all(row == found[0] for row in found)
    assert set(found[0]) == set.intersection(*map(set, lists))


def test_a_row_twice_within_a_set_is_common_to_none():
    twice, once = (np.array([[n] * 10 for n in each], np.uint8) for each in ([7, 7, 3], [5, 3]))
    for sets in ([twice, once], [once, twice], [twice, once[:0]]):
        found = [each[at, 0].tolist() for each, at in zip(sets, common_places(sets), strict=True)]
        assert found == ([[3], [3]] if len(sets[1]) else [[], []])


@pytest.mark.usefixtures("true_transfers")
@pytest.mark.parametrize("collector", [2, SERVER])
def test_members_agree_with_a_plain_join(collector):
    draw = np.random.default_rng(5)
    sizes = {SERVER: 50, 0: 60, 2: 80}
    sets = {n: [f"id\u00e9{i}" for i in draw.permutation(99)[:m]] for n, m in sizes.items()}
    parties, _ = align(sets, collector)
    found = {n: [sets[n][row] for row in party.rows] for n, party in parties.items()}
    assert all(each == found[SERVER] for each in found.values())
    assert set(found[0]) == set.intersection(*map(set, sets.values()))


@given(st.integers(0, 2**32), st.integers(0, 40), st.integers(1, 40), st.integers(1, 40))
@settings(
    max_examples=9, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_two_sets(seed, common, own, others):
    draw = np.random.default_rng(seed)
    names = [f"{n}" for n in draw.permutation(common + own + others)]
    sets = {0: names[: common + own], 1: names[own:][::-1]}
    if both := set(sets[0]) & set(sets[1]):
        parties, _ = align(sets, 1)
        assert [sets[0][n] for n in parties[0].rows] == [sets[1][n] for n in parties[1].rows]
        assert {sets[0][n] for n in parties[0].rows} == both


def test_no_identifier_is_on_the_wire_and_nothing_is_sent_twice():
    sets = {0: ["Ada Lovelace", "Alan Turing", "42"], 1: ["Alan Turing", "Emmy Noether", "42"]}
    parties, transcript = align(sets, 0, sealed=True)
    assert len(parties[0].rows) == 2
    sent = [wire.encode(payload) for payload in transcript.payloads]
    for plain in [b"Turing", b"Noether", b"Lovelace"]:
        assert plain not in b"".join(sent)
    kinds = transcript.columns()["kind"].tolist()
    again = [wire.encode(payload) for payload in align(sets, 0)[1].payloads]
    public = {"psi rows", "psi places", "psi more"}  # a hash of what both know, small numbers
    assert all(
        one != other
        for kind, one, other in zip(kinds, sent, again, strict=True)
        if kind not in public
    )


def test_the_order_of_a_table_does_not_show():
    """Values ascend, and the common rows come in their order: neither is that of a table."""
    ids = [f"{n:03}" for n in range(60)]
    parties, transcript = align({0: ids, 1: ids}, 0)
    rows = parties[1].rows
    assert sorted(rows) == list(range(60)) != rows.tolist()
    place = transcript.columns()["kind"].tolist().index("psi values")
    values = transcript.payloads[place]
    texts = [row.tobytes() for row in values]
    assert texts == sorted(texts)


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        ({0: ["a", "b"], 1: ["c"]}, "no identifier in common"),
        ({0: [], 1: ["a"]}, "no identifier in common"),
        ({0: ["a"], 1: []}, "no identifier in common"),
        ({0: ["a", "b", "a"], 1: ["a"]}, "'a' is in rows 0 and 2"),
        ({0: ["Jose\u0301", "Jos\u00e9"], 1: ["a"]}, "is in rows 0 and 1"),
        ({0: ["a"]}, "two or more"),
    ],
)
def test_unusable_sets_are_refused(sets, words):
    with pytest.raises(DataError, match=words):
        align(sets, 0)


def test_sets_beyond_the_parameters_are_refused(monkeypatch):
    monkeypatch.setattr(psi.oprf, "MOST", 2)
    with pytest.raises(DataError, match=r"has 3 identifiers.*for 2 \(2\^24\) at most"):
        align({0: ["a", "b", "c"], 1: ["a"]}, 0)


def lying(liar: int, kind: str, lie: Any, sets: Any = None) -> Any:
    """Members of whom one sends something else as a kind of message."""
    sets = sets or {0: ["a", "b", "c"], 1: ["b", "c", "d", "e"]}
    parties = {n: Member(n, sorted(sets), ids, 0) for n, ids in sets.items()}
    send = parties[liar].send
    parties[liar].send = lambda to, name, true, **how: send(
        to, name, lie(true) if name == f"psi {kind}" else true, **how
    )
    Simulation(dict(parties)).run()
    return parties


@pytest.mark.parametrize(("runs", "fits"), [((b"one", b"one"), True), ((b"one", b"two"), False)])
def test_messages_of_another_run_are_refused(runs, fits):
    """As if a third had passed them on, to answer each of two runs with the other's set."""
    parties = {n: Member(n, [0, 1], ["a"], 0) for n in (0, 1)}
    for n, run in enumerate(runs):
        parties[n].signing = Signing(bytes(32), {}, run)
    if fits:
        Simulation(dict(parties)).run()
        assert parties[1].rows.tolist() == [0]
    else:
        with pytest.raises(RunError, match="a matrix that encodes no set"):
            Simulation(dict(parties)).run()


def flipped(array: np.ndarray) -> np.ndarray:
    """All bits of the last row, which is every column's last word in a matrix, changed."""
    changed = array.copy()
    changed[..., -1] ^= np.array(~np.uint64(0)).astype(array.dtype)
    return changed


@pytest.mark.parametrize(
    ("liar", "kind", "lie", "words"),
    [
        (0, "keys", lambda true: true[:2], "party 0 sent no keys"),
        (0, "keys", lambda true: (-1, *true[1:]), "it has -1 identifiers"),
        (0, "keys", lambda true: (2**24 + 1, *true[1:]), "from 0 to 16777216"),
        (0, "keys", lambda true: (3, b"short", true[2]), "a session of 5 bytes"),
        (0, "keys", lambda true: (*true[:2], true[2][:9]), r"uint8 \(9, 65\) as keys"),
        (0, "keys", lambda true: (*true[:2], true[2][:, 1:]), r"uint8 \(512, 64\) as keys"),
        (1, "choices", lambda true: true[1], "no size and choices"),
        (1, "choices", lambda true: (4, true[1][:, 1:]), r"uint8 \(512, 129\) as choices"),
        (0, "matrix", lambda true: true[:, :-1], r"uint64 \(512, 3\) as matrix; uint64 \(512, 4"),
        (0, "matrix", flipped, "a matrix that encodes no set"),
        (1, "challenge", lambda true: b"0" * 16, "sent bytes as challenge"),
        (1, "challenge", lambda true: true ^ 1, "a matrix that encodes no set"),
        (0, "opening", flipped, "a matrix that encodes no set"),
        (1, "values", lambda true: true[:-1], r"\(3, 10\) as values; uint8 \(4, 10\)"),
        (1, "values", lambda true: true[::-1], "values that do not ascend"),
        (1, "values", lambda true: true[[0, 0, 1, 2]], "values that do not ascend"),
        (0, "common", lambda true: true[0], "told no common rows"),
        (0, "common", lambda true: (true[0], np.zeros(0)), "told no common rows"),
        (0, "common", lambda true: (1, true[1]), r"int64 \(2,\) as places; int64 \(1,\)"),
        (0, "places", lambda true: true.astype(np.int32), r"int32 \(2,\) as places"),
    ],
)
def test_a_message_that_is_no_member_s_is_refused(liar, kind, lie, words):
    with pytest.raises(RunError, match=words):
        lying(liar, kind, lie)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (lambda true: true * 0 - 1, r"of places from -1 to -1; .* 4 identifiers.*in \[0, 4\)"),
        (lambda true: true + 4, r"of places from .* in \[0, 4\)"),
        (lambda true: true[[0, 0]], "2 places, of which 1 differ"),
        (lambda true: true[::-1], "without proof"),  # rows of different people side by side
        (lambda true: np.setdiff1d(np.arange(4), true), "without proof"),  # rows it does not have
    ],
)
def test_a_collector_that_names_other_rows_is_refused(lie, words):
    with pytest.raises(DataError, match=f"the collector, party 0, .*{words}"):
        lying(0, "places", lie)


@pytest.mark.parametrize("lie", [lambda true: np.zeros(0), lambda true: np.zeros(2)])
def test_a_hash_of_the_common_rows_that_is_none_is_refused(lie):
    with pytest.raises(DataError, match="party 0 of others, or of another order"):
        lying(0, "rows", lie)


def test_a_collector_that_tells_members_of_different_rows_is_refused(monkeypatch):
    """Both sets are proved to be its own; member 2 is told of one less."""
    send_parts, digest = psi._Link.send_parts, psi._digest

    async def fewer(link, kind, parts):
        parts = list(parts)
        if kind == "places" and link.peer == 2:
            parts = [parts[0][:-1]]
        await send_parts(link, kind, parts)

    sets = {n: ["a", "b", "c"] for n in range(3)}
    monkeypatch.setattr(psi._Link, "send_parts", fewer)
    send = psi._Link.send

    def told_less(link, kind, payload):
        if kind == "common" and link.peer == 2:
            payload = (payload[0] - 1, held.pop())
        send(link, kind, payload)

    held: list[bytes] = []

    def remembering(told):
        if len(told) == 3 * psi.oprf.PROOF:
            held.append(digest(told[: 2 * psi.oprf.PROOF]))
        return digest(told)

    monkeypatch.setattr(psi._Link, "send", told_less)
    monkeypatch.setattr(psi, "_digest", remembering)
    with pytest.raises(DataError, match=r"of others, or of another order"):
        align(sets, 0)


@pytest.mark.parametrize(
    ("liar", "kind", "lie", "who"),
    [
        (0, "keys", lambda true: (*true[:2], true[2] * 0), "party 0"),
        (1, "choices", lambda true: (4, true[1][:, ::-1]), "party 1"),
    ],
)
@pytest.mark.usefixtures("true_transfers")
def test_bytes_that_are_no_points_are_refused(liar, kind, lie, who):
    with pytest.raises(RunError, match=f"{who} sent bytes that are no point of P-256"):
        lying(liar, kind, lie)


def resumed(sets: dict[int, list[str]], folder: Any, monkeypatch: Any, stop: int = -1) -> list[int]:
    """Members with whom a pair was begun; the sending of member `stop`'s values ends the run."""
    begun: list[int] = []
    compare, send_parts = psi._compare, psi._Link.send_parts

    def beginning(link, *rest):
        begun.append(link.peer)
        return compare(link, *rest)

    async def stopped(link, kind, parts):
        if kind == "values" and link.party.index == stop:
            raise KeyboardInterrupt
        await send_parts(link, kind, parts)

    class Keeping(Member):
        async def setup(self) -> None:
            at = folder / str(self.index)
            self.rows = await intersect(self, self.ids, self.members, collector=9, kept=at)

    parties = {n: Keeping(n, sorted(sets), ids, 9) for n, ids in sets.items()}
    with monkeypatch.context() as patched:
        patched.setattr(psi, "_compare", beginning)
        patched.setattr(psi._Link, "send_parts", stopped)
        if stop >= 0:
            with pytest.raises(KeyboardInterrupt):
                Simulation(dict(parties)).run()
            return begun
        Simulation(dict(parties)).run()
    common = set.intersection(*map(set, sets.values()))
    found = [[sets[n][row] for row in party.rows] for n, party in parties.items()]
    assert set(found[0]) == common
    assert all(one == found[0] for one in found)
    return begun


SETS = {n: [f"{n + k}" for k in range(6)] for n in (0, 1, 2)} | {9: [f"{k}" for k in range(8)]}


def test_a_restart_goes_on_from_the_finished_pairs(tmp_path, monkeypatch):
    assert resumed(SETS, tmp_path, monkeypatch, stop=2) == [0, 1, 2]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.glob("*/*.npz")} == {0o600}
    assert resumed(SETS, tmp_path, monkeypatch) == [2]  # what was stopped begins anew
    assert resumed(SETS, tmp_path, monkeypatch) == []


def other_session(sets, folder):
    """Member 0 holds what another intersection of the same sets left."""
    with np.load(folder / "0/psi-9.npz") as found:
        kept = dict(found)
    kept["session"][0] ^= 1
    np.savez(folder / "0/psi-9.npz", **kept)


@pytest.mark.parametrize(
    ("changed", "begun"),
    [
        (other_session, [0]),
        (lambda sets, folder: sets[0].reverse(), [0]),
        (lambda sets, folder: sets[9].append("new"), [0, 1, 2]),
        (lambda sets, folder: (folder / "0/psi-9.npz").unlink(), [0]),
        (lambda sets, folder: (folder / "9/psi-1.npz").write_bytes(b"PK"), [1]),
        (lambda sets, folder: (folder / "9/psi-1.npz").rename(folder / "9/psi-0.npz"), [0, 1]),
    ],
)
def test_another_set_or_file_begins_a_pair_anew(tmp_path, monkeypatch, changed, begun):
    sets = {n: list(ids) for n, ids in SETS.items()}
    resumed(sets, tmp_path, monkeypatch)
    changed(sets, tmp_path)
    assert resumed(sets, tmp_path, monkeypatch) == begun


def test_nothing_is_kept_from_which_a_stopped_pair_could_go_on(tmp_path, monkeypatch):
    """Streams that masked one matrix must mask no other one."""
    resumed(SETS, tmp_path, monkeypatch, stop=0)
    assert list(tmp_path.glob("*/*")) == []
