"""Bytes of a run, computed from the outline of its messages.

`securevfl.engine.wire.size` computes them from skeletons of the messages, so they are exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.network import SERVER
from securevfl.engine.security.sealing import OVERHEAD
from securevfl.engine.wire import envelope, size
from securevfl.protocols.base.schedule import Outline, Post


def message_bytes(kind: str, payload: object, *, sealed: bool, modulus: int | None = None) -> int:
    """Bytes of a message with envelope (and seal); elements modulo `modulus` are packed."""
    return envelope(kind) + size(payload, modulus=modulus) + (OVERHEAD if sealed else 0)


def post_bytes(post: Post, client: int, *, sealed: bool) -> int:
    """Bytes of a planned message to one party, with envelope (and seal), from client or server."""
    payload = post.payloads[client if len(post.payloads) > 1 else 0]
    return message_bytes(post.kind, payload, sealed=sealed, modulus=post.modulus)


@dataclass(frozen=True)
class Sent:
    """Bytes that each party sends, by party number; `SERVER` is the server.

    Attributes
    ----------
    setup, training, rest : Counter of int
        Bytes before the first round, in training rounds, and afterwards.
    """

    setup: Counter[int]
    training: Counter[int]
    rest: Counter[int]

    @property
    def total(self) -> dict[int, int]:
        """Bytes that each party sends in the whole run."""
        return dict(sorted((n, self.setup[n] + self.training[n] + self.rest[n]) for n in self.rest))


def sent_bytes(outline: Outline, parties: int, *, sealed: bool) -> Sent:
    """Bytes that each party sends in a whole run, by phase, of the messages in `outline`."""

    def none_yet() -> Counter[int]:
        return Counter({SERVER: 0} | dict.fromkeys(range(parties), 0))

    sent = Sent(none_yet(), none_yet(), none_yet())
    for post in outline.setup:
        _count(sent.setup, post, senders_of(post, 0, parties), parties, sealed)
    first = 1
    for number, phase in enumerate(outline.phases):
        total = sent.rest if number else sent.training
        last = first + phase.rounds
        if phase.announcement is not None:
            announce = message_bytes(ANNOUNCE, phase.announcement, sealed=sealed)
            total[SERVER] += phase.rounds * parties * announce
        for stage in phase.stages:
            for post in stage.posts:
                if stage.count == 0:
                    part = post_bytes(post, 0, sealed=sealed)
                    total[SERVER] += phase.rounds * _reached(post, parties) * part
                elif post.first is not None:  # who that is is chance: each as often as others
                    for n in range(parties):
                        sent_by = (phase.rounds * post.first + n) // parties
                        total[n] += sent_by * post_bytes(post, n, sealed=sealed)
                elif post.senders is None:
                    _count(total, post, range(parties), parties, sealed, phase.rounds)
                else:
                    for round_ in range(first, last):
                        _count(total, post, post.senders(round_), parties, sealed)
        first = last
    sent.rest[SERVER] += parties * message_bytes(*outline.end, sealed=sealed)
    return sent


def sent_messages(outline: Outline, parties: int) -> int:
    """Messages between different parties that a whole run sends."""

    def of(post: Post, senders: Sequence[int]) -> int:
        if post.first is not None:
            return post.first
        return sum(len(receivers_of(post, n, parties)) for n in senders)

    total = parties + sum(of(post, senders_of(post, 0, parties)) for post in outline.setup)
    first = 1
    for phase in outline.phases:
        total += phase.rounds * parties * (phase.announcement is not None)
        for stage in phase.stages:
            for post in stage.posts:
                if stage.count == 0 or post.senders is None:
                    senders = (SERVER,) if stage.count == 0 else range(parties)
                    total += phase.rounds * of(post, senders)
                else:
                    rounds = range(first, first + phase.rounds)
                    total += sum(of(post, post.senders(round_)) for round_ in rounds)
        first += phase.rounds
    return total


def _count(
    total: Counter[int],
    post: Post,
    senders: Sequence[int],
    parties: int,
    sealed: bool,
    rounds: int = 1,
) -> None:
    for n in senders:
        receivers = len(receivers_of(post, n, parties))
        total[n] += rounds * receivers * post_bytes(post, n, sealed=sealed)


def _reached(post: Post, parties: int) -> int:
    """Number of clients to which the server sends a planned message."""
    every = len(receivers_of(post, SERVER, parties))
    return every if post.first is None else post.first


def senders_of(post: Post, round: int, parties: int) -> Sequence[int]:
    """Clients that send `post` in a round: all of `parties` unless it says otherwise."""
    return range(parties) if post.senders is None else post.senders(round)


def receivers_of(post: Post, sender: int, parties: int) -> Sequence[int]:
    """Parties to which a sender sends a planned message."""
    if post.receivers is not None:
        return post.receivers(sender)
    return (SERVER,) if post.to == "server" else [n for n in range(parties) if n != sender]


#: Memory, in bytes, that was measured for 64 parties who all write to each other: of a sealed link
#: in one direction, which is two ciphers with their counters; of one message that is under way; and
#: of buffers that every run has.
SEALED_LINK, UNDER_WAY, BUFFERS = 6_400, 1_800, 3_000_000


def links(parties: int) -> int:
    """Links, each in one direction, of clients who all write to each other and to the server."""
    return parties * (parties + 1)


def link_memory(parties: int, *, sealed: bool) -> int:
    """Memory, in bytes, of a simulation's `links`, and of a round's messages."""
    return links(parties) * (SEALED_LINK * sealed + UNDER_WAY) + BUFFERS
