"""The base class of parties: the interface between the author of a protocol and the engine.

A protocol author derives from `Party` and writes `setup` and `run` as plain coroutines. They await
only methods of this class. So the engine controls time, can replay a run, and can run the same file
in virtual time or over processes.

The attributes named in `kept` are the state of a party; everything else must be derived from them.
At each safe point (the top of a loop over `rounds`, a wait with ``safe=True``, or `safe_point`),
calling `run` again on an object with restored kept attributes must continue the run unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Literal

import numpy as np

from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.network import (
    ANY_ROUND,
    SERVER,
    Later,
    Message,
    Network,
    RoundOverError,
    Sending,
    Signing,
    Wait,
    name_of,
)
from securevfl.engine.streams import keyed_stream

__all__ = ["ANNOUNCE", "SERVER", "STOP", "Message", "Party", "Round", "RoundOverError", "name_of"]
__all__ += ["Kept", "Later", "kept_as"]

STOP = "stop"


class Kept(str):
    """Name of an attribute of a party's state, and how checkpoints store it; see `kept_as`."""

    way: str = "copied"
    ahead: bool = False
    shares: bool = False


def kept_as(
    way: Literal["copied", "once", "frozen", "passing"],
    *names: str,
    ahead: bool = False,
    shares: bool = False,
) -> tuple[Kept, ...]:
    """Names for `Party.kept` of attributes that checkpoints store in a special way.

    Parameters
    ----------
    way : {"copied", "once", "frozen", "passing"}
        "copied": copied at each safe point. "once": set in `setup` and constant, such as data
        shares; written to a checkpoint once. "frozen": replaced but never changed in place, such as
        a growing tuple of arrays; a safe point stores a reference. "passing": copied, but not
        stored with a finished run.
    ahead : bool
        Whether `Party.write_ahead` writes it between safe points. After a crash the party has the
        value that was written last.
    shares : bool
        Whether it contains the trained models as shares. Their masks are from the operating system,
        so they differ between runs of one seed, and comparisons of results leave them out. A
        finished run stores them unless they are "passing".
    """
    found = tuple(map(Kept, names))
    for name in found:
        name.way, name.ahead, name.shares = way, ahead, shares
    return found


