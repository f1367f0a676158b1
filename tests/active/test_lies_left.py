"""Lies 5, 6, 7, 9 and 14 of docs/active.md in whole runs, with what they gain at the levels."""

import functools
import itertools
import operator
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import securevfl.active.dealt as dealt
import securevfl.protocols.coded_split.covert as covert
from securevfl.active import history as told_history
from securevfl.active.dealt import chained, no_chain
from securevfl.active.judge import LieFoundError
from securevfl.active.signing import new_start
from securevfl.engine.network import SERVER
from securevfl.errors import NotEnoughResultsError, ProtocolError, RunError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.protocols.fedvs.algorithm import Client
from securevfl.protocols.fedvs.history import TELLING
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.sums import SumLedger
from securevfl.verified import Secret, bare_of
from tests.active.relations import relations
from tests.active.test_coded_split import STORY, Forks, moved, named
from tests.active.test_coded_split import run as run_coded
from tests.active.test_fedvs import VICTIM, N, run
from tests.lies.stage import LyingServer, relative

COHORTS = {"cohorts": 2, "share_timeout": 3.0, "result_timeout": 3.0}
ONE, OTHER = (0, 1, 2, 3), (4, 5, 6, 7)


class Told(LyingServer):
    """A lying server whose signed history is in order: one story for all."""

    async def run(self):
        self.on("lacks", functools.partial(told_history.tell_missed, self))
        self.start = new_start(self)
        await self.lie()
        self.conclude()

    def named(self, sharers=None, **words):
        self.attempted = super().named(sharers, **words)
        return self.attempted

    def gradient(self, values, to=None):
        shape = (len(self.batch.rows) * self.public.code.segments, self.public.config.width)
        sent = np.broadcast_to(np.asarray(values, np.float32), shape).copy()
        sent = Secret(sent, None, SERVER, None)
        told_history.sign(self, self.batch, self.attempted, gradient=sent)

    async def uploads(self):
        every = await super().uploads()
        return {n: one[1] if isinstance(one, tuple) else one for n, one in every.items()}

    def sums(self, uploads):
        public = self.public
        if len(uploads) < public.results_needed:
            return None
        every = np.stack(list(uploads.values()))
        made = public.code.decode(every, tuple(uploads), degree=public.degree)
        bits = public.config.data_bits + public.config.model_bits
        return public.model_point.dequantize(made.reshape(-1, made.shape[-1]), bits=bits)


class Triples(Told):
    """5: names all but one client of a cohort, another one in each round."""

    whole: ClassVar[tuple[int, ...]] = OTHER

    async def lie(self):
        for left_out in self.whole:
            await self.ask(self.rows(), self.all_but(left_out))
            self.gradient(0.0)


@pytest.mark.parametrize("security", ["semi-honest", "covert"])
def test_sharers_that_cut_a_cohort_get_no_upload(security):
    played = run(Triples, security=security, **COHORTS)
    assert type(played.error) is ProtocolError
    assert played.judge.uploads == 0


class LessACohort(Told):
    """6: a gradient that moves models by some 2^-22, then the same rows less one cohort."""

    again: ClassVar[tuple[int, ...]] = ONE  # whose sum is asked for the second time

    def between(self):
        lr = self.public.config.client_lr or self.public.config.lr
        self.gradient(2.0**-22 / lr * 1e-8)  # Adam steps by lr g / (|g| + 1e-8)
        return {}

    async def lie(self):
        batch = self.rows()
        every = {n: self.judge.embedding(n, batch) for n in self.peers}
        first = self.sums(await self.ask(batch))
        second = self.sums(await self.ask(batch, self.again, **self.between()))
        if second is not None:
            left = first - second
            self.found["cohort"] = relative(left, sum(every[n] for n in self.all_but(*self.again)))
            self.found["one"] = min(relative(left, one) for one in every.values())


def test_a_tiny_gradient_and_then_less_a_cohort_tells_its_sum_and_no_clients():
    played = run(LessACohort, **COHORTS)
    assert played.error is None
    assert played.found["cohort"] < 1e-3
    assert played.found["one"] > 0.5


