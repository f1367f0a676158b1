"""Lies in whole runs of the smallest networks in which they exist; each trial has its own draws.

A trial draws who lies and who is lied to, the round, and all seeds. It returns its outcome as text.
`AFTER` has the lies at the level of security that must stop them, `BEFORE` the same at the
semi-honest level, to measure what they gain, and `HONEST` runs without lies, in which parties crash
and messages are lost or late. Numbers are rows of the table of lies in docs/active.md.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tests.active.test_coded_split as coded
import tests.active.test_fedvs as fedvs
import tests.active.test_lies_left as left
import tests.active.test_secagg_split as secagg
import tests.lies.coded_split_holders as holders
import tests.protocols.joint as joint
from securevfl.active.judge import LieFoundError, judge
from securevfl.active.uploads import evidence_of
from securevfl.data import load_dataset
from securevfl.engine.conditions import NONE
from securevfl.engine.conditions_file import load_conditions
from securevfl.engine.faults import Chain, Faults, Outage
from securevfl.engine.network import SERVER
from securevfl.errors import SecureVFLError
from securevfl.testing.runs import simulate
from securevfl.verified import bare_of
from tests.active.test_uploads import Wrong
from tests.lies import coded_split_server, fedvs_gradients, fedvs_sums
from tests.lies.coded_split_stage import play as play_coded
from tests.lies.lie import Size
from tests.lies.stage import play as play_fedvs

Trial = Callable[[np.random.Generator], str]
NOBODY, LIAR_NAMED, HONEST_NAMED = "nobody is named", "the liar is named", "an honest one is named"
GAINS, NOTHING = "gains", "gains nothing"
SIZE = Size(rows=8, batch=4, width=2, victims=1)
STORY = 2  # steps between two comparisons of these runs
secagg.data = functools.cache(joint.data)


def varied(kind: type, **what: Any) -> type:
    """Subclass of a liar with these class attributes, such as its victim and round."""
    return type(kind.__name__, (kind,), what)


def some(rng: np.random.Generator, whom: Any, count: int) -> tuple[int, ...]:
    """`count` random parties of `whom`, in ascending order."""
    return tuple(sorted(rng.choice([*whom], count, replace=False).tolist()))


def one(rng: np.random.Generator, whom: Any) -> int:
    """Random element of `whom`."""
    return some(rng, whom, 1)[0]


def seed(rng: np.random.Generator) -> int:
    """Random seed, 0 to 2^31 - 1."""
    return int(rng.integers(2**31))


def verdict(played: Any, liar: int, gained: bool) -> str:
    """Outcome of a run with a lie: `GAINS`, or who is named, by the error and the judge.

    `gained` tells whether the liar got what it must not get.
    """
    error = played.error
    if isinstance(error, LieFoundError):
        found = judge(error.evidence, coded.keys_of(played))
        if found is None or found.party != error.party or found.party != liar:
            return HONEST_NAMED
    if gained:
        return GAINS
    if isinstance(error, LieFoundError):
        return LIAR_NAMED
    named = {n for e in played.events if e.name == "corrected" for n in e.fields["clients"]}
    if played.server.public.active:
        keys, evidence = coded.keys_of(played), evidence_of(played.server)
        named |= {judge(each, keys).party for each in evidence}
    if named - {liar}:
        return HONEST_NAMED
    return LIAR_NAMED if named else f"{NOBODY}: {type(error).__name__}"


# -- coded_split -----------------------------------------------------------------------------------


def step_lie(kind: type, N: int = 4, rounds: int = 2) -> Trial:
    """Trial of a server that lies in a step to one holder, who must then not upload.

    The victim is none of the first T holders, because they compute their shares from a seed.
    """

    def trial(rng: np.random.Generator) -> str:
        victim, step = one(rng, range(1, N)), one(rng, range(1, rounds + 1))
        server = varied(kind, victim=victim, step=step)
        played = of_coded(rng, server, parties=N, rounds=rounds)
        used = {(j, r) for j, r in played.judge.plain if j == victim and step < r}
        return verdict(played, SERVER, bool(used))

    return trial


def of_coded(rng: np.random.Generator, server: Any = None, **options: Any) -> Any:
    """Run of coded_split, at the level covert by default."""
    return play_coded(
        SIZE, server, **{"security": "covert", "degree": 1, "seed": seed(rng)} | options
    )


class TwoValues(coded.TwoValues):
    """Server that sends one holder another c (check polynomials of a dealing), and ignores it."""

    async def sums(self) -> Any:
        """Sums decoded from the uploads of all holders but the victim."""
        others = [j for j in self.peers if j != self.victim]
        uploads = await self.collect("embedding", senders=others)
        shape = coded.shape_of(self.public, self.round)
        return coded.decode_sums(self, self.public, uploads, shape)[0]


def two_values(rng: np.random.Generator) -> str:
    """Lie 16: one holder gets another c, so its upload has another label and is in no sum."""
    victim, step = one(rng, range(5)), one(rng, range(1, 4))
    server = varied(TwoValues, victim=victim, step=step)
    return verdict(of_coded(rng, server, parties=5, rounds=4), SERVER, gained=False)


def forks(rng: np.random.Generator, late: bool, **options: Any) -> str:
    """Lies 15, 20: the server tells two halves of the holders different stories.

    `late` does so in the last step, before evaluation on shares. The gain is a second set of sums.
    """
    rounds = 2 if late else STORY + 2
    first = rounds if late else one(rng, (2, 3))
    server = varied(coded.Forks, told_first=some(rng, range(8), 4), first=first)
    played = of_coded(rng, server, parties=8, rounds=rounds, secure=late, **options)
    scored = late and any(bare_of(each) for each in played.server.test_scores)
    most = 2 * STORY if options.get("security") != "active" else 0
    return verdict(played, SERVER, scored or played.found.get("forked", 0) > most)


def owner_lie(rng: np.random.Generator, kind: str) -> str:
    """Lie 21: an owner deals one holder a share of `kind` that is not on the polynomial."""
    liar, victim = one(rng, range(4)), one(rng, range(4))
    with pytest.MonkeyPatch.context() as patch:
        coded.wrong(patch, kind)
        liars = {liar: varied(coded.Dealer, victim=victim)}
        played = of_coded(rng, liars=liars, parties=4)
    return verdict(played, liar, bool(played.judge.plain))


def set_up_lie(rng: np.random.Generator, kind: type) -> str:
    """Lies 22, 23: a lie in set-up, after which only parties that do not know of it may upload."""
    liar = one(rng, range(4))
    played = of_coded(rng, liars={liar: kind}, parties=4)
    return verdict(played, liar, bool({j for j, _ in played.judge.plain} - {liar}))


def upload_lie(rng: np.random.Generator, kind: type) -> str:
    """Lie 24: a holder uploads wrong values, which must be corrected in each such round."""
    liar, rounds = one(rng, range(6)), 2
    how = {"security": "active", "tolerate_corrupt": 1}
    played = of_coded(rng, liars={liar: kind}, parties=6, rounds=rounds, **how)
    wrong = rounds if kind is Wrong else rounds - 1
    corrected = sum(e.name == "corrected" for e in played.events)
    return verdict(played, liar, corrected != wrong)


def framed_owner(rng: np.random.Generator, kind: type) -> str:
    """Lie 21, semi-honest level: an honest holder of a wrong share is corrected like a liar."""
    liar, victim = some(rng, range(6), 2)
    liars = {liar: varied(kind, framed=victim)}
    how = {"security": "semi-honest", "tolerate_corrupt": 1}
    played = of_coded(rng, liars=liars, parties=6, rounds=2, **how)
    return verdict(played, liar, gained=False)


def colluders(rng: np.random.Generator) -> str:
    """Lie 24, semi-honest level: A + 1 holders agree on other values; an honest one is blamed."""
    order = rng.permutation(6).tolist()
    liar = varied(holders.Colluder, believed=tuple(order[2:5]))
    how = {"security": "semi-honest", "tolerate_corrupt": 1}
    played = of_coded(rng, liars=dict.fromkeys(order[:2], liar), parties=6, rounds=2, **how)
    named = {n for e in played.events if e.name == "corrected" for n in e.fields["clients"]}
    return HONEST_NAMED if named - {*order[:2]} else f"{NOBODY}: {type(played.error).__name__}"


def products(rng: np.random.Generator) -> str:
    """Lie 12, semi-honest level: the server reads inner products of a holder's shares."""
    server = varied(coded_split_server.OffPolynomial, to=some(rng, range(1, 8), 2))
    size, how = Size(rows=8, batch=8, width=4, victims=1), {"seed": seed(rng)}
    read, _ = coded_split_server.products_read(size.data(8), size, server, **how)
    return f"{GAINS}: {read:.0%}" if read else NOTHING


