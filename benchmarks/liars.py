"""Counts who is named, in many trials of each lie and in many honest runs.

Lies in a dealing or an upload are tried in the parts in which they live: a dealer, its holders and
the judge. Lies that need a run are tried in whole runs, as are honest runs with crashes, lost and
late messages. Counts are added to benchmarks/results/privacy/liars.json as they come.

    PYTHONPATH=. nice -n 19 python benchmarks/liars.py [--parts 1000] [--runs 20] [words of names]
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import securevfl.protocols.coded_split.covert as covert
import tests.active.test_fedvs as fedvs
import tests.active.test_lies_left as left
import tests.active.test_secagg_split as secagg
from securevfl.active.dealing import Form, fault, repetitions
from securevfl.active.judge import BadDealing, LieFoundError, TwoStories, judge
from securevfl.active.uploads import Upload, WrongUpload, encoded, evidence_of, label_of, text_of
from securevfl.data import load_dataset
from securevfl.engine.conditions import NONE
from securevfl.engine.conditions_file import load_conditions
from securevfl.engine.faults import Chain, Faults, Outage
from securevfl.engine.network import SERVER
from securevfl.errors import SecureVFLError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.lagrange import interpolation_matrix
from securevfl.testing.runs import simulate
from securevfl.verified import bare_of
from tests.active.signing import Signer
from tests.active.test_coded_split import (
    STORY,
    VICTIM,
    FalseEcho,
    Forks,
    ForksLate,
    LongPath,
    OffPolynomial,
    OtherPath,
    TwoRoots,
    TwoValues,
    Unsigned,
    Withholds,
    keys_of,
)
from tests.active.test_dealing import DEALER, Dealer, changed
from tests.active.test_uploads import LIAR, Wrong
from tests.lies.coded_split_holders import Skips
from tests.lies.coded_split_stage import play
from tests.lies.lie import Size
from tests.lies.stage import play as play_fedvs

RESULTS = Path(__file__).parent / "results" / "privacy" / "liars.json"
P31, P50 = 2**31 - 1, 2**50 - 2**14 + 1
Trial = Callable[[np.random.Generator, int], str]
NOBODY, LIAR_NAMED, HONEST_NAMED = "nobody is named", "the liar is named", "an honest one is named"


def said(found: Any, liar: int) -> str:
    """Outcome of a verdict."""
    if found is None:
        return NOBODY
    return LIAR_NAMED if found.party == liar else HONEST_NAMED


# -- parts -----------------------------------------------------------------------------------------


def dealer_of(constant: bool = False, m: int | None = None, p: int = P50, K: int = 1) -> Dealer:
    """A dealer to eight holders."""
    code = LagrangeCode(PrimeField(p), parties=8, segments=K, privacy=1)
    return Dealer(Form(code, (4, 3), m or repetitions(code), constant))


def off_polynomial(rng: np.random.Generator, number: int) -> str:
    """12, 21: shares of some holders are off the polynomial of the others."""
    dealer = DEALERS["plain"]
    places = rng.choice(8, rng.integers(1, 7), replace=False).tolist()
    shares, proofs = dealer.deal(changed(places), step=number)
    faults = dealer.faults(shares, proofs)
    found = [j for j, why in enumerate(faults) if why]
    if not found:
        return NOBODY
    j = found[0]
    return said(judge(BadDealing(dealer.form, j, shares[j], proofs[j]), dealer.keys), DEALER)


def not_constant(rng: np.random.Generator, number: int) -> str:
    """21: a model that differs between data points."""
    dealer = DEALERS["model"]
    data = np.repeat(rng.integers(0, P31, (1, 4, 3)).astype(np.uint64), 2, axis=0)
    data[1, rng.integers(4), rng.integers(3)] += 1
    shares, proofs = dealer.deal(data=data, step=number)
    j = int(rng.integers(8))
    return said(judge(BadDealing(dealer.form, j, shares[j], proofs[j]), dealer.keys), DEALER)


def two_dealings(rng: np.random.Generator, number: int) -> str:
    """15, 16, 22: two roots, or two c, of one step and start."""
    dealer = DEALERS["plain"]
    (_, ones), (_, others) = dealer.deal(step=number), dealer.deal(step=number)
    one, other = rng.integers(8, size=2)
    evidence = TwoStories(ones[one].statement, others[other].statement)
    return said(judge(evidence, dealer.keys), DEALER)


def framed(rng: np.random.Generator, number: int) -> str:
    """23: a holder alters its share, its proof, or whose it is, and complains of an honest dealer.

    Two statements of one dealing to two holders are tried as two stories, too.
    """
    dealer = DEALERS["plain"]
    shares, proofs = dealer.deal(step=number)
    j, other = rng.choice(8, 2, replace=False).tolist()
    own, share = proofs[j], shares[j].copy()
    share.flat[rng.integers(share.size)] ^= 1
    values, blind = own.values.copy(), own.blind.copy()
    values.flat[rng.integers(values.size)] ^= 1
    blind.flat[rng.integers(blind.size)] ^= 1
    path = list(own.path)
    path[rng.integers(len(path))] = bytes(rng.integers(0, 256, 32, np.uint8))
    tried = [
        BadDealing(dealer.form, j, share, own),
        BadDealing(dealer.form, j, shares[j], dataclasses.replace(own, values=values)),
        BadDealing(dealer.form, j, shares[j], dataclasses.replace(own, blind=blind)),
        BadDealing(dealer.form, j, shares[j], dataclasses.replace(own, path=tuple(path))),
        BadDealing(dealer.form, j, shares[j], dataclasses.replace(own, path=own.path[:-1])),
        BadDealing(dealer.form, j, shares[j], dataclasses.replace(own, nonce=bytes(32))),
        BadDealing(dealer.form, other, shares[j], own),
        BadDealing(dealer.form, j, shares[other], proofs[other]),
        TwoStories(own.statement, proofs[other].statement),
    ]
    verdicts = [judge(one, dealer.keys) for one in tried]
    return HONEST_NAMED if any(one is not None for one in verdicts) else NOBODY


def signed_uploads(rng: np.random.Generator, T: int, n: int, lie: Callable[..., None]) -> Any:
    """Uploads of n of 12 holders under one label, T of them liars, and the keys of all."""
    code = LagrangeCode(PrimeField(P31), parties=12, segments=1, privacy=T, degree=3)
    R, field = code.recovery_threshold(3), code.field
    nodes = [int(one) for one in rng.choice(P31, R, replace=False)]
    onto = interpolation_matrix(field, nodes, list(code.alphas))
    values = field.matmul(onto, field.random((R, 6)))
    liars = rng.choice(12, T, replace=False).tolist()
    lie(rng, code, values, liars)
    told, name, run = b"rows", b"set-up", b"run"
    chain = bytes(rng.integers(0, 256, 32, np.uint8))
    label = label_of(encoded(code), told, name, chain)
    signers = SIGNERS
    some = sorted(
        [*liars, *[j for j in rng.permutation(12).tolist() if j not in liars][: n - len(liars)]]
    )
    uploads = tuple(
        Upload(j, values[j], signers[j]._secret.sign(text_of(run, label, j, values[j])))
        for j in some
    )
    keys = {j: signer.public for j, signer in enumerate(signers)}

    def verdict(j: int) -> Any:
        return judge(WrongUpload(j, code, run, told, name, chain, uploads), keys)

    return liars, verdict


def noise(rng: np.random.Generator, code: Any, values: np.ndarray, liars: list[int]) -> None:
    """Random elements, in some or all places."""
    for j in liars:
        values[j, : rng.integers(1, 7)] = rng.integers(0, P31)


def agreed(rng: np.random.Generator, code: Any, values: np.ndarray, liars: list[int]) -> None:
    """Another polynomial, which agrees with the honest one at R - 1 honest holders."""
    field, R = code.field, code.recovery_threshold(3)
    honest = [j for j in rng.permutation(12).tolist() if j not in liars][: R - 1]
    nodes = [*(code.alphas[j] for j in honest), code.betas[0]]
    weights = interpolation_matrix(field, nodes, [code.alphas[j] for j in liars])[:, -1]
    shift = field.multiply(weights[:, None], field.random((1, 6)))
    values[liars] = field.add(values[liars], shift)


def wrong_uploads(T: int, lie: Callable[..., None], n: int) -> Trial:
    """24: T liars of n = R + 2T or more."""

    def trial(rng: np.random.Generator, number: int) -> str:
        liars, verdict = signed_uploads(rng, T, n, lie)
        found = {j for j in range(12) if verdict(j) is not None}
        if found - {*liars}:
            return HONEST_NAMED
        return LIAR_NAMED if found == {*liars} else NOBODY

    return trial


def tiny(m: int) -> Trial:
    """A difference of rank 1 at one holder, p = 31: how often m checks pass."""

    def trial(rng: np.random.Generator, number: int) -> str:
        dealer = DEALERS[f"tiny {m}"]
        shares, proofs = dealer.deal(changed([5]), step=number)
        why = fault(dealer.form, proofs[0].statement.subject, 5, shares[5], proofs[5])
        return "found" if why else "passes"

    return trial


# -- whole runs ------------------------------------------------------------------------------------


def ran(server: Any = None, liars: Any = None, liar: int = SERVER, **options: Any) -> Trial:
    """A whole run with a lie, and who is named."""

    def trial(rng: np.random.Generator, number: int) -> str:
        given = {"security": "covert", "degree": 1, "rounds": 3, "parties": 6, **options}
        size = Size(rows=8, batch=4, width=2, victims=1)
        played = play(size, server, liars=liars, seed=number, **given)
        if isinstance(played.error, LieFoundError):
            return said(judge(played.error.evidence, keys_of(played)), liar)
        if given["security"] == "active" and played.error is None and evidence_of(played.server):
            named = {judge(one, keys_of(played)).party for one in evidence_of(played.server)}
            corrected = [e.fields["clients"] for e in played.events if e.name == "corrected"]
            named |= {n for some in corrected for n in some}
            return HONEST_NAMED if named - {liar} else LIAR_NAMED if named else NOBODY
        return f"{NOBODY}: {type(played.error).__name__}"

    return trial


def of_fedvs(server: Any = None, liars: Any = None, **options: Any) -> Trial:
    """A whole run of fedvs at the level covert; a server that decodes a second sum notes it."""

    def trial(rng: np.random.Generator, number: int) -> str:
        given = {"security": "covert", "degree": 1, "rounds": 4, "hidden": 8, **options}
        size = Size(rows=8, batch=4, width=2, victims=1)
        played = play_fedvs(size, server, liars=liars, parties=8, seed=number, **given)
        if isinstance(played.error, LieFoundError):
            keys = dict(bare_of(played.judge.parties[0].sworn[1]))
            return said(judge(played.error.evidence, keys), SERVER)
        if getattr(played.server, "found", {}):
            return "a second sum"
        return f"{NOBODY}: {type(played.error).__name__}"

    return trial


def of_secagg(server: Any, **options: Any) -> Trial:
    """A whole run of secagg_split at the level covert, whose server sums rows twice."""

    def trial(rng: np.random.Generator, number: int) -> str:
        parties, _, error = secagg.run(server, width=1, batch=4, seed=number, **options)
        if parties[SERVER].found.get(2) is not None:
            return "a second sum"
        if isinstance(error, LieFoundError):
            return said(judge(error.evidence, dict(bare_of(parties[0].sworn[1]))), SERVER)
        return f"{NOBODY}: no second sum"

    return trial


LATE = load_conditions("paper", parties=6, batch_rows=10)
DIGITS = load_dataset("digits", parties=6).subset(40, 10)


def honest(method: str, level: str, **given: Any) -> Trial:
    """An honest run in which parties crash, and messages are lost or late."""

    def trial(rng: np.random.Generator, number: int) -> str:
        kind = number % 4
        some: tuple[Outage, ...] = ()
        chains = {}
        if kind in (0, 3):
            first = int(rng.integers(1, 6))
            whom = int(rng.choice([SERVER, *range(6)]))
            some = (Outage(whom, rounds=(first, first + int(rng.integers(1, 5)))),)
        if kind == 1:
            chains = {"link": Chain(float(rng.uniform(0.02, 0.15)), 0.8)}
        if kind == 2:
            chains = {"client": Chain(float(rng.uniform(0.02, 0.15)), 0.5)}
        if kind == 3:
            pair = tuple(int(one) for one in rng.choice(6, 2, replace=False))
            some = (*some, Outage(pair, rounds=(2, 8)))
        faults = Faults(chains, outages=some, first=2) if chains else Faults(outages=some)
        options = {"rounds": 7, "batch": 10, "width": 2, "hidden": 3}
        options |= {"security": level, **given}
        conditions = LATE if number % 2 else NONE
        try:
            found = simulate(
                method, DIGITS, faults=faults, seed=number, conditions=conditions, **options
            )
        except LieFoundError:
            return HONEST_NAMED
        except SecureVFLError as error:
            return f"{NOBODY}: {type(error).__name__}"
        if any(event.name == "corrected" for event in found.events):
            return HONEST_NAMED
        return f"{NOBODY}: all steps" if len(found.losses) == 7 else f"{NOBODY}: fewer steps"

    return trial


DEALERS = {
    "plain": dealer_of(),
    "model": dealer_of(constant=True, K=2),
    "tiny 1": dealer_of(m=1, p=31),
    "tiny 2": dealer_of(m=2, p=31),
}
ASKED = {"degree": 1, "sum_budget": 0.0}
CODED = {**ASKED, "ask_timeout": 1.5}
PATIENT = {"share_timeout": 5.0, "result_timeout": 5.0, "max_attempts": 30}
SHARED = {**PATIENT, **ASKED, "share_timeout": 1.0, "result_timeout": 1.0}
SIGNERS = [Signer(bytes([j + 1]) * 32) for j in range(12)]
PARTS: dict[str, Trial] = {
    "12, 21: shares off the polynomial": off_polynomial,
    "21: a model that is not constant": not_constant,
    "15, 16, 22: two dealings of one start": two_dealings,
    "17, 23: nine ways to frame an honest dealer": framed,
    "24: one liar of n = R + 2, noise": wrong_uploads(1, noise, 6),
    "24: one liar of n = R + 2, another polynomial": wrong_uploads(1, agreed, 6),
    "24: two liars of n = R + 4, noise": wrong_uploads(2, noise, 11),
    "24: two liars of n = R + 4, another polynomial": wrong_uploads(2, agreed, 11),
    "24: two liars of n = R + 3, another polynomial": wrong_uploads(2, agreed, 10),
    "soundness at p = 31, m = 1": tiny(1),
    "soundness at p = 31, m = 2": tiny(2),
}
RUNS: dict[str, Trial] = {
    "1: a run with two sets of sharers": of_fedvs(fedvs.TwoSums, cohorts=0),
    "3: a run with two gradients": of_fedvs(fedvs.TwoGradients, cohorts=0),
    "8: a run with a false history": of_fedvs(liars={fedvs.VICTIM: fedvs.FalseHistory}, cohorts=0),
    "fedvs: a run with a first gradient for one": of_fedvs(fedvs.FirstToOne, **SHARED, cohorts=0),
    "5: a run with sharers that cut a cohort": of_fedvs(left.Triples, **left.COHORTS),
    "7: a run with a resume that is claimed": of_fedvs(left.NextLife, **left.COHORTS),
    "9: a run with a gradient that never came": of_fedvs(
        liars={fedvs.VICTIM: left.NeverHeard}, result_timeout=3.0
    ),
    "fedvs: a run with a step over other sharers": of_fedvs(left.OtherSharers, **left.COHORTS),
    "secagg_split: a run with a step over other sharers": of_secagg(secagg.NamesFewer),
    "10: a run with the same rows less a cohort": of_secagg(secagg.Lies),
    "10: the same, after zeros": of_secagg(secagg.ZeroGradient),
    "10: a run of secagg_split with two gradients": of_secagg(secagg.TwoGradients),
    "12: a run with a step off the polynomial": ran(OffPolynomial),
    "15: a run with two stories": ran(Forks, rounds=STORY + 3, parties=8),
    "20: a run with two last steps": ran(ForksLate, secure=True, parties=8),
    "22: a run with two roots of an owner": ran(liars={1: TwoRoots}, liar=1),
    "16: a run with one root and two c": ran(TwoValues, rounds=STORY + 3),
    "17: a run with a path to another root": ran(OtherPath),
    "17: a run with a longer path": ran(LongPath),
    "18: a run with a step that is not signed": ran(Unsigned),
    "19: a run with a step that is withheld": ran(Withholds),
    "23: a run with a false echo": ran(liars={VICTIM: FalseEcho}, liar=VICTIM),
    "24: a run with a skipped step": ran(
        *(None, {LIAR: Skips}, LIAR), security="active", tolerate_corrupt=1
    ),
    "24: a run with a wrong upload a round": ran(
        *(None, {LIAR: Wrong}, LIAR), security="active", tolerate_corrupt=1
    ),
    "25: honest runs of coded_split, covert": honest("coded_split", "covert", **CODED),
    "25: honest runs of coded_split, active": honest("coded_split", "active", **CODED),
    "25: honest runs of fedvs, covert": honest("fedvs", "covert", **SHARED),
    "25: honest runs of fedvs, active": honest("fedvs", "active", **SHARED),
    "25: honest runs of secagg_split, covert": honest("secagg_split", "covert", **PATIENT),
}


def main() -> None:
    """Carry out trials, and add their counts: always of the lie that was tried least."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*")
    parser.add_argument("--parts", type=int, default=1000, help="trials of each in all")
    parser.add_argument("--runs", type=int, default=20, help="the same, in whole runs")
    given = parser.parse_args()
    covert.STORY = STORY
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    wanted = {name: (trial, given.parts) for name, trial in PARTS.items()}
    wanted |= {name: (trial, given.runs) for name, trial in RUNS.items()}
    words = given.words or [""]
    counts = {n: sum(known.get(n, {}).values()) for n in wanted if any(w in n for w in words)}
    while counts := {n: done for n, done in counts.items() if done < wanted[n][1]}:
        name = min(counts, key=lambda n: counts[n])
        number = counts[name]
        found = Counter(known.get(name, {}))
        found[wanted[name][0](np.random.default_rng(number), number)] += 1
        known[name], counts[name] = dict(sorted(found.items())), number + 1
        RESULTS.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
    for m in (1, 2):
        rates = known.get(f"soundness at p = 31, m = {m}")
        if rates:
            trials, stated = sum(rates.values()), ((2 * 31 - 1) / 31**2) ** m
            spread = 5 * math.sqrt(stated * (1 - stated) / trials)
            print(f"m = {m}: {rates.get('passes', 0) / trials:.5f}, stated {stated:.5f}", spread)


if __name__ == "__main__":
    main()