class NextLife(LessACohort):
    """7: says that it was resumed, and that it stepped, in the place of a gradient."""

    def between(self):
        self.gradient(0.0)
        return {"life": 1, "stepped": 1}


def test_a_resume_that_is_claimed_gives_no_second_sum_of_rows():
    played = run(NextLife, **COHORTS)
    assert "cohort" not in played.found
    assert {e.party for e in played.events if e.name == "refused"} == {*range(N)}
    assert not isinstance(played.error, LieFoundError)


class NeverHeard(Client):
    """9: says in each round that the gradient before never came, and shows an older history."""

    def step(self, round, batch, attempt, gradient):
        super().step(round, batch, attempt, gradient)
        self.newest, self.story = self.story, self.before

    async def catch_up(self):
        await super().catch_up()

    async def upload(self, batch, attempt):
        self.before = self.story
        await super().upload(batch, attempt)


def test_who_says_that_a_gradient_never_came_gets_no_upload_and_names_nobody():
    played = run(liars={VICTIM: NeverHeard}, result_timeout=3.0)
    assert type(played.error) is NotEnoughResultsError
    assert played.judge.uploads <= N + 1  # in the first round, and then the liar's own


class Settles(LessACohort):
    """Says, when all have crashed, that what they uploaded before is settled."""

    says: ClassVar[dict] = {"stepped": 1}

    async def ask(self, batch, sharers=None, **words):
        await self.sleep(1.0 if sharers else 0.0)
        return await super().ask(batch, sharers, **words)

    def between(self):
        return self.says


@pytest.mark.parametrize("says", [{"stepped": 1}, {"harmless": (1,)}])
def test_uploads_before_a_crash_are_not_settled_by_what_the_server_says(monkeypatch, says):
    """Else the same rows and models are summed again less a cohort, without any gradient."""
    server = type("Says", (Settles,), {"says": says})
    down = {"outages": [{"party": n, "seconds": [0.2, 0.5]} for n in range(N)], **COHORTS}
    played = run(server, **down)
    assert played.found == {}
    assert {e.party for e in played.events if e.name == "refused"} == {*range(N)}
    hears = SumLedger.hear_of_attempt
    monkeypatch.setattr(SumLedger, "hear_of_attempt", lambda own, said, **_: hears(own, said))
    assert run(server, **down).found["cohort"] < 1e-3


BITS = 8  # of digests here, so that 10 steps are what 254 are at 256 bits


# -- what a third reading found --------------------------------------------------------------------


class OtherSharers(Told):
    """Sends nobody dL/dH, and tells all who ask that the sum was over fewer: these alone step."""

    whom: ClassVar[tuple[int, ...]] = (VICTIM,)
    waits = 0.0  # seconds, in which clients crash
    told_as: int | None = None  # number of another round

    def broadcast(self, kind, payload, to=None):
        if kind != "gradient":
            super().broadcast(kind, payload, to)

    async def lie(self):
        batch, lr = self.rows(), self.public.config.lr
        first = self.sums(await self.ask(batch))
        gradient = np.zeros(first.shape)
        gradient[0, 0] = len(self.whom) / lr
        await self.sleep(self.waits)
        self.attempted = Attempt(self.whom)
        every = [self.judge.powers(n, batch) for n in self.whom]
        asked, self.round = self.round, self.round if self.told_as is None else self.told_as
        self.gradient(gradient)
        self.round = asked
        second = self.sums(await self.ask(batch))
        if second is not None:
            truth = sum(x @ x[0] for x in every)
            self.found["products"] = relative((first - second)[:, 0], truth)


@pytest.mark.parametrize("security", ["covert", "active"])
@pytest.mark.parametrize("whom", [(VICTIM,), ONE])
def test_who_asks_for_a_step_is_not_told_of_other_sharers_than_before(monkeypatch, whom, security):
    """Else all have one story, and two sums of the same rows tell X X^T of who alone stepped."""
    server = type("Server", (OtherSharers,), {"whom": whom})
    how = {**COHORTS, "optimizer": "sgd", "security": security}
    played = run(server, **how)
    assert isinstance(played.error, RunError)
    assert played.found == {}
    assert played.judge.uploads == N
    if security == "covert":
        monkeypatch.setattr(Client, "checked", lambda self, attempt: attempt)
        monkeypatch.setattr(told_history, "told_of_sum", lambda *_: None)
        assert run(server, **how).found["products"] < 1e-6


