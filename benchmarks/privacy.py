"""All attacks on all methods; one JSON file and one picture a data set.

    python benchmarks/privacy.py attacks --data NAME    all methods
    python benchmarks/privacy.py coded --data NAME      coded_split beside fedvs

Results are under benchmarks/results/privacy/; runs that are done are kept in runs/.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from compact import single

from securevfl.audit.attack_matrix.run import AttackSettings, attack_matrix, write_matrix
from securevfl.data import load_dataset
from securevfl.data.source import DataSource
from securevfl.protocols.base.registry import find_protocols

RESULTS = Path(__file__).parent / "results" / "privacy"

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


def attacks(name: str, seeds: int | None, *, coded: bool) -> None:
    """Run all attacks on all installed methods, and write the matrix and its picture.

    With `coded` the methods are fedvs, and coded_split in three variants.
    """
    given = MATRICES[name]
    data = given.get("data", {})
    rounds = given["options"]["rounds"] * load_dataset(name, **data).parties
    changed = {"vafl": f"vafl:rounds={rounds}"}
    rate = f"client_lr={CODED_RATES[name]}"
    ours = [f"coded_split:{rate}", f"coded_split:{rate},segments=1"]
    ours.append(f"coded_split:{rate},segments=1,release=true")
    methods = ("fedvs", *dict.fromkeys(ours)) if coded else METHODS
    there = [m for m in methods if m.partition(":")[0] in find_protocols()]
    path = RESULTS / f"attacks-{'coded-' * coded}{name}.json"
    matrix = attack_matrix(
        [changed.get(m, m) for m in there],
        DataSource(name, data),
        options=given["options"],
        seeds=range(seeds or given["seeds"]),
        conditions="paper",
        sealed=False,
        settings=AttackSettings(rows=given.get("rows"), **(FEW if coded else {})),
        folder=Path("runs") / f"attacks-{'coded-' * coded}{name}",
        progress=lambda done, total, what: print(f"{done}/{total} {what}", flush=True),
    )
    write_matrix(matrix, path)
    single(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["attacks", "coded"])
    parser.add_argument("--seeds", type=int)
    parser.add_argument("--data", choices=list(MATRICES), default="digits")
    given = parser.parse_args()
    attacks(given.data, given.seeds, coded=given.what == "coded")


if __name__ == "__main__":
    main()
