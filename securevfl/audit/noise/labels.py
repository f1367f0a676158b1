"""Tests that labels were randomised as declared: at the rate of epsilon, once, from fresh keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit.noise.calibration import keep_probability
from securevfl.audit.noise.origin import GivenKey
from securevfl.audit.recording.recorded_run import RecordedRun
from securevfl.audit.statistical import Outcome
from securevfl.privacy.mechanisms import randomised_response
from securevfl.protocols.base.messages import MessageKey, RandomisedLabels

_BLOCKS = 4  # parts of the rows, each tested on its own


@dataclass(frozen=True)
class Answers:
    """The labels of one run, true and as they were used.

    Attributes
    ----------
    true, used : ndarray, (M,)
    fault : str
        What is wrong with them, whatever was drawn; empty for nothing.
    """

    true: np.ndarray
    used: np.ndarray
    fault: str = ""


@dataclass(frozen=True)
class _AsKept:
    """The secrets of a run, with what each party itself kept from its setup."""

    run: RecordedRun

    def __getattr__(self, name: str) -> Any:
        return getattr(self.run, name)

    def state(self, key: MessageKey) -> Mapping[str, Any]:
        """Kept attributes of the sender; those of its setup as it had them."""
        return {**self.run.state(key), **self.run.by_key[key][0].state.from_setup}


def answers_of(run: RecordedRun, declared: RandomisedLabels) -> Answers:
    """The labels that a party trained on, which must be the same at every message.

    Raises
    ------
    ValueError
        When the party sent nothing after the first round began.
    """
    senders = run.protocol.roles()[declared.role]
    true = np.asarray(declared.true(run))
    sent = [m.key for m in run.messages if m.key.sender in senders and m.key.round > 0]
    kept: Any = _AsKept(run)
    used = [np.asarray(declared.used(kept, key)) for key in sent]
    if not used:
        raise ValueError("no labels were used")
    if any(not np.array_equal(used[0], one) for one in used):
        return Answers(true, used[0], "the labels change during the run, so they were drawn again")
    if used[0].shape != true.shape:
        return Answers(true, used[0], f"there are {used[0].size} labels of {true.size} rows")
    return Answers(true, used[0])


def drawn_by(answers: Answers, declared: RandomisedLabels, keys: Sequence[bytes]) -> bool:
    """Whether some key of the operating system gives exactly these labels."""
    return any(
        np.array_equal(
            randomised_response(answers.true, declared.classes, declared.epsilon, GivenKey(key)),
            answers.used,
        )
        for key in keys
    )


def tests_of(runs: Sequence[Answers], declared: RandomisedLabels, level: float) -> list[Outcome]:
    """Exact binomial tests of several runs with the same seeds and data.

    Parameters
    ----------
    runs : sequence of Answers
    declared : RandomisedLabels
    level : float
        Probability that any of them rejects randomised response at the declared epsilon.
    """
    keep = keep_probability(declared.epsilon, declared.classes)
    families = {
        "labels kept": _kept(runs, declared.classes, keep),
        "other labels": _others(runs, declared.classes, keep),
        "labels drawn anew": _agreeing(runs, declared.classes, keep),
    }
    made = []
    for name, found in families.items():
        tested = list(found)
        p_value, detail = min(tested, default=(1.0, "nothing to test"))
        total = min(1.0, p_value * max(1, len(tested)))
        made.append(Outcome(name, total, level / len(families), detail))
    return made


def _kept(runs: Sequence[Answers], classes: int, keep: float) -> Iterator[tuple[float, str]]:
    """Tests of the number of true labels: of all, each class, each part of the rows, each run."""
    same = np.stack([one.used == one.true for one in runs])
    true = runs[0].true
    yield _binomial(same, keep, "all labels")
    for number, one in enumerate(same):
        yield _binomial(one, keep, f"run {number}")
    for label in range(classes):
        yield _binomial(same[:, true == label], keep, f"class {label}")
    for number, part in enumerate(np.array_split(np.arange(len(true)), _BLOCKS)):
        yield _binomial(same[:, part], keep, f"part {number} of the rows")
    rows = [_binomial(same[:, row], keep, f"row {row}") for row in range(len(true))]
    p_value, detail = min(rows)
    yield min(1.0, p_value * len(rows)), detail


def _others(runs: Sequence[Answers], classes: int, keep: float) -> Iterator[tuple[float, str]]:
    """Tests of the number of times that each other label is given in the place of the true one."""
    chance = (1 - keep) / max(1, classes - 1)
    offset = np.stack([(one.used.astype(np.int64) - one.true) % classes for one in runs])
    for step in range(1, classes):
        yield _binomial(offset == step, chance, f"labels {step} above the true one")


def _agreeing(runs: Sequence[Answers], classes: int, keep: float) -> Iterator[tuple[float, str]]:
    """Tests of the number of rows to which two runs give the same label."""
    agree = keep**2 + (1 - keep) ** 2 / max(1, classes - 1)
    for number, one in enumerate(runs):
        for place, other in enumerate(runs[:number]):
            yield _binomial(one.used == other.used, agree, f"runs {place} and {number} agree")


def _binomial(hits: np.ndarray, chance: float, what: str) -> tuple[float, str]:
    """Two-sided exact tail of a number of hits."""
    from scipy.stats import binom

    n, k = int(hits.size), int(hits.sum())
    tail = min(float(binom.cdf(k, n, chance)), float(binom.sf(k - 1, n, chance)))
    return min(1.0, 2 * tail), f"{what}: {k} of {n}, and {chance * n:.1f} are expected"