ALL_DOWN = [{"party": n, "seconds": [0.2, 0.5]} for n in range(N)]


def test_who_was_down_is_not_told_of_other_sharers_than_before(monkeypatch):
    """All crash once they have uploaded, and are told afterwards that one cohort stepped alone."""
    server = type("Server", (OtherSharers,), {"whom": ONE, "waits": 1.0})
    how = {**COHORTS, "optimizer": "sgd", "outages": ALL_DOWN}
    played = run(server, **how)
    assert "says of round 1 another sum" in str(played.error)
    assert played.found == {}
    assert played.judge.uploads == N
    with monkeypatch.context() as old:  # what a client was told is in no checkpoint
        nothing = {"attempted": told_history.NOTHING}
        old.setattr(told_history, "come_back", lambda client: vars(client).update(nothing))
        assert run(server, **how).found["products"] < 1e-6


class OldNumber(OtherSharers):
    """Tells of that step under a number of which nobody was told anything."""

    whom, told_as = ONE, 0

    async def lie(self):
        self.on("lacks", self.tell)
        await super().lie()

    def tell(self, message):
        columns = tuple([one[i] for one in self.log] for i in range(4))
        self.send(message.sender, "missed", columns, round=message.round)


def test_no_step_is_taken_under_the_number_of_a_round_that_is_over():
    played = run(OldNumber, **COHORTS, optimizer="sgd")
    assert "rounds in their order" in str(played.error)
    assert played.found == {}


def test_what_was_told_of_a_sum_holds_over_a_crash_and_not_in_a_run_that_went_back():
    nothing = told_history.NOTHING
    client = SimpleNamespace(
        index=VICTIM, telling=TELLING, attempted=nothing, round_before=3, round=4
    )
    told_history.note_sum(client, b"told")
    for client.round in (4, 3):  # of the checkpoint; what it was told is written ahead
        told_history.come_back(client)
        told_history.told_of_sum(client, 4, b"told")
        assert client.attempted == (4, 3, b"told")
    for refuses in (told_history.told_of_sum, lambda it, _, told: told_history.note_sum(it, told)):
        client.round = 4
        with pytest.raises(RunError, match=f"Dispute of {SERVER} and {VICTIM}"):
            refuses(client, 4, b"another")
    client.round = 2  # of an older checkpoint: the models of round 4 are made anew
    told_history.come_back(client)
    told_history.told_of_sum(client, 4, b"another")


def test_a_sum_that_is_made_again_in_another_life_is_the_same():
    rows = Batch("train", np.arange(3, dtype=np.uint32))
    first = Attempt((0, 1, 2), life=1, stepped=0, harmless=(1,))
    assert first.sum_of(2, rows) == Attempt((2, 1, 0), life=2, stepped=1).sum_of(2, rows)
    others = Batch("train", rows.rows + np.uint32(1))
    differ = (first, 3, rows), (first, 2, others), (Attempt((0, 1, 3)), 2, rows)
    assert len({one.sum_of(*about) for one, *about in differ} | {first.sum_of(2, rows)}) == 4


# -- parties that are put back ---------------------------------------------------------------------


class AsksAgain(Told):
    """Announces a round a second time, when some clients have crashed."""

    async def lie(self):
        await self.ask(self.rows())
        await self.sleep(1.0)
        self.round = 0
        self.found["again"] = len(await self.ask(self.rows()))
        self.round = 1


@pytest.mark.parametrize(("back", "again"), [((VICTIM,), 0), (tuple(range(N)), N)])
def test_who_is_put_back_uploads_again_only_where_all_sharers_are(monkeypatch, back, again):
    """Put back: what it wrote down of its uploads is lost, too. An honest sharer shares once."""
    monkeypatch.setattr(Client, "is_new", lambda self, life, told: True)
    monkeypatch.setattr(Client, "consistent", lambda self, batch, attempt: True)
    outages = [{"party": n, "seconds": [0.2, 0.5]} for n in back]
    played = run(AsksAgain, outages=outages, **COHORTS)
    assert played.error is None
    late = [e for e in played.events if e.name == "late" and e.fields["kind"] == "embedding"]
    assert played.found["again"] + len(late) == again


