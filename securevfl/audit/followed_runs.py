"""Runs of a configuration that are held against its declaration while they are made.

One run is the configuration itself: its options, all its rows and columns, all its rounds. Others
are its settings: somebody is late, attempts fail, parties crash, uploads are wrong, the run is
resumed. Of each run two things are kept: how its messages compare with the declaration, and its
traffic.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit.deviations import Comparer, Comparison, Declared
from securevfl.audit.recording.recorded_run import RecordedMessage, RecordedRun
from securevfl.audit.recording.recorder import Recorder
from securevfl.audit.traffic.seen import History, Traffic, envelopes_of, is_zero
from securevfl.audit.traffic.setting import Setting, schedule_of
from securevfl.engine.network import PartyState, Sending
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.errors import RunError
from securevfl.protocols.base.messages import UPLOADS, MessageKey
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread

HELD = 256 * 2**20  # bytes of messages that a followed run holds
MOST = 4 * 2**30  # bytes of messages after which it is broken off
_SAID = 20  # rounds after which progress is told
_REPEATED = 2  # rounds after a checkpoint that are made again in another life
_ENOUGH = 20  # messages that are not as declared, after which nothing more is to be learned


@dataclass(frozen=True)
class Followed:
    """Findings about one run, which stay when its messages are forgotten.

    Attributes
    ----------
    setting : Setting
    comparison : Comparison
    traffic : Traffic
    rounds : int
        Newest round that the server announced.
    ended : str
        Why the run ended before its end; empty where it did not.
    """

    setting: Setting
    comparison: Comparison
    traffic: Traffic
    rounds: int
    ended: str = ""


@dataclass(frozen=True)
class Predicting:
    """A coded prediction, to be followed as a run of its own.

    Attributes
    ----------
    method : Protocol
        That trained, and says which uploads must be masked.
    parties : dict of int to Party
        Of the prediction.
    """

    method: Protocol
    parties: dict[int, Party]


def follow(
    protocol: Protocol,
    setting: Setting,
    progress: Callable[[str], None] | None = None,
    predicting: Predicting | None = None,
) -> Followed:
    """Run a protocol in a setting and hold it against its declaration.

    An error with which the run itself ends, such as too few results, ends it here as well: what was
    sent before it was compared.

    Parameters
    ----------
    protocol : Protocol
    setting : Setting
        Its options are those of the protocol already.
    progress : callable, optional
        Told the round now and then.
    predicting : Predicting, optional
        What is run, of a protocol that is `Protocol.predicting`.
    """
    one = _FollowedRun(protocol, setting, progress, predicting)
    ended = one.make()
    return Followed(
        setting,
        functools.reduce(Comparison.and_then, (life.comparer.result() for life in one.lives)),
        Traffic(
            *(envelopes_of(one.simulation.transcript), tuple(one.controls)),
            *(tuple(one.history.events), one.still),
        ),
        one.newest,
        ended,
    )


@dataclass(frozen=True)
class _Checkpoint:
    """State, newest round and messages of a run at a checkpoint."""

    state: dict[str, Any]
    round: int
    messages: list[RecordedMessage]


class _Life:
    """Part of a run from its beginning, or from a checkpoint that it was resumed from.

    Parameters
    ----------
    run : RecordedRun
        Its messages are those of this life, and what its checkpoint had of earlier ones.
    setting : Setting
    method : Protocol or None
        As for `Comparer`.
    """

    def __init__(self, run: RecordedRun, setting: Setting, method: Protocol | None = None) -> None:
        self.run = run
        self.comparer = Comparer(run, disturbed=setting.disturbed, method=method)


class _FollowedRun:
    """The run while it is made, in one life or two."""

    def __init__(
        self,
        protocol: Protocol,
        setting: Setting,
        progress: Callable[[str], None] | None,
        predicting: Predicting | None,
    ) -> None:
        self.protocol, self.setting = protocol, setting
        self._progress = progress
        if predicting is None:
            run = RecordedRun(protocol, protocol.parties(), Transcript(), HELD)
            self.lives = [_Life(run, setting)]
        else:
            run = RecordedRun(protocol, predicting.parties, Transcript(), HELD)
            self.lives = [_Life(run, setting, predicting.method)]
        self.controls: list[tuple[MessageKey, str]] = []
        self.history = History()
        self.still: MessageKey | None = None
        self.newest = self.sent = 0
        self._pending: list[RecordedMessage] = []
        self._declared = Declared(protocol, predicting=predicting is not None)
        self._checkpoint: _Checkpoint | None = None
        self._asked = False
        self.simulation = _Disturbed(
            dict(run.parties), seed=protocol.seed, transcript=run.transcript, **self._parts()
        )

    @property
    def run(self) -> RecordedRun:
        """The present life."""
        return self.lives[-1].run

    def make(self) -> str:
        """Run to the end; returns why it ended before."""
        with one_thread():
            try:
                self._first_life()
                if self._checkpoint is not None:
                    self._compare()
                    self._resume(self._checkpoint)
                    self.simulation.run(self._pause)
            except RunError as error:
                return str(error)
            finally:
                self._compare()
        return "" if self.simulation.finished else "it was broken off"

    def _first_life(self) -> None:
        try:
            self.simulation.run(self._pause)
        except RunError:
            if self._checkpoint is None:  # else it was to be resumed anyway
                raise

    def _parts(self) -> dict[str, Any]:
        made, setting = self.protocol, self.setting
        return {
            "recorded": self.run,
            "follow": self._take,
            "wrong": self._wrong(),
            "loses_notes": setting.loses_notes,
            "observer": self.history,
            "secrets": made.secrets,
            "conditions": setting.conditions,
            "faults": schedule_of(made, setting),
            "make_party": self.protocol.party,
        }

    def _wrong(self) -> Callable[[MessageKey], bool]:
        clients = tuple(self.protocol.peers())[: self.setting.wrong_uploads]

        def wrong(key: MessageKey) -> bool:
            spec = self._declared.spec_of(key)
            return spec is not None and spec.carries in UPLOADS and key.sender in clients

        return wrong if self.setting.wrong_uploads else lambda key: False

    def _take(self, message: RecordedMessage) -> None:
        self.sent += len(message.content)
        spec = self._declared.spec_of(message.key)
        if spec is not None and (spec.public or spec.carries == "control"):
            self.controls.append((message.key, hashlib.sha256(message.content).hexdigest()))
        if spec is not None and spec.carries == "gradient" and is_zero(message.payload):
            self.still = self.still or message.key
        self._pending.append(message)
        if message.key.round > self.newest:
            self.newest = message.key.round
            self._compare(self.newest - 2)
            if self._progress is not None and self.newest % _SAID == 0:
                self._progress(f"{self.setting.name}, round {self.newest}")

    def _compare(self, last: int | None = None) -> None:
        """Compare what is left of rounds up to `last`; some formulas ask who answered later."""
        waiting, due = list[RecordedMessage](), list[RecordedMessage]()
        for message in self._pending:
            ready = last is None or message.key.round <= last
            (due if ready else waiting).append(message)
        self._pending = waiting
        for message in due:
            self.lives[-1].comparer.take(message)

    def _pause(self) -> bool:
        resumed_in = self.setting.resumed_in
        if resumed_in and self.newest >= resumed_in and not self._asked:
            self._asked = True
            self.simulation.request_state(self._keep)
        back = self._checkpoint if len(self.lives) == 1 else None
        if back is not None and self.newest >= back.round + _REPEATED:
            return True
        return len(self.lives[-1].comparer.deviations) >= _ENOUGH or self.sent > MOST

    def _keep(self, state: dict[str, Any]) -> None:
        """Note where the run stands; it goes on, and comes back here."""
        self._checkpoint = _Checkpoint(state, self.newest, list(self.run.messages))

    def _resume(self, checkpoint: _Checkpoint) -> None:
        """Begin another life at a checkpoint, as a run folder is resumed."""
        run = self.run.again(checkpoint.messages)
        self._pending = list(run.messages)
        self.lives.append(_Life(run, self.setting))
        parties = self.protocol.parties()
        self.newest = checkpoint.round
        made = _Disturbed.from_state(
            parties, checkpoint.state, resumption=run.resumptions, **self._parts()
        )
        assert isinstance(made, _Disturbed)
        self.simulation, run.parties, run.transcript = made, parties, made.transcript


class _Disturbed(Recorder):
    """A recorder in which some clients upload random elements, or notes are lost."""

    def __init__(
        self,
        parties: Any,
        *,
        wrong: Callable[[MessageKey], bool],
        loses_notes: bool,
        **options: Any,
    ) -> None:
        super().__init__(parties, **options)
        self._wrong = wrong
        self._loses_notes = loses_notes
        self._stream = np.random.Generator(np.random.Philox(1))

    def send(self, sending: Sending) -> None:
        """Send; wrong uploads are sent, but not recorded."""
        index = sending.party.index
        wrong = any(
            self._wrong(MessageKey(sending.kind, sending.round, index, n)) for n in sending.to
        )
        if wrong:
            noise = [
                self._stream.integers(0, 2**16, one.shape).astype(one.dtype)
                for one in sending.payloads
            ]
            Simulation.send(self, sending._replace(payloads=noise))
            return
        super().send(sending)

    def write_ahead(self, party: PartyState) -> None:
        """Keep it unless notes are lost."""
        if not self._loses_notes:
            super().write_ahead(party)
