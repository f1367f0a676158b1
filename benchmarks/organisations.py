"""Nine organisations as nine processes that have no route but to the relay, also disturbed.

    python benchmarks/organisations.py same         six protocols beside the simulation
    python benchmarks/organisations.py kills        20 kills of parties, the server among them
    python benchmarks/organisations.py relay        the relay is killed every 5 s
    python benchmarks/organisations.py hostile      a relay that mistreats five times 10 % of frames
    python benchmarks/organisations.py stopped      a party is stopped, and named
    python benchmarks/organisations.py refused      what is refused, and after how long
    python benchmarks/organisations.py speed        rounds a second beside Ray and the simulation

It needs root, iproute2 and nats-server. Processes run `securevfl party join`, in namespaces of
`benchmarks.namespaces`; they are forked from one that has loaded the package. Losses are compared
with those of a simulation that has the same secrets, and must be equal; what is masked must differ,
for masks are never a function of those secrets. Every frame that a party took is looked for among
those that its peers sent. Results are in benchmarks/results/relay/organisations.json.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.namespaces import (
    forked,
    namespace,
    routes,
    separate_networks,
    unreachable,
)
from benchmarks.organisation_session import PARTIES, Session
from securevfl.engine.carriers.nats import RelayAddress
from securevfl.engine.network import SERVER, name_of
from securevfl.engine.security.identity import Identity
from securevfl.engine.security.used_sessions import use_session
from securevfl.machine import commit, describe_machine
from securevfl.runs.organisations.invitation import Invitation

RESULTS = Path(__file__).parent / "results" / "relay" / "organisations.json"
SMALL = {"batch": 64, "hidden": 16, "width": 8}
STUDIES = ("same", "kills", "relay", "hostile", "stopped", "refused", "speed")
_SHOWN = ("interval", "rounds", "segments", "quorum", "mode", "hosts", "batch")
_NAMED = "party 3 was not heard"
HUNG = 400.0  # seconds after which a session counts as hung

USUAL = {"batch": 128, "hidden": 128, "width": 64}  # fedvs's defaults
# What makes losses depend on time is left out: quorum below N, updates at each one's own pace.
SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "fedvs": ({"rounds": 12, "segments": 2, **SMALL}, {}),
    "coded_split": ({"rounds": 12, **SMALL}, {}),
    "split": ({"rounds": 12, **SMALL}, {}),
    "secagg_split": ({"rounds": 12, "quorum": PARTIES, **SMALL}, {}),
    "cvfl": ({"rounds": 12, "mode": "sync", **SMALL}, {}),
    "dvfl": (
        {"rounds": 6, "guest_epochs": 2, "host_epochs": 2, "hosts": 3, "hidden": 16, "width": 8,
         "host_width": 8, "batch": 256, "interval": 6.0},
        {"parties": PARTIES - 3},
    ),
}  # fmt: skip


def in_session(
    protocol: str,
    work: Callable[[Session], bool],
    *,
    hostile: float | None = None,
    more: Sequence[str] = (),
    noting: bool = True,
    **terms: Any,
) -> dict[str, Any]:
    """Hold a session; `work` disturbs it and tells whether it ended."""
    options, data = SAME[protocol]
    options = {**options, **terms.pop("options", {})}
    with tempfile.TemporaryDirectory() as name, separate_networks((SERVER, *range(PARTIES))):
        session = Session(Path(name), protocol, options, data, **terms)
        session.noting = noting
        session.start_relay(hostile)
        began = time.monotonic()
        try:
            session.start_all(*more)
            finished = work(session)
        finally:
            session.processes.wait(0.0)
            session.stop_relay(signal.SIGKILL if hostile is None else signal.SIGTERM)
        found = session.result(finished) | {"seconds": round(time.monotonic() - began, 1)}
        if hostile is not None:
            found["relay"] = json.loads((session.folder / "hostile.json").read_text())
        found |= session.noted
        return found


def same(protocol: str) -> dict[str, Any]:
    """An undisturbed session."""

    def work(session: Session) -> bool:
        session.noted = {
            "routes_of_a_party": routes(0),
            "others_unreachable": all(unreachable(n, session.parties) for n in session.parties),
        }
        return session.processes.wait(HUNG)

    return in_session(protocol, work)


def kills(protocol: str, number: int) -> dict[str, Any]:
    """Parties are killed in turn, the server every fifth time, and started again."""

    def work(session: Session) -> bool:
        done: list[str] = []
        for n in range(number):
            if not session.wait_for_round(2 * n + 2):
                break
            index = SERVER if n % 5 == 2 else n % PARTIES
            if index not in session.processes.running:
                break
            session.processes.kill(index)
            session.start(index)
            done.append(name_of(index))
        session.noted = {"kills": len(done), "of_the_server": done.count(name_of(SERVER))}
        return session.processes.wait(HUNG)

    return in_session(protocol, work, options={"rounds": 2 * number + 5})


def relay_killed(protocol: str, rounds: int) -> dict[str, Any]:
    """The relay is killed every 5 s, and started again at once."""

    def work(session: Session) -> bool:
        times, end = 0, time.monotonic() + HUNG
        while session.processes.running and time.monotonic() < end:
            until = time.monotonic() + 5.0
            while session.processes.running and time.monotonic() < until:
                session.processes.look()
                time.sleep(0.05)
            if session.processes.running:
                session.stop_relay()
                session.start_relay()
                times += 1
        session.noted = {"relay_killed": times}
        return session.processes.wait(1.0)

    return in_session(protocol, work, options={"rounds": rounds})


def hostile(protocol: str, share: float, **terms: Any) -> dict[str, Any]:
    """A relay that drops, doubles, reorders, forges and replays a share of frames each."""
    found = in_session(
        protocol, lambda session: session.processes.wait(HUNG), hostile=share, **terms
    )
    return found | {"share_of_each": share, **terms}


def stopped(protocol: str, silence: float) -> dict[str, Any]:
    """A party is stopped in the middle, named by all others, and goes on."""

    def work(session: Session) -> bool:
        if not session.wait_for_round(5):
            return session.processes.wait(1.0)
        child = session.processes.running[3]
        os.kill(child, signal.SIGSTOP)
        began, named = time.monotonic(), {}
        others = [n for n in session.parties if n != 3]
        before = {n: session.log(n).read_text().count(_NAMED) for n in others}
        while len(named) < len(others) and time.monotonic() < began + 4 * silence + 20:
            for n in others:
                if n not in named and session.log(n).read_text().count(_NAMED) > before[n]:
                    named[n] = round(time.monotonic() - began, 2)
            time.sleep(0.02)
        os.kill(child, signal.SIGCONT)
        session.noted = {
            "silence": silence,
            "named_by": len(named),
            "first_and_last_named": [min(named.values()), max(named.values())],
        }
        return session.processes.wait(HUNG)

    more = ("--silence", str(silence))
    return in_session(protocol, work, more=more, options={"rounds": 60})


def speed(protocol: str, rounds: int, turns: int = 3) -> dict[str, Any]:
    """Rounds a second of organisations, of a Ray cluster and of a simulation, in turns.

    Setting up, the first tenth of the rounds and the evaluation at the end are left out. CPU of the
    relay is of the whole session, that of connecting and setting up too.
    """
    found: dict[str, list[dict[str, Any]]] = {"organisations": [], "ray": [], "simulation": []}
    options = {**SAME[protocol][0], **USUAL, "rounds": rounds}
    for _ in range(turns):
        session = in_session(protocol, timed, options=options, noting=False)
        found["organisations"].append(session["timed"] | {
            "equal_to_the_simulation": session["equal_to_the_simulation"]})  # fmt: skip
        for engine in ("ray", "simulation"):
            found[engine].append(of_an_engine(protocol, engine, options))
    result: dict[str, Any] = {"protocol": protocol, "options": options, "turns": found}
    for engine, rows in found.items():
        result[f"{engine}_rounds_a_second"] = median(row["rounds_a_second"] for row in rows)
    return result | {"load": os.getloadavg()[0]}


def timed(session: Session) -> bool:
    """Wait for the end of an undisturbed session, and note its speed."""
    import psutil

    end = time.monotonic() + HUNG
    while session.processes.running and time.monotonic() < end:
        session.processes.look()
        time.sleep(0.2)
    spent = sum(psutil.Process(session.relay_process).cpu_times()[:2])
    finished = not session.processes.running
    times = [row["time"] for row in session.rows()]
    sent = [json.loads((session.out(n) / "summary.json").read_text()) for n in session.parties]
    session.noted["timed"] = {
        "rounds_a_second": pace(times),
        "bytes_a_round": sum(one["bytes"] for one in sent) / len(times),
        "cpu_of_the_relay_a_round": spent / len(times),
    }
    return finished


def of_an_engine(protocol: str, engine: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The same run on a cluster of this machine, or simulated without delays."""
    import securevfl

    conditions = {"conditions": "none"} if engine == "simulation" else {}
    times: list[float] = []
    run = securevfl.run(
        *(protocol, securevfl.load_dataset("digits", parties=PARTIES)),
        engine=engine,
        eval_every=options["rounds"],
        progress=lambda _: times.append(time.perf_counter()),
        **conditions,
        **options,
    )
    if engine == "ray":
        times = [row["time"] for row in run.history]
    return {
        "rounds_a_second": pace(times),
        "bytes_a_round": run.transcript.bytes / options["rounds"],
    }


