"""Runs with sealed links, of which the bytes are looked at that an outsider sees.

Frames that are right one by one say nothing of an engine that goes round them. So a configuration
is run sealed and resumed once; each message that arrives must open by the keys of its sender and
receiver, under the audit's own lines, and no counter may come twice under a key. A run is small, so
parties that only talk send payloads of all lengths and rounds through the same engine.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.engine.network import Message, name_of
from securevfl.engine.party import SERVER, Party
from securevfl.engine.security.sealing import Sealing
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import SecureVFLError
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.assembly import rules_of
from securevfl.runs.threads import one_thread
from tests.oracles.frames import LENGTHS, DocumentedLink

_RESUMED_IN, _REPEATED = 3, 2  # round of a checkpoint, and rounds after it that are made again
# Rounds of what is only talked: each, and those at which counters of some size would begin anew.
_ROUNDS = (*range(512), *(2**bits + d for bits in range(10, 31) for d in (-1, 0)))


@dataclass
class SealedRun:
    """The links of a run.

    Attributes
    ----------
    messages : int
        Those that left, of both lives.
    faults : list of str
        Messages that were not sealed as documented.
    resumed : bool
        Whether the run was resumed from a checkpoint.
    rounds : int
        Newest round of a message.
    ended : str
        Why the run ended before its end; empty where it did not.
    """

    messages: int = 0
    faults: list[str] = field(default_factory=list)
    resumed: bool = False
    rounds: int = 0
    ended: str = ""
    _frames: dict[tuple[bytes, bytes], bytes] = field(default_factory=dict, repr=False)

    def take(self, sealing: Sealing, links: dict[Any, DocumentedLink], message: Message) -> None:
        """Look at the bytes of a message."""
        self.messages += 1
        self.rounds = max(self.rounds, message.round)
        fault = self._fault(sealing, links, message)
        if fault:
            sender, receiver = name_of(message.sender), name_of(message.receiver)
            ends = f"{message.kind!r} from {sender} to {receiver} in round {message.round}"
            self.faults.append(f"{ends}: {fault}")

    def _fault(self, sealing: Sealing, links: dict[Any, DocumentedLink], message: Message) -> str:
        frame = message.payload
        if not isinstance(frame, bytes):
            return "it goes as it is, and not as a frame"
        named = (message.kind, message.round, message.epoch)
        for link in _links_of(sealing, links, message):
            if link.open(*named, frame) is not None:
                place = (link.key, frame[:8])
                digest = hashlib.sha256(
                    frame + repr(message._replace(payload=None, row=0)).encode()
                )
                # A checkpoint holds what was under way, so that the same frame may arrive again.
                if self._frames.setdefault(place, digest.digest()) != digest.digest():
                    return "its key sealed another message under its counter"
                return ""
        return f"its {len(frame)} bytes are no frame under the keys of its ends"


def _links_of(
    sealing: Sealing, links: dict[Any, DocumentedLink], message: Message
) -> Iterator[DocumentedLink]:
    """The direction of a message, of this incarnation and of earlier ones."""
    for life, sealers in enumerate([sealing._sealers, *sealing._earlier]):
        name = (life, message.sender, message.receiver)
        if name not in links:
            ends = sealers[message.sender], sealers[message.receiver]
            links[name] = DocumentedLink.between(*ends)
        yield links[name]


class _Listener(Simulation):
    """A simulation that shows the bytes of messages as they leave: not all arrivals are events."""

    def __init__(self, parties: Any, *, found: SealedRun, sealing: Sealing, **options: Any) -> None:
        super().__init__(parties, sealing=sealing, **options)
        self._found, self._seals = found, sealing
        self._documented: dict[Any, DocumentedLink] = {}

    def _transmit(self, together: Sequence[tuple[Message, int]]) -> None:
        for message, _ in together:
            if message.row >= 0:
                self._found.take(self._seals, self._documented, message)
        super()._transmit(together)


def run_sealed(protocol: Protocol) -> SealedRun:
    """Run a configuration with sealed links, and a second time from a checkpoint of round 3."""
    found, kept = SealedRun(), list[tuple[dict[str, Any], int]]()

    def parts() -> dict[str, Any]:
        return {
            "found": found,
            "sealing": Sealing(protocol.name, "audit", parties),
            "secrets": protocol.secrets,
            "rules": rules_of(protocol),
            "make_party": protocol.party,
        }

    def pause() -> bool:
        if found.rounds >= _RESUMED_IN and not asked:
            asked.append(True)
            made.request_state(lambda state: kept.append((state, found.rounds)))
        return bool(kept) and found.rounds >= kept[0][1] + _REPEATED

    asked: list[bool] = []
    parties = protocol.parties()
    made: Simulation = _Listener(parties, seed=protocol.seed, **parts())
    with one_thread():
        try:
            made.run(pause)
            if kept:
                parties = protocol.parties()
                state, found.rounds = kept[0]
                made = _Listener.from_state(parties, state, resumption=1, **parts())
                found.resumed = True
                made.run()
        except SecureVFLError as error:
            found.ended = str(error)
    return found


class _Talker(Party):
    """A party that sends payloads of all lengths, and nothing else."""

    def __init__(self, index: int, peers: Sequence[int], kinds: Sequence[str], text: bytes) -> None:
        super().__init__(index, peers)
        self._kinds, self._text = kinds, text

    async def run(self) -> None:
        """Every length as every kind, in rounds of all sizes; then every round."""
        others = [n for n in _TALKERS if n != self.index]
        rows = np.frombuffer(self._text[:64], np.float32).reshape(2, 8)
        for start, kind in enumerate(self._kinds):
            for place, length in enumerate(LENGTHS):
                # Of three lengths beside a power of two each party sends one.
                if (place + self.index) % len(_TALKERS) == 0:
                    round = _ROUNDS[(37 * place + start) % len(_ROUNDS)]
                    self.send(others[place % 2], kind, self._text[:length], round=round)
        for place, self.round in enumerate(_ROUNDS):
            kind = self._kinds[place % len(self._kinds)]
            self.send(others[place % 2], kind, self._text[:40])
            self.broadcast(kind, rows, others)
            self.share(kind, rows)


_TALKERS = (SERVER, 0, 1)


def talk_sealed(protocol: str, kinds: Sequence[str]) -> SealedRun:
    """Payloads of all lengths, of each kind, in rounds of all sizes, through a sealed engine.

    Parameters
    ----------
    protocol : str
        Name of the protocol whose links they are.
    kinds : sequence of str
        Those that it declares.
    """
    found, text = SealedRun(), os.urandom(max(LENGTHS))
    parties: dict[int, Party] = {n: _Talker(n, (0, 1), kinds, text) for n in _TALKERS}
    sealing = Sealing(protocol, "audit", parties)
    with one_thread():
        _Listener(parties, found=found, sealing=sealing).run()
    return found
