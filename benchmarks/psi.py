"""Private set intersection at size: time, bytes, and rows that a plain join does not find.

    python benchmarks/psi.py                two sets of 1,000,000 and five of 100,000
    python benchmarks/psi.py --quick        two sets of 5,000 and three of 2,000
    python benchmarks/psi.py --peer PYTHON  three sets of 45,000; and two, beside openmined.psi

Writes benchmarks/results/psi/psi.json. Times are of all members together, in one process each
computing for itself after the other. The peer is `pip install openmined.psi`, in an environment
of its own: the same curve, two parties, in C++, on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from securevfl.data.alignment.join import match_plainly
from securevfl.machine import commit, describe_machine
from securevfl.runs.alignment import intersection

RESULTS = Path(__file__).parent / "results" / "psi"
SHARE = 0.8  # of all identifiers that each member has
PEER = """
import json, sys, time
import private_set_intersection.python as peer
ours, theirs = json.load(sys.stdin)
start = time.perf_counter()
client, server = peer.client.CreateWithNewKey(True), peer.server.CreateWithNewKey(True)
setup = server.CreateSetupMessage(1e-9, len(ours), theirs, peer.DataStructure.RAW)
answer = server.ProcessRequest(client.CreateRequest(ours))
found = client.GetIntersection(setup, answer)
seconds = time.perf_counter() - start
assert len(found) == len(set(ours) & set(theirs))
print(json.dumps({"version": peer.__version__, "seconds": round(seconds, 1)}))
"""


def random_sets(members: int, size: int) -> list[list[str]]:
    """Identifiers of each member."""
    draw = np.random.default_rng(members)
    everybody = round(size / SHARE)
    return [[f"user-{i:09d}" for i in draw.permutation(everybody)[:size]] for _ in range(members)]


def measure(members: int, size: int) -> dict[str, Any]:
    """One run on random sets; a wrong row is one that the plain join has not, or the reverse."""
    sets = random_sets(members, size)
    start = time.perf_counter()
    rows, sent = intersection(sets)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    plain, _ = match_plainly(sets)
    plain_seconds = time.perf_counter() - start
    private, common = np.stack(rows), np.stack(plain)
    wrong = len(set(map(tuple, private.T.tolist())) ^ set(map(tuple, common.T.tolist())))
    multiplications = members * members * size
    return {
        "members": members,
        "identifiers_each": size,
        "common": len(rows[0]),
        "wrong_rows": wrong,
        "seconds": round(seconds, 1),
        "plain_join_seconds": round(plain_seconds, 2),
        "microseconds_per_multiplication": round(1e6 * seconds / multiplications, 1),
        "messages": sent.messages,
        "bytes": sent.bytes,
    }


def of_the_peer(python: str, size: int) -> dict[str, Any]:
    """Seconds of openmined.psi on two such sets, in another interpreter that has it."""
    sets = json.dumps(random_sets(2, size))
    ran = subprocess.run(
        [python, "-c", PEER], input=sets, capture_output=True, text=True, check=True
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found | {"identifiers_each": size}


def beside_the_peer(python: str, turns: int = 3) -> dict[str, Any]:
    """Ours and the peer's in turns on two sets, and ours on three; medians of seconds."""
    found = [
        (measure(3, 45_000), measure(2, 45_000), of_the_peer(python, 45_000)) for _ in range(turns)
    ]
    three, two, peer = zip(*found, strict=True)
    return {
        "turns": found,
        "three_sets": median(one["seconds"] for one in three),
        "two_sets": median(one["seconds"] for one in two),
        "two_sets_of_the_peer": median(one["seconds"] for one in peer),
    }


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peer", metavar="PYTHON", help="Interpreter that has openmined.psi.")
    asked, place = parser.parse_args(), RESULTS / "psi.json"
    made = {"processes": os.cpu_count(), "machine": describe_machine(), "commit": commit()}
    content = json.loads(place.read_text()) if place.exists() else {}
    if asked.peer:
        content["beside_a_peer"] = beside_the_peer(asked.peer) | made
        print({key: one for key, one in content["beside_a_peer"].items() if key != "turns"})
    else:
        runs = []
        for members, size in [(2, 5_000), (3, 2_000)] if asked.quick else [(2, 10**6), (5, 10**5)]:
            runs.append(measure(members, size))
            print(runs[-1], flush=True)
        content |= {"runs": runs, **made}
    RESULTS.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
