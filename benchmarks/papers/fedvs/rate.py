"""Theorem 5.4's rate: mean squared gradient norm of FedVS against its number of rounds R.

    python benchmarks/papers/fedvs/rate.py            three seeds, R up to 4096
    python benchmarks/papers/fedvs/rate.py --quick    one seed, R up to 1024

The theorem: with the learning rate proportional to 1/sqrt(R), the mean over the rounds of the
squared norm of the whole gradient, taken at the rounded client weights and on the rounded training
rows, is O(1/sqrt(R)): slope -1/2 or steeper on a log-log plot. Its Assumption 1 (the variance of
stochastic rounding is at most gamma^2 |W|^2) is false near 0: the variance of an entry is up to
4^-lw / 4 whatever the entry. So a floor is expected where lw is small; it is measured with few
bits.

The runs are split learning with plain SGD; but for `float` it computes on the data and weights that
FedVS rounds, so its history is FedVS's number for number. That is checked here too: one run of each
kind is repeated under masked FedVS, and the norms must be equal to the last bit.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data import load_dataset
from securevfl.data.dataset import VerticalDataset
from securevfl.engine.network import SERVER, Event
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.streams import keyed_stream
from securevfl.field import FixedPoint, PrimeField
from securevfl.machine import commit, describe_machine
from securevfl.models.polynomial_network import expand
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.studies.intervals import mean_interval

RESULTS = Path(__file__).parents[2] / "results" / "fedvs" / "rate"
P61 = 2**61 - 1
DATA_BITS = 20
STEP = 4.0  # learning rate times sqrt(R)
SAMPLES = 64  # rounds of a run in which the whole gradient is computed, spread evenly
RUNS: dict[str, int | None] = {"float": None, "lw = 24": 24, "lw = 5": 5, "lw = 3": 3, "lw = 2": 2}


class Watch:
    """Observer that computes the squared norm of the whole gradient after every `every`-th round.

    `bits` is lw, the precision of client weights; None computes without rounding.
    """

    def __init__(
        self, parties: Mapping[int, Any], data: VerticalDataset, bits: int | None, every: int
    ) -> None:
        self.parties = parties
        self.bits = bits
        self.every = every
        self.norms: list[float] = []
        self._done: Counter[int] = Counter()
        self._labels = data.train_labels
        rounded = FixedPoint(PrimeField(P61), bits=DATA_BITS)
        scale = 2.0**-DATA_BITS
        self._powers = [
            expand(x, self.parties[n].network.degree).astype(np.float64)
            for n, x in enumerate(data.train)
        ]
        if bits is not None:
            self._powers = [rounded.round(x) * scale for x in self._powers]

    def record(self, event: Event) -> None:
        """Do nothing: events are not needed."""

    def round_over(self, party: int, round: int, time: int, left: bool) -> None:
        """Compute the norm once the last client has stepped, at the weights of the next round."""
        self._done[round] += party != SERVER
        if self._done[round] == len(self._powers):
            del self._done[round]
            if round % self.every == 0:
                self.norms.append(self.squared_norm(round))

    def weights(self, round: int) -> list[np.ndarray]:
        """Weights W-tilde of every client, rounded stochastically to multiples of 2^-lw."""
        values = [self.parties[n].network.values for n in range(len(self._powers))]
        if self.bits is None:
            return [value.astype(np.float64) for value in values]
        point, scale = FixedPoint(PrimeField(P61), bits=self.bits), 2.0**-self.bits
        stream = keyed_stream(0, SERVER, "rate", round)
        return [point.round(value, rng=stream) * scale for value in values]

    def squared_norm(self, round: int) -> float:
        """Squared norm of the gradient, summed over the server's and all clients' weights."""
        import torch

        total = sum(x @ w for x, w in zip(self._powers, self.weights(round), strict=True))
        centre, N = self.parties[SERVER].centre, len(self._powers)
        H = torch.from_numpy((total / N).astype(np.float32)).requires_grad_()
        loss = torch.nn.functional.cross_entropy(centre.network(H), torch.tensor(self._labels))
        weights = list(centre.network.parameters())
        first, *rest = torch.autograd.grad(loss, [H, *weights])
        dH = first.numpy().astype(np.float64) / N
        clients = sum(float(np.sum((x.T @ dH) ** 2)) for x in self._powers)
        return clients + sum(float((g**2).sum()) for g in rest)


def measure(
    data: VerticalDataset, bits: int | None, rounds: int, seed: int, protocol: str = "split"
) -> float:
    """Mean squared gradient norm of one run."""
    options: dict[str, Any] = {
        "rounds": rounds,
        "optimizer": "sgd",
        "momentum": 0.0,
        "lr": STEP / np.sqrt(rounds),
        "batch": 32,
        "width": 64,
        "hidden": 64,
        "degree": 2,
    }
    if bits is not None:
        options |= {"segments": 1, "data_bits": DATA_BITS, "model_bits": bits}
        options |= {"quantized": True} if protocol == "split" else {"prime": P61}
    kind = get_protocol(protocol)
    made = kind(make_config(kind, options), data, seed=seed)
    parties = made.parties()
    watch = Watch(parties, data, bits, max(1, rounds // SAMPLES))
    Simulation(parties, seed=seed, observer=watch).run()
    return float(np.mean(watch.norms))


def slope(rounds: list[int], norms: list[float]) -> float:
    """Slope of a least-squares line through log norm against log R."""
    return float(np.polyfit(np.log(rounds), np.log(norms), 1)[0])


def study(data_dir: str | None, seeds: int, longest: int) -> dict[str, Any]:
    """Mean norms of all runs, with slopes; SystemExit if FedVS differs from split learning."""
    rounds = [2**k for k in range(8, longest.bit_length())]
    runs: dict[str, Any] = {}
    data = load_dataset("handwritten", data_dir=data_dir, seed=0)
    for bits in filter(None, RUNS.values()):
        if measure(data, bits, rounds[0], 0) != measure(data, bits, rounds[0], 0, "fedvs"):
            raise SystemExit(
                f"FedVS with {bits} bits differs from split learning with its rounding"
            )
    for label, bits in RUNS.items():
        per_seed = []
        for seed in range(seeds):
            data = load_dataset("handwritten", data_dir=data_dir, seed=seed)
            per_seed.append([measure(data, bits, R, seed) for R in rounds])
            print(label, "seed", seed, [f"{norm:.3g}" for norm in per_seed[-1]], flush=True)
        slopes = [slope(rounds, norms) for norms in per_seed]
        late = [slope(rounds[-3:], norms[-3:]) for norms in per_seed]
        runs[label] = {
            "model_bits": bits,
            "norms": per_seed,
            "slope": _interval(slopes),
            "slope_of_the_last_three": _interval(late),
        }
    return {
        "title": "Theorem 5.4: mean squared gradient norm, handwritten, 6 clients",
        "rounds": rounds,
        "step": f"learning rate {STEP}/sqrt(R), SGD",
        "runs": runs,
        "machine": describe_machine(),
        "commit": commit(),
    }


def _interval(values: list[float]) -> dict[str, Any]:
    mean, half = mean_interval(values)
    return {"mean": mean, "half_width_95": half if np.isfinite(half) else None}


def main() -> None:
    """Run the study and write rate.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data-dir")
    parser.add_argument("--out", type=Path, default=RESULTS)
    chosen = parser.parse_args()
    seeds, longest = (1, 1024) if chosen.quick else (3, 4096)
    content = study(chosen.data_dir, seeds, longest)
    chosen.out.mkdir(parents=True, exist_ok=True)
    (chosen.out / "rate.json").write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