class Party:
    """A party of a protocol: the base class of every role.

    Attributes
    ----------
    kept : tuple of str
        Attributes that make up the state at a safe point: payloads of `securevfl.engine.wire`, or
        objects with ``state_dict`` and ``load_state_dict`` (torch modules and optimisers).
        `kept_as` names attributes that are stored in another way than by a copy.
    begins_once : bool
        Whether the state written ahead counts over all incarnations, such as releases that a
        privacy guarantee limits. Once it is written, the party must not start from the beginning.
    resumes_measured : bool
        Whether a simulation with measured computing times may be resumed. A resumed one repeats the
        current round in another order, for example with other survivors, with secrets that were
        drawn before.
    activities : mapping
        Delay class ("upload" or "share") of each kind of message that costs the sender work. A
        run's conditions delay messages by class.
    round_ends : tuple of str
        Kinds of the server's messages that end their own round; every message of the server ends
        older rounds. With ``delay_mode="abort"``, work on ended rounds is dropped.
    counts_rounds : bool
        Whether scripted outages count the server's steps (its events "round"), because clients
        begin their own rounds.
    index : int
        Number of the party, from 0; `SERVER` for the server.
    peers : sequence of int
        Numbers of all clients, including this party if it is a client.
    round, epoch : int
        Number of the current round (0 in setup), and of the incarnation: the number of restarts.
    signing : Signing or None
        Keys for signed statements, if a manifest has keys of all parties. Not stored in
        checkpoints.
    resumptions : int
        Number of times that the simulation was resumed. 0 on other engines, where a party of a
        resumed run is a new incarnation.
    """

    kept: ClassVar[tuple[str, ...]] = ()
    begins_once: bool = False
    signing: Signing | None = None
    resumes_measured: ClassVar[bool] = True
    activities: ClassVar[Mapping[str, str]] = {
        "embedding": "upload",
        "model": "share",
        "shared": "share",
    }
    round_ends: ClassVar[tuple[str, ...]] = ()
    counts_rounds: ClassVar[bool] = False

    index: int
    peers: Sequence[int]
    engine: Network

    def __init__(self, index: int, peers: Iterable[int]) -> None:
        self.index = index
        self.peers = tuple(peers)
        self.round = 0
        self.epoch = 0
        self.resumptions = 0
        self.saved_epoch = 0  # of the life that wrote the checkpoint which this one began from
        self.handlers: dict[str, Callable[[Message], None]] = {}
        self.envelope: Message | None = None
        self._announced: int | None = None

    async def setup(self) -> None:
        """Prepare for round 1; called once, not after a resume or rejoin."""

    async def run(self) -> None:
        """Carry out the party's role in the protocol; called again after a resume or rejoin."""
        raise NotImplementedError

    def operations(self, kind: str) -> int:
        """Multiply-adds for the party's next message of a kind; 0 for a negligible number.

        Called only if conditions model computing, once per sending call for any number of
        receivers: the party is busy for this work, then the message departs.
        """
        return 0

    # -- sending: never blocks ---------------------------------------------------------------

    def send(
        self, to: int, kind: str, payload: object, *, round: int | None = None, after: float = 0.0
    ) -> None:
        """Send a payload, which must not change afterwards, to one party.

        Parameters
        ----------
        to : int
            Receiver.
        kind : str
            Kind of message, up to 255 bytes.
        payload : payload of `securevfl.engine.wire`
            Content.
        round : int, optional
            Round of the message; by default the current one.
        after : float
            Seconds, at least 0, by which its departure is delayed; later messages do not wait for
            it.

        Raises
        ------
        UndeclaredMessageError, WireError, ValueError
            For a message that the protocol did not declare, another payload, and another `after`.
        """
        if not 0 <= after < math.inf:
            raise ValueError(f"send: after = {after} s must be finite and at least 0")
        self.engine.send(Sending(self, (to,), kind, [payload], self._round(round), after))

    def share(self, kind: str, shares: Sequence[object] | np.ndarray) -> None:
        """Send ``shares[i]`` to client i; the share to this party itself has no bytes or delay."""
        self.engine.send(Sending(self, tuple(range(len(shares))), kind, shares, self.round))

    def broadcast(self, kind: str, payload: object, to: Sequence[int] | None = None) -> None:
        """Send one payload to all of `to`; by default to all other clients."""
        if to is None:
            to = [peer for peer in self.peers if peer != self.index]
        self.engine.send(Sending(self, tuple(to), kind, [payload] * len(to), self.round))

    # -- waiting -----------------------------------------------------------------------------

    async def receive(
        self,
        *kinds: str,
        sender: int | None = None,
        round: int | None = None,
        timeout: float | None = None,
        safe: bool = False,
    ) -> Any:
        """Payload of the next message of any of these kinds; `envelope` is then the `Message`.

        Inside ``with round_`` only messages of that round are accepted; elsewhere messages of
        `round`, or of every round by default. `sender` restricts the sender. With `safe` the wait
        is a safe point. TimeoutError after `timeout` seconds.
        """
        if round is None:
            round = ANY_ROUND if self._announced is None else self._announced
        asked = None if sender is None else frozenset((sender,))
        wait = Wait(kinds, round, 0, asked, timeout, safe, self._announced)
        taken = await wait
        if not taken:
            raise TimeoutError(f"no {' or '.join(kinds)} within {timeout} s")
        self.envelope = taken[0]
        return taken[0].payload

    async def collect(
        self,
        kind: str,
        *,
        count: int | None = None,
        senders: Iterable[int] | None = None,
        round: int | None = None,
        timeout: float | None = None,
        safe: bool = False,
        groups: tuple[tuple[int, ...], ...] = (),
    ) -> dict[int, Any]:
        """Payloads of the first `count` senders, ordered by sender; then the round is closed.

        Parameters
        ----------
        kind : str
            Kind of message.
        count : int, optional
            Number of payloads to wait for; by default one of each of `senders`.
        senders : iterable of int, optional
            Accepted senders; all peers if not given.
        round : int, optional
            Round of the messages, at least 0; by default the current one.
        timeout : float, optional
            Seconds after which the payloads that have arrived are returned, even if fewer.
        safe : bool
            Whether the wait is a safe point.
        groups : tuple of tuple of int
            Groups of senders. The wait then continues until complete groups have `count` members;
            other payloads that arrived are returned as well.

        Raises
        ------
        ValueError
            If `count` is not in [1, number of senders], or the round is below 0.
        """
        asked = frozenset(self.peers if senders is None else senders)
        wanted = len(asked) if count is None else count
        if not 0 < wanted <= len(asked):
            raise ValueError(f"collect: {wanted} of {len(asked)} senders can never arrive")
        number = self._round(round)
        if number < 0:
            raise ValueError(f"collect: round {number} must be at least 0")
        wait = Wait((kind,), number, wanted, asked, timeout, safe, self._announced, groups)
        taken = await wait
        return {m.sender: m.payload for m in sorted(taken, key=lambda m: m.sender)}

    async def sleep(self, seconds: float) -> None:
        """Let `seconds` pass on the clock of the run."""
        await Wait((), ANY_ROUND, 0, None, seconds, False, self._announced)

    def on(self, kind: str, handler: Callable[[Message], None]) -> None:
        """Call `handler` on each arrival of `kind`, also while the party waits for other kinds.

        Register handlers at the top of `run`, before the first safe point. A handler must not wait.
        It is called at once for messages of the kind that arrived before.
        """
        self.handlers[kind] = handler
        self.engine.handled(self, kind)

    # -- rounds ------------------------------------------------------------------------------

    def announce(self, round: int, payload: object = None, to: Sequence[int] | None = None) -> None:
        """Open a round: for this party, and for all parties that loop over `rounds`."""
        self.round = round
        self.engine.enter_round(self, round)
        self.broadcast(ANNOUNCE, payload, to)

    def conclude(self, to: Sequence[int] | None = None) -> None:
        """End the loops over `rounds` at the other parties, in one round after the current one."""
        self.round += 1
        self.broadcast(ANNOUNCE, STOP, to)

    def rounds(self) -> Rounds:
        """Iterate over announced rounds; each step is a safe point. Use ``with`` on each item."""
        return Rounds(self)

    def safe_point(self) -> None:
        """Declare that the kept attributes are now the party's whole state.

        A handler may call it while its party waits at a safe point.
        """
        self.engine.safe_point(self)

    def write_ahead(self) -> None:
        """Store the attributes declared with `ahead=True` on disk before anything more is sent.

        Call it before sending a message that the party must remember after a crash. It is no safe
        point: the rest of the stored state stays that of the last one.
        """
        self.engine.write_ahead(self)

    @property
    def returned(self) -> bool:
        """Whether this incarnation began from a checkpoint that an earlier one wrote."""
        return self.epoch != self.saved_epoch

    @property
    def life(self) -> int:
        """Number of this incarnation (start) of the party, unique also among resumed runs.

        A party that returns to an earlier round draws new random values. Labels with this number
        and the round therefore never mask two different values.
        """
        return (self.resumptions << 32) + self.epoch

    def to_checkpoint(self, value: object) -> object:
        """Form of a state's value in a checkpoint; the value itself, unless overridden."""
        return value

    def from_checkpoint(self, value: object) -> object:
        """A state's value from its form in a checkpoint (inverse of `to_checkpoint`)."""
        return value

    # -- time, chance, events ----------------------------------------------------------------

    @property
    def now(self) -> float:
        """Seconds on the clock of the run."""
        return self.engine.time(self) / 1e9

    def stream(self, name: str, *keys: int) -> np.random.Generator:
        """Public random generator, fixed by the run's seed, the party's number, `name` and `keys`.

        Every party can draw the same numbers. Use it for numbers that others may know.
        """
        return keyed_stream(self.engine.seed, self.index, name, *keys)

    def secret_stream(self, name: str, *keys: int) -> np.random.Generator:
        """Secret random generator of this party, fixed by its own entropy, `name` and `keys`.

        In a simulation it is a function of the secret seed. It must not be used for masks and
        noise: see `securevfl.engine.streams.OwnEntropy`.
        """
        return self.engine.secrets.stream(self.index, name, *keys)

    def record(self, event: str, **fields: object) -> None:
        """Put an event into the history of the run."""
        self.engine.record(self, event, fields)

    def _round(self, round: int | None) -> int:
        return self.round if round is None else round