# -- fedvs -----------------------------------------------------------------------------------------


FEW = {"cohorts": 2, "share_timeout": 1.0, "result_timeout": 1.0}
HALVES = (tuple(range(3)), tuple(range(3, 6)))


def of_fedvs(rng: np.random.Generator, server: Any = None, **options: Any) -> Any:
    """Run of fedvs, at the level covert by default."""
    how = {"security": "covert", "degree": 1, "rounds": 3, "hidden": 8, "seed": seed(rng)}
    return play_fedvs(SIZE, server, parties=6, **how | {"cohorts": 0} | options)


def two_stories(rng: np.random.Generator, kind: type) -> str:
    """Lies 1, 3: the server tells parties different stories of a round; nobody may upload then."""
    round = one(rng, (1, 2))
    half = some(rng, range(6), 3)
    victim = one(rng, half)
    lied_to = (victim,) if kind is fedvs.TwoGradients else half
    server = varied(kind, victim=victim, lied_to=lied_to, round_of_lie=round)
    played = of_fedvs(rng, server)
    return verdict(played, SERVER, played.judge.uploads > round * 6)


def told(
    rng: np.random.Generator, kind: type, drawn: Callable[..., dict[str, Any]], **how: Any
) -> str:
    """Lies 5, 7 and others: one false story; a second sum or an upload of few clients is the gain.

    `drawn` draws the attributes of the lying server.
    """
    server = varied(kind, **drawn(rng))
    played = of_fedvs(rng, server, **FEW | how)
    found = {"cohort", "products"} & {*played.found}
    cut = kind is left.Triples and played.judge.uploads
    return verdict(played, SERVER, bool(found or cut))


