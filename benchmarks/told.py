"""Claims of methods' cards beside the results of built-in attacks: `told.py [SET ...]`.

Every method in which a party sees sums or embeddings runs at its default options. The attacks are
those of the matrix on features, in two groups: without other knowledge, and with known or other
rows. Each result is written to benchmarks/results/privacy/told.json, and a stopped command
continues. The data sets named on the command line are run, by default all.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

from sums import case, made_here, near_directions

import securevfl
from securevfl.audit.attack_matrix.registry import ATTACKS
from securevfl.audit.attack_matrix.setting import AttackCase
from securevfl.audit.attacks.outcome import NoView, Outcome, Result
from securevfl.errors import ConfigurationError
from securevfl.machine import commit, describe_machine
from securevfl.privacy.released_equations import independent_columns
from securevfl.runs.threads import one_thread
from securevfl.writing import write_durably

OUT = Path(__file__).parent / "results" / "privacy" / "told.json"
BUDGETS = OUT.with_name("budgets.json")
SETS = ("wine", "breast-cancer", "digits")
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "split": ("split", {}),
    "vafl": ("vafl", {}),
    "wait_dp": ("wait_dp", {}),
    "fedvs": ("fedvs", {}),
    "fedvs --paper": ("fedvs", {"paper": True}),
    "coded_split": ("coded_split", {}),
    "cvfl": ("cvfl", {}),
    "multivfl": ("multivfl", {}),
    "dvfl": ("dvfl", {}),
    "fedonce": ("fedonce", {}),
    "vfb2": ("vfb2", {}),
    "vflhlp": ("vflhlp", {}),
    "secagg_split": ("secagg_split", {}),
    "he_split": ("he_split", {}),
}
DIRECTIONS = "directions of whole batches"
ALONE = ("squares", "binary columns of sums", DIRECTIONS)
KNOWING = ("inner products and other rows", "completion of sums", "inversion", "inversion of sums")
ONCE = ("dvfl", "fedonce")  # representations are sent once
_EXACT_BITS = 20


def cell(data: str, method: str, seed: int) -> dict[str, Any]:
    """Result row of a method on a data set: claims about features, released sums, attacks."""
    name, options = METHODS[method]
    one, start = case(data, name, seed, **options), time.process_time()
    made = one.protocol()
    claims = [claim.to_dict() for claim in made.claims if claim.asset == "features"]
    found: dict[str, Any] = {"data": data, "method": method, "seed": seed, "claims": claims}
    found |= released(one)
    with one_thread():
        open_ = all(claim["notion"] == "none" for claim in claims)
        for attack in ALONE if open_ else (*ALONE, *KNOWING):  # where nothing is claimed, enough
            got = tried(attack, one)
            found[attack] = (
                {"success": got.success, "chance": got.chance, "of": got.metric, "note": got.note}
                if isinstance(got, Outcome)
                else {"success": None, "note": got.reason}
            )
    return found | {"seconds": round(time.process_time() - start, 1)}


def tried(name: str, one: AttackCase) -> Result:
    """Result of an attack; NoView if it raises ConfigurationError, or if no sums are decoded."""
    one.begin(name)
    try:
        if name != DIRECTIONS:
            return ATTACKS.get(name).run(one, one.settings)
        if one.protocol().released() is None:
            return NoView("nobody decodes sums")
        return near_directions(one)
    except ConfigurationError as error:
        return NoView(str(error))


def released(one: AttackCase) -> dict[str, Any]:
    """Equations about a row and its unknowns at the end of a run, of sums or single embeddings."""
    made: Any = one.protocol()
    told = made.released()
    if told is not None:
        return {"equations": told.equations, "unknowns": told.unknowns, "state": told.state}
    own = one.data.train[one.client]
    layout = getattr(made, "train_layout", None)
    once = layout is None or made.name in ONCE
    visits = 1 if once else math.ceil(made.config.rounds / layout().per_epoch)
    width = getattr(made.config, "width", 1)
    unknowns = independent_columns(own, 2.0**-_EXACT_BITS)
    return {"equations": visits * width, "unknowns": unknowns, "state": "open"}


def by_budget(data: str, budget: float, seed: int) -> dict[str, Any]:
    """Columns that `near_directions` guesses with a budget of sums, and the test accuracy."""
    one = case(data, "fedvs", seed, sum_budget=budget)
    with one_thread():
        got = tried(DIRECTIONS, one)
        summary = securevfl.run("fedvs", one.data, sum_budget=budget, seed=seed).summary()
    assert isinstance(got, Outcome)
    told = {"equations": released(one)["equations"], "note": got.note}
    names = {"data": data, "budget": budget, "seed": seed}
    return {**names, **told, "accuracy": 100 * summary["test_accuracy"]}


def by_budgets(seeds: int) -> None:
    """Write such results for four budgets, on the set whose columns depend most on each other."""
    rows = [
        by_budget("breast-cancer", budget, seed)
        for budget in (1.0, 0.75, 0.5, 0.25)
        for seed in range(seeds)
    ]
    content = {"cells": rows, "commit": commit(), "machine": describe_machine()}
    BUDGETS.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    """Run the data sets named on the command line, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--budgets", action="store_true", help="smaller budgets instead")
    asked = parser.parse_args()
    if asked.budgets:
        by_budgets(asked.seeds)
        return
    content = json.loads(OUT.read_text()) if OUT.exists() else {"cells": []}
    rows = content["cells"]
    for seed in range(asked.seeds):
        for data in asked.sets:
            for method in METHODS:
                if any((r["data"], r["method"], r["seed"]) == (data, method, seed) for r in rows):
                    continue
                rows.append(made_here(content, cell(data, method, seed)))
                last = {k: v for k, v in rows[-1].items() if k != "claims"}
                print(json.dumps(last)[:600], flush=True)
                write_durably(OUT, json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
