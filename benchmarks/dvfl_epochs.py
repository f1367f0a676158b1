"""Costs of an epoch to a guest, a host and the owner of DVFL, beside split learning (app. F.3).

    python benchmarks/dvfl_epochs.py

Seconds of one processor for an epoch of MNIST's 60,000 rows in batches of 64, from the median batch
of 60, all sides in turns. Writes benchmarks/results/dvfl/epochs.json.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from securevfl.data import load_dataset
from securevfl.engine.network import SERVER
from securevfl.machine import commit, describe_machine
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.threads import one_thread

RESULTS = Path(__file__).parent / "results" / "dvfl" / "epochs.json"
BATCH, ROWS, TURNS = 64, 60_000, 60
GUEST_EPOCHS, SPLIT_EPOCHS = 20, 60  # the paper's
SIZES = {"batch": BATCH, "width": 40, "hidden": 128}
PAPER = {
    "dvfl": {"guest forward": 2.144, "guest waits": 0.0, "guest backward": 0.650,
             "host forward": 1.748, "host backward": 0.806, "guest process": 55.883},
    "dvfl, simclr": {"guest forward": 4.872, "guest waits": 0.0, "guest backward": 10.488,
                     "host forward": 4.657, "host backward": 20.778, "guest process": 305.596},
    "split": {"guest forward": 1.830, "guest waits": 2.180, "guest backward": 0.001,
              "host forward": 0.982, "host backward": 0.274, "guest process": 80.220},
}  # fmt: skip


def make(protocol: str, data: Any, **options: Any) -> Any:
    cls = get_protocol(protocol)
    return cls(make_config(cls, SIZES | options), data, seed=0)


def encoders(made: Any, rows: np.ndarray) -> dict[str, Callable[[], Any]]:
    """Functions to time for DVFL's guest and host; a training step includes its forward pass."""
    guest = made.party(0).network
    host = made.party(made.hosts[0]).network
    joint = np.tile(guest.encode(rows), (1, made.data.parties))
    stream = np.random.Generator(np.random.Philox(0))
    return {
        "guest forward": lambda: guest.encode(rows),
        "guest step": lambda: guest.train(rows, stream),
        "host forward": lambda: host.encode(joint),
        "host step": lambda: host.train(joint, stream),
    }


def splits(made: Any, rows: np.ndarray) -> dict[str, Callable[[], Any]]:
    client, centre = made.party(0).network, made.party(SERVER).centre
    joint = np.tile(client.forward(rows), (1, made.data.parties))
    gradient = np.full((BATCH, SIZES["width"]), 1e-4, np.float32)
    places, labels = np.arange(BATCH), made.data.train_labels

    def update() -> None:
        client.update(rows, gradient)

    return {
        "guest forward": lambda: client.forward(rows),
        "guest step": update,
        "host step": lambda: centre.step(joint, places, labels),
    }


def main() -> None:
    data = load_dataset("mnist", parties=4, strips="rows", test="published")
    rows = data.train[0][:BATCH]
    with one_thread():
        work = {
            "dvfl": encoders(make("dvfl", data, host_width=120, hosts=3), rows),
            "dvfl, simclr": encoders(
                make("dvfl", data, host_width=120, hosts=3, objective="simclr"), rows
            ),
            "split": splits(
                make("split", data, client="mlp", layers="40", aggregation="concat"), rows
            ),
        }
        spent: dict[str, dict[str, list[float]]] = {n: {k: [] for k in w} for n, w in work.items()}
        for turn in range(TURNS + 5):
            for name, steps in work.items():
                for what, step in steps.items():
                    start = time.process_time()
                    step()
                    if turn >= 5:
                        spent[name][what].append(time.process_time() - start)
    batches = ROWS / BATCH
    seconds = {
        name: {what: round(batches * median(times), 3) for what, times in steps.items()}
        for name, steps in spent.items()
    }
    for name, found in seconds.items():
        if name == "split":
            found["guest waits"] = found["host step"]
            epochs, each = SPLIT_EPOCHS, ("guest forward", "guest step", "guest waits")
        else:
            epochs, each = GUEST_EPOCHS, ("guest forward", "guest step")
        found["guest process"] = round(epochs * sum(found[what] for what in each), 1)
    content = {
        "seconds": seconds,
        "paper": PAPER,
        "options": SIZES,
        "epochs": [GUEST_EPOCHS, SPLIT_EPOCHS],
    }
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    machine = {"machine": describe_machine(), "commit": commit()}
    RESULTS.write_text(json.dumps(content | machine, indent=1) + "\n")
    print(seconds)


if __name__ == "__main__":
    main()
