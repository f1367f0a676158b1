"""What a party may ask of whoever runs it, and the values that pass between the two."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from securevfl.engine.party import Party
    from securevfl.engine.streams import Secrets

SERVER = -1
ANY_ROUND = -1


class Message(NamedTuple):
    """A message under way; `row` is its place in the transcript, -1 for one to oneself."""

    sender: int
    receiver: int
    kind: str
    payload: Any
    round: int
    epoch: int
    row: int


class Event(NamedTuple):
    """Something that a party recorded, at a virtual (or wall-clock) time in nanoseconds."""

    time: int
    party: int
    round: int
    name: str
    fields: dict[str, Any]


class RoundOverError(Exception):
    """The round was left because a newer one was announced; `Round` keeps it inside."""


class Wait:
    """What a party waits for; awaiting it hands control to the engine.

    Parameters
    ----------
    kinds : tuple of str
        Kinds of message that are accepted; empty to wait for the clock only.
    round : int
        Round that is accepted, `ANY_ROUND` for every one.
    count : int
        How many messages are wanted; 0 for a receive (one message, of any of the kinds).
    senders : frozenset of int or None
        Who is asked; None for anybody.
    timeout : float or None
        Seconds of patience.
    safe : bool
        Whether this wait is a safe point of its party.
    announced : int or None
        Inside a round: its number, so that a newer announcement ends the wait.
    """

    __slots__ = ("announced", "count", "kinds", "round", "safe", "senders", "taken", "timeout")

    def __init__(
        self,
        kinds: tuple[str, ...],
        round: int,
        count: int,
        senders: frozenset[int] | None,
        timeout: float | None,
        safe: bool,
        announced: int | None,
    ) -> None:
        self.kinds = kinds
        self.round = round
        self.count = count
        self.senders = senders
        self.timeout = timeout
        self.safe = safe
        self.announced = announced
        self.taken: list[Message] = []

    def __await__(self) -> Generator[Wait, Any, Any]:
        return (yield self)

    def accepts(self, message: Message) -> bool:
        """Whether the message is one of those waited for."""
        return (
            message.kind in self.kinds
            and (self.round == ANY_ROUND or message.round == self.round)
            and (self.senders is None or message.sender in self.senders)
        )

    @property
    def satisfied(self) -> bool:
        """Whether enough messages were taken."""
        return bool(self.kinds) and len(self.taken) >= max(self.count, 1)

    def describe(self) -> str:
        """Words for the stall error."""
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


class Network(Protocol):
    """The engine, as a party sees it.

    Attributes
    ----------
    seed : int
        Seed of the run's public choices.
    secrets : Secrets
        Secret streams of the parties that the engine runs.
    """

    seed: int
    secrets: Secrets

    def time(self, party: Party) -> int:
        """Nanoseconds on the clock that the party lives by."""

    def send(
        self, party: Party, to: tuple[int, ...], kind: str, payloads: Any, round: int, after: float
    ) -> None:
        """Send one payload to each receiver, or the same one to all when it is no list."""

    def record(self, party: Party, name: str, fields: dict[str, Any]) -> None:
        """Keep an event."""

    def safe_point(self, party: Party) -> None:
        """Let the engine copy the party's kept state, if it wants to."""

    def write_ahead(self, party: Party) -> None:
        """Let what the party writes ahead outlast a crash, before anything else is sent."""

    def round_over(self, party: Party, round: int, left: bool) -> None:
        """Tell that the party is through with a round, or left it."""

    def handled(self, party: Party, kind: str) -> None:
        """Pass what has arrived of a kind to the handler that was registered just now."""

    def enter_round(self, party: Party, round: int) -> None:
        """Tell that messages of earlier rounds are late from now on."""
