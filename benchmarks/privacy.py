"""Long measurements of the privacy verifiers; each writes one JSON file.

    python benchmarks/privacy.py rank        the rank distinguisher, 10,000 runs masked, plain
    python benchmarks/privacy.py alarms      false alarms of all tests over 1,000 clean suites
    python benchmarks/privacy.py shapes      all toy shapes, every coalition, exactly
    python benchmarks/privacy.py recovery    server with one client against real digits
    python benchmarks/privacy.py masked      a masked round against a plain one, real computing
    python benchmarks/privacy.py default    `securevfl verify fedvs` as it is typed, timed
    python benchmarks/privacy.py seed       rows from sums, over an epoch, secret seed known or not
    python benchmarks/privacy.py attacks    all attacks on all protocols; --data NAME, and a picture
    python benchmarks/privacy.py coded      the same on coded_split beside fedvs; --data NAME

Results are under benchmarks/results/privacy/. The games draw their bits and the runs their masks
from the operating system, so counts differ between repetitions; the stated probabilities do not.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from securevfl.audit.attack_matrix.matrix import Matrix
from securevfl.audit.attack_matrix.on_embeddings import solve_sums
from securevfl.audit.attack_matrix.run import AttackSettings, attack_matrix, write_matrix
from securevfl.audit.attack_matrix.setting import AttackCase
from securevfl.audit.attacks.outcome import Outcome
from securevfl.audit.games.on_runs import TESTS, Size, play_ranks
from securevfl.audit.proof.exhaustive import SmallInstance, exhaust, small_code, small_instances
from securevfl.audit.recorded_runs import RunFactory
from securevfl.audit.share_recovery import recover_by_server
from securevfl.bench.rounds import FIELDS, WARM_UP, Rounds, RoundSize, uniform
from securevfl.data import load_dataset
from securevfl.data.source import DataSource
from securevfl.engine.network import SERVER
from securevfl.engine.streams import Composed, SecretSeed
from securevfl.machine import commit, describe_machine
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import find_protocols, get_protocol, make_config
from securevfl.runs.threads import one_thread
from securevfl.studies.jobs import Job

P31 = 2**31 - 1
ROUNDS = 3  # of a timed block
RESULTS = Path(__file__).parent / "results" / "privacy"


def rank(count: int) -> dict[str, Any]:
    """Right guesses of the rank distinguisher against a fair coin's."""
    rows = []
    for masked, runs in ((True, count), (False, count // 10)):
        for who, clients in (("server", ()), ("server + T clients", (0,))):
            size = Size(1, 1, P31, {"masked": masked}, rounds=runs)
            start = time.perf_counter()
            played = play_ranks(get_protocol("fedvs"), size, "features", clients)
            half_width = 3.2905 * math.sqrt(runs) / 2  # 0.999 of a fair coin's counts
            rows.append(
                {
                    "masked": masked,
                    "who": who,
                    "runs": runs,
                    "right": played.right,
                    "chance": [round(runs / 2 - half_width), round(runs / 2 + half_width)],
                    "seconds": round(time.perf_counter() - start, 1),
                }
            )
            print(rows[-1], flush=True)
    return {"p": P31, "K": 1, "T": 1, "rows": 3, "h": 2, "attempts": 2, "games": rows}


def alarms(count: int) -> dict[str, Any]:
    """P-values of every test on masked runs: how many fall below each level."""
    size = Size(1, 1, P31, rounds=24)
    kept = RESULTS / "alarms.jsonl"  # suites so far, so that an interrupted run goes on
    RESULTS.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in kept.read_text().splitlines()] if kept.exists() else []
    start = time.perf_counter()
    while len(rows) < count:
        suite = {
            name: test(get_protocol("fedvs"), size, "features").p_value
            for name, test in TESTS.items()
        }
        rows.append(suite | {"seconds": time.perf_counter() - start})
        start = time.perf_counter()
        with kept.open("a") as file:
            file.write(json.dumps(rows[-1]) + "\n")
    kept.unlink()
    values = {name: [row[name] for row in rows] for name in TESTS}
    levels = (0.05, 0.01, 0.001, 1e-7)
    found = {
        name: {f"{level:g}": sum(p < level for p in ps) for level in levels}
        for name, ps in values.items()
    }
    allowed = {f"{level:g}": binomial_bound(count, level) for level in levels}
    return {
        "p": P31,
        "suites": count,
        "guesses_of_a_game": size.rounds,
        "below": found,
        "allowed": allowed,
        "allowed_means": "exceeded by a test that keeps its level with probability below 1e-6",
        "smallest": {name: min(ps) for name, ps in values.items()},
        "seconds": round(sum(row["seconds"] for row in rows)),
    }


def binomial_bound(count: int, level: float) -> int:
    """Smallest k with P(Bin(count, level) > k) < 1e-6."""
    from scipy.stats import binom

    return int(binom.isf(1e-6, count, level))


def shapes(_count: int) -> dict[str, Any]:
    """Masked shapes against all coalitions; the figures of plain evaluation."""
    rows = []
    for toy in small_instances(True, slow=True):
        C = tuple(range(toy.code.privacy))
        coalitions = {
            "server": Coalition(server=True),
            "T clients": Coalition(clients=C),
            "server + T clients": Coalition(server=True, clients=C),
            "T uploads": Coalition(uploads=C),
        }
        start = time.perf_counter()
        equal = {who: exhaust(toy, c).equal for who, c in coalitions.items()}
        seconds = round(time.perf_counter() - start, 2)
        row = {"toy": toy.describe(), "secrets": toy.secrets**toy.honest, "tapes": toy.tapes}
        rows.append({**row, "equal_histograms": equal, "seconds": seconds})
        print(rows[-1], flush=True)
    plain = []
    for p, honest, rounds in ((5, 3, 1), (5, 2, 1), (5, 1, 1), (7, 3, 1), (5, 3, 2)):
        toy = SmallInstance(small_code(p, 1, 1), masked=False, honest=honest, rounds=rounds)
        found = exhaust(toy, Coalition(server=True))
        row = {"p": p, "data_holders": honest, "rounds": rounds}
        plain.append({**row, "bits": found.bits, "largest_distance": found.distance})
        print(plain[-1], flush=True)
    return {"masked": rows, "plain_server_given_the_sums": plain}


def recovery(_count: int) -> dict[str, Any]:
    """Real digits, eight clients, trained by FedVS; client 0 and the server pool their views."""
    data = load_dataset("digits", parties=8)
    rows = []
    for masked in (False, True):
        for K in (1, 2):
            options = {
                "segments": K,
                "prime": P31,
                "data_bits": 8,
                "model_bits": 8,
                "weight_bound": 4.0,
                "degree": 1,
                "rounds": 4,
                "width": 64,
                "batch": len(data.train_labels),
                "masked": masked,
            }
            protocol = get_protocol("fedvs")
            made = protocol(make_config(protocol, options), data, seed=0)
            recorded = RunFactory(made).run()
            start = time.perf_counter()
            found = recover_by_server(recorded, (0,))
            rows.append(
                {
                    "masked": masked,
                    "K": K,
                    "rows": len(data.train_labels),
                    "honest_columns": int(sum(recorded.data[n].shape[2] for n in range(1, 8))),
                    "explained": found.has_solution,
                    "data_recovered": found.data,
                    "models_recovered": found.models,
                    "elements": found.elements,
                    "seconds": round(time.perf_counter() - start, 2),
                }
            )
            print(rows[-1], flush=True)
    return {"dataset": "digits", "p": P31, "T": 1, "rounds": 4, "h": 64, "attacks": rows}


# Every option goes to each protocol that has it. Rounds of VAFL are arrivals of single clients.
MATRICES: dict[str, dict[str, Any]] = {
    "digits": {
        "data": {"parties": 8},
        "options": {"rounds": 300, "batch": 128, "segments": 2, "degree": 2},
        "seeds": 3,
    },
    "handwritten": {
        "options": {"rounds": 400, "batch": 64, "segments": 1, "degree": 2, "lr": 0.003},
        "seeds": 5,
    },
    "credit-card": {
        "options": {
            "rounds": 600,
            "batch": 64,
            "segments": 2,
            "degree": 2,
            "lr": 0.001,
            "client_lr": 0.01,
        },
        "rows": 6000,
        "seeds": 3,
    },
}
METHODS = (
    "split",
    "split:client=mlp",
    "vafl",
    "wait_dp",
    "wait_dp:noise_on=gradients,centre=mlp",
    "wait_dp:noise_on=none,label_epsilon=1",
    "fedvs",
    "fedvs:masked=false",
    "he_split",
    "secagg_split",
    "multivfl",
    "cvfl",
    "dvfl",
    "fedonce",
    "vfb2",
    "vflhlp",
)
FEW = {"starts": 12, "games": 20}  # of attacks that take long, and which fail on shares
CODED_RATES = {"digits": 16, "credit-card": 1, "handwritten": 4}  # client_lr


def attacks(name: str, seeds: int, *, coded: bool = False, again: Sequence[str] = ()) -> None:
    """All attacks on all methods that are there; runs that are done are kept in runs/.

    Or on coded_split with one segment and as many as the others have, and with released models;
    then `again` names attacks on runs of their own, whose results replace those in the file.
    """
    given = MATRICES[name]
    data = given.get("data", {})
    rounds = given["options"]["rounds"] * load_dataset(name, **data).parties
    changed = {"vafl": f"vafl:rounds={rounds}"}
    rate = f"client_lr={CODED_RATES[name]}"
    ours = [f"coded_split:{rate}", f"coded_split:{rate},segments=1"]
    ours.append(f"coded_split:{rate},segments=1,release=true")
    methods = ("fedvs", *dict.fromkeys(ours)) if coded else METHODS
    methods = methods[1:] if again else methods
    there = [m for m in methods if m.partition(":")[0] in find_protocols()]
    path = RESULTS / f"attacks-{'coded-' * coded}{name}.json"
    matrix = attack_matrix(
        [changed.get(m, m) for m in there],
        DataSource(name, data),
        options={**given["options"], "rounds": 2} if again else given["options"],
        seeds=range(seeds or given["seeds"]),
        conditions="paper",
        sealed=False,
        settings=AttackSettings(rows=given.get("rows"), **(FEW if coded else {})),
        attacks=again or None,
        folder=Path("runs") / f"attacks-{'coded-' * coded}{'again-' * bool(again)}{name}",
        progress=lambda done, total, what: print(f"{done}/{total} {what}", flush=True),
    )
    if again:
        old = json.loads(path.read_text())
        made = f"{old['commit']}, again {commit()}"
        write_matrix(replaced(matrix, old), path, commit=made)
    else:
        write_matrix(matrix, path)


def replaced(new: Matrix, old: dict[str, Any]) -> Matrix:
    """A written matrix with the rows and cells of a new one in their places."""

    def put(kind: str, names: tuple[str, ...]) -> list[dict[str, Any]]:
        mine = {tuple(row[n] for n in names): row for row in getattr(new, kind)}
        return [mine.get(tuple(row[n] for n in names), row) for row in old[kind]]

    return replace(
        new,
        labels=tuple(old["labels"]),
        rows=put("rows", ("protocol", "attack", "seed")),
        cells=put("cells", ("protocol", "attack")),
        figures=old["figures"],
        settings=old["settings"],
    )


class _OwnEntropies(AttackCase):
    """A variant whose parties have entropy of their own, as on a cluster."""

    @functools.cached_property
    def own(self) -> Composed:
        return Composed.draw(SERVER, *range(self.data.parties))

    def protocol(self, data: Any = None, **options: Any) -> Protocol:
        made = super().protocol(data, **options)
        made.secrets = self.own
        return made


def seed(_count: int) -> dict[str, Any]:
    """FedVS by default, masked: all batches of its first epoch, and what a server solves for."""
    rows = []
    for name, parties in (("breast-cancer", 6), ("digits", 8), ("credit-card", 11)):
        job = Job(
            label=name,
            protocol="fedvs",
            options={},
            dataset=name,
            data={"parties": parties, "seed": 0},
            conditions="none",
            seed=0,
        )
        settings = AttackSettings(replayed=10**6)
        runs: dict[str, tuple[AttackCase, SecretSeed | None]] = {
            "secret seed known": (AttackCase(job, settings), None),
            "secret seed unknown": (AttackCase(job, settings), SecretSeed(1)),
            "own entropy, seed known": (_OwnEntropies(job, settings), SecretSeed(0)),
        }
        for who, (case, guessed) in runs.items():
            case.begin(who)
            start = time.perf_counter()
            with one_thread():
                found = solve_sums(case, guessed)
            assert isinstance(found, Outcome)
            measured = asdict(found) | {"seconds": round(time.perf_counter() - start, 1)}
            rows.append({"data": name, "columns": sum(case.data.widths), "who": who} | measured)
            print(rows[-1], flush=True)
    return {"h": 64, "degree": 2, "runs": rows}


def _timed(run: Rounds) -> tuple[float, float]:
    """Milliseconds of a round in a block, by the clock and of the processor."""
    started = time.process_time()
    wall = run.advance(ROUNDS)
    return 1e3 * wall / ROUNDS, 1e3 * (time.process_time() - started) / ROUNDS


def masked(blocks: int) -> dict[str, Any]:
    """Real computing time of a round with masks and without, in turns in one process.

    N = 28, K = 4, T = 1, b = 256, h = 64, 784 features, D = 1: fashion-mnist's, on 15,000 of its
    60,000 rows, so that both runs' shares fit in 4 GB; a round touches a batch of them only.
    """
    size = RoundSize(rows=15_000)
    data = uniform(size)
    results = []
    with one_thread():
        for field in FIELDS:
            options = {
                **field,
                "rounds": WARM_UP + blocks * ROUNDS + 1,
                "batch": size.batch,
                "width": size.width,
                "hidden": size.width,
                "degree": 1,
                "segments": size.segments,
                "privacy": size.privacy,
            }
            runs = [Rounds("fedvs", data, {**options, "masked": m}) for m in (True, False)]
            for run in runs:
                run.advance(WARM_UP)
            turns = [[_timed(run) for run in runs] for _ in range(blocks)]
            found = dict(field)
            for kind, place in (("wall", 0), ("cpu", 1)):
                for name, k in (("masked", 0), ("plain", 1)):
                    found[f"{name}_{kind}_ms"] = median(turn[k][place] for turn in turns)
                ratios = sorted(turn[0][place] / turn[1][place] for turn in turns)
                found |= {f"{kind}_ratio": median(ratios), f"{kind}_ratios": ratios}
            results.append(found)
            print({k: v for k, v in found.items() if not k.endswith("ratios")}, flush=True)
            del runs
    return {
        "size": {**asdict(size), "data": data.name},
        "blocks": blocks,
        "rounds_per_block": ROUNDS,
        "fields": results,
        "machine": describe_machine(),
    }


def default(count: int) -> dict[str, Any]:
    """The command as README's default is verified, from start to end, one repetition after another.

    CPU is that of all its processes.
    """
    runs = []
    for _ in range(count):
        begin, before = time.perf_counter(), os.times()
        command = [sys.executable, "-m", "securevfl", "verify", "fedvs", "--json"]
        told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        after = os.times()
        runs.append({
            "seconds": round(time.perf_counter() - begin, 1),
            "cpu_seconds": round(sum(after[2:4]) - sum(before[2:4]), 1),
            "settings": len(told["ran"]),
            "whole": told["whole"],
            "claims": [[c["who"], c["about"], c["verdict"]] for c in told["claims"]],
        })  # fmt: skip
    return {
        "runs": runs,
        "load": os.getloadavg()[0],
        "machine": describe_machine(),
        "commit": commit(),
    }


WORK = {
    "rank": rank,
    "alarms": alarms,
    "shapes": shapes,
    "recovery": recovery,
    "masked": masked,
    "seed": seed,
    "default": default,
}
COUNTS = {"rank": 10_000, "alarms": 1_000, "masked": 25, "default": 3}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=[*WORK, "attacks", "coded"])
    parser.add_argument("--count", type=int, help="runs, suites or seeds")
    parser.add_argument("--data", choices=list(MATRICES), default="digits")
    parser.add_argument("--again", nargs="+", default=[], help="attacks of `coded`, to be redone")
    given = parser.parse_args()
    if given.what in ("attacks", "coded"):
        coded = given.what == "coded"
        attacks(given.data, given.count or 0, coded=coded, again=given.again)
        return
    count = given.count or COUNTS.get(given.what, 0)
    result = {"what": given.what, "numpy": np.__version__, **WORK[given.what](count)}
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{given.what}.json"
    path.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
