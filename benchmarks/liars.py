"""Counts of named parties and of gains in many trials of each lie, and in honest runs.

A lie is a deviation of one party from a protocol. Numbers such as "12" are rows of the table of
lies in docs/active.md. Groups of trials:

- parts: lies in a dealing or an upload, tried on a dealer, its holders and the judge alone;
- after: lies of `liars_runs` in whole runs at the level of security that must stop them;
- before: the same lies at the semi-honest level;
- honest: runs without lies, in which parties crash and messages are lost or late.

Each trial adds a line to FILE.jsonl, and a stopped command continues from there. ``--count`` writes
the counts to benchmarks/results/privacy/liars.json.

    PYTHONPATH=. nice python benchmarks/liars.py FILE.jsonl [groups] [--trials 1000] [--count]
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import time
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import securevfl.protocols.coded_split.covert as covert
from benchmarks import liars_runs
from benchmarks.liars_runs import HONEST_NAMED, LIAR_NAMED, NOBODY, Trial, seed
from securevfl.active.dealing import Form, fault, repetitions
from securevfl.active.judge import BadDealing, TwoStories, judge
from securevfl.active.uploads import Upload, WrongUpload, encoded, label_of, text_of
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.lagrange import interpolation_matrix
from tests.active.signing import Signer
from tests.active.test_dealing import DEALER, Dealer, changed

RESULTS = Path(__file__).parent / "results" / "privacy" / "liars.json"
P31, P50 = 2**31 - 1, 2**50 - 2**14 + 1


def said(found: Any, liar: int) -> str:
    """Outcome of a verdict of the judge: nobody, the liar or an honest party is named."""
    if found is None:
        return NOBODY
    return LIAR_NAMED if found.party == liar else HONEST_NAMED


# -- parts -----------------------------------------------------------------------------------------


def dealer_of(constant: bool = False, m: int | None = None, p: int = P50, K: int = 1) -> Dealer:
    """Dealer of shares to eight holders, with T = 1; `constant` deals a model in place of data.

    `m` is the number of repetitions of the check, `p` the modulus, `K` the number of segments.
    """
    code = LagrangeCode(PrimeField(p), parties=8, segments=K, privacy=1)
    return Dealer(Form(code, (4, 3), m or repetitions(code), constant))


def off_polynomial(rng: np.random.Generator) -> str:
    """Lies 12, 21: shares of some holders are not on the polynomial of the others."""
    dealer = DEALERS["plain"]
    places = rng.choice(8, rng.integers(1, 7), replace=False).tolist()
    shares, proofs = dealer.deal(changed(places), step=seed(rng))
    faults = dealer.faults(shares, proofs)
    found = [j for j, why in enumerate(faults) if why]
    if not found:
        return NOBODY
    j = found[0]
    return said(judge(BadDealing(dealer.form, j, shares[j], proofs[j]), dealer.keys), DEALER)


def not_constant(rng: np.random.Generator) -> str:
    """Lie 21: a dealt model differs between data points."""
    dealer = DEALERS["model"]
    data = np.repeat(rng.integers(0, P31, (1, 4, 3)).astype(np.uint64), 2, axis=0)
    data[1, rng.integers(4), rng.integers(3)] += 1
    shares, proofs = dealer.deal(data=data, step=seed(rng))
    j = int(rng.integers(8))
    return said(judge(BadDealing(dealer.form, j, shares[j], proofs[j]), dealer.keys), DEALER)


def two_dealings(rng: np.random.Generator) -> str:
    """Lies 15, 16, 22: two dealings, of different roots or c, for one step and start."""
    dealer = DEALERS["plain"]
    step = seed(rng)
    (_, ones), (_, others) = dealer.deal(step=step), dealer.deal(step=step)
    one, other = rng.integers(8, size=2)
    evidence = TwoStories(ones[one].statement, others[other].statement)
    return said(judge(evidence, dealer.keys), DEALER)


def framed(rng: np.random.Generator) -> str:
    """Lie 23: a holder changes its share, its proof or its number, and accuses an honest dealer.

    Nine ways are tried; the last one presents an honest dealer's statements to two holders as two
    different stories. The outcome must be that nobody is named.
    """
    dealer = DEALERS["plain"]
    shares, proofs = dealer.deal(step=seed(rng))
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
    """Signed uploads of n of 12 holders under one label, with T liars, whose values `lie` changes.

    Returns the liars, and a function that returns the judge's verdict on an upload of holder j.
    """
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
    """Replace the first entries of each liar's upload, one to all, by a random element."""
    for j in liars:
        values[j, : rng.integers(1, 7)] = rng.integers(0, P31)