def first_to_one(rng: np.random.Generator) -> str:
    """Lie of a server that sends the first gradient to a single client."""
    server = varied(fedvs.FirstToOne, victim=one(rng, range(6)))
    how = {"rounds": 2, "max_attempts": 3, "share_timeout": 1.0, "result_timeout": 1.0}
    played = of_fedvs(rng, server, **how)
    return verdict(played, SERVER, played.judge.uploads > 6)


def client_lie(rng: np.random.Generator, kind: type, **how: Any) -> str:
    """Lies 8, 9: a client shows another history than its own."""
    liar = one(rng, range(6))
    played = of_fedvs(rng, liars={liar: kind}, **how)
    return verdict(played, liar, played.judge.uploads > 7)  # of round 1, and its own


def dealing_lie(rng: np.random.Generator, kind: str, level: str) -> str:
    """Lie 21: one of six shares of data, or (level active) of a model, is not on the polynomial.

    It is none of the first K + T shares, because these define the polynomial.
    """
    liar, victim = one(rng, range(6)), one(rng, range(2, 6))
    with pytest.MonkeyPatch.context() as patch:
        fedvs.off_polynomial(patch, kind)
        liars = {liar: varied(fedvs.Dealer, victim=victim)}
        played = of_fedvs(rng, liars=liars, security=level, rounds=1)
    return verdict(played, liar, victim in {*played.judge.plain} - {liar})


def wrong_uploads(rng: np.random.Generator) -> str:
    """Lie 24: a client of fedvs uploads wrong values in each round."""
    liar = one(rng, range(6))
    how = {"security": "active", "tolerate_corrupt": 1, "rounds": 1}
    played = of_fedvs(rng, liars={liar: fedvs.WrongUploads}, **how)
    return verdict(played, liar, not any(e.name == "corrected" for e in played.events))


def embedding(rng: np.random.Generator, kind: type, **how: Any) -> str:
    """Lies 1, 6, 7, semi-honest level: the server computes one client's embedding."""
    server = varied(kind, victim=one(rng, range(3, 6)))
    return gain(of_fedvs(rng, server, security="semi-honest", **how))


def gradient(rng: np.random.Generator) -> str:
    """Lie 3, semi-honest level: the server computes X X^T of one client."""
    server = varied(fedvs_gradients.OneIsMoved, moved=(one(rng, range(6)),))
    return gain(of_fedvs(rng, server, security="semi-honest", optimizer="sgd"))


def gain(played: Any) -> str:
    """Outcome by the lying server's error: a power of ten, if below half of that of a guess."""
    error, guess = played.found.get("error"), played.found.get("guess", 1.0)
    if error is None or error > guess / 2:
        return NOTHING
    return f"{GAINS}: below 1e{int(np.ceil(np.log10(max(error, 1e-12))))}"


# -- secagg_split ----------------------------------------------------------------------------------


COHORTS = [(0, 1, 2), (3, 4, 5), (6, 7, 8)]


def two_cohorts(rng: np.random.Generator) -> tuple[int, ...]:
    """The six clients of two random cohorts."""
    return tuple(n for at in some(rng, range(3), 2) for n in COHORTS[at])