def pace(times: Sequence[float]) -> float:
    """Rounds a second between a tenth of the rounds and the last one."""
    first = len(times) // 10
    return (len(times) - 1 - first) / (times[-1] - times[first])


def refused() -> dict[str, Any]:
    """Refusals of a party that should not join, with their lines and seconds."""
    options, data = SAME["split"]
    with tempfile.TemporaryDirectory() as name, separate_networks((SERVER, *range(PARTIES))):
        session = Session(Path(name), "split", options, data)
        session.start_relay()
        time.sleep(1.0)
        stranger = session.folder / "stranger.key"
        Identity.create(stranger)
        given = ("--manifest", str(session.folder / "m.toml"))
        own, digest = session.relay_address(), session.manifest.digest
        old = bytes(32)
        used = session.folder / "0.sessions"
        found = {
            "wrong key, by the relay": refusal(session, own, digest, "--key", str(stranger)),
            "wrong key, by the manifest": refusal(
                session, own, digest, *given, "--key", str(session.folder / "1.key")
            ),
            "wrong manifest, by the relay": refusal(session, own, old),
            "wrong manifest, by the invitation": refusal(session, own, old, *given),
            "wrong certificate": refusal(session, replace(own, fingerprint="a" * 64), digest),
            "other version": refusal(session, own, digest, *given, version="9.9.9"),
        }
        use_session(used, session.manifest.session, "an earlier run")
        found["old session"] = refusal(session, own, digest, *given)
        session.stop_relay()
    return {"protocol": "split", "refused": found}