class Rounds:
    """Announced rounds as an asynchronous iterator, which skips rounds that are over."""

    def __init__(self, party: Party) -> None:
        self._party = party

    def __aiter__(self) -> Rounds:
        return self

    async def __anext__(self) -> Round:
        party = self._party
        what = await party.receive(ANNOUNCE, safe=True)
        assert party.envelope is not None
        number = party.envelope.round
        party.round = number
        party.engine.enter_round(party, number)
        if isinstance(what, str) and what == STOP:
            raise StopAsyncIteration
        return Round(party, number, what)


class Round:
    """An announced round; its ``with`` block ends without error when a newer one is announced.

    A wait inside the block then raises `securevfl.engine.network.RoundOverError`, which is no
    `Exception`: code in the block cannot catch it by accident.

    Attributes
    ----------
    number, payload : int, payload of `securevfl.engine.wire`
        Number of the round, and payload of the announcement.
    """

    def __init__(self, party: Party, number: int, payload: Any) -> None:
        self._party = party
        self.number = number
        self.payload = payload

    def __enter__(self) -> Round:
        self._party._announced = self.number
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        self._party._announced = None
        left = kind is not None and issubclass(kind, RoundOverError)
        if left or kind is None:
            self._party.engine.round_over(self._party, self.number, left)
        return left
