"""The base class of parties: the interface between the author of a protocol and the engine.

A protocol author derives from `Party` and writes `setup` and `run` as plain coroutines. They await
only methods of this class. So the engine decides when things happen, can replay them, and can run
the same file in virtual time or over processes.

The attributes named in `kept` are the state of a party; everything else must follow from them. At
each safe point (the top of a loop over `rounds`, a wait with ``safe=True``, or `safe_point`)
calling `run` anew on an object whose kept attributes are restored must go on as if nothing had
happened.
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
__all__ += ["Kept", "kept_as"]

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
        "copied": by a copy at each safe point. "once": `setup` fills it and nothing changes it, as
        data shares; a checkpoint writes it once. "frozen": it is replaced and never changed in
        place, as a tuple of arrays that grows long; a safe point keeps a reference. "passing":
        copied, and the files of a finished run leave it out.
    ahead : bool
        `Party.write_ahead` writes it between safe points. A party that comes back after a crash has
        it as it was written last.
    shares : bool
        The trained models are in it, as shares. Masks of the operating system make them differ in
        two runs of one seed, so comparisons of results leave them out; the files of a finished run
        hold them, where they are not "passing".
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
        objects with ``state_dict`` and ``load_state_dict`` (torch modules and optimisers). Names of
        `kept_as` are kept in another way than by a copy.
    begins_once : bool
        What the party writes ahead are counts that hold for all of its lives, such as releases that
        a guarantee pays for. Once it has written them, it does not begin its run anew.
    resumes_measured : bool
        Whether a simulation in which computing is measured may be resumed. It repeats the round in
        flight in another order, with secrets that were drawn before: with other survivors, say.
    activities : mapping
        Delay class ("upload" or "share") of each kind of message that costs the sender work. The
        conditions of a run delay messages by this class.
    round_ends : tuple of str
        Kinds of the server's messages that say that their own round is over. Every message of the
        server says so of older rounds. Where delays abort, work of a round that is over is dropped.
    counts_rounds : bool
        Whether the server's steps (its events "round") are the rounds that scripted outages count
        by, because its clients begin rounds of their own.
    index : int
        Number of the party, from 0; `SERVER` for the server.
    peers : sequence of int
        Numbers of all clients, this one included where it is a client.
    round, epoch : int
        Number of its present round (0 in setup), and of its incarnation: how often it was
        restarted.
    signing : Signing or None
        Keys by which the party signs what it says, where a manifest has keys of all parties. No
        checkpoint holds it.
    resumptions : int
        How often the simulation that it takes part in was resumed. 0 on other engines, where a
        party of a resumed run is a new incarnation.
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

        Only conditions with modelled computing ask, once for each call that sends, whatever the
        number of receivers: the party is busy for as long, and then the message departs.
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
        round : int, optional
            The round that it belongs to; the current one if not given.
        after : float
            Seconds by which it departs later, at least 0; later messages do not wait for it.
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
        """Payload of the next message of any of these kinds; `envelope` then holds its envelope.

        Inside ``with round_`` only messages of that round are accepted; elsewhere those of every
        round, unless `round` says otherwise. With `sender` only those of that party are.
        TimeoutError when `timeout` seconds have passed.
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
            Number of payloads needed; all of `senders` if not given.
        senders : iterable of int, optional
            Accepted senders; all peers if not given.
        round : int, optional
            The round that is collected, at least 0; the current one if not given.
        timeout : float, optional
            Seconds after which the payloads that have arrived are returned, even if fewer.
        safe : bool
            Whether the wait is a safe point.
        groups : tuple of tuple of int
            Where given, the wait goes on until groups of senders that are here whole have `count`
            members; the payloads of others that came are returned with theirs.
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
        It gets at once the messages of the kind that have arrived before.
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
        """End the loops over `rounds` at the other parties."""
        self.round += 1
        self.broadcast(ANNOUNCE, STOP, to)

    def rounds(self) -> Rounds:
        """Iterate over announced rounds; each step is a safe point. Use ``with`` on each item."""
        return Rounds(self)

    def safe_point(self) -> None:
        """Declare that the kept attributes are now the party's whole state.

        A handler may do so while its party waits at a safe point.
        """
        self.engine.safe_point(self)

    def write_ahead(self) -> None:
        """Store the attributes declared with `ahead=True` now, so that a crash cannot undo them.

        Call it before a message leaves that the party must not forget to have sent. It is no safe
        point: the rest of the state stays what it was at the last one.
        """
        self.engine.write_ahead(self)

    @property
    def returned(self) -> bool:
        """Whether this incarnation began from a checkpoint that an earlier one wrote."""
        return self.epoch != self.saved_epoch

    @property
    def life(self) -> int:
        """Number of this incarnation (start) of the party, unique also among resumed runs.

        A party that returns to an earlier round draws new random values there. A key that is used
        with this number and the round is therefore never used for two different values.
        """
        return (self.resumptions << 32) + self.epoch

    def to_checkpoint(self, value: object) -> object:
        """A value of the state for a checkpoint; see `securevfl.verified.Participant`."""
        return value

    def from_checkpoint(self, value: object) -> object:
        """A value of the state from a checkpoint (inverse of `to_checkpoint`)."""
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

        In a simulation it is a function of the secret seed. Masks and noise need more than this:
        see `securevfl.engine.streams.OwnEntropy`.
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
    payload : payload of `securevfl.engine.wire`
        Payload of the announcement.
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
