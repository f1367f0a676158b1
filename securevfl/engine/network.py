"""Interface between a party and its engine, and the values that pass through it.

A party passes a `Sending` to its `Network`; the engine passes a `Message` to the party. Awaiting a
`Wait` gives control to the engine, which returns the messages that the wait took, or raises
`RoundOverError` in the party.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

if TYPE_CHECKING:
    import numpy as np

    from securevfl.engine.streams import Secrets

SERVER = -1
ANY_ROUND = -1


class Message(NamedTuple):
    """A message in flight; `epoch` is the number of the sender's restarts.

    `row` is its transcript row in a simulation, its number on the link in real time, and -1 for a
    message to the sender itself.
    """

    sender: int
    receiver: int
    kind: str
    payload: Any
    round: int
    epoch: int
    row: int


class Later:
    """Array that a simulation computes when its receiver takes it; never if it comes too late.

    Parameters
    ----------
    make : callable
        Function that returns the array, from values that do not change.
    like : ndarray
        Any array of its shape and dtype.
    """

    __slots__ = ("__weakref__", "_make", "like")

    def __init__(self, make: Callable[[], np.ndarray], like: np.ndarray) -> None:
        self._make: Callable[[], np.ndarray] | None = make
        self.like = like

    def value(self) -> np.ndarray:
        """The array; computed once."""
        if self._make is not None:
            self.like, self._make = self._make(), None
        return self.like


def computed(message: Message) -> Message:
    """The message with its payload computed."""
    payload = message.payload
    return message._replace(payload=payload.value()) if type(payload) is Later else message


class Event(NamedTuple):
    """An entry of a run's history; `time` is in nanoseconds, virtual or of the wall clock."""

    time: int
    party: int
    round: int
    name: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Signing:
    """Keys with which a party of a session signs statements and checks those of others.

    Attributes
    ----------
    secret : bytes
        The party's secret key, 32 bytes.
    keys : mapping of int to bytes
        Public keys of all parties.
    run : bytes
        Digest of the session's manifest, which names the run.
    """

    secret: bytes = field(repr=False)
    keys: Mapping[int, bytes]
    run: bytes


class RoundOverError(BaseException):
    """The signal that ends a party's round because a newer round was announced.

    The engine raises it in the party, and `securevfl.engine.party.Round` catches it at the end of
    its ``with`` block. It is no `Exception`, so an author's ``except Exception`` around a wait does
    not keep the party in a finished round. A party that can use the messages already here catches
    it by name: each later wait of the block takes such messages, or raises the signal again.
    """


