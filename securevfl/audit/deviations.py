"""Deviations of a recorded run from its protocol's declaration: the exact multiset of messages.

Each message must be declared between the roles of its sender and receiver, come as often as
declared, have the declared shape, and be what its formula makes of the secrets of the run, byte by
byte. What has no formula is named, so that no verdict counts it as computed.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from securevfl.audit.code_of_others import own_parts
from securevfl.audit.columns.told_columns import ToldColumns, told_columns_of
from securevfl.audit.recording.recorded_run import ForgottenError, RecordedMessage, RecordedRun
from securevfl.engine import wire
from securevfl.engine.party import ANNOUNCE, STOP
from securevfl.protocols.base.messages import SELF, MessageKey, MessageSpec, array_of
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread

# What is uniform, or pseudo-random, whatever the secrets are; and bytes that chance never repeats.
_RANDOM = ("data_share", "model_share", "mask", "masked_result", "key")
_LONG = 32


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
    without_formula : tuple of str
        Kinds of messages that were sent and that nothing could be compared with.
    forgotten : int
        Messages whose formula needs what the run does not hold any more.
    clear : tuple of (MessageKey, int)
        Messages that hold columns of a client, and the client, of those that no formula of the
        library explains: the first of each kind and sender.
    """

    deviations: tuple[Deviation, ...]
    messages: int
    computed: int
    without_formula: tuple[str, ...]
    forgotten: int = 0
    clear: tuple[tuple[MessageKey, int], ...] = ()

    def and_then(self, later: Comparison) -> Comparison:
        """This of a life of a run, and that of the next life."""
        return Comparison(
            (*self.deviations, *later.deviations),
            self.messages + later.messages,
            self.computed + later.computed,
            tuple(dict.fromkeys((*self.without_formula, *later.without_formula))),
            self.forgotten + later.forgotten,
            (*self.clear, *later.clear),
        )


def compare(run: RecordedRun) -> Comparison:
    """Compare all messages of a run, in whatever order they were sent."""
    comparer = Comparer(run)
    with one_thread():  # as the run was: sums of floats depend on the number of threads
        for message in run.messages:
            comparer.take(message)
    return comparer.result()


class Comparer:
    """Compares the messages of a run with the declaration, one after the other.

    A message can be compared once its round is over: formulas may ask who answered later.

    Parameters
    ----------
    run : RecordedRun
        Holds the messages that were sent so far.
    disturbed : bool
        Whether somebody is late, absent or wrong in the run: then formulas that hold for punctual
        parties only are left out.
    method : Protocol, optional
        Of a coded prediction, what trained, and says which uploads must be masked.

    Attributes
    ----------
    deviations : list of Deviation
    """

    def __init__(
        self, run: RecordedRun, *, disturbed: bool = False, method: Protocol | None = None
    ) -> None:
        self.deviations: list[Deviation] = []
        self._run, self._disturbed = run, disturbed
        self._declared = Declared(run.protocol, predicting=method is not None)
        self._times: Counter[MessageKey] = Counter()
        self._contents: dict[bytes, MessageKey] = {}  # of what is as good as random
        self._announced = Announced(disturbed)
        self._missing: dict[str, None] = {}
        self._clear: dict[tuple[str, int, int], tuple[MessageKey, int]] = {}
        self._told = None if method is not None else told_columns_of(run.protocol)
        self._others = bool(own_parts(method or run.protocol))  # formulas, too, are of others
        self._messages = self._computed = self._forgotten = 0

    def take(self, message: RecordedMessage) -> None:
        """Compare one message, which the run holds."""
        key = message.key
        own = key.sender == key.receiver
        self._messages += not own
        self._times[key] += 1
        spec = self._declared.spec_of(key)
        if self._told is not None:
            self._look_for_columns(self._told, spec, message)
        if spec is None:
            self._blame(key, "no such message is declared between their roles")
            return
        repeated = self._repeated(spec, message)
        once = self._too_often(spec, key) or self._announced.fault(message)
        for wrong in (_misshapen(spec, message), once, repeated):
            if wrong:
                self._blame(key, wrong)
        if spec.recompute is None or (spec.punctual and self._disturbed):
            if not own and not (spec.punctual and self._disturbed):
                self._missing[spec.kind] = None
            return
        try:
            wrong = _differs(self._run, spec, message)
        except ForgottenError:
            self._forgotten += 1
            return
        if wrong:
            self._blame(key, wrong)
        elif not own:
            self._computed += 1

    def result(self) -> Comparison:
        """Comparison of all messages so far."""
        return Comparison(
            tuple(self.deviations),
            self._messages,
            self._computed,
            tuple(self._missing),
            self._forgotten,
            tuple(self._clear.values()),
        )

    def _look_for_columns(
        self, told: ToldColumns, spec: MessageSpec | None, message: RecordedMessage
    ) -> None:
        """Note columns in the clear in what no formula of the library explains."""
        key, payload = message.key, message.payload
        explained = self._is_explained(spec)
        if not explained or (spec is not None and spec.public):
            told.note(key.round, payload)
        name = key.kind, key.sender, key.receiver
        if explained or key.sender == key.receiver or name in self._clear:
            return
        for n in told.within(key, payload, None if spec is None else spec.modulus):
            if n != key.receiver:
                self._clear[name] = key, n

    def _is_explained(self, spec: MessageSpec | None) -> bool:
        """Whether a formula of the library says what is in a message."""
        if spec is None or spec.recompute is None or self._others:
            return False
        return not (spec.punctual and self._disturbed)

    def _too_often(self, spec: MessageSpec, key: MessageKey) -> str:
        """`count` says 0 where there must be none."""
        allowed, times = 1 if spec.count is None else spec.count(key), self._times[key]
        return f"it was sent {times} times, declared is {allowed}" if times > allowed else ""

    def _repeated(self, spec: MessageSpec, message: RecordedMessage) -> str:
        """Fault of an array that only chance repeats, and that another message of the run had."""
        array = array_of(message.payload) if spec.carries in _RANDOM else None
        if array is None or array.nbytes < _LONG:
            return ""
        digest = hashlib.blake2b(array.tobytes(), digest_size=16).digest()
        first = self._contents.setdefault(digest, message.key)
        known = 3 if spec.carries == "key" else 4  # several receivers may hold one key
        if first[:known] == message.key[:known]:
            return ""
        return f"it holds the same array as {first.kind!r} of {_name(first.sender)} in round " + (
            f"{first.round}, and its masks or seeds must be others"
        )

    def _blame(self, key: MessageKey, what: str) -> None:
        self.deviations.append(Deviation(key, what))


