"""Where a recorded run deviates from its protocol's declaration: the exact multiset of messages.

Each message must be declared between the roles of its sender and receiver, come as often as
declared, have the declared shape, and be what its formula makes of the secrets of the run, byte by
byte. What has no formula is named, so that no verdict counts it as computed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from securevfl.audit.recording import RecordedMessage, RecordedRun
from securevfl.engine import wire
from securevfl.protocols.base.messages import SELF, MessageKey, MessageSpec, array_of
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread


@dataclass(frozen=True)
class Deviation:
    """One message, or one that is missing, that is not as declared.

    Attributes
    ----------
    key : MessageKey
    what : str
        What is wrong with it.
    """

    key: MessageKey
    what: str

    def __str__(self) -> str:
        kind, round, sender, receiver = self.key
        return f"round {round}: {kind!r} from {_name(sender)} to {_name(receiver)}: {self.what}"


@dataclass(frozen=True)
class Comparison:
    """A run against the declaration.

    Attributes
    ----------
    deviations : tuple of Deviation
    messages, computed : int
        Messages between two parties, and those of them that equal their formula.
    without_formula : tuple of MessageSpec
        Declarations of messages that were sent and that nothing could be compared with.
    """

    deviations: tuple[Deviation, ...]
    messages: int
    computed: int
    without_formula: tuple[MessageSpec, ...]


def compare(run: RecordedRun) -> Comparison:
    """Compare all messages of a run, in whatever order they were sent."""
    with one_thread():  # as the run was: sums of floats depend on the number of threads
        return _compare(run, Declared(run.protocol))


def _compare(run: RecordedRun, declared: Declared) -> Comparison:
    wrong: list[Deviation] = []
    missing: dict[tuple[str, str, str], MessageSpec] = {}
    computed = 0
    for message in run.messages:
        spec = declared.spec_of(message.key)
        if spec is None:
            wrong.append(Deviation(message.key, "no such message is declared between their roles"))
            continue
        own = message.key.sender == message.key.receiver
        wrong += _misshapen(spec, message)
        if spec.recompute is None and not own:
            missing[spec.kind, spec.sender, spec.receiver] = spec
        elif spec.recompute is not None:
            fault = _differs(run, spec, message)
            wrong += [Deviation(message.key, fault)] if fault else []
            computed += not fault and not own
    wrong += _miscounted(run, declared)
    total = sum(1 for _ in run.sent_to_others)
    return Comparison(tuple(wrong), total, computed, tuple(missing.values()))


class Declared:
    """The declaration of a protocol, by kind and roles."""

    def __init__(self, protocol: Protocol) -> None:
        self.messages = protocol.messages
        self.roles: Mapping[str, tuple[int, ...]] = protocol.roles()

    def spec_of(self, key: MessageKey) -> MessageSpec | None:
        """The declaration that a message falls under; None for none."""
        return next((spec for spec in self.messages if self.covers(spec, key)), None)

    def covers(self, spec: MessageSpec, key: MessageKey) -> bool:
        """Whether kind, sender and receiver are those of a declaration."""
        if spec.kind != key.kind or key.sender not in self.roles.get(spec.sender, ()):
            return False
        if spec.receiver == SELF:
            return key.sender == key.receiver
        return key.receiver in self.roles.get(spec.receiver, ())


def _misshapen(spec: MessageSpec, message: RecordedMessage) -> Iterator[Deviation]:
    wanted = None if spec.shape is None else spec.shape(message.key)
    if wanted is None:
        return
    array = array_of(message.payload)
    if array is None or array.shape != wanted or (spec.dtype and array.dtype.name != spec.dtype):
        found = "no array" if array is None else f"{array.dtype.name} of shape {array.shape}"
        yield Deviation(message.key, f"it holds {found}, declared is {spec.dtype} {wanted}")


def _differs(run: RecordedRun, spec: MessageSpec, message: RecordedMessage) -> str:
    """What is wrong with a payload; empty where it is what its formula gives."""
    assert spec.recompute is not None
    try:
        wanted = spec.recompute(run, message.key)
    except (KeyError, IndexError, StopIteration) as error:
        return f"its formula needs what was not sent or drawn ({type(error).__name__}: {error})"
    same = wire.encode(wanted) == message.content
    return "" if same else "its payload is not what its formula gives"


def _miscounted(run: RecordedRun, declared: Declared) -> Iterator[Deviation]:
    """Messages that come more often than declared; `count` says 0 where there must be none."""
    found = Counter(message.key for message in run.messages)
    for key, times in found.items():
        spec = declared.spec_of(key)
        if spec is None:
            continue
        allowed = 1 if spec.count is None else spec.count(key)
        if times > allowed:
            yield Deviation(key, f"it was sent {times} times, declared is {allowed}")


def _name(party: int) -> str:
    return "the server" if party < 0 else f"client {party}"