def of_secagg(
    rng: np.random.Generator, kind: type, liars: Any = None, **how: Any
) -> tuple[Any, ...]:
    """Parties at the end of a run of secagg_split with a lying server, and the outcome.

    A second sum of the same rows is a gain. The level is covert.
    """
    given = {"width": 1, "batch": 4, "seed": seed(rng), **how}
    parties, _, error = secagg.run(kind, liars, **given)
    second = parties[SERVER].found.get(2) is not None
    if isinstance(error, LieFoundError):
        found = judge(error.evidence, dict(bare_of(parties[0].sworn[1])))
        named = LIAR_NAMED if found is not None and found.party == SERVER else HONEST_NAMED
        return parties, GAINS if second else named
    return parties, GAINS if second else f"{NOBODY}: {type(error).__name__}"


def less_a_cohort(rng: np.random.Generator, kind: type, remembers: bool = True) -> str:
    """Lie 10: the server asks for a sum of the same rows without one cohort.

    With `remembers` False, clients keep no ledger, and the difference of the sums is the gain.
    """
    first = two_cohorts(rng)
    server = varied(kind, whom=(secagg.ALL, first))
    liars = None if remembers else dict.fromkeys(secagg.ALL, secagg.NoLedger)
    parties, found = of_secagg(rng, server, liars)
    if remembers:
        return found
    exact = secagg.second_less_first(parties, {*secagg.ALL} - {*first}) == 0
    return f"{GAINS}: exactly" if exact else NOTHING


def secagg_lie(rng: np.random.Generator, kind: type) -> str:
    """Lie of a server of secagg_split: two gradients, or a step over fewer clients than the sum."""
    victim = one(rng, range(9))
    fewer = (victim,) if rng.random() < 0.5 else two_cohorts(rng)
    return of_secagg(rng, varied(kind, victim=victim, fewer=fewer))[1]


# -- honest runs -----------------------------------------------------------------------------------


DIGITS = load_dataset("digits", parties=6).subset(40, 10)
LATE = load_conditions("paper", parties=6, batch_rows=10)
PATIENT = {"share_timeout": 1.0, "result_timeout": 1.0, "max_attempts": 30}
ASKED = {"degree": 1, "sum_budget": 0.0, "ask_timeout": 1.5}
TOLD = PATIENT | {"degree": 1, "sum_budget": 0.0}


def honest(method: str, level: str, rounds: int = 5, **given: Any) -> Trial:
    """Trial of an honest run with random crashes, and lost or late messages."""

    def trial(rng: np.random.Generator) -> str:
        options = {"rounds": rounds, "batch": 10, "width": 2, "hidden": 3, "seed": seed(rng)}
        options |= {"security": level, **given}
        faults, conditions = faults_of(rng, rounds), LATE if rng.random() < 0.5 else NONE
        try:
            found = simulate(method, DIGITS, faults=faults, conditions=conditions, **options)
        except LieFoundError:
            return HONEST_NAMED
        except SecureVFLError as error:
            return f"{NOBODY}: {type(error).__name__}: {error}"
        if any(event.name == "corrected" for event in found.events):
            return HONEST_NAMED
        return f"{NOBODY}: {'all' if len(found.losses) == rounds else 'fewer'} steps"

    return trial


def faults_of(rng: np.random.Generator, rounds: int) -> Faults:
    """Random faults: a crash, lossy links, failing clients, or a crash with a cut link."""
    kind = one(rng, range(4))
    if kind == 1:
        return Faults({"link": Chain(float(rng.uniform(0.02, 0.15)), 0.8)}, first=2)
    if kind == 2:
        return Faults({"client": Chain(float(rng.uniform(0.02, 0.15)), 0.5)}, first=2)
    first = one(rng, range(1, rounds))
    whom = one(rng, [SERVER, *range(6)])
    outages = (Outage(whom, rounds=(first, first + one(rng, range(1, rounds)))),)
    if kind == 3:
        outages = (*outages, Outage(some(rng, range(6), 2), rounds=(2, rounds + 1)))
    return Faults(outages=outages)


def of(function: Callable[..., str], *given: Any, **more: Any) -> Trial:
    """Trial that calls a function with the random generator and these arguments."""
    return lambda rng: function(rng, *given, **more)


