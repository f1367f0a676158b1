"""Check that the sums that a run lets the server decode keep the rules of docs/masking.md.

Each sum needs T + 2 sharers, and no row may stand in two sums of different models to each of which
K + T or more clients uploaded, unless a step moved the models between. This is counted from the
messages alone, without the code that keeps the rules. A step moves each entry of the embedding by
T + 2 clients at least, or sums of one row before and after it differ by what fewer did: this is
read off the states of clients, where nothing disturbed them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.audit.recorded_runs import kinds_of
from securevfl.audit.recording.recorded_run import RecordedMessage
from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.messages import array_of

_ODD = np.uint64(0x9E3779B97F4A7C15)


class AnnouncedSums:
    """Sums that were announced in a run of a coded protocol, and who uploaded to each.

    Parameters
    ----------
    protocol : CodedProtocol
    disturbed : bool
        Whether clients may miss steps.
    """

    def __init__(self, protocol: CodedProtocol, *, disturbed: bool = False) -> None:
        self._protocol, self._kinds = protocol, kinds_of(protocol)
        self._disturbed = disturbed
        self._models_of: dict[int, dict[int, np.ndarray]] = {}
        self._batches: dict[int, Any] = {}
        self._attempts: dict[int, Any] = {}
        self._uploaders: dict[int, set[int]] = {}
        self._steps: set[int] = set()

    def take(self, message: RecordedMessage) -> None:
        """Take in a message of the run."""
        kind, round, sender, _ = message.key
        name = self._kinds.get(kind, kind)
        if name == "round" and round not in self._batches:
            self._batches[round] = message.payload
        elif name == "attempt" and round not in self._attempts:
            self._attempts[round] = message.payload
        elif name == "shared" and not self._disturbed:
            self._note_model(round, sender, message.state.attributes().get("network"))
        elif name == "gradient" and round not in self._steps:
            array = array_of(message.payload)
            self._steps |= {round} if array is not None and array.any() else set()
        elif name == "embedding":
            self._uploaders.setdefault(round, set()).add(sender)

    def faults(self) -> Iterator[str]:
        """Rules that were broken."""
        if not self._protocol.masked:
            return
        code = self._protocol.code
        told = [r for r, who in self._uploaders.items() if len(who) >= code.segments + code.privacy]
        told = sorted(r for r in told if hasattr(self._attempts.get(r), "sharers"))
        for place, round in enumerate(told):
            yield from self._too_few(round)
            yield from self._few_moved(round, told[place + 1 :])
            for later in told[place + 1 :]:
                if any(round <= step < later for step in self._steps):
                    break
                yield from self._conflict(round, later)

    def _too_few(self, round: int) -> Iterator[str]:
        T, attempt = self._protocol.code.privacy, self._attempts[round]
        sharers = len(set(attempt.sharers))
        if sharers < T + 2:
            yield f"round {round}: a sum of {sharers} sharers, T = {T}"

    def _note_model(self, round: int, client: int, network: Any) -> None:
        """Keep a number for each column of a client's model, (h,) uint64, as of a round."""
        weight = np.asarray(network["weight"] if isinstance(network, Mapping) else 0.0)
        if weight.ndim == 2:
            words = np.ascontiguousarray(weight, np.float64).view(np.uint64)
            odd = np.arange(1, 2 * len(words), 2, dtype=np.uint64) * _ODD
            self._models_of.setdefault(round, {})[client] = (words * odd[:, None]).sum(0)

    def _few_moved(self, round: int, later: Sequence[int]) -> Iterator[str]:
        """A step after a sum, until the next one, by too few clients."""
        after = self._models_of.get(later[0]) if later and round in self._steps else None
        before = self._models_of.get(round)
        if after is None or before is None:
            return
        both = sorted(before.keys() & after.keys())
        if not both:
            return
        moved = np.sum([before[n] != after[n] for n in both], axis=0)
        needed = self._protocol.code.privacy + 2
        few = np.flatnonzero((moved > 0) & (moved < needed))
        if len(few):
            yield (
                f"round {round}: {moved[few[0]]} of {len(both)} clients moved entry {few[0]} of "
                f"their embeddings, and T + 2 = {needed} must, or none"
            )

    def _conflict(self, one: int, other: int) -> Iterator[str]:
        first, second = self._batches.get(one), self._batches.get(other)
        known = hasattr(first, "rows") and hasattr(second, "rows")
        if first is None or second is None or not known or first.part != second.part:
            return
        rows = set(first.rows.tolist()) & set(second.rows.tolist())
        if rows and self._models(one) != self._models(other):
            yield f"rounds {one} and {other} sum {len(rows)} rows over different models"

    def _models(self, round: int) -> frozenset[Any]:
        return frozenset(self._attempts[round].sharers)
