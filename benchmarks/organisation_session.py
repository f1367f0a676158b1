"""A session of nine organisations in namespaces: its processes, and notes of what they send."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.hostile_relay import HostileRelay
from benchmarks.namespaces import (
    RELAY,
    RELAY_ADDRESS,
    Processes,
    forked,
    last_lines,
)
from securevfl.engine.carriers.nats import RelayAddress
from securevfl.engine.network import SERVER, name_of
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from securevfl.engine.streams import OwnEntropy
from securevfl.runs.organisations.invitation import Invitation
from securevfl.runs.organisations.relay import find_server, init
from securevfl.runs.organisations.terms import Terms

PARTIES = 8
PORT = 4222


class Session:
    """One session: its keys, its relay, and its parties' processes and folders."""

    def __init__(
        self,
        folder: Path,
        protocol: str,
        options: Mapping[str, Any],
        data: Mapping[str, Any],
        **terms: Any,
    ) -> None:
        self.folder, self.protocol = folder, protocol
        self.parties = (SERVER, *range(PARTIES))
        identities = {n: Identity.create(folder / f"{n}.key") for n in self.parties}
        entries = {n: ManifestEntry(w.public, relay=w.relay_public) for n, w in identities.items()}
        found = {"name": "digits", "options": dict(data)} if data else {"name": "digits"}
        made = Terms.make(protocol, PARTIES, options=options, data=found, **terms)
        self.manifest = Manifest(folder.name, protocol, entries, terms=made.plain())
        self.manifest.write(folder / "m.toml")
        told = init([folder / "m.toml"], folder, RELAY_ADDRESS, PORT, "0.0.0.0")
        self.relay = told["relay"]
        self.options = made.options
        self.source = made.source(PARTIES)
        self.processes = Processes()
        self.starts: Counter[int] = Counter()
        self.relay_process = 0
        self.noted: dict[str, Any] = {}
        self.noting = True  # whether parties note all frames, which takes time

    def out(self, index: int) -> Path:
        """Folder of a party."""
        return self.folder / ("server" if index == SERVER else f"party-{index}")

    def log(self, index: int) -> Path:
        """Log of a party's processes."""
        return self.folder / f"{index}.log"

    # -- processes -----------------------------------------------------------------------------

    def start_relay(self, hostile: float | None = None) -> None:
        """Start nats-server, or a hostile relay, in the relay's namespace."""

        def serve() -> None:
            import asyncio

            if hostile is not None:
                asyncio.run(HostileRelay(self.folder, hostile).run("0.0.0.0", PORT))
                return
            os.chdir(self.folder)
            server = find_server()
            os.execv(server, [server, "--config", "relay.conf"])

        self.relay_process = forked(serve, self.folder / "relay.log", network=RELAY)

    def stop_relay(self, how: int = signal.SIGKILL) -> None:
        """End the relay."""
        os.kill(self.relay_process, how)
        os.waitpid(self.relay_process, 0)

    def start(self, index: int, *more: str) -> None:
        """Start a party's process: `securevfl party join`."""
        relays = (self.relay_address(),)
        invitation = Invitation(index, self.manifest.session, self.manifest.digest, relays)
        words = ["party", "join", str(invitation), "--key", str(self.folder / f"{index}.key"),
                 "--out", str(self.out(index)), *more]  # fmt: skip
        if index == SERVER:
            words += ["--manifest", str(self.folder / "m.toml")]
        self.starts[index] += 1
        frames = self.folder / f"{index}.{self.starts[index]}.frames"

        def work() -> None:
            from securevfl.engine.realtime.host import PartyHost

            noted = NotedFrames(frames) if self.noting else nullcontext()
            sent = NotedPayloads(PartyHost, frames.with_suffix(".payloads"))
            with kept_entropy(self.folder), noted, sent if self.noting else nullcontext():
                from securevfl.cli import main

                sys.argv = ["securevfl", *words]
                main()

        self.processes.start(index, work, self.log(index))

    def relay_address(self) -> RelayAddress:
        """Address of the relay."""
        return RelayAddress.parse(self.relay)

    def start_all(self, *more: str) -> None:
        """Start all parties."""
        for n in self.parties:
            self.start(n, *more)

    def rounds(self) -> int:
        """Rounds that the server has recorded."""
        path = self.out(SERVER) / "events.jsonl"
        return path.read_text().count('"name": "round"') if path.exists() else 0

    def wait_for_round(self, number: int, seconds: float = 120.0) -> bool:
        """Wait until the server is in a round, as long as it runs."""
        end = time.monotonic() + seconds
        while self.rounds() < number and time.monotonic() < end:
            self.processes.look()
            if self.processes.codes:
                return False
            time.sleep(0.02)
        return self.rounds() >= number

    # -- what is compared ----------------------------------------------------------------------

    def losses(self) -> list[float]:
        """Losses in the server's history."""
        return [row["loss"] for row in self.rows()]

    def rows(self) -> list[dict[str, Any]]:
        """The server's history."""
        from securevfl.runs.storage import read_history

        rows, _ = read_history(self.out(SERVER))
        return rows

    def events(self, index: int, *names: str) -> list[dict[str, Any]]:
        """Events of those names in a party's history."""
        from securevfl.runs.storage import read_history

        _, events = read_history(self.out(index))
        return [event for event in events if event["event"] in names]

    def simulated(self) -> dict[str, Any]:
        """Losses of a simulation with the same secrets."""
        place = self.folder / "simulated.json"

        def work() -> None:
            place.write_text(json.dumps(simulations(self)))

        child = forked(work, self.folder / "simulation.log")
        os.waitpid(child, 0)
        if not place.exists():
            raise RuntimeError(last_lines(self.folder / "simulation.log"))
        found: dict[str, Any] = json.loads(place.read_text())
        return found

    def frames(self) -> dict[str, int]:
        """Frames taken, and those among them that no peer sent, or that came twice."""
        sent: Counter[str] = Counter()
        taken: Counter[str] = Counter()
        rejected = repeated = 0
        for path in self.folder.glob("*.frames"):
            for line in path.read_text().splitlines():
                kind, _, rest = line.partition(" ")
                if kind == "counts":
                    rejected += int(rest.split()[0])
                    repeated += int(rest.split()[1])
                else:
                    (sent if kind == "sent" else taken)[rest] += 1
        unsent = sum(count for frame, count in taken.items() if frame not in sent)
        twice = sum(max(0, count - sent[frame]) for frame, count in taken.items()) - unsent
        return {"taken": taken.total(), "not_sent": unsent, "twice": twice,
                "rejected": rejected, "repeated": repeated}  # fmt: skip

    def payloads(self) -> dict[str, dict[str, int]]:
        """Messages that session and simulation both sent, and equal ones among them, by kind."""
        ours = NotedPayloads.read(self.folder.glob("*.payloads"))
        theirs = NotedPayloads.read([self.folder / "simulated.sent"])
        found: dict[str, dict[str, int]] = {}
        for place in sorted(ours.keys() & theirs.keys()):
            counts = found.setdefault(place.split()[0], {"both": 0, "equal": 0})
            counts["both"] += 1
            counts["equal"] += ours[place] == theirs[place]
        return found

    def result(self, finished: bool) -> dict[str, Any]:
        """Results of the session: how it ended, its losses and its frames."""
        codes = self.processes.codes
        found: dict[str, Any] = {
            "protocol": self.protocol,
            "options": {
                k: v
                for k, v in self.options.items()
                if k in ("rounds", "segments", "quorum", "mode", "hosts", "batch")
            },
            "hung": not finished,
            "all_ended_well": finished and all(code == 0 for code in codes.values()),
        }
        if not found["all_ended_well"]:
            found["logs"] = {
                name_of(n): last_lines(self.log(n)) for n in self.parties if codes.get(n) != 0
            }
            return found
        losses, wanted = self.losses(), self.simulated()
        return found | {
            "rounds": len(losses),
            "first_and_last_loss": [losses[0], losses[-1]],
            "equal_to_the_simulation": losses == wanted["same"],
            "losses_that_differ": sum(a != b for a, b in zip(losses, wanted["same"], strict=True)),
            "frames": self.frames(),
            **({"payloads": self.payloads()} if self.noting else {}),
            "restarts": self.starts.total() - len(self.parties),
        }