class Wait:
    """Description of the messages that a party waits for; awaiting it returns control.

    Parameters
    ----------
    kinds : tuple of str
        Accepted kinds of message; empty to wait for the clock only.
    round : int
        Accepted round, or `ANY_ROUND`.
    count : int
        Number of messages needed; 0 for a receive (one message, of any of the kinds).
    senders : frozenset of int or None
        Accepted senders; None for all.
    timeout : float or None
        Seconds after which the wait ends without the messages.
    safe : bool
        Whether this wait is a safe point of its party.
    announced : int or None
        Number of the round in which the party waits, so that a newer announcement ends the wait;
        None outside of rounds.
    groups : tuple of tuple of int
        For a collect: groups of senders, of which only complete ones count; empty to count all.
    """

    __slots__ = (
        *("announced", "count", "kinds", "needed", "round", "safe", "senders", "taken", "timeout"),
        *("_whose", "groups"),
    )

    def __init__(
        self,
        kinds: tuple[str, ...],
        round: int,
        count: int,
        senders: frozenset[int] | None,
        timeout: float | None,
        safe: bool,
        announced: int | None,
        groups: tuple[tuple[int, ...], ...] = (),
    ) -> None:
        self.kinds = kinds
        self.groups = groups
        self.round = round
        self.count = count
        self.senders = senders
        self.timeout = timeout
        self.safe = safe
        self.announced = announced
        self.taken: list[Message] = []
        self._whose: set[tuple[int, int]] = set()
        self.needed = max(count, 1) if kinds else math.inf  # messages that end it

    def __await__(self) -> Generator[Wait, Any, Any]:
        return (yield self)

    def accepts(self, message: Message) -> bool:
        """Whether the wait can take this message."""
        return (
            message.kind in self.kinds
            and (self.round == ANY_ROUND or message.round == self.round)
            and (self.senders is None or message.sender in self.senders)
        )

    def take(self, message: Message) -> None:
        """Take a message that the wait accepts."""
        self.taken.append(message)
        self._whose.add((message.round, message.sender))

    def take_each(self, messages: Sequence[tuple[tuple[int, int], Message]]) -> None:
        """Take messages that the wait accepts, each with its round and sender."""
        self.taken += [message for _, message in messages]
        self._whose.update([whose for whose, _ in messages])

    def has(self, round: int, sender: int) -> bool:
        """Whether the wait has taken a message of this round and sender."""
        return (round, sender) in self._whose

    @property
    def satisfied(self) -> bool:
        """Whether enough messages have been taken."""
        enough = len(self.taken) >= self.needed
        if not enough or not self.groups:
            return enough
        here = {message.sender for message in self.taken}
        whole = sum(len(group) for group in self.groups if here.issuperset(group))
        return whole >= self.needed

    def describe(self) -> str:
        """Text for the error of a stalled run: missing messages and their senders."""
        if not self.kinds:
            return "waits for the clock"
        kinds = " or ".join(repr(kind) for kind in self.kinds)
        where = "" if self.round == ANY_ROUND else f" of round {self.round}"
        if self.count == 0:
            return f"waits for {kinds}{where}"
        here = {message.sender for message in self.taken}
        missing = sorted((self.senders or frozenset()) - here)
        whom = f"; missing: {', '.join(map(name_of, missing))}" if missing else ""
        return f"has {len(here)} of {self.count} {kinds}{where}{whom}"


def name_of(party: int) -> str:
    """Readable name of a party number."""
    return "the server" if party == SERVER else f"party {party}"


class PartyState(Protocol):
    """The attributes of a party that an engine reads when the party calls its `Network`."""

    activities: ClassVar[Mapping[str, str]]
    index: int
    round: int
    epoch: int

    def operations(self, kind: str) -> int:
        """Multiply-adds that the party needs for its next message of a kind."""


class Sending(NamedTuple):
    """Messages of one kind sent together by a party: ``payloads[i]`` goes to ``to[i]``.

    `after` is the number of seconds by which their departure is delayed.
    """

    party: PartyState
    to: tuple[int, ...]
    kind: str
    payloads: Sequence[Any] | np.ndarray
    round: int
    after: float = 0.0


class Network(Protocol):
    """Interface of the engine for a party; each call names the calling party.

    Attributes
    ----------
    seed : int
        Seed of the run's public choices.
    secrets : Secrets
        Secret streams of the parties that the engine runs.
    defers : bool
        Whether a payload may be `Later`.
    """

    seed: int
    secrets: Secrets
    defers: bool

    def time(self, party: PartyState) -> int:
        """Nanoseconds on the party's clock."""

    def send(self, sending: Sending) -> None:
        """Send ``sending.payloads[i]`` to ``sending.to[i]``, `sending.after` seconds from now."""

    def record(self, party: PartyState, name: str, fields: dict[str, object]) -> None:
        """Put an event of a party with `fields` into the history of the run."""

    def safe_point(self, party: PartyState) -> None:
        """Permit the engine to copy the party's kept attributes now."""

    def write_ahead(self, party: PartyState) -> None:
        """Store the attributes declared with `ahead=True` before the party sends anything more."""

    def round_over(self, party: PartyState, round: int, left: bool) -> None:
        """Report that the party finished a round, or left it for a newer one."""

    def handled(self, party: PartyState, kind: str) -> None:
        """Pass earlier messages of a kind to the handler just registered."""

    def enter_round(self, party: PartyState, round: int) -> None:
        """Count messages of earlier rounds as late from now on."""
