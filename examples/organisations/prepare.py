"""Makes what the containers of compose.yml need: keys, tables, a manifest, a relay, invitations.

In earnest each organisation does its own part on its own machine, as docs/organisations.md shows.
Here one program does all of it, into ``prepared/`` beside this file, so that the example runs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from securevfl.engine.network import SERVER
from securevfl.runs.organisations import identities, relay
from securevfl.runs.organisations.invitation import invite
from securevfl.runs.organisations.terms import Terms

ORGANISATIONS = {SERVER: "labels", 0: "bank", 1: "shop"}
OPTIONS = {"rounds": 50, "width": 8, "batch": 64}
DATA = {"tables": {"label": "digit", "id_column": "id", "test_fraction": 0.2}}


def prepare(place: Path) -> dict[str, str]:
    """Fill the folder `place`; the lines of ``.env`` beside it."""
    for name in (*ORGANISATIONS.values(), "relay"):
        (place / name).mkdir(parents=True, exist_ok=True)
    for name in ORGANISATIONS.values():
        identities.create(place / name / "own.key")
    write_tables(place)
    manifest = place / "labels" / "session.toml"
    identities.write_manifest(
        manifest,
        place / "labels" / "own.key.pub",
        [f"{name}={place / name / 'own.key.pub'}" for name in ("bank", "shop")],
        "split",
        None,
        lambda parties, names: Terms.make(
            "split", parties, options=OPTIONS, data=DATA, names=names
        ).plain(),
    )
    told = relay.init([manifest], place / "relay", "relay", 4222, "0.0.0.0")
    found = invite(manifest, [told["relay"]])
    lines = {f"INVITATION_{'SERVER' if n == SERVER else n}": found[
        "server" if n == SERVER else f"party {n}"] for n in ORGANISATIONS}  # fmt: skip
    (place.parent / ".env").write_text("".join(f"{k}='{v}'\n" for k, v in lines.items()))
    return lines


def write_tables(place: Path) -> None:
    """Half of the pixels each, of overlapping rows in another order, and the labels."""
    digits, draw = load_digits(), np.random.default_rng(0)
    for n, name in enumerate(("bank", "shop")):
        rows = draw.permutation(1000)[:950]
        table = pd.DataFrame(digits.data[rows, n * 32 : (n + 1) * 32]).add_prefix("x")
        table.insert(0, "id", rows)
        table.to_csv(place / name / "own.csv", index=False)
    rows = draw.permutation(1000)
    labels = pd.DataFrame({"id": rows, "digit": digits.target[rows]})
    labels.to_csv(place / "labels" / "own.csv", index=False)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parent
    prepare(target / "prepared")
