"""The attack on sums against real runs on Ray, where each party has entropy of its own.

A curious server writes down what its model is given in each round of FedVS by default: the decoded
mean, its rows, and the gradient that it computed. From that it solves for all clients' rows, over
the first epoch, as `python benchmarks/privacy.py seed` does in the simulation:

- "ray, seed taken for secret": clients' secret choices taken to follow from the run's seed, which
  the server knows;
- "ray, other secrets": from another secret seed, a guess like any other;
- "ray, entropies told": from the clients' true entropies, which they write down here for this
  control alone. It shows that the attack is alive on these very messages.

    SECUREVFL_DATA=FOLDER python benchmarks/curious_server.py [names of data sets]

Results go to benchmarks/results/privacy/seed-ray.json.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

import securevfl
from securevfl.audit.attack_matrix.on_embeddings import solve_sums
from securevfl.audit.attack_matrix.run import AttackSettings
from securevfl.audit.attack_matrix.setting import AttackCase
from securevfl.audit.attacks.outcome import Outcome
from securevfl.audit.attacks.sum_equations import Step
from securevfl.data.source import DataSource
from securevfl.engine.party import SERVER, Party
from securevfl.engine.streams import Composed, OwnEntropy, SecretSeed
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import find_protocols
from securevfl.protocols.fedvs.protocol import FedVS
from securevfl.runs.threads import one_thread
from securevfl.studies.jobs import Job

RESULTS = Path(__file__).parent / "results" / "privacy" / "seed-ray.json"
NOTES = "CURIOUS_NOTES"  # variable with the folder into which a party writes
PARTIES = {"breast-cancer": 6, "digits": 8, "credit-card": 11}


class CuriousFedVS(FedVS):
    """FedVS whose server writes down what it sees; clients their entropy, for the control."""

    name: ClassVar[str] = "curious_fedvs"

    def party(self, index: int) -> Party:
        """The party of FedVS, by its own secrets; it computes and sends what that one does."""
        made: Any = super().party(index)
        notes = Path(os.environ[NOTES]) / self.data.name
        notes.mkdir(exist_ok=True)
        if index == SERVER:
            _write_down(made.centre, notes)
        elif isinstance(self.secrets, OwnEntropy):
            (notes / f"entropy-{index}").write_bytes(self.secrets.entropy)
        found: Party = made
        return found


def _write_down(centre: Any, notes: Path) -> None:
    """Keep what a server model is given in each step, and the gradient that it gives."""
    step, steps = centre.step, iter(range(10**9))

    def watched(joint: np.ndarray, samples: np.ndarray, labels: np.ndarray) -> Any:
        given = np.array(joint), np.array(samples)
        found = step(joint, samples, labels)
        np.savez(notes / f"step-{next(steps):06}", H=given[0], rows=given[1], gradient=found[1])
        return found

    centre.step = watched


class OnRay(AttackCase):
    """An attack on what a curious server wrote down of a run on Ray."""

    notes: Path

    @functools.cached_property
    def opening(self) -> tuple[Protocol, tuple[Step, ...]]:  # type: ignore[override]
        """The protocol, and the steps of the first epoch."""
        steps = []
        for file in sorted(self.notes.glob("step-*.npz")):
            with np.load(file) as kept:
                steps.append(Step(kept["rows"], kept["H"], kept["gradient"]))
        return self.protocol(rounds=len(steps)), tuple(steps)

    @property
    def entropies(self) -> Composed:
        """The clients' entropies, and one that is nobody's for the server."""
        own = {n: (self.notes / f"entropy-{n}").read_bytes() for n in range(self.data.parties)}
        own[SERVER] = os.urandom(32)
        return Composed({n: OwnEntropy(n, entropy) for n, entropy in own.items()})


@contextmanager
def installed() -> Iterator[None]:
    """Let this process and all workers find the protocol by its name, by an entry point."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder) / "curious-0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: curious\nVersion: 0\n")
        entry = "[securevfl.protocols]\ncurious_fedvs = curious_server:CuriousFedVS\n"
        (package / "entry_points.txt").write_text(entry)
        known = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join([folder, str(here), str(here.parent), known])
        sys.path[:0] = [folder, str(here)]
        find_protocols.cache_clear()
        yield


def attack(name: str, notes: Path) -> list[dict[str, Any]]:
    """Run FedVS on Ray for an epoch, and attack what its server wrote down."""
    source = DataSource(name, {"parties": PARTIES[name], "seed": 0})
    job = Job(
        label=name,
        protocol="fedvs",
        options={},
        dataset=name,
        data=dict(source.options),
        conditions="none",
        seed=0,
    )
    case = OnRay(job, AttackSettings(replayed=10**6))
    case.notes = notes
    layout: Any = case.protocol()
    epoch = layout.train_layout().per_epoch
    begin = time.perf_counter()
    run = securevfl.run("curious_fedvs", source, rounds=epoch, engine="ray", eval_every=epoch)
    seconds = round(time.perf_counter() - begin, 1)
    used = {int(row["sharers"]) for row in run.history}
    assert used == {PARTIES[name]}, f"sums of {used} clients"
    assert len(run.history) == epoch
    rows = []
    for who, guessed in (
        ("ray, entropies told", case.entropies),
        ("ray, seed taken for secret", SecretSeed(0)),
        ("ray, other secrets", SecretSeed(1)),
    ):
        case.begin(who)
        start = time.perf_counter()
        with one_thread():
            found = solve_sums(case, guessed)
        assert isinstance(found, Outcome)
        taken = {"seconds": round(time.perf_counter() - start, 1), "run_seconds": seconds}
        head = {"data": name, "columns": sum(case.data.widths), "who": who}
        rows.append(head | asdict(found) | taken)
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    """Attack the data sets that are asked for, or all."""
    names = sys.argv[1:] or list(PARTIES)
    known = json.loads(RESULTS.read_text())["runs"] if RESULTS.exists() else []
    with installed(), tempfile.TemporaryDirectory() as folder:
        os.environ[NOTES] = folder
        for name in names:
            fresh = attack(name, Path(folder) / name)
            known = [row for row in known if row["data"] != name] + fresh
            what = {"what": "seed, on Ray", "numpy": np.__version__, "h": 64, "degree": 2}
            RESULTS.write_text(json.dumps(what | {"runs": known}, indent=1) + "\n")
    import ray

    ray.shutdown()


if __name__ == "__main__":
    main()