@pytest.mark.parametrize(
    ("N", "K", "R", "most"), [(8, 1, 5, 0), (28, 4, 21, 6), (28, 6, 25, 10), (10, 2, 7, 0)]
)
def test_so_many_that_count_in_both_of_two_stories_show_no_relation_of_both(N, K, R, most):
    """2R > N + T + 2(K - 1) + c, and for one more both stories show one."""
    u = R - K - 1
    assert N + 1 + 2 * (K - 1) + most < 2 * R
    for c in (most, most + 1):
        first = (N - 1 + c + 1) // 2  # of the N - 1 honest ones, c of whom upload to both
        one, other = tuple(range(1, 1 + first)), tuple(range(1 + first - c, N))
        assert len({*one} & {*other}) == c
        assert min(max(0, len(group) - u) for group in (one, other)) == (c > most)
        if N == 8:
            code = LagrangeCode(PrimeField(2**31 - 1), parties=N, segments=K, privacy=1, degree=1)
            found = [relations(code, (R - 1) // K, group) for group in (one, other)]
            assert min(found) == (c > most)


class XorForks(Forks):
    """14: ten steps of its own, in two stories whose digests, here of eight bits, have one XOR."""

    first = 1

    def deal(self):
        if not self.steps:
            return
        plain, other = ([one[0] for one in self.story_of([n] * 10)[1:]] for n in (0, 1))
        bits = [int((bare_of(a) ^ bare_of(b))[0]) for a, b in zip(plain, other, strict=True)]
        some = itertools.product((0, 1), repeat=10)
        choice = next(c for c in some if any(c) and xor(itertools.compress(bits, c)) == 0)
        stories = self.story_of([0] * 10), self.story_of(choice)
        for j in self.peers:
            rows = [(shares[j], *parts[j]) for _, shares, parts in stories[j not in self.half]]
            columns = [list(one) for one in zip(*rows, strict=True)]
            self.send(j, "missed", (1, *columns), round=1)
        self.steps = 11

    def story_of(self, choice):
        """The first step and ten more, each one of two: digest, shares and proofs of each."""
        own = self.log[0], moved(self.log[0], self.field)
        log, made, stories, chain = (own[0], *(own[n] for n in choice)), [], (), no_chain(self)
        for t in range(1, 12):
            self.steps, stories = t, (*stories, (self.start, chain))
            made.append(self.told(log[:t], stories))
            chain = chained(chain, made[-1][0])
        self.steps = 1
        return made

    async def sums(self):
        if not self.steps:
            return await super().sums()
        uploads = await self.collect("embedding", timeout=20.0)
        self.found["uploads"] = len(uploads)
        raise RunError("it has what it wanted")


def xor(numbers):
    return functools.reduce(operator.xor, numbers)


@pytest.mark.parametrize("by_xor", [True, False])
def test_two_stories_whose_digests_have_one_xor_name_the_server(monkeypatch, by_xor):
    """Where labels join digests by XOR, and only last steps are compared, all upload to both."""
    link = dealt._link

    def short(*given):
        return np.concatenate([link(*given)[:1], np.zeros(31, np.uint8)])

    monkeypatch.setattr(dealt, "_link", short)
    monkeypatch.setattr(covert, "STORY", STORY)
    if by_xor:
        monkeypatch.setattr(dealt, "_chained", lambda *some: np.bitwise_xor.reduce(some))
        monkeypatch.setattr(covert.History, "due", lambda history, last: 0)
        monkeypatch.setattr(covert, "is_compared", lambda step, last: step == last)
    played = run_coded(XorForks, rounds=14)
    if by_xor:
        assert played.found["uploads"] == 8
        holders = [played.judge.parties[j] for j in range(8)]
        assert len({bare_of(one.history.label(one.public)).tobytes() for one in holders}) == 1
    else:
        assert named(played) == SERVER
        assert not any(round == 12 for _, round in played.judge.plain)