AFTER: dict[str, Trial] = {
    "1 fedvs: two sets of sharers": of(two_stories, fedvs.TwoSums),
    "3 fedvs: two gradients": of(two_stories, fedvs.TwoGradients),
    "fedvs: two lives of one start": of(two_stories, fedvs.TwoLives),
    "fedvs: a first gradient to one": first_to_one,
    "5 fedvs: sharers that cut a cohort": of(
        told, left.Triples, lambda rng: {"whole": HALVES[one(rng, (0, 1))]}
    ),
    "7 fedvs: a resume that is claimed": of(
        told, left.NextLife, lambda rng: {"again": HALVES[one(rng, (0, 1))]}
    ),
    "fedvs: uploads before a crash called settled": of(
        *(told, left.Settles),
        lambda rng: {
            "again": HALVES[one(rng, (0, 1))],
            "says": [{"stepped": 1}, {"harmless": (1,)}][one(rng, (0, 1))],
        },
        outages=[{"party": n, "seconds": [0.2, 0.5]} for n in range(6)],
    ),
    "fedvs: a step over other sharers": of(
        *(told, left.OtherSharers),
        lambda rng: {
            "whom": HALVES[one(rng, (0, 1))] if rng.random() < 0.5 else (one(rng, range(6)),)
        },
        optimizer="sgd",
    ),
    "8 fedvs: a client's false history": of(client_lie, fedvs.FalseHistory),
    "9 fedvs: a gradient that never came": of(client_lie, left.NeverHeard, result_timeout=3.0),
    "21 fedvs: data off the polynomial": of(dealing_lie, "encoded", "covert"),
    "21 fedvs: a model off the polynomial": of(dealing_lie, "encoded_constant", "active"),
    "24 fedvs: wrong uploads": wrong_uploads,
    "secagg_split: a step over other sharers": of(secagg_lie, secagg.NamesFewer),
    "secagg_split: two gradients": of(secagg_lie, secagg.TwoGradients),
    "10 secagg_split: rows less a cohort": of(less_a_cohort, secagg.Lies),
    "10 secagg_split: the same, after zeros": of(less_a_cohort, secagg.ZeroGradient),
    "12 coded_split: a step off the polynomial": step_lie(coded.OffPolynomial),
    "15 coded_split: two stories, covert": of(forks, late=False),
    "15 coded_split: two stories, active": of(forks, late=False, security="active"),
    "16 coded_split: one root and two c": two_values,
    "17 coded_split: a path to another root": step_lie(coded.OtherPath),
    "17 coded_split: a longer path": step_lie(coded.LongPath),
    "17 coded_split: a shorter path": step_lie(coded.ShortPath),
    "18 coded_split: a step not signed": step_lie(coded.Unsigned),
    "19 coded_split: a step withheld": step_lie(coded.Withholds, N=5, rounds=3),
    "20 coded_split: two last steps": of(forks, late=True),
    "21 coded_split: data off the polynomial": of(owner_lie, "train-data"),
    "21 coded_split: a model off the polynomial": of(owner_lie, "model"),
    "22 coded_split: two roots of an owner": of(set_up_lie, coded.TwoRoots),
    "23 coded_split: a false echo": of(set_up_lie, coded.FalseEcho),
    "24 coded_split: a skipped step": of(upload_lie, holders.Skips),
    "24 coded_split: a wrong upload a round": of(upload_lie, Wrong),
}
BEFORE: dict[str, Trial] = {
    "1 fedvs: two sets of sharers": of(embedding, fedvs_sums.TwoSharers, rounds=1),
    "3 fedvs: two gradients": gradient,
    "6 fedvs: tiny gradient, then S less one": of(embedding, fedvs_sums.TinyGradient),
    "7 fedvs: a resume that is claimed": of(
        *(embedding, fedvs_sums.Crashed),
        outages=[{"party": n, "seconds": [0.2, 0.5]} for n in range(6)],
    ),
    "10 secagg_split: rows less a cohort": of(less_a_cohort, secagg.Lies, remembers=False),
    "12 coded_split: a step off the polynomial": products,
    "21 coded_split: data off the polynomial, A = 1": of(framed_owner, holders.OfData),
    "21 coded_split: a model off the polynomial, A = 1": of(framed_owner, holders.OfModel),
    "24 coded_split: A + 1 wrong uploads": colluders,
}
SLOWLY = PATIENT | {"share_timeout": 5.0, "result_timeout": 5.0}
HONEST: dict[str, Trial] = {
    "coded_split, covert": honest("coded_split", "covert", **ASKED),
    "coded_split, active": honest("coded_split", "active", **ASKED),
    "fedvs, covert": honest("fedvs", "covert", **TOLD),
    "fedvs, active": honest("fedvs", "active", rounds=3, **TOLD),
    "secagg_split, covert": honest("secagg_split", "covert", **SLOWLY),
}
