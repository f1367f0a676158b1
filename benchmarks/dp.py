"""Differential privacy measured: what epsilon' = 5 amounts to, and accuracy against epsilon.

    python benchmarks/dp.py reading      epsilon' = 5 of one release, and of whole trainings
    python benchmarks/dp.py curve        wait_dp: noise on embeddings, on gradients, on labels
    python benchmarks/dp.py protocols    noise on the embeddings of every protocol that shows them
    python benchmarks/dp.py draw         the pictures and tables of both, from their JSON files

Results are under benchmarks/results/dp/. Rounds, batches, networks, learning rates, C = 1 and
delta = 1e-5 are ours. Noise is the operating system's, so repetitions differ a little. A finished
run is kept in a .jsonl file, so that an interrupted measurement goes on where it stopped.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data import load_dataset
from securevfl.engine.conditions import NONE
from securevfl.engine.party import SERVER
from securevfl.machine import describe_machine
from securevfl.models.split import Batches, measure
from securevfl.privacy.accountant import gaussian_epsilon, noise_multiplier
from securevfl.privacy.mechanisms import clip_gradient, clip_rows, release_rows
from securevfl.protocols.base.registry import find_protocols, get_protocol
from securevfl.testing.runs import simulate

RESULTS = Path(__file__).parent / "results" / "dp"
DELTA, CLIP = 1e-5, 1.0
OPTIONS = {"width": 64, "hidden": 128, "lr": 0.003, "client": "mlp"}
# Parties as in the FedVS paper (digits: ours).
SETS = {
    "digits": {"parties": 8, "rounds": 200, "batch": 64},
    "handwritten": {"parties": 6, "rounds": 300, "batch": 32},
    "credit-card": {"parties": 11, "rounds": 300, "batch": 256},
}
EPSILONS = {
    "embeddings": (0.5, 2.0, 5.0, 20.0, 50.0),
    "gradients": (0.05, 0.5, 2.0, 5.0, 20.0),
    "labels": (0.25, 0.5, 1.0, 2.0, 4.0),
}
GRADIENT_CLIP = 0.1


# -- epsilon' = 5 ------------------------------------------------------------------------------

# Training rows and batch of the paper's data sets (Parkinson 70/30, Handwritten 60/40, Caltech-7
# 80/20 of the rows; EMNIST balanced); it does not say how many epochs were run.
PAPER = {
    "Parkinson": (529, 16),
    "Credit Card": (24_000, 32),
    "FashionMNIST": (60_000, 256),
    "EMNIST": (112_800, 256),
    "Handwritten": (1_200, 32),
    "Caltech-7": (1_179, 8),
}
EPOCHS = (1, 10, 50, 100)


def sampled_epsilon(multiplier: float, rate: float, steps: int, *, method: str) -> float:
    """Epsilon of Gaussian releases of secret Poisson samples, under adding or removing a row.

    Only samples that the adversary does not know amplify privacy; batches that the parties draw
    publicly do not, and are `gaussian_epsilon`'s.
    """
    import dp_accounting
    from dp_accounting import pld, rdp

    accountant: Any = {"rdp": rdp.RdpAccountant, "pld": pld.PLDAccountant}[method]()
    sample = dp_accounting.PoissonSampledDpEvent(rate, dp_accounting.GaussianDpEvent(multiplier))
    accountant.compose(sample, steps)
    return float(accountant.get_epsilon(DELTA))


def reading() -> dict[str, Any]:
    """Total epsilon of a training under each reading of epsilon' = 5, by data set and epochs."""
    z = noise_multiplier(5.0, DELTA)
    rows = []
    for (name, (M, b)), epochs in itertools.product(PAPER.items(), EPOCHS):
        steps = epochs * (M // b)
        # Adding or removing a row moves a clipped row by C where replacing it moves it by 2C.
        sampled = {
            f"if_batches_were_secret_{method}": sampled_epsilon(2 * z, b / M, steps, method=method)
            for method in ("rdp", "pld")
        }
        rows.append(
            {
                "data": name,
                "rows": M,
                "batch": b,
                "epochs": epochs,
                "rounds": steps,
                "one_release": 5.0,
                "exact": gaussian_epsilon(z, epochs, DELTA),
                "rdp": sampled_epsilon(z, 1.0, epochs, method="rdp"),
                "pld": sampled_epsilon(z, 1.0, epochs, method="pld"),
                "added_up": 5.0 * epochs,
                **sampled,
                "through_weights": gaussian_epsilon(z, 1 + (steps - 1) * b, DELTA),
            }
        )
        print(rows[-1], flush=True)
    return {"epsilon": 5.0, "delta": DELTA, "noise_multiplier": z, "rows": rows}


# -- curves ------------------------------------------------------------------------------------


def split_runs(seeds: int) -> Iterator[dict[str, Any]]:
    """Settings of runs of wait_dp with each kind of noise, and of split without noise.

    Split also runs with untrained clients, for comparison.
    """
    for data, seed in itertools.product(SETS, range(seeds)):
        yield {"data": data, "seed": seed, "what": "no noise", "epsilon": None}
        yield {"data": data, "seed": seed, "what": "untrained clients", "epsilon": None}
        for what, epsilons in EPSILONS.items():
            for epsilon in epsilons:
                yield {"data": data, "seed": seed, "what": what, "epsilon": epsilon}


def split_run(data: str, seed: int, what: str, epsilon: float | None) -> dict[str, Any]:
    """Test measures of one such run, with ``total``, the epsilon of all its rounds."""
    options: dict[str, Any] = {}
    if what == "untrained clients":
        options = {"client_lr": 1e-12}
    elif what == "labels":
        options = {"noise_on": "none", "label_epsilon": epsilon}
    elif epsilon is not None:
        options = {"noise_on": what, "epsilon": epsilon, "gradient_clip": GRADIENT_CLIP}
    if epsilon is not None:
        options |= {"delta": DELTA, "clip": CLIP, "noise": "secure"}
    outcome = run("wait_dp" if epsilon is not None else "split", data, seed, **options)
    last = [event.fields for event in outcome.events if event.name == "round"][-1]
    total = last.get("epsilon_labels" if what == "labels" else "epsilon_total")
    return {"total": total, **tested(outcome)}


def run(protocol: Any, data: str, seed: int, **options: Any) -> Any:
    """Run of a protocol without delays, with the sizes of a data set."""
    said = SETS[data]
    dataset = load_dataset(data, parties=said["parties"], seed=seed)
    own = {"rounds": said["rounds"], "batch": said["batch"], **OPTIONS}
    cls = get_protocol(protocol) if isinstance(protocol, str) else protocol
    own = {name: value for name, value in own.items() if name in cls.Config.model_fields} | options
    return simulate(protocol, dataset, seed=seed, conditions=NONE, defaults={}, **own)


def tested(outcome: Any) -> dict[str, float]:
    """Measures on the test rows, in the clear and without noise."""
    data = outcome.protocol.data
    scores = outcome.protocol.scores(outcome.parties, data.test)
    return measure(data.task, scores, data.test_labels)


def showing() -> list[str]:
    """Names of protocols in which single embeddings are sent, without wait_dp, which adds noise."""
    data = load_dataset("digits", parties=8).subset(60, 20)
    found = []
    for name, cls in find_protocols().items():
        try:
            made = cls(cls.Config(), data, seed=0)
        except Exception as error:  # such as a package of an extra that is not installed
            print(f"{name} is left out: {error}")
            continue
        single = any(exposure.carries == "embedding" for exposure in made.exposures)
        if single and name != "wait_dp":
            found.append(name)
    return found


def noised(name: str, epsilon: float) -> Any:
    """Protocol class derived from `name`, whose clients clip each embedding and add noise to it.

    Clients train through the clipping as those of wait_dp do. ``released`` counts the releases of
    each row and client.
    """
    base = get_protocol(name)
    sigma = 2 * CLIP * noise_multiplier(epsilon, DELTA)

    def parties(self: Any) -> dict[int, Any]:
        made, self.released = base.parties(self), np.zeros((self.data.parties, self.data.rows), int)
        announced: dict[int, Any] = {}
        _listen(made[SERVER], announced)
        kinds = {exposure.kind for exposure in self.exposures if exposure.carries == "embedding"}
        for n in self.peers():
            _noise(self, made[n], kinds, announced, sigma)
        return made

    def embed(self: Any, client: Any, rows: np.ndarray) -> np.ndarray:
        return clip_rows(base.embed(self, client, rows), CLIP).astype(np.float32)

    attributes = {"parties": parties, "__doc__": f"{name} with noise.", "__module__": __name__}
    if hasattr(base, "embed"):
        attributes["embed"] = embed
    return type("Noised", (base,), attributes)


def _listen(server: Any, announced: dict[int, Any]) -> None:
    announce = server.announce

    def noting(round: int, payload: Any = None, to: Any = None) -> None:
        announced[round] = payload
        announce(round, payload, to)

    server.announce = noting


def _noise(
    made: Any, client: Any, kinds: set[str], announced: dict[int, Any], sigma: float
) -> None:
    send = client.send

    def sending(to: int, kind: str, payload: Any, **more: Any) -> None:
        if kind in kinds:
            named, values = made.shown(payload)
            rows = made.named_rows(announced[client.round] if named is None else named)
            made.released[client.index, rows[rows >= 0]] += 1
            noisy = release_rows(values, bound=CLIP, sigma=sigma)
            payload = noisy if named is None else (named, noisy)
        send(to, kind, payload, **more)

    client.send = sending
    network = client.network
    update = network.update

    def through(rows: np.ndarray, gradient: np.ndarray) -> Any:
        return update(rows, clip_gradient(network.forward(rows), gradient, CLIP))

    network.update = through


PROTOCOL_EPSILONS = (1.0, 5.0, 20.0, 50.0)
VARIANTS: dict[str, dict[str, Any]] = {
    "split, waiting": {"protocol": "split"},
    "split, ignoring": {"protocol": "split", "stragglers": "ignore"},
    "cvfl, 2 active": {"protocol": "cvfl", "active": 2},
}


def variants() -> dict[str, dict[str, Any]]:
    """Protocol and options of each run by name: `VARIANTS`, and other protocols of `showing`."""
    own = {options["protocol"] for options in VARIANTS.values()}
    rest = {name: {"protocol": name} for name in showing() if name not in own}
    return VARIANTS | rest


def protocol_runs(seeds: int) -> Iterator[dict[str, Any]]:
    for data, what in itertools.product(("digits", "handwritten"), variants()):
        for seed, epsilon in itertools.product(range(seeds), (None, *PROTOCOL_EPSILONS)):
            yield {"data": data, "seed": seed, "what": what, "epsilon": epsilon}


def protocol_run(data: str, seed: int, what: str, epsilon: float | None) -> dict[str, Any]:
    """Test measures of one run with noise, with ``total``, its epsilon.

    Epsilon is that of the row with most releases.
    """
    options = dict(variants()[what])
    name = options.pop("protocol")
    if name == "vafl":  # a round is one arrival: as many embeddings as the others send
        options["rounds"] = SETS[data]["rounds"] * SETS[data]["parties"]
    if name == "multivfl":  # a round is an epoch at every label owner, and it has noise of its own
        options["rounds"] = SETS[data]["rounds"] // _per_epoch(data)
        own = {"epsilon": epsilon, "delta": DELTA, "clip": CLIP, "noise": "secure"}
        outcome = run(name, data, seed, **options | (own if epsilon is not None else {}))
        last = [event.fields for event in outcome.events if event.name == "round"][-1]
        return {"total": last.get("epsilon_total"), "releases": None, **tested(outcome)}
    outcome = run(name if epsilon is None else noised(name, epsilon), data, seed, **options)
    if epsilon is None:
        return {"total": None, "releases": None, **tested(outcome)}
    most = int(outcome.protocol.released.max())
    total = gaussian_epsilon(noise_multiplier(epsilon, DELTA), most, DELTA)
    return {"total": total, "releases": most, **tested(outcome)}


def carried_out(
    kept: Path, wanted: Iterator[dict[str, Any]], one: Callable[..., dict[str, Any]]
) -> list[dict[str, Any]]:
    """Results of all wanted runs; the file `kept` has finished ones, and is deleted at the end."""
    kept.parent.mkdir(parents=True, exist_ok=True)
    lines = kept.read_text().splitlines() if kept.exists() else []
    done = {row["key"]: row for row in map(json.loads, lines)}
    rows = []
    for setting in wanted:
        key = json.dumps(setting)
        if key not in done:
            done[key] = {"key": key, **setting, **one(**setting)}
            with kept.open("a") as file:
                file.write(json.dumps(done[key]) + "\n")
            print(done[key], flush=True)
        rows.append({k: v for k, v in done[key].items() if k != "key"})
    kept.unlink(missing_ok=True)
    return rows


def measured(
    name: str, wanted: Iterator[dict[str, Any]], one: Callable[..., dict[str, Any]]
) -> dict[str, Any]:
    """Content of a file of results: all runs, and their common settings."""
    rows = carried_out(RESULTS / f"{name}.jsonl", wanted, one)
    return {
        "delta": DELTA,
        "clip": CLIP,
        "gradient_clip": GRADIENT_CLIP,
        "options": OPTIONS,
        "sets": SETS,
        "per_epoch": {name: _per_epoch(name) for name in SETS},
        "runs": rows,
        "machine": describe_machine(),
    }


def _per_epoch(data: str) -> int:
    """Number of rounds in an epoch, in which each row is released once."""
    rows = load_dataset(data, parties=SETS[data]["parties"]).rows
    stream = np.random.Generator(np.random.Philox(0))
    return Batches(rows, 1, SETS[data]["batch"], lambda *_: stream).per_epoch


# -- pictures ----------------------------------------------------------------------------------

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


def draw(name: str, title: str, path: Path) -> None:
    """Draw accuracy or AUC against epsilon of the whole training, a panel for each data set."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    runs = json.loads((RESULTS / f"{name}.json").read_text())["runs"]
    sets = list(dict.fromkeys(row["data"] for row in runs))
    figure = Figure(figsize=(4.3 * len(sets), 4.0), layout="constrained")
    FigureCanvasAgg(figure)
    colours: dict[str, str] = {}
    for panel, data in zip(figure.subplots(1, len(sets), squeeze=False)[0], sets, strict=True):
        own = [row for row in runs if row["data"] == data]
        # Where most rows are of one class, accuracy stays at their share long after all is lost.
        shown = "auc" if "auc" in own[0] else "accuracy"
        for what in dict.fromkeys(row["what"] for row in own):
            colour = colours.setdefault(what, COLOURS[len(colours) % len(COLOURS)])
            rows = [row for row in own if row["what"] == what]
            _line(panel, rows, shown, what, colour)
        where = "epsilon of all releases of a row"
        label = {"auc": "test AUC", "accuracy": "test accuracy"}[shown]
        panel.set(title=data, xscale="log", xlabel=where, ylabel=label)
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=5)
    figure.suptitle(title)
    figure.savefig(path, dpi=130)


def _line(panel: Any, rows: list[dict[str, Any]], shown: str, what: str, colour: str) -> None:
    """Draw the mean over seeds and their range; runs without noise are a horizontal line."""
    epsilons = sorted({row["epsilon"] for row in rows if row["epsilon"] is not None})
    means, lows, highs, totals = [], [], [], []
    for epsilon in epsilons:
        values = [row[shown] for row in rows if row["epsilon"] == epsilon]
        totals.append(np.mean([row["total"] for row in rows if row["epsilon"] == epsilon]))
        means.append(np.mean(values))
        lows.append(min(values))
        highs.append(max(values))
    plain = [row[shown] for row in rows if row["epsilon"] is None]
    if epsilons:
        panel.plot(totals, means, color=colour, marker="o", markersize=3, label=what)
        panel.fill_between(totals, lows, highs, color=colour, alpha=0.15, lw=0)
    if plain:
        style = ":" if epsilons or what == "untrained clients" else "--"
        label = None if epsilons else what
        panel.axhline(np.mean(plain), color=colour, linestyle=style, linewidth=1, label=label)


TITLES = {
    "curve": "wait_dp: what is noised",
    "protocols": "noise on embeddings, by protocol (dotted: without noise)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["reading", "curve", "protocols", "draw"])
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    if given.what == "draw":
        for name, title in TITLES.items():
            draw(name, title, RESULTS / f"{name}.png")
        return
    work: dict[str, Callable[[], dict[str, Any]]] = {
        "reading": reading,
        "curve": lambda: measured("curve", split_runs(given.seeds), split_run),
        "protocols": lambda: measured("protocols", protocol_runs(given.seeds), protocol_run),
    }
    result = {"what": given.what, **work[given.what]()}
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / f"{given.what}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