def agreed(rng: np.random.Generator, code: Any, values: np.ndarray, liars: list[int]) -> None:
    """Replace the liars' uploads by values of another polynomial of the same degree.

    It agrees with the honest one at R - 1 honest holders.
    """
    field, R = code.field, code.recovery_threshold(3)
    honest = [j for j in rng.permutation(12).tolist() if j not in liars][: R - 1]
    nodes = [*(code.alphas[j] for j in honest), code.betas[0]]
    weights = interpolation_matrix(field, nodes, [code.alphas[j] for j in liars])[:, -1]
    shift = field.multiply(weights[:, None], field.random((1, 6)))
    values[liars] = field.add(values[liars], shift)


def wrong_uploads(T: int, lie: Callable[..., None], n: int) -> Trial:
    """Trial of lie 24: T liars among n uploads; n = R + 2T are needed to name them."""

    def trial(rng: np.random.Generator) -> str:
        liars, verdict = signed_uploads(rng, T, n, lie)
        found = {j for j in range(12) if verdict(j) is not None}
        if found - {*liars}:
            return HONEST_NAMED
        return LIAR_NAMED if found == {*liars} else NOBODY

    return trial


def tiny(m: int) -> Trial:
    """Trial of soundness at p = 31: a share with an error of rank 1 against m checks.

    The outcome is "found" or "passes"; a check passes wrongly with probability about 1/p.
    """

    def trial(rng: np.random.Generator) -> str:
        dealer = DEALERS[f"tiny {m}"]
        shares, proofs = dealer.deal(changed([5]), step=seed(rng))
        why = fault(dealer.form, proofs[0].statement.subject, 5, shares[5], proofs[5])
        return "found" if why else "passes"

    return trial


DEALERS = {
    "plain": dealer_of(),
    "model": dealer_of(constant=True, K=2),
    "tiny 1": dealer_of(m=1, p=31),
    "tiny 2": dealer_of(m=2, p=31),
}
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
TRIALS: dict[str, dict[str, Trial]] = {
    "parts": PARTS,
    "after": liars_runs.AFTER,
    "before": liars_runs.BEFORE,
    "honest": liars_runs.HONEST,
}
SELDOM = 4  # trials of the others for one honest run, which costs the most


def number_of(known: Counter[tuple[str, str]], group: str, name: str) -> int:
    """Number of trials done, to compare with other trials; an honest run counts `SELDOM` times."""
    return known[group, name] * (SELDOM if group == "honest" else 1)


def try_all(path: Path, wanted: int, words: list[str]) -> None:
    """Add trials to the file, always the one with fewest, until all have `wanted`.

    `words` names the groups; by default all whole runs.
    """
    known: Counter[tuple[str, str]] = Counter()
    for line in path.read_text().splitlines() if path.exists() else ():
        one = json.loads(line)
        known[one["group"], one["name"]] += 1
    whole = ["after", "before", "honest"]
    every = [(group, name) for group in (words or whole) for name in TRIALS[group]]
    gc.freeze()
    with path.open("a") as lines:
        while (least := min(every, key=lambda it: number_of(known, *it))) and (
            number_of(known, *least) < wanted
        ):
            group, name = least
            number = known[least]
            rng = np.random.default_rng([zlib.crc32(f"{group} {name}".encode()), number])
            begin = time.process_time()
            outcome = TRIALS[group][name](rng)
            took = round(time.process_time() - begin, 3)
            line = {"group": group, "name": name, "number": number, "outcome": outcome, "cpu": took}
            lines.write(json.dumps(line) + "\n")
            lines.flush()
            known[least] += 1


def count(path: Path) -> None:
    """Write how often each outcome occurred, over as many trials of each lie as all have.

    Of errors that ended a run only the type is kept.
    """
    trials = [json.loads(line) for line in path.read_text().splitlines()]
    tried = Counter((one["group"], one["name"]) for one in trials if one["group"] != "honest")
    counts: dict[str, dict[str, Counter[str]]] = {}
    for one in trials:
        if one["group"] == "honest" or one["number"] < min(tried.values()):
            outcome = ": ".join(one["outcome"].split(": ")[:2])
            named = counts.setdefault(one["group"], {}).setdefault(one["name"], Counter())
            named[outcome] += 1
    found = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    found |= {
        group: {name: dict(sorted(each.items())) for name, each in names.items()}
        for group, names in counts.items()
    }
    RESULTS.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


def main() -> None:
    """Carry out trials, or count them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="one line a trial, to which trials are added")
    parser.add_argument("groups", nargs="*", help=f"some of {', '.join(TRIALS)}")
    parser.add_argument("--trials", type=int, default=1000, help="so many of each in all")
    parser.add_argument("--count", action="store_true", help="count them, and try none")
    given = parser.parse_args()
    covert.STORY = liars_runs.STORY
    if given.count:
        count(given.file)
    else:
        try_all(given.file, given.trials, given.groups)


if __name__ == "__main__":
    main()
