"""Honest runs at the covert level: whatever crashes or is lost, nobody is named."""

import contextlib
import dataclasses
import itertools
import math
import pickle
import random

import pytest

import securevfl as svfl
import securevfl.protocols.coded_split.covert as covert
from securevfl.active import history
from securevfl.active.judge import LieFoundError, read_evidence
from securevfl.active.signing import exchange_keys, new_start
from securevfl.data import load_dataset
from securevfl.engine.conditions import NONE, Conditions, Delay
from securevfl.engine.faults import Chain, Faults, Outage
from securevfl.engine.network import SERVER
from securevfl.errors import RunError, SecureVFLError
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.algorithm import Owner
from securevfl.protocols.coded_split.server import Server
from securevfl.testing.runs import make, resume_from, simulate, states_at
from tests.lies.coded_split_stage import play
from tests.lies.lie import Size

STORY = 4
PARTIES = 5
DIGITS = load_dataset("digits", parties=PARTIES).subset(40, 10)
SMALL = {"rounds": 11, "batch": 10, "width": 3, "hidden": 4, "degree": 1, "ask_timeout": 1.5}
SMALL |= {"sum_budget": 0.0, "security": "covert"}


@pytest.fixture(autouse=True)
def _compared_often(monkeypatch):
    monkeypatch.setattr(covert, "STORY", STORY)


OUTAGES = {
    "the server crashes": [Outage(SERVER, rounds=(3, 4))],
    "the server crashes twice": [Outage(SERVER, rounds=(2, 3)), Outage(SERVER, rounds=(7, 9))],
    "a holder crashes": [Outage(2, rounds=(3, 6))],
    "an owner is killed in set-up": [Outage(1, seconds=(0.0, 2.0))],
    "the server is killed in set-up": [Outage(SERVER, seconds=(0.0, 2.0))],
    "a holder never comes back": [Outage(4, rounds=(5, math.inf))],
    "a link is cut": [Outage((SERVER, 3), rounds=(2, 8))],
    "holders do not hear each other": [
        Outage((0, 3), rounds=(2, 7)),
        Outage((1, 3), rounds=(3, 9)),
    ],
}


@pytest.mark.parametrize("name", OUTAGES)
def test_outages_name_nobody_and_end_as_they_do_semi_honest(name):
    faults = Faults(outages=tuple(OUTAGES[name]))
    ended = []
    for options in (SMALL, SMALL | {"security": "semi-honest"}):
        try:
            outcome = simulate(CodedSplit, DIGITS, faults=faults, seed=1, **options)
            ended.append(sum(e.name == "round" for e in outcome.events))
        except LieFoundError:
            raise
        except SecureVFLError as error:
            ended.append(type(error))
    assert ended[0] == ended[1]


def test_a_server_that_was_killed_in_set_up_at_active_says_that_a_manifest_would_help():
    """A simulation kills nobody in set-up: the server begins it alone, as for the second time."""
    server = make(CodedSplit, DIGITS, security="active").parties()[SERVER]
    server.epoch = 1
    with pytest.raises(RunError, match=r"killed in set-up.* again; with a manifest"):
        exchange_keys(server, server=True).send(None)


@pytest.mark.parametrize("seed", range(12))
def test_lost_messages_and_crashes_name_nobody_and_all_steps_are_made(seed):
    lost = Faults({"link": Chain(0.1, 0.8)}, first=2)
    faults = lost if seed % 2 else Faults({"client": Chain(0.1, 0.5)}, first=1)
    outcome = simulate(CodedSplit, DIGITS, faults=faults, seed=seed, **SMALL)
    assert len(outcome.losses) == SMALL["rounds"]


def test_stories_that_are_lost_are_asked_for_again_and_the_run_goes_on():
    links = itertools.permutations(range(PARTIES), 2)
    faults = Faults(outages=tuple(Outage(two, rounds=(4, 6), one_way=True) for two in links))
    outcome = simulate(CodedSplit, DIGITS, faults=faults, seed=1, **SMALL)
    kinds = outcome.simulation.transcript.columns()["kind"].tolist()
    assert kinds.count("untold") > 0
    assert kinds.count("story") > 3 * PARTIES * (
        PARTIES - 1
    )  # those of steps 4, 8 and 11 once, and some again
    assert len(outcome.losses) == SMALL["rounds"]


@pytest.mark.parametrize(
    ("method", "security", "seed"),
    [("fedvs", "covert", 1), ("fedvs", "active", 2), ("secagg_split", "covert", 11)],
)
def test_all_crash_in_the_middle_of_rounds_and_name_nobody_and_make_all_steps(
    method, security, seed
):
    """Each at times of its own, twice: after it was told of a sum, or signed it, as at any time."""
    N, chance, outages = 9, random.Random(seed), []
    for party in (*range(N), SERVER):
        starts = chance.uniform(0.5, 2.0)
        for _ in range(2):
            ends = starts + chance.uniform(0.05, 1.0)
            outages.append(Outage(party, seconds=(starts, ends)))
            starts = ends + chance.uniform(0.5, 3.0)
    slow = Conditions(name="fixed", uploads=tuple(Delay(shift=0.1 + 0.02 * n) for n in range(N)))
    how = {"rounds": 6, "width": 2, "hidden": 3, "security": security, "max_attempts": 30}
    how |= {"batch": 10, "share_timeout": 1.0, "result_timeout": 1.0, "seed": seed}
    how |= {"degree": 1, "sum_budget": 0.0} if method == "fedvs" else {}
    digits = load_dataset("digits", parties=N).subset(40, 10)
    faults = Faults(outages=tuple(outages))
    outcome = simulate(method, digits, faults=faults, conditions=slow, **how)
    assert sum(e.name == "up" for e in outcome.events) > N
    assert len(outcome.losses) == how["rounds"]


