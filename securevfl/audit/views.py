"""The view of a coalition: what it received, sent, holds and drew, cut from a real transcript."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.audit.statistical import digest
from securevfl.engine.transcript import Transcript
from securevfl.errors import ConfigurationError
from securevfl.privacy.coalition import Coalition


@dataclass(frozen=True)
class Sent:
    """One message of a view; ``payload`` is None where only its size is seen."""

    kind: str
    round: int
    sender: int
    receiver: int
    nbytes: int
    payload: Any


@dataclass
class Tape:
    """The secret randomness of one party, in the order in which it was drawn.

    Attributes
    ----------
    draws : list of ndarray
        What was drawn; for a client of FedVS: Z for each part of the data, then for each round V
        and, of a dealer, the coefficients of rho.
    rounds : list of int
        The round in which each was drawn.
    digests : list of str
        Of what was drawn and forgotten.
    closed : bool
        Whether nothing is added any more.
    """

    draws: list[np.ndarray] = field(default_factory=list)
    rounds: list[int] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)
    closed: bool = field(default=False, compare=False)

    @property
    def drawn(self) -> int:
        """How much was drawn so far, with what was forgotten."""
        return len(self.draws) + len(self.digests)

    def forget(self, last: int) -> None:
        """Drop what was drawn in rounds up to `last`, but for the setup; keep digests of it."""
        held = [(d, r) for d, r in zip(self.draws, self.rounds, strict=True) if not 0 < r <= last]
        gone = [d for d, r in zip(self.draws, self.rounds, strict=True) if 0 < r <= last]
        self.digests += [digest([one]) for one in gone]
        self.draws, self.rounds = [d for d, _ in held], [r for _, r in held]

    def at(self, round: int) -> list[np.ndarray]:
        """What was drawn in a round; 0 is the setup."""
        return [draw for draw, r in zip(self.draws, self.rounds, strict=True) if r == round]


def record(party: Any, tape: Tape | None = None) -> Tape:
    """Let a party draw as it does, and keep what it draws on a tape, be it one that goes on."""
    tape, draw = Tape() if tape is None else tape, party.uniform

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        drawn: np.ndarray = draw(shape)
        if not tape.closed:
            tape.draws.append(drawn.copy())
            tape.rounds.append(party.round)
        return drawn

    party.uniform = uniform
    return tape


def replay(party: Any, tape: Tape) -> None:
    """Let a party draw from a tape instead; what it asks for must be what the tape has."""
    left = iter(tape.draws)

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        drawn = next(left, None)
        if drawn is None or drawn.shape != tuple(shape):
            has = "no more" if drawn is None else f"shape {drawn.shape}"
            raise ConfigurationError(
                f"tape of party {party.index}: shape {tuple(shape)} was asked for in round "
                f"{party.round}, the tape has {has}. Replay the configuration that was recorded"
            )
        return drawn.copy()

    party.uniform = uniform


@dataclass(frozen=True)
class View:
    """All that a coalition has at the end of a run.

    Attributes
    ----------
    coalition : Coalition
    messages : tuple of Sent
        Sent or received by a member, in the order of sending; to an outsider all messages.
    tapes : mapping of int to Tape
        Its members' randomness.
    inputs : mapping of int to object
        Its members' own data and models.
    """

    coalition: Coalition
    messages: tuple[Sent, ...]
    tapes: Mapping[int, Tape]
    inputs: Mapping[int, Any]

    def payloads(
        self, kind: str, *, round: int | None = None, receiver: int | None = None
    ) -> dict[tuple[int, int, int], Any]:
        """Payloads of a kind by (round, sender, receiver)."""
        return {
            (m.round, m.sender, m.receiver): m.payload
            for m in self.messages
            if m.kind == kind
            and (round is None or m.round == round)
            and (receiver is None or m.receiver == receiver)
        }

    def one_per_sender(self, kind: str, round: int, receiver: int) -> dict[int, Any]:
        """Payloads that one receiver got in a round, by sender."""
        found = self.payloads(kind, round=round, receiver=receiver)
        return {sender: payload for (_, sender, _), payload in sorted(found.items())}

    def rounds(self, kind: str) -> list[int]:
        """Rounds in which a kind of message was seen."""
        return sorted({m.round for m in self.messages if m.kind == kind})

    def differences(self, other: View) -> Iterator[str]:
        """What of two views is not the same, to the last bit; nothing where they are equal."""
        if self.coalition != other.coalition:
            yield f"coalitions {self.coalition} and {other.coalition}"
        if len(self.messages) != len(other.messages):
            yield f"{len(self.messages)} and {len(other.messages)} messages"
        for one, two in zip(self.messages, other.messages, strict=False):
            head = (one.kind, one.round, one.sender, one.receiver, one.nbytes)
            if head != (two.kind, two.round, two.sender, two.receiver, two.nbytes):
                yield f"messages {head} and {two}"
            elif not same(one.payload, two.payload):
                yield f"the payloads of {head}"
        for n in self.coalition.members:
            if not same(
                vars(self.tapes[n]) if n in self.tapes else None,
                vars(other.tapes[n]) if n in other.tapes else None,
            ):
                yield f"tapes of party {n}"
            if not same(self.inputs.get(n), other.inputs.get(n)):
                yield f"inputs of party {n}"


def same(one: Any, two: Any) -> bool:
    """Equality to the last bit of arrays, containers and dataclasses."""
    if isinstance(one, np.ndarray) or isinstance(two, np.ndarray):
        alike = isinstance(one, np.ndarray) and isinstance(two, np.ndarray)
        return alike and one.dtype == two.dtype and np.array_equal(one, two)
    if type(one) is not type(two):
        return False
    if isinstance(one, Mapping):
        return one.keys() == two.keys() and all(same(one[k], two[k]) for k in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(two) and all(map(same, one, two))
    if hasattr(one, "__dataclass_fields__"):
        return same(vars(one), vars(two))
    return bool(one == two)


def cut(
    transcript: Transcript,
    coalition: Coalition,
    *,
    tapes: Mapping[int, Tape] | None = None,
    inputs: Mapping[int, Any] | None = None,
    sealed: bool = False,
    kinds: Mapping[str, str] | None = None,
) -> View:
    """Cut the view of a coalition from a transcript that kept its payloads.

    Parameters
    ----------
    transcript : Transcript
        Made with ``payloads=True``.
    coalition : Coalition
        An outsider sees all envelopes and sizes, and on open links the payloads.
    tapes, inputs : mapping, optional
        By party; only those of the members are taken.
    sealed : bool
        Whether links were sealed, so that no outsider saw a payload; the transcript holds them in
        clear either way.
    kinds : mapping, optional
        Kind on the wire to the name by which it is called here.

    Raises
    ------
    ConfigurationError
        When the transcript kept no payloads.
    """
    if transcript.payloads is None:
        raise ConfigurationError(
            "views: the transcript kept no payloads; run with Transcript(payloads=True)"
        )
    columns = transcript.columns()
    names = ("kind", "round", "sender", "receiver", "bytes")
    heads = zip(*(columns[name].tolist() for name in names), strict=True)
    members = set(coalition.members)
    seen = []
    for head, payload in zip(heads, transcript.payloads, strict=True):
        kind, number, sender, receiver, nbytes = head
        kind = kind if kinds is None else kinds.get(kind, kind)
        upload = kind == "embedding" and sender in coalition.uploads
        if coalition.outsider or upload or sender in members or receiver in members:
            hidden = sealed and not upload and members.isdisjoint((sender, receiver))
            shown = None if hidden else payload
            seen.append(Sent(kind, number, sender, receiver, nbytes, shown))
    own = [n for n in coalition.members if n >= 0]
    return View(
        coalition,
        tuple(seen),
        {n: tapes[n] for n in own if tapes and n in tapes},
        {n: inputs[n] for n in own if inputs and n in inputs},
    )