def refusal(
    session: Session, relay: RelayAddress, digest: bytes, *more: str, version: str | None = None
) -> dict[str, Any]:
    """Seconds until a party's process ended, its exit code and its lines."""
    place = session.folder / f"refused-{time.monotonic_ns()}"
    invitation = Invitation(0, session.manifest.session, digest, (relay,))
    words = ["party", "join", str(invitation), "--out", str(place), *more]
    if "--key" not in more:
        words += ["--key", str(session.folder / "0.key")]
    log = place.with_suffix(".log")

    def work() -> None:
        from securevfl.cli import main
        from securevfl.runs.organisations import terms

        terms.__version__ = version or terms.__version__
        sys.argv = ["securevfl", *words]
        main()

    began = time.monotonic()
    child = forked(work, log, network=namespace(0))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    took = round(time.monotonic() - began, 2)
    return {"seconds": took, "exit": code, "lines": log.read_text().strip().splitlines()}


def load() -> None:
    """Import what the processes need, before they are forked."""
    for name in (
        "securevfl.cli.app",
        "securevfl.cli.party",
        "securevfl.data.catalogue.registry",
        "securevfl.runs.organisations.join",
        *(f"securevfl.protocols.{name}" for name in SAME),
    ):
        importlib.import_module(name)


def write(study: str, found: Any) -> None:
    """Keep a study's results beside those of other studies and other protocols."""
    content = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rows = {row["protocol"]: row for row in content.get(study, [])}
    made = {"machine": describe_machine(), "commit": commit()}
    rows[found["protocol"]] = found | made
    content[study] = list(rows.values())
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")


def main() -> None:
    given = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    given.add_argument("study", choices=STUDIES)
    given.add_argument("--protocol", action="append", help="Default: those of the study.")
    given.add_argument("--kills", type=int, default=20)
    given.add_argument("--rounds", type=int, default=60)
    given.add_argument("--silence", type=float, default=4.0)
    asked = given.parse_args()
    load()
    studies: dict[str, tuple[Sequence[str], Callable[[str], dict[str, Any]]]] = {
        "same": (list(SAME), same),
        "kills": (["fedvs"], lambda name: kills(name, asked.kills)),
        "relay": (["fedvs"], lambda name: relay_killed(name, asked.rounds)),
        "hostile": (["fedvs"], lambda name: hostile(name, 0.1)),
        "speed": (["fedvs"], lambda name: speed(name, asked.rounds)),
        "refused": (["split"], lambda name: refused()),
        "stopped": (["split"], lambda name: stopped(name, asked.silence)),
    }
    usual, study = studies[asked.study]
    for name in asked.protocol or usual:
        found = study(name)
        print(json.dumps(found), flush=True)
        write(asked.study, found)


if __name__ == "__main__":
    main()