class Declared:
    """The declaration of a protocol, by kind and roles.

    Parameters
    ----------
    protocol : Protocol
    predicting : bool
        Whether it is that of a coded prediction.
    """

    def __init__(self, protocol: Protocol, *, predicting: bool = False) -> None:
        self.messages = protocol.prediction_messages if predicting else protocol.messages
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


class Announced:
    """Announcements of a life of a run: rounds in a row, and none after the last word.

    Formulas do not see this. They give the content for the number that a message has, and that is
    "stop" for each number after the last round.

    Parameters
    ----------
    disturbed : bool
        Whether the sender may crash. Then it may go back, and announce a round to nobody.
    """

    def __init__(self, disturbed: bool) -> None:
        self._disturbed = disturbed
        self._before: dict[int, int] = {}  # round, by sender
        self._ended: dict[tuple[int, int], int] = {}  # round, by sender and receiver

    def fault(self, message: RecordedMessage) -> str:
        """Fault of a message after those before it, in words; empty for none."""
        key, payload = message.key, message.payload
        if key.kind not in (ANNOUNCE, STOP):
            return ""
        pair = (key.sender, key.receiver)
        if key.round > self._ended.get(pair, key.round):
            return f"the end was announced in round {self._ended[pair]}"
        if key.kind == STOP or (isinstance(payload, str) and payload == STOP):
            self._ended[pair] = key.round
        before = self._before.setdefault(key.sender, key.round)
        self._before[key.sender] = key.round
        in_a_row = self._disturbed or key.kind == STOP or key.round - before in (0, 1)
        return "" if in_a_row else f"the round before it was {before}"


def _misshapen(spec: MessageSpec, message: RecordedMessage) -> str:
    """Fault in the form of a payload, in words; empty where it is as declared."""
    wanted = None if spec.shape is None else spec.shape(message.key)
    if wanted is None:
        return ""
    array = array_of(message.payload)
    if array is None or array.shape != wanted or (spec.dtype and array.dtype.name != spec.dtype):
        found = "no array" if array is None else f"{array.dtype.name} of shape {array.shape}"
        return f"it holds {found}, declared is {spec.dtype} {wanted}"
    return ""


def _differs(run: RecordedRun, spec: MessageSpec, message: RecordedMessage) -> str:
    """Fault in the content of a payload, in words; empty where it is what its formula gives."""
    assert spec.recompute is not None
    try:
        wanted = spec.recompute(run, message.key)
    except ForgottenError:
        raise
    except (LookupError, StopIteration, ValueError) as error:
        return f"its formula needs what was not sent or drawn ({type(error).__name__}: {error})"
    same = wire.encode(wanted) == message.content
    return "" if same else "its payload is not what its formula gives"


def _name(party: int) -> str:
    return "the server" if party < 0 else f"client {party}"
