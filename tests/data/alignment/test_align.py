import numpy as np
import pytest

from securevfl.data.alignment.align import align
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import DataError

SETS = {0: ("c", "a", "x", "b"), 1: ("b", "y", "c", "a"), 2: ("z", "a", "b"), 3: ("c", "x", "q")}


class Member(Party):
    """Aligns with the members of one group after the other."""

    def __init__(self, index, groups, private):
        super().__init__(index, SETS)
        self.groups, self.private, self.found = groups, private, {}

    async def setup(self):
        for group in self.groups:
            if self.index in group:
                others = [n for n in group if n != self.index]
                rows = await align(self, SETS[self.index], others, private=self.private)
                self.found[group] = [SETS[self.index][n] for n in rows.tolist()]

    async def run(self):
        pass


def found(groups, *, private=False, copying=False):
    parties = {n: Member(n, groups, private) for n in SETS}
    Simulation(parties, copying=copying).run()
    return {n: party.found for n, party in parties.items()}


@pytest.mark.parametrize("private", [False, True])
def test_all_members_find_the_common_ids_in_one_order(private):
    groups = [(0, 1, 2), (0, 1, 3)]  # parties 0 and 1 are in both
    result = found(groups, private=private)
    for group, common in zip(groups, (["a", "b"], ["c"]), strict=True):
        assert [result[n][group] for n in group] == [common] * 3
    assert result[2].keys() == {(0, 1, 2)}


def test_copies_make_no_difference():
    assert found([(0, 1)], copying=True) == found([(0, 1)])
    assert found([(0, 1)])[0][0, 1] == ["a", "b", "c"]


@pytest.mark.parametrize("private", [False, True])
def test_nothing_in_common_is_refused(private, monkeypatch):
    monkeypatch.setitem(SETS, 3, ("r", "s"))
    with pytest.raises(DataError, match="no identifier in common"):
        found([(0, 3)], private=private)


def test_repeated_ids_are_refused(monkeypatch):
    monkeypatch.setitem(SETS, 0, ("a", "b", "a"))
    with pytest.raises(DataError, match="3 identifiers of which 2 differ"):
        found([(0, 1)])


def test_ids_in_two_unicode_forms_are_one_id_at_one_place(monkeypatch):
    composed, apart = "\u00e9", "e\u0301"
    monkeypatch.setitem(SETS, 0, (composed, "f", "a"))
    monkeypatch.setitem(SETS, 1, ("f", apart, "a"))
    result = found([(0, 1)], private=True)
    one, two = (result[n][0, 1] for n in (0, 1))
    assert [text.replace(apart, composed) for text in two] == one == ["a", "f", composed]


@pytest.mark.parametrize(
    ("liar", "kind", "payload", "words"),
    [
        (1, "ids 1", ("a", "b", "a"), "3 identifiers of which 2 differ"),
        (1, "ids 1", ("a", 7), "not a list of texts"),
        (1, "ids 1", "abc", "not a list of texts"),
        (1, "ids 1 common", np.ones(3, bool), "4 truth values"),
        (1, "ids 1 common", np.ones(4, bool), "1 identifiers are common which party 0 does not"),
        (0, "ids 1 held", np.ones(4), "answered party 1 with float64"),
        (0, "ids 1 held", "yes", "4 truth values"),
    ],
)
def test_a_member_that_lies_is_refused(liar, kind, payload, words):
    parties = {n: Member(n, [(0, 1)], private=False) for n in (0, 1)}
    send, broadcast = parties[liar].send, parties[liar].broadcast
    told = {kind: payload}
    parties[liar].send = lambda to, name, true: send(to, name, told.get(name, true))
    parties[liar].broadcast = lambda name, true, to: broadcast(name, told.get(name, true), to=to)
    with pytest.raises(DataError, match=words):
        Simulation(parties).run()
