"""Lies at the covert level of secagg_split, and honest runs in which nobody is named."""

import functools
from typing import ClassVar

import numpy as np
import pytest

from securevfl.active import history
from securevfl.active.judge import LieFoundError, TwoStories, judge
from securevfl.active.signing import new_start
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.network import SERVER
from securevfl.errors import PrivacyError, RunError
from securevfl.protocols.secagg_split import covert
from securevfl.protocols.secagg_split.algorithm import Client, Server
from securevfl.runs.assembly import rules_of
from securevfl.testing.runs import make, simulate
from securevfl.verified import Secret, bare_of
from securevfl.verified.values import public_element
from tests.lies.running import carry_out
from tests.protocols.joint import data, slow

N, VICTIM = 9, 8
SMALL = {"rounds": 4, "batch": 20, "width": 2, "hidden": 3, "security": "covert"}
PATIENCE = 5.0
ALL, FIRST = tuple(range(N)), tuple(range(6))  # of three cohorts, and two of them


class Lies(Server):
    """Has the first rows summed twice, over whom it likes, with a gradient between or without."""

    found: dict
    whom: ClassVar[tuple[tuple[int, ...], ...]] = (ALL, FIRST)
    victim: ClassVar[int] = VICTIM
    waits = 0.0  # seconds, in which clients crash

    async def run(self):
        self.on("lacks", functools.partial(history.tell_missed, self))
        self.start = new_start(self)
        for round, survivors in enumerate(self.whom, 1):
            self.found[round] = await self.sum_of(round, survivors)
            if self.found[round] is None:
                break
            if round < len(self.whom):
                await self.sleep(self.waits)
                self.between()
        self.conclude()

    def between(self):
        pass

    def gradient(self, value):
        self.broadcast("summed", self.named_sum)
        shape = len(self.batches.samples(self.rows)), self.width
        gradient = Secret(np.full(shape, value, np.float32), None, SERVER, None)
        history.sign(self, self.rows, self.named_sum, gradient=gradient)

    async def sum_of(self, round, survivors):
        self.rows = self.batches.draw(1)
        self.announce(round, self.rows)
        keys = await self.collect("shared", timeout=PATIENCE)
        self.told = covert.before_upload(self.rows, tuple(keys))
        self.broadcast("sharers", tuple(keys), to=tuple(keys))
        uploads = await self.collect("embedding", timeout=PATIENCE)
        if len(uploads) < len(survivors):
            return None
        self.named_sum = covert.Summed(tuple(keys), survivors, self.life)
        self.broadcast("survivors", survivors, to=survivors)
        signatures = await self.collect("signature", senders=survivors, timeout=PATIENCE)
        self.broadcast("signatures", signatures, to=survivors)
        openings = await self.collect("opening", senders=survivors, timeout=PATIENCE)
        if len(openings) < self.public.threshold:
            return None
        return bare_of(self.unmask(keys, {n: uploads[n] for n in survivors}, openings))


def run(server, liars=None, *, outages=(), **options):
    """Parties and the error of a run; the server knows what all parties embed of the rows."""
    protocol = make("secagg_split", data(N), **SMALL | options)
    parties = protocol.parties()
    if server is not None:
        parties[SERVER].__class__ = server
        parties[SERVER].found = {}
    for n, liar in liars.items() if isinstance(liars, dict) else ():
        parties[n].__class__ = liar
    samples = protocol.layout.samples(protocol.layout.draw(1))
    parties[SERVER].truth = {n: bare_of(parties[n].quantised(samples)) for n in range(N)}
    faults = Faults(outages=outages).bind(protocol.roles(), 0, last=protocol.last_fault)
    how = {"faults": faults if outages else None, "rules": rules_of(protocol)}
    _, events, error = carry_out(parties, make_party=protocol.party, **how)
    return parties, events, error


def named(parties, error):
    if not isinstance(error, LieFoundError):
        return None
    keys = dict(bare_of(parties[0].sworn[1]))
    assert isinstance(error.evidence, TwoStories)
    assert judge(error.evidence, keys).party == error.party
    return error.party


def second_less_first(parties, whom):
    """Error of what the two sums tell of some clients' sum, in units of the last place; or None."""
    server = parties[SERVER]
    first, second = server.found.get(1), server.found.get(2)
    if first is None or second is None:
        return None
    field = server.field
    own = functools.reduce(field.add, (server.truth[n] for n in whom))
    off = field.subtract(field.subtract(first, second), own)
    return int(np.abs(field.signed(off)).max())


# -- 10: the same rows, less some ------------------------------------------------------------------


