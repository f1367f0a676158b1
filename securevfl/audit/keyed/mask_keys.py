"""Keys of masks in a run: who drew them, and for which sums they were used.

A proof takes the masks for random because nobody else knows the keys. So the keys are looked at as
secret draws are: 32 fresh bytes of the operating system each, drawn in this run, one for each block
of clients, and asked for nothing but the sums that were announced in this run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from securevfl.audit import randomness
from securevfl.audit.recorded_runs import kinds_of
from securevfl.audit.recording.recorded_run import RecordedMessage
from securevfl.field import prss
from securevfl.field.prss import KEY, mask_streams
from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.messages import SELF, MessageSpec

_BEGINNING = 64  # elements of each stream that are compared with those of others
_VARIED = 64  # announced sums whose labels are asked for in other rounds and lives
_NO_CHANCE = 256  # bits of different streams that are never equal by chance


@dataclass
class Asked:
    """Questions to the function of key and label in a run.

    Attributes
    ----------
    sizes : dict
        Numbers of elements, by key and digest of the label.
    begun : dict
        Which question a stream's first elements answered, by their digest.
    repeated : bool
        Whether two questions were answered by streams that begin alike.
    """

    sizes: dict[tuple[bytes, bytes], set[int]] = field(default_factory=dict)
    begun: dict[bytes, tuple[bytes, bytes]] = field(default_factory=dict)
    repeated: bool = False


@contextmanager
def watch_streams() -> Iterator[Asked]:
    """Note what the function of key and label is asked.

    It is for one run at a time, and not for several threads.
    """
    made: Any = prss
    asked, fill = Asked(), prss.fill_stream

    def filled(modulus: int, out: np.ndarray, key: bytes, label: bytes) -> None:
        place = bytes(key), hashlib.sha256(label).digest()
        sizes = asked.sizes.setdefault(place, set())
        fill(modulus, out, key, label)
        first = out[:_BEGINNING]
        if first.size * modulus.bit_length() >= _NO_CHANCE:
            digest = hashlib.sha256(first.tobytes()).digest()
            asked.repeated |= asked.begun.setdefault(digest, place) != place
        sizes.add(out.size)

    made.fill_stream = filled
    try:
        yield asked
    finally:
        made.fill_stream = fill


class MaskKeys:
    """The keys of a masked run of a coded protocol, and the labels of its sums.

    Parameters
    ----------
    protocol : CodedProtocol
        With masks.

    Attributes
    ----------
    drawn : list of bytes
        Keys, as clients drew them.
    """

    def __init__(self, protocol: CodedProtocol) -> None:
        self._protocol, self._kinds = protocol, kinds_of(protocol)
        self.drawn: list[bytes] = []
        self._drawn_by: dict[int, list[bytes]] = {}
        self._batches: dict[int, dict[bytes, Any]] = {}
        self._attempts: dict[tuple[int, int], dict[bytes, Any]] = {}
        self._uploads: dict[tuple[int, int], set[bytes]] = {}

    def take(self, message: RecordedMessage, spec: MessageSpec | None) -> None:
        """Take in a message of the run, with its declaration if it has one."""
        kind, round, sender, receiver = message.key
        name = self._kinds.get(kind, kind)
        if spec is not None and (spec.receiver, spec.carries) == (SELF, "key"):
            self.drawn += message.payload
            self._drawn_by[sender] = message.payload
        elif name == "round":
            self._batches.setdefault(round, {})[message.content] = message.payload
        elif name == "attempt":
            told = self._attempts.setdefault((round, receiver), {})
            told[message.content] = message.payload
        elif name == "embedding":
            digest = hashlib.sha256(message.content).digest()
            self._uploads.setdefault((round, sender), set()).add(digest)

    def faults(self, log: randomness.Log, asked: Asked) -> Iterator[str]:
        """Faults: all that the proof does not allow.

        Parameters
        ----------
        log : randomness.Log
            Of this run alone: a key of another run is strange here.
        asked : Asked
            What `watch_streams` noted in this run.
        """
        masks = self._protocol.prss
        assert masks is not None
        yield from faults_of_keys(self.drawn, len(masks.blocks), log)
        strangers = {key for key, _ in asked.sizes} - set(self.drawn)
        if strangers:
            yield f"masks are made of {len(strangers)} keys that no client drew in the run"
        announced = self._announced()
        other = {label for _, label in asked.sizes} - set(announced)
        shared = sum(len(sums) > 1 for sums in announced.values())
        if shared:
            yield f"{shared} labels stand for several announced sums, which one mask then hides"
        if other:
            yield f"keys are asked for {len(other)} labels that are none of the run's sums"
        if any(len(sizes) > 1 for sizes in asked.sizes.values()):
            yield "a key is asked for masks of two sizes under one label"
        yield from self._alike_elsewhere()
        if asked.repeated:
            yield "two streams of different keys or labels begin alike"
        yield from self._answered_twice(asked)

    def _labels(self) -> dict[tuple[int, int], set[bytes]]:
        """Digests of labels by round and client: all that it was told of a sum."""
        found: dict[tuple[int, int], set[bytes]] = {place: set() for place in self._attempts}
        for round, client, label, _ in self._told():
            found[round, client].add(label)
        return found

    def _announced(self) -> dict[bytes, set[tuple[int, bytes, bytes]]]:
        """Sums by the digests of their labels: round, and contents of both announcements."""
        found: dict[bytes, set[tuple[int, bytes, bytes]]] = {}
        for round, _, label, contents in self._told():
            found.setdefault(label, set()).add((round, *contents))
        return found

    def _told(self) -> Iterator[tuple[int, int, bytes, tuple[bytes, bytes]]]:
        """Round, client, digest of the label, and both announcements of each sum."""
        for (round, client), attempts in self._attempts.items():
            for first, batch in self._batches.get(round, {}).items():
                for second, attempt in attempts.items():
                    told = self._protocol.told(round, batch, attempt)
                    yield round, client, hashlib.sha256(told).digest(), (first, second)

    def _alike_elsewhere(self) -> Iterator[str]:
        """Labels that stay as they are where the round, or the life of a server, is another one.

        Runs here have few rounds and two lives; what is announced in them is put into other ones.
        """
        rounds, lives = _other_numbers(self._protocol.config.rounds), _other_numbers(1)
        announced = {
            second: (round, batch, attempt)
            for (round, _), attempts in self._attempts.items()
            for batch in self._batches.get(round, {}).values()
            for second, attempt in attempts.items()
        }
        for round, batch, attempt in [*announced.values()][:_VARIED]:
            told = [self._protocol.told(other, batch, attempt) for other in rounds]
            if len(set(told)) < len(rounds):
                yield f"sums of two rounds have one label, of the batch of round {round}"
            if not hasattr(attempt, "life"):
                continue
            for other in (round, rounds[-1]):
                made = [replace(attempt, life=life) for life in lives]
                told = [self._protocol.told(other, batch, one) for one in made]
                if len(set(told)) < len(lives):
                    yield (
                        f"in round {other} sums of two lives of a server have one label, of the "
                        f"batch of round {round}"
                    )

    def _answered_twice(self, asked: Asked) -> Iterator[str]:
        """More different uploads than labels: then one mask hides two of them.

        A label counts where each key that the client holds was asked for it: a mask that was kept
        from another label is none of this one.
        """
        labels = self._labels()
        for (round, client), uploads in self._uploads.items():
            keys = self._held(client)
            answered = [
                label
                for label in labels.get((round, client), ())
                if all((key, label) in asked.sizes for key in keys)
            ]
            if len(uploads) > len(answered):
                yield (
                    f"client {client} has {len(uploads)} uploads in round {round}, and its keys "
                    f"were asked for {len(answered)} labels"
                )

    def _held(self, client: int) -> list[bytes]:
        """Keys of a client that have streams in its mask, of those that were drawn."""
        masks = self._protocol.prss
        assert masks is not None
        least = mask_streams(masks.code, masks.degree)
        return [
            one
            for dealer, drawn in self._drawn_by.items()
            for key, one in zip(masks.dealt(dealer), drawn, strict=False)
            if client not in masks.blocks[key] and masks.streams(key, least)
        ]


def _other_numbers(last: int) -> list[int]:
    """Numbers near 1, near and beyond the last one, and near powers of two."""
    powers = {2**k + d for k in range(2, 17) for d in (-1, 0, 1)}
    return sorted({1, 2, last, last + 1, last + 2, 10 * last, *powers})


def faults_of_keys(drawn: list[bytes], blocks: int, log: randomness.Log) -> Iterator[str]:
    """Keys of another number, length or origin than one for each block, of 32 fresh bytes."""
    if len(drawn) != blocks or any(len(key) != KEY for key in drawn):
        yield f"{len(drawn)} keys of masks were drawn, and there are {blocks} of {KEY} bytes"
    if len(set(drawn)) < len(drawn):
        yield "a key of masks is another one"
    strange = sum(1 for _ in randomness.unexplained_keys(log, drawn))
    if strange:
        yield f"{strange} keys of masks are not 32 fresh bytes of the run, or were used before"
