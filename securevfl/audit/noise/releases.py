"""The noise of a recorded run: what was sent, less what it would be without noise.

What a row is without noise follows from the sender's columns, labels and state when it sent it, and
sigma from epsilon, delta and C by the audit's own lines. Nothing is read from the noise that a
party says it has added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from securevfl.audit.deviations import Declared
from securevfl.audit.noise.calibration import sigma_of
from securevfl.audit.recording.recorded_run import RecordedMessage, RecordedRun
from securevfl.engine import wire
from securevfl.protocols.base.messages import GaussianNoise, MessageKey, array_of
from securevfl.runs.threads import one_thread

_UNKNOWN = (KeyError, IndexError, StopIteration, ValueError, AttributeError, TypeError)
_ROUNDING = 1e-5  # of a float32 product and quotient, relative


@dataclass(frozen=True, eq=False)
class NoisyRelease:
    """Rows that were released together, with what they are without noise.

    Attributes
    ----------
    noise : GaussianNoise
    messages : tuple of RecordedMessage
        Those that it was sent in, each with a part of it.
    samples : ndarray, (all rows,)
        Training rows; -1 for padding.
    gradient : ndarray, (all rows, width)
        The release without clipping and noise.
    exact, clipped, sent : ndarray, (rows, width), float64
        Rows that are noised: before clipping, after it, and with noise.
    """

    noise: GaussianNoise
    messages: tuple[RecordedMessage, ...]
    samples: np.ndarray
    gradient: np.ndarray
    exact: np.ndarray
    clipped: np.ndarray
    sent: np.ndarray

    @property
    def key(self) -> MessageKey:
        """Of its first message."""
        return self.messages[0].key

    @property
    def sigma(self) -> float:
        """Standard deviation that epsilon, delta and C demand."""
        return sigma_of(self.noise)

    @property
    def noised_rows(self) -> np.ndarray:
        """Training rows of `sent`."""
        return self.samples[self.samples >= 0] if self.noise.mean_loss else self.samples

    @property
    def residual(self) -> np.ndarray:
        """Noise that was added, in units of sigma: independent standard normal, if as claimed."""
        residual: np.ndarray = (self.sent - self.clipped) / self.sigma
        return residual


@dataclass
class Releases:
    """All noisy releases of a run.

    Attributes
    ----------
    found : list of NoisyRelease
    faults : list of str
        What is not as declared, whatever was drawn.
    unknown : list of str
        Messages whose rows without noise could not be computed.
    """

    found: list[NoisyRelease] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


def clipped_to(rows: np.ndarray, bound: float) -> np.ndarray:
    """Rows of a norm of at most C, in float64."""
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    clipped: np.ndarray = rows * np.minimum(1.0, bound / np.maximum(norms, bound))
    return clipped


def releases_of(run: RecordedRun, asset: str) -> Releases:
    """Everything that was released with noise that protects an asset."""
    declared, made = Declared(run.protocol), Releases()
    groups: dict[tuple[object, ...], tuple[GaussianNoise, list[RecordedMessage]]] = {}
    for message in run.sent_to_others:
        spec = declared.spec_of(message.key)
        if spec is None or spec.noise is None or spec.noise.asset != asset:
            continue
        name: tuple[object, ...] = message.key[:3] if spec.noise.joint else message.key
        groups.setdefault(name, (spec.noise, []))[1].append(message)
    with one_thread():  # as the run was
        for noise, messages in groups.values():
            _collect(run, noise, messages, made)
    made.faults += _too_often(made.found)
    return made


def _collect(
    run: RecordedRun, noise: GaussianNoise, messages: list[RecordedMessage], made: Releases
) -> None:
    key = messages[0].key
    where = f"round {key.round}: {key.kind!r} from {_name(key.sender)}"
    try:
        exact, samples = noise.exact(run, key), noise.rows(run, key)
        sent = noise.whole(run, key) if noise.whole else array_of(messages[0].payload)
    except _UNKNOWN as error:
        made.unknown.append(f"{where} ({type(error).__name__}: {error})")
        return
    if sent is None or sent.shape != exact.shape or not np.isfinite(sent).all():
        found = "no array" if sent is None else f"an array of shape {sent.shape}, or no numbers"
        made.faults.append(f"{where}: it holds {found}, and its rows have shape {exact.shape}")
        return
    made.faults += [f"{where}: {fault}" for fault in _surroundings(run, noise, messages, sent)]
    made.faults += [f"{where}: {fault}" for fault in _padding(noise, samples, sent)]
    made.found.append(_release(noise, messages, samples, exact, sent))


def _release(
    noise: GaussianNoise,
    messages: list[RecordedMessage],
    samples: np.ndarray,
    exact: np.ndarray,
    sent: np.ndarray,
) -> NoisyRelease:
    rows, values = exact, sent.astype(np.float64)
    if noise.mean_loss:
        true = samples >= 0
        rows = exact[true] * np.float32(true.sum())
        values = values[true] * float(true.sum())
    rows = rows.astype(np.float64)
    clipped = clipped_to(rows, noise.clip)
    return NoisyRelease(noise, tuple(messages), samples, exact, rows, clipped, values)


def _surroundings(
    run: RecordedRun, noise: GaussianNoise, messages: list[RecordedMessage], whole: np.ndarray
) -> Iterable[str]:
    """Messages that hold more than their array, or another array than their part of the release."""
    for message in messages:
        array = array_of(message.payload)
        if array is None:
            yield "it holds no array"
            continue
        framed = noise.frame(run, message.key, array) if noise.frame else array
        if wire.encode(framed) != message.content:
            yield "besides its rows it holds something else, or they are named otherwise"
        if noise.part is not None and not _same(noise.part(run, message.key, whole), array):
            yield f"what {_name(message.key.receiver)} got is no part of one common release"


def _same(one: np.ndarray, other: np.ndarray) -> bool:
    return one.shape == other.shape and np.allclose(one, other, rtol=_ROUNDING, atol=1e-30)


def _padding(noise: GaussianNoise, samples: np.ndarray, sent: np.ndarray) -> Iterable[str]:
    if noise.mean_loss and np.any(sent[samples < 0]):
        yield "padding is not zero"


def _too_often(releases: Iterable[NoisyRelease]) -> Iterable[str]:
    """Rows of a sender that were released more often than its epsilon pays for."""
    counts: dict[int, Counter[int]] = {}
    allowed: dict[int, int] = {}
    for one in releases:
        rows = one.samples[one.samples >= 0].tolist()
        counts.setdefault(one.key.sender, Counter()).update(rows)
        sender = one.key.sender
        allowed[sender] = max(allowed.get(sender, 0), one.noise.releases)
    for sender, counted in counts.items():
        row, times = max(counted.items(), key=lambda item: item[1], default=(0, 0))
        if times > allowed[sender]:
            yield (
                f"{_name(sender)} released row {row} {times} times, and epsilon is of "
                f"{allowed[sender]}"
            )


def _name(party: int) -> str:
    return "the server" if party < 0 else f"client {party}"