class NoLedger(Client):
    """A client that remembers no sum, as at the semi-honest level."""

    def is_new(self, rows, survivors):
        return True


class ZeroGradient(Lies):
    """Sends a gradient between that moves nothing."""

    def between(self):
        self.gradient(0.0)


class TinyGradient(Lies):
    """Sends a gradient between that moves models by a few units of the last place."""

    def between(self):
        self.gradient(2.0**-40)


@pytest.mark.parametrize("server", [Lies, ZeroGradient])
def test_the_same_rows_are_not_summed_again_less_a_cohort(server):
    rest = {*ALL} - {*FIRST}
    parties, events, error = run(server)
    assert second_less_first(parties, rest) is None
    assert error is None
    assert {e.party for e in events if e.name == "refused"} == {*FIRST}
    parties, *_ = run(server, dict.fromkeys(ALL, NoLedger))
    assert second_less_first(parties, rest) == 0


def test_after_a_small_gradient_the_sum_of_a_cohort_is_told_and_of_no_client():
    parties, *_ = run(TinyGradient, optimizer="sgd")
    assert second_less_first(parties, {*ALL} - {*FIRST}) < 2**8
    assert len({*ALL} - {*FIRST}) >= parties[0].public.privacy + 2


def test_without_cohorts_no_client_is_left_out():
    server = type("LessOne", (Lies,), {"whom": (ALL, ALL[:-1])})
    parties, _, error = run(server, cohorts=0, quorum=N)
    assert parties[SERVER].found.get(2) is None
    assert "Nothing was opened" in str(error)
    with pytest.raises(PrivacyError, match="cohorts = 0 would promise nothing"):
        run(None, cohorts=0)


# -- stories ---------------------------------------------------------------------------------------


class TwoGradients(Lies):
    """Sends one client another gradient than the rest, and sums all again."""

    whom = (ALL, ALL)

    def between(self):
        before, send = self.story, Server.broadcast
        rest = [n for n in self.peers if n != self.victim]
        for value, to in ((1.0, [self.victim]), (0.0, rest)):
            self.story = before
            self.broadcast = lambda kind, payload, _=None, to=to: send(self, kind, payload, to)
            self.gradient(value)
        del self.broadcast


def test_two_gradients_name_the_server_before_anything_else_is_uploaded():
    parties, _, error = run(TwoGradients)
    assert named(parties, error) == SERVER
    assert parties[SERVER].found.get(2) is None


class NamesFewer(Lies):
    """Says with dL/dH that the sum was over fewer clients, which alone step; and sums all again."""

    whom = (ALL, ALL)
    fewer: ClassVar[tuple[int, ...]] = (VICTIM,)

    def between(self):
        self.named_sum = covert.Summed(self.named_sum.sharers, self.fewer, self.life)
        self.gradient(1.0)


@pytest.mark.parametrize("fewer", [(VICTIM,), FIRST])
def test_no_gradient_is_taken_for_another_sum_than_was_named(fewer):
    """Else one client's step, and so its X X^T, is the difference of two sums under one story."""
    parties, _, error = run(type("Fewer", (NamesFewer,), {"fewer": fewer}))
    assert parties[SERVER].found.get(2) is None
    assert f"Dispute of {SERVER} and " in str(error)


ALL_DOWN = tuple(Outage(n, seconds=(0.2, 0.5)) for n in ALL)


@pytest.mark.parametrize(
    ("fewer", "options", "why"),
    [
        (FIRST, {}, "another sum than it told"),
        ((VICTIM, *range(100, 100 + N - 1)), {"cohorts": 0, "quorum": N}, "which are no clients"),
    ],
)
def test_who_was_down_takes_no_gradient_for_another_sum_than_was_named(fewer, options, why):
    """All crash once the sum is known. With numbers of nobody, one client stepped alone."""
    server = type("Fewer", (NamesFewer,), {"fewer": fewer, "waits": 2.0})
    parties, events, error = run(server, outages=ALL_DOWN, **options)
    assert {e.party for e in events if e.name == "up"} == {*ALL}
    assert parties[SERVER].found[1] is not None
    assert parties[SERVER].found.get(2) is None
    assert why in str(error)


class OtherRows(Lies):
    """Announces other rows to one client."""

    whom = (ALL,)

    def announce(self, round, payload):
        self.round = round
        self.engine.enter_round(self, round)
        other = self.batches.draw(2)
        for n in self.peers:
            self.send(n, ANNOUNCE, other if n == self.victim else payload)