def simulations(session: Session) -> dict[str, Any]:
    """Losses of a simulation with a session's secrets."""
    import securevfl as svfl
    from securevfl.engine.simulation.simulator import Simulation
    from securevfl.testing.entropies import simulated_with

    entropies = {}
    for n in session.parties:
        kept = session.folder / f"{n}.entropy"
        entropies[n] = OwnEntropy(n, kept.read_bytes())
    sent = NotedPayloads(Simulation, session.folder / "simulated.sent")
    with simulated_with(entropies), sent if session.noting else nullcontext():
        run = svfl.run(session.protocol, session.source, conditions="none", **session.options)
    return {"same": [row["loss"] for row in run.history]}


def kept_entropy(folder: Path) -> Any:
    """Keep a party's entropy beside the sessions' folders, before it is deleted."""
    from securevfl.runs.organisations.folder import OwnFolder

    clear = OwnFolder.clear

    def reading(own: OwnFolder) -> None:
        entropy = own.phase_store("training").entropy()
        if entropy is not None:
            (folder / f"{own.index}.entropy").write_bytes(entropy)
        clear(own)

    return mock.patch.object(OwnFolder, "clear", reading)


class NotedFrames:
    """Note a hash of each frame that a process sends to a peer, or takes from one, at once."""

    def __init__(self, path: Path) -> None:
        from securevfl.engine.carriers.session import Session as Links

        self.path, self.kind = path, Links
        self.send, self.begin = Links.send, Links.__init__
        self.made: list[Any] = []

    def __enter__(self) -> None:
        file = self.path.open("a")
        send, begin, made = self.send, self.begin, self.made

        def note(kind: str, place: str, frame: bytes) -> None:
            file.write(f"{kind} {place} {hashlib.sha256(frame).hexdigest()[:32]}\n")
            file.flush()

        def sending(links: Any, receiver: int, frame: bytes) -> None:
            note("sent", f"{receiver}", frame)
            send(links, receiver, frame)

        def beginning(
            links: Any, index: int, *rest: Any, deliver: Callable[[bytes], None], **more: Any
        ) -> None:
            def taking(frame: bytes) -> None:
                note("took", f"{index}", frame)
                deliver(frame)

            begin(links, index, *rest, deliver=taking, **more)
            made.append(links)

        self.kind.send, self.kind.__init__ = sending, beginning  # type: ignore[method-assign]
        self.file = file

    def __exit__(self, *_: object) -> None:
        for links in self.made:
            self.file.write(f"counts {links.rejected} {links.repeated}\n")
        self.file.close()
        self.kind.send, self.kind.__init__ = self.send, self.begin  # type: ignore[method-assign]


class NotedPayloads:
    """Note a hash of each payload that parties of an engine send to others, before it is sealed."""

    def __init__(self, engine: type[Any], path: Path) -> None:
        self.engine, self.path, self.send = engine, path, engine.send

    def __enter__(self) -> None:
        from securevfl.engine import wire

        self.file = self.path.open("a")
        send, file = self.send, self.file

        def sending(network: Any, sent: Any) -> None:
            for receiver, payload in zip(sent.to, sent.payloads, strict=True):
                if receiver == sent.party.index:
                    continue
                place = f"{sent.kind} {sent.round} {sent.party.index} {receiver}"
                digest = hashlib.sha256(wire.encode(payload)).hexdigest()[:32]
                file.write(f"{place}|{digest}\n")
            file.flush()
            send(network, sent)

        self.engine.send = sending

    def __exit__(self, *_: object) -> None:
        self.engine.send = self.send
        self.file.close()

    @staticmethod
    def read(paths: Iterable[Path]) -> dict[str, list[str]]:
        """Hashes in their order by kind, round, sender and receiver."""
        found: dict[str, list[str]] = {}
        for path in paths:
            for line in path.read_text().splitlines():
                place, _, digest = line.partition("|")
                found.setdefault(place, []).append(digest)
        return found
