"""A coalition's view: what it received, sent, holds and drew, from a real transcript."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit.tapes import Tape
from securevfl.engine.transcript import Transcript
from securevfl.errors import ConfigurationError
from securevfl.privacy.coalition import Coalition


@dataclass(frozen=True)
class Sent:
    """One message of a view, with None for a payload not stored; times are virtual ns, or -1."""

    kind: str
    round: int
    sender: int
    receiver: int
    nbytes: int
    payload: Any
    sent: int
    arrived: int

    @property
    def envelope(self) -> tuple[str, int, int, int, int, int, int]:
        """All values but the payload, in the order of the fields, to compare two views."""
        ends = self.sender, self.receiver
        return (self.kind, self.round, *ends, self.nbytes, self.sent, self.arrived)


@dataclass(frozen=True)
class View:
    """Everything that a coalition has at the end of a run.

    Attributes
    ----------
    coalition : Coalition
        Its members.
    messages : tuple of Sent
        Messages sent or received by a member, in the order of sending; all messages for an
        outsider.
    tapes : mapping of int to Tape
        Randomness of its members.
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
        """Payloads of a kind by (round, sender, receiver); of one round or receiver if given."""
        return {
            (m.round, m.sender, m.receiver): m.payload
            for m in self.messages
            if m.kind == kind
            and (round is None or m.round == round)
            and (receiver is None or m.receiver == receiver)
        }

    def one_per_sender(self, kind: str, round: int, receiver: int) -> dict[int, Any]:
        """Payloads of `kind` that one receiver received in a round, by sender."""
        found = self.payloads(kind, round=round, receiver=receiver)
        return {sender: payload for (_, sender, _), payload in sorted(found.items())}

    def rounds(self, kind: str) -> list[int]:
        """Rounds with a message of this kind in the view, ascending."""
        return sorted({m.round for m in self.messages if m.kind == kind})

    def differences(self, other: View) -> Iterator[str]:
        """Differences between two views, bit for bit; empty if they are equal."""
        if self.coalition != other.coalition:
            yield f"coalitions {self.coalition} and {other.coalition}"
        if len(self.messages) != len(other.messages):
            yield f"{len(self.messages)} and {len(other.messages)} messages"
        for one, two in zip(self.messages, other.messages, strict=False):
            if one.envelope != two.envelope:
                yield f"messages {one.envelope} and {two.envelope}"
            elif not same(one.payload, two.payload):
                yield f"the payloads of {one.envelope}"
        for n in self.coalition.members:
            if not same(
                vars(self.tapes[n]) if n in self.tapes else None,
                vars(other.tapes[n]) if n in other.tapes else None,
            ):
                yield f"tapes of party {n}"
            if not same(self.inputs.get(n), other.inputs.get(n)):
                yield f"inputs of party {n}"


def same(one: Any, two: Any) -> bool:
    """Whether two values (arrays, containers, dataclasses) are equal to the last bit."""
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
    kinds: Mapping[str, str] | None = None,
) -> View:
    """View of a coalition from a transcript that stored its payloads.

    Parameters
    ----------
    transcript : Transcript
        Transcript made with ``payloads=True``.
    coalition : Coalition
        Coalition. An outsider sees all messages, as on links without encryption.
    tapes, inputs : mapping, optional
        Values by party; only those of members are used.
    kinds : mapping, optional
        Mapping from kinds in messages to names in the view.

    Raises
    ------
    ConfigurationError
        If the transcript stored no payloads.
    """
    if transcript.payloads is None:
        raise ConfigurationError(
            "views: the transcript kept no payloads; run with Transcript(payloads=True)"
        )
    columns = transcript.columns()
    names = ("kind", "round", "sender", "receiver", "bytes", "sent", "arrived")
    heads = zip(*(columns[name].tolist() for name in names), strict=True)
    members = set(coalition.members)
    seen = []
    for head, payload in zip(heads, transcript.payloads, strict=True):
        kind, number, sender, receiver, nbytes, *times = head
        kind = kind if kinds is None else kinds.get(kind, kind)
        upload = kind == "embedding" and sender in coalition.uploads
        if coalition.outsider or upload or sender in members or receiver in members:
            seen.append(Sent(kind, number, sender, receiver, nbytes, payload, *times))
    own = [n for n in coalition.members if n >= 0]
    return View(
        coalition,
        tuple(seen),
        {n: tapes[n] for n in own if tapes and n in tapes},
        {n: inputs[n] for n in own if inputs and n in inputs},
    )