def test_masks_of_clients_that_were_told_other_rows_do_not_cancel():
    """Else the next sum of one batch tells two embeddings of one client by their difference."""
    parties, *_ = run(OtherRows)
    server = parties[SERVER]
    total = server.found[1]
    field = server.field
    other = bare_of(parties[VICTIM].quantised(server.batches.samples(server.batches.draw(2))))
    own = functools.reduce(field.add, [*(server.truth[n] for n in ALL if n != VICTIM), other])
    assert not (total == own).any()
    honest, *_ = run(type("One", (Lies,), {"whom": (ALL,)}))
    assert (honest[SERVER].found[1] == functools.reduce(field.add, server.truth.values())).all()


class FalseHistory(Client):
    """Shows another history than it has."""

    def share(self, kind, shares):
        if kind == "deal" and self.round > 1:
            shares = [(one, Secret(bare_of(h) ^ 1, None, self.index, None)) for one, h in shares]
        super().share(kind, shares)

    def send(self, to, kind, payload, **how):
        if kind == "history":
            at, h, *rest = payload
            payload = at, Secret(bare_of(h) ^ 1, None, self.index, None), *rest
        super().send(to, kind, payload, **how)


def test_a_client_that_shows_a_false_history_names_nobody():
    _, _, error = run(None, {VICTIM: FalseHistory})
    assert type(error) is RunError
    assert f"and {VICTIM}: one of both errs" in str(error)


class Adds(Client):
    """Adds what it likes to its masked embedding."""

    def masked(self, *given):
        made = super().masked(*given)
        return made + public_element(np.ones(made.shape, self.field.dtype), self.field, None)


def test_a_wrong_upload_is_right_of_another_embedding_so_nobody_can_tell():
    """Why there is no level active: what it adds is in the sum, as if its data were others."""
    first = type("One", (Lies,), {"whom": (ALL,)})
    parties, events, error = run(first, {VICTIM: Adds})
    server, field = parties[SERVER], parties[SERVER].field
    truth = functools.reduce(field.add, server.truth.values())
    assert (field.subtract(server.found[1], truth) == 1).all()
    assert error is None
    assert not any(e.name == "refused" for e in events)


# -- honest runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("late", [(), (1,)])
def test_an_honest_run_has_the_numbers_of_a_semi_honest_one(late):
    how = SMALL | {"conditions": slow(*late, of=N)} if late else SMALL
    signed = simulate(
        "secagg_split", data(N), **how | {"security": "semi-honest", "consistency": True}
    )
    outcome = simulate("secagg_split", data(N), **how)
    assert outcome.losses == signed.losses
    stories = {bare_of(party.story[0]).tobytes() for party in outcome.parties.values()}
    assert len(stories) == 1


def test_a_client_that_was_down_takes_the_steps_that_it_missed():
    down = Faults(outages=(Outage(2, rounds=(2, 4)),))
    how = SMALL | {"rounds": 7, "share_timeout": 3.0, "result_timeout": 3.0}
    outcome = simulate("secagg_split", data(N), faults=down, seed=1, **how)
    columns = outcome.simulation.transcript.columns()
    assert 2 in columns["receiver"][columns["kind"] == "missed"].tolist()
    assert len(outcome.losses) == 7
    assert len({bare_of(party.story[0]).tobytes() for party in outcome.parties.values()}) == 1


def test_a_sum_that_was_named_and_came_to_no_step_is_of_the_same_clients_or_of_none():
    """Rows of it are left out of the next batch, where others are left."""
    rows = np.arange(6, dtype=np.uint32)
    sums = covert.noted((), rows[:3], ALL)
    assert covert.free(sums, rows).tolist() == [3, 4, 5]
    assert covert.free(sums, rows[:3]).tolist() == [0, 1, 2]
    assert covert.conflict(sums, rows, FIRST) == ALL
    assert covert.conflict(sums, rows, ALL[::-1]) == ()
    assert covert.conflict(sums, rows[3:], FIRST) == ()
    assert covert.noted(sums, rows[:3], ALL) == sums


def test_the_ledger_refuses_other_survivors_of_any_row_that_it_has():
    sums = covert.noted((), np.array([3, 1]), (0, 1, 2))
    sums = covert.noted(sums, np.array([5]), (0, 1, 3))
    for rows, survivors, found in (
        ([1, 9], (0, 1), (0, 1, 2)),
        ([5], (0, 1, 2), (0, 1, 3)),
        ([3, 1], (2, 1, 0), ()),  # the same sum
        ([9], (0, 1), ()),
    ):
        assert covert.conflict(sums, np.array(rows), survivors) == found
    assert covert.free(sums, np.array([1, 4, 5])).tolist() == [4]
    assert covert.free(sums, np.array([1, 5])).tolist() == [1, 5]
