"""Recorded runs of protocols whose models stay in shares, with their whole randomness as a tape."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from securevfl.audit import randomness
from securevfl.audit.keyed.keystreams import Place, Questions, Seeds, asked, programmed
from securevfl.audit.recording.recorded_run import RecordedRun
from securevfl.audit.recording.recorder import Recorder, keep_draws
from securevfl.audit.tapes import Tape, replay_draws
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.party import SERVER, Party
from securevfl.engine.transcript import Transcript
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.shared_models import Integers, SharedModels, Use
from securevfl.runs.threads import one_thread

Change = Callable[[Mapping[int, Any]], None]
Seen = tuple[Any, ...]  # one message as a coalition sees it: key, size, times, content
DIGEST = 32  # bytes
_DOWN = (3, 4)  # rounds between which holders are away
_SHARED = {"engine", "public"}  # what all parties of a simulation have: the clock, and options
_DEEP = 6  # attributes of attributes that are looked into


@dataclass(frozen=True)
class Draws:
    """Draws of parties in a run that is made again.

    Attributes
    ----------
    elements : mapping of int to Tape
        Z and V of each owner.
    secrets : mapping of int to list of bytes
        Keys of each holder, and the server's secret.
    streams : mapping
        Answers of the pseudo-random function that are moved, by key and label.
    seeds : callable, optional
        Derived keys that are moved.
    """

    elements: Mapping[int, Tape]
    secrets: Mapping[int, Sequence[bytes]]
    streams: Mapping[Place, np.ndarray] = field(default_factory=dict)
    seeds: Seeds | None = None


@dataclass
class KeyedRun:
    """One run with everything that was drawn.

    Attributes
    ----------
    protocol : SharedModels
    run : RecordedRun
    integers : mapping of int to Integers
        What each owner shared.
    secrets : dict of int to list of bytes
        Secret bytes that each party drew, in order.
    questions : Questions
        What the pseudo-random function was asked.
    log : randomness.Log
        Calls of the sampler, and keys from the operating system.
    """

    protocol: SharedModels
    run: RecordedRun
    integers: Mapping[int, Integers]
    secrets: dict[int, list[bytes]]
    questions: Questions
    log: randomness.Log

    @property
    def server(self) -> Any:
        """The server as it ended."""
        return self.run.parties[SERVER]

    @cached_property
    def steps(self) -> Mapping[int, np.ndarray]:
        """Gbar of each step by number, (K, |B|, h), in the server's state when it dealt them.

        At the end the server has forgotten those that every holder has stored.
        """
        found: dict[int, np.ndarray] = {}
        for message in self.run.messages:
            number, deals = message.key.round, message.key.kind in ("deal", "seed")
            if deals and message.key.sender == SERVER and number not in found:
                state = message.state.attributes()
                found[number] = state["log"][number - state.get("forgotten", 0) - 1]
        return found

    @cached_property
    def dealt(self) -> Mapping[int, Sequence[np.ndarray]]:
        """Shares of all holders of each step, as the server deals them."""
        deal, secret = self.server.dealing, self.server.secret
        return {t: deal.shares(secret, t, step) for t, step in self.steps.items()}

    @cached_property
    def own_digests(self) -> Mapping[int, bytes]:
        """The digest of each step, as the server computes it."""
        deal, secret = self.server.dealing, self.server.secret
        return {t: deal.digest(secret, t, step) for t, step in self.steps.items()}

    @cached_property
    def digests(self) -> Mapping[int, bytes]:
        """The digest of the steps 1 to t, by t from 0; that of no steps is zero."""
        found = {0: bytes(DIGEST)}
        for t, own in sorted(self.own_digests.items()):
            found[t] = bytes(a ^ b for a, b in zip(found[t - 1], own, strict=True))
        return found

    def uses(self) -> dict[int, tuple[Use, bytes]]:
        """The uses of the masks in a run by round, each with the label that it must have."""
        rounds = range(1, self.protocol.last_use + 1)
        uses = {round: self.protocol.use_of(round) for round in rounds}
        return {round: (use, use.label(self.digests[use.steps])) for round, use in uses.items()}

    @cached_property
    def keys(self) -> dict[int, bytes]:
        """Every key as it was drawn, by its place; what was drawn anew later is not among them."""
        prss, found = self.protocol.prss, dict[int, bytes]()
        for holder in range(self.protocol.code.parties):
            drawn = self.secrets.get(holder, ())
            found |= dict(zip(prss.dealt(holder), drawn, strict=False))
        return found

    def view(self, members: Sequence[int]) -> list[Seen]:
        """Messages that some parties send, receive, or put into their own mailbox, in order."""
        columns, seen = self.run.transcript.columns(), []
        times = zip(columns["bytes"], columns["sent"], columns["arrived"], strict=True)
        for message in self.run.messages:
            key = message.key
            when = () if key.sender == key.receiver else tuple(int(v) for v in next(times))
            if {key.sender, key.receiver} & set(members):
                seen.append((key, when, message.content))
        return seen


def known_to(party: Any) -> str:
    """Digest of all values that a party holds, in whatever attribute and however deep.

    Its view tells what it may hold. What a party holds besides has come to it by another way than
    a message: through an object that parties share, for example.
    """
    seen, known = hashlib.sha256(), dict[int, Any]()
    for _ in _values(getattr(party, "public", None), _DEEP, known):  # its caches may differ
        pass
    for one in _values({k: v for k, v in vars(party).items() if k not in _SHARED}, _DEEP, known):
        seen.update(one)
    return seen.hexdigest()


def _values(thing: Any, deep: int, known: dict[int, Any]) -> Iterator[bytes]:
    """Every value in a thing, as bytes; functions, classes and modules have none."""
    if thing is None or isinstance(thing, (bool, int, float, complex, str, bytes, np.generic)):
        yield repr(thing).encode()
    elif isinstance(thing, np.ndarray):
        yield f"{thing.dtype} {thing.shape}".encode() + np.ascontiguousarray(thing).tobytes()
    elif deep and id(thing) not in known:
        known[id(thing)] = thing  # kept, so that no other thing gets its number
        if isinstance(thing, Mapping):
            for key in sorted(thing, key=repr):
                yield repr(key).encode()
                yield from _values(thing[key], deep - 1, known)
        elif isinstance(thing, (list, tuple)):
            for one in thing:
                yield from _values(one, deep - 1, known)
        elif isinstance(thing, (set, frozenset)):
            for one in sorted(thing, key=repr):
                yield from _values(one, deep - 1, known)
        elif hasattr(thing, "detach") and hasattr(thing, "numpy"):
            yield from _values(thing.numpy(force=True), deep, known)
        elif not callable(thing) or hasattr(thing, "state_dict"):
            yield from _values(getattr(thing, "__dict__", {}), deep - 1, known)


def record_keyed(
    protocol: SharedModels,
    *,
    change: Change | None = None,
    draws: Draws | None = None,
    restarted: Sequence[int] = (),
) -> KeyedRun:
    """Run a protocol and keep everything.

    Parameters
    ----------
    protocol : SharedModels
    change : callable, optional
        Gives parties other secrets before they begin, those that it is told of.
    draws : Draws, optional
        What they draw instead of fresh values.
    restarted : sequence of int
        Holders that crash in round 3 and come back from what they have stored.
    """
    parties = protocol.parties()
    if change is not None:
        change(parties)
    integers = {n: protocol.integers(parties[n]) for n in range(protocol.owners)}
    made = KeyedRun(
        protocol,
        RecordedRun(protocol, parties, Transcript()),
        integers,
        {},
        Questions(),
        randomness.Log(),
    )
    for party in parties.values():
        _follow(made, party, draws)
    faults = Faults(outages=tuple(Outage(n, rounds=_DOWN) for n in restarted))
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        if draws is None:
            made.questions = stack.enter_context(asked())
            made.log = stack.enter_context(randomness.watch())
        else:
            stack.enter_context(programmed(draws.streams, draws.seeds))
        Recorder(
            parties,
            recorded=made.run,
            seed=protocol.seed,
            secrets=protocol.secrets,
            transcript=made.run.transcript,
            faults=faults.bind(protocol.roles(), protocol.seed, last=protocol.last_fault),
            make_party=lambda index: _returned(made, index, change),
        ).run()
    return made


def _returned(made: KeyedRun, index: int, change: Change | None) -> Party:
    """A party that comes back: as it was made, with what it draws now added to its tape."""
    party = made.protocol.party(index)
    if change is not None:
        change({index: party})
    _follow(made, party, None)
    return party


def _follow(made: KeyedRun, party: Any, draws: Draws | None) -> None:
    """Keep what a party draws, or let it draw what is given."""
    index = party.index
    if draws is not None and index in draws.elements:
        replay_draws(party, draws.elements[index])
    keep_draws(made.run, party)
    if not hasattr(party, "secret_bytes"):
        return
    draw = party.secret_bytes
    if draws is not None:
        draw = _given(index, iter(draws.secrets.get(index, ())))
    kept = made.secrets.setdefault(index, [])

    def secret_bytes(count: int) -> bytes:
        kept.append(draw(count))
        return kept[-1]

    party.secret_bytes = secret_bytes


def _given(index: int, left: Iterator[bytes]) -> Callable[[int], bytes]:
    def draw(count: int) -> bytes:
        found = next(left, None)
        if found is None or len(found) != count:
            has = "none" if found is None else f"{len(found)}"
            raise ConfigurationError(
                f"tape of party {index}: {count} secret bytes were asked for, the tape has {has}. "
                "Replay the configuration that was recorded"
            )
        return found

    return draw
