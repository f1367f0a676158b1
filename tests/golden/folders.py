"""Small run folders, as the present version writes them; later versions must read them.

``python -m tests.golden.folders`` wrote ``tests/vectors/run_folders/``, once, at version 0.1.0
before its modules were moved. Do not write them anew to make a test pass: a folder that can no
longer be read is a broken promise. A new format gets new folders beside these.

- ``fedvs``: finished and verified; coded, with secure inference;
- ``split``: finished, with exported models in ``models``;
- ``dvfl``: finished;
- ``fedvs-interrupted``, ``split-interrupted``: stopped in the middle, with their checkpoints;
- ``fedvs-keys-interrupted``: likewise, of the version in which masks follow from keys;
- ``study``: three jobs, with ``study.toml`` beside them;
- ``classifier``: a saved `FedVSClassifier`;
- ``expected.json``: what they must give.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

import securevfl as svfl

FOLDERS = Path(__file__).parents[1] / "vectors" / "run_folders"
COMMON = "--parties 4 --rounds 4 --batch 12 --set data.aligned=60 --seed 3"
SMALL = f"{COMMON} --width 3 --hidden 4"
RUNS = {
    "fedvs": f"run fedvs {SMALL} --secure",
    "split": f"run split {SMALL} --client mlp --optimizer sgd",
    "dvfl": f"run dvfl {COMMON} --width 3 --host-width 4 --hidden 4 --hosts 2 --guest-epochs 2 "
    "--host-epochs 2 --set interval=1.0",
}
STUDY = """title = "three jobs"
dataset = "digits"
conditions = "none"
seeds = [1]
baseline = "plain"
eval_every = 2
[data]
parties = 4
aligned = 60
[options]
rounds = 2
width = 3
hidden = 3
batch = 12
[runs.coded]
protocol = "fedvs"
segments = 1
[runs.plain]
protocol = "split"
[runs.slow]
protocol = "split"
conditions = "paper"
sealed = false
[runs.slow.faults]
tick = 1.0
outage = [{ party = 1, rounds = [1, 2] }]
"""


def call(*words: str) -> str:
    """Standard output of a command of the library."""
    command = [sys.executable, "-m", "securevfl", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr}")
    return done.stdout


def new_rows() -> np.ndarray:
    """Ten raw rows, to be predicted."""
    from sklearn.datasets import load_digits

    return np.asarray(load_digits().data[100:110])


def interrupt(name: str, like: str, looks: int) -> dict[str, Any]:
    """Leave a run in the middle; return what the unbroken run gave."""
    whole = svfl.load_run(like)
    left = iter(range(looks))
    plan, data = whole.plan, whole.plan.source or "digits"
    options = {**plan.options, **({"secure": False} if like == "fedvs" else {})}  # small shares
    unbroken = svfl.run(plan.protocol, data, seed=plan.seed, **options)
    try:
        svfl.run(
            plan.protocol,
            data,
            seed=plan.seed,
            out=Path(name),
            checkpoint_seconds=None,
            interrupted=lambda: next(left, None) is None,
            **options,
        )
    except svfl.Interrupted:
        return {"history": list(unbroken.history), "messages": len(unbroken.transcript)}
    raise RuntimeError(f"{name} was not interrupted")


def expected(name: str) -> dict[str, Any]:
    """What a finished run must give when it is read."""
    run = svfl.load_run(name)
    return {
        "history": list(run.history),
        "events": len(run.events),
        "messages": len(run.transcript),
        "bytes": run.transcript.bytes,
        "scores": run.scores(new_rows()).tolist(),
        "first messages": json.loads(call("trace", name, "--json", "--first", "5")),
    }


def write() -> None:
    """Write all folders."""
    shutil.rmtree(FOLDERS, ignore_errors=True)
    FOLDERS.mkdir(parents=True)
    os.chdir(FOLDERS)  # folders note where they were written, as they were named
    for name, command in RUNS.items():
        call(*command.split(), "--out", name, "--json")
    found = {name: expected(name) for name in RUNS}
    call("verify", "fedvs", "--json")
    call("export", "split")
    found["fedvs-interrupted"] = interrupt("fedvs-interrupted", "fedvs", 10)
    found["split-interrupted"] = interrupt("split-interrupted", "split", 10)
    Path("study.toml").write_text(STUDY)
    call("study", "study.toml", "--out", "study", "--json")
    found["study"] = {
        path.name: json.loads(path.read_text())["key"]
        for path in sorted(Path("study/jobs").glob("*.json"))
    }
    classifier = svfl.FedVSClassifier(parties=4, rounds=4, width=3, hidden=4, random_state=0)
    rows = new_rows()[:, :8]
    classifier.fit(np.repeat(rows, 3, axis=0), np.arange(30) % 3)
    classifier.save(Path("classifier"))
    found["classifier"] = {"probabilities": classifier.predict_proba(rows).tolist()}
    Path("expected.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    write()