class PutBack(Server):
    """A server whose folder is put back once, to the state after the third step."""

    older: tuple = ()

    def deal(self):
        state = self.steps, self.log, self.stories, self.chain
        if self.steps == 3:
            self.older = state
        super().deal()
        if self.steps == 5 and self.older != ():
            self.steps, self.log, self.stories, self.chain = self.older
            self.older, self.start, self.proved = (), new_start(self), ()
            for j in self.others:
                holder = self.judge.parties[j]
                holder.model, holder.told_stories = holder.before
                holder.uploaded = 3


class Remembers(Owner):
    """A holder that can be put back to the state after the third step."""

    def apply(self, step, share, digest):
        super().apply(step, share, digest)
        if self.model[1] == 3:
            self.before = self.model, self.told_stories


@pytest.mark.parametrize("some", [(), (0, 1, 2), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5)])
def test_a_folder_that_is_put_back_names_nobody(some):
    """With none, a few, or all of the holders, at the same time."""
    server = type("PutBack", (PutBack,), {"others": some})
    every = dict.fromkeys(range(6), Remembers)
    size = Size(rows=32, batch=16, width=3, victims=1)
    options = {"security": "covert", "rounds": 11, "degree": 1, "ask_timeout": 1.5}
    played = play(size, server, liars=every, parties=6, **options)
    assert not isinstance(played.error, LieFoundError)
    assert played.error is None or isinstance(played.error, SecureVFLError)


@pytest.mark.parametrize("method", ["fedvs", "secagg_split"])
@pytest.mark.parametrize("others", [(), (0, 1, 2), tuple(range(9))])
def test_a_folder_of_a_told_history_that_is_put_back_names_nobody(monkeypatch, method, others):
    """The server, and none, a few or all clients with it, forget the third round, their life too.

    So there are two stories of one life and round, of two starts.
    """
    sign, hear, older, put_back = history.sign, history.hear, [], []

    def signs(server, *announced, gradient):
        sign(server, *announced, gradient=gradient)
        if server.round == 2:
            older.append((server.story, server.log, server.steps, server.round))
        if server.round == 3 and len(older) == 1:
            server.story, server.log, server.steps, server.round = older[0]
            server.start = new_start(server)
            older.append(())

    def hears(client, round, *announced, payload):
        before = client.story, client.attempted, getattr(client, "answered", None)
        found = hear(client, round, *announced, payload=payload)
        if round == 3 and client.index in others and client.index not in put_back:
            client.story, client.attempted, client.answered = before
            put_back.append(client.index)
        return found

    monkeypatch.setattr(history, "sign", signs)
    monkeypatch.setattr(history, "hear", hears)
    how = {"rounds": 5, "batch": 10, "width": 2, "hidden": 3, "security": "covert", "seed": 1}
    how |= {"share_timeout": 3.0, "result_timeout": 3.0}
    how |= {"degree": 1, "sum_budget": 0.0} if method == "fedvs" else {}
    digits = load_dataset("digits", parties=9).subset(40, 10)
    with contextlib.suppress(SecureVFLError):
        try:
            simulate(method, digits, conditions=NONE, **how)
        except LieFoundError as found:
            raise AssertionError(str(found)) from found
    assert len(older) == 2


def test_a_run_that_is_resumed_at_any_time_ends_as_if_it_had_not_been():
    how = SMALL | {"seed": 3}
    whole = simulate(CodedSplit, DIGITS, **how)
    states = states_at(CodedSplit, DIGITS, [0, 30, 90], **how)
    for saved, events in states.values():
        found = resume_from(CodedSplit, DIGITS, saved, events, **how)
        assert found.losses == whole.losses


def test_the_evidence_of_a_lie_is_written_into_the_folder_of_the_run(tmp_path, monkeypatch):
    honest = Server.dealt

    def dealt(self, step):
        made = honest(self, step)
        shares = [one + one if j == 4 else one for j, one in enumerate(made.shares)]
        return dataclasses.replace(made, shares=shares)

    monkeypatch.setattr(Server, "dealt", dealt)
    with pytest.raises(LieFoundError, match=r"it is in .*evidence\.json") as found:
        svfl.run("coded_split", DIGITS, out=tmp_path / "run", conditions="none", **SMALL)
    path = tmp_path / "run" / "evidence.json"
    assert path.stat().st_mode & 0o77 == 0
    evidence = read_evidence(path)
    assert evidence.place == 4
    again = pickle.loads(pickle.dumps(found.value))  # noqa: S301
    assert (str(again), again.party) == (str(found.value), SERVER)
