"""Pairs of runs that differ in secrets alone, whose traffic must not differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit.deviations import Declared
from securevfl.audit.followed_runs import Followed, follow
from securevfl.audit.subject import Subject
from securevfl.audit.traffic.seen import (
    Traffic,
    differences,
    event_kind,
    is_event,
    traffic_of,
)
from securevfl.audit.traffic.setting import ITSELF
from securevfl.protocols.base.messages import MessageKey

_TOLD = 200  # characters of an event that depends on data: a few numbers


class UnequalError(RuntimeError):
    """Two runs with equal inputs have other traffic, so pairs of runs say nothing."""


def small_traffic(subject: Subject) -> Traffic:
    """Traffic of the small instance, with nobody late or absent."""
    return subject.shared("small traffic", lambda: traffic_of(subject.instance(), ITSELF))


def small_traffic_again(subject: Subject) -> Traffic:
    """The same of another run, with equal inputs."""
    return subject.shared("small traffic again", lambda: traffic_of(subject.instance(), ITSELF))


def random_controls(subject: Subject) -> list[str]:
    """Kinds of control message that differ between two runs with equal inputs, and carry no key.

    Their content cannot be compared between runs with other secrets, so it could be anything.
    """
    declared = Declared(subject.protocol)
    keys = (key for key, _ in differences(small_traffic(subject), small_traffic_again(subject)))
    specs = ((key.kind, declared.spec_of(key)) for key in keys if not is_event(key))
    return sorted({kind for kind, spec in specs if spec is None or spec.carries != "key"})


def long_events(subject: Subject) -> list[str]:
    """Events that may depend on data (`told_events`) and are too long for what they tell."""
    told = {event_kind(name) for name in subject.protocol.told_events}
    runs = [small_traffic(subject), *(found.traffic for found in subject.settings)]
    every = (one for run in runs for one in run.events)
    return sorted({key.kind for key, text in every if key.kind in told and len(text) > _TOLD})


def by_chance(subject: Subject) -> frozenset[str] | None:
    """Kinds of control message that differ between two runs with equal inputs: fresh keys.

    And events that the protocol says to depend on data. None where sizes, order or times differ.
    """
    one, again = small_traffic(subject), small_traffic_again(subject)
    if one.envelopes != again.envelopes:
        return None
    told = (event_kind(name) for name in subject.protocol.told_events)
    return frozenset((*told, *(key.kind for key, _ in differences(one, again))))


def once_more(subject: Subject, found: Followed, **changed: Any) -> Traffic:
    """Traffic of a run in the setting of another one, with other secrets.

    Parameters
    ----------
    subject : Subject
    found : Followed
        Of which the setting is taken.
    **changed
        As for `Subject.instance`: columns, labels or secrets.
    """
    setting, whole = found.setting, found.setting == ITSELF
    if setting.predicts:
        return subject.predict(setting, **changed).traffic
    changed |= {"options": setting.options, "multiple": setting.multiple}
    other = subject.instance(whole=whole, many=subject.many, **changed)
    # What breaks off a run, or replaces uploads, is part of following one.
    broken = setting.resumed_in or setting.wrong_uploads
    return follow(other, setting).traffic if broken else traffic_of(other, setting)


@dataclass(frozen=True)
class Pair:
    """Traffic of two runs in one setting that differ in secrets alone.

    Attributes
    ----------
    setting : str
    one, other : Traffic
    """

    setting: str
    one: Traffic
    other: Traffic


def with_other_labels(subject: Subject) -> list[Pair]:
    """Runs that differ in the labels alone: a small one, and one in each setting.

    Those that predict have no labels.
    """
    return subject.shared("traffic with other labels", lambda: list(_with_other_labels(subject)))


def _with_other_labels(subject: Subject) -> Iterator[Pair]:
    stream = np.random.Generator(np.random.Philox(subject.seed + 6))
    labels = other_labels(subject.instance().data.train_labels, stream)
    other = traffic_of(subject.instance(labels=labels, all_rows=True), ITSELF)
    yield Pair("a small run", small_traffic(subject), other)
    for found in subject.settings:
        setting = found.setting
        if setting.predicts or found.comparison.deviations:
            continue
        subject.progress(f"traffic with other labels, {setting.name}")
        whole = setting == ITSELF
        data = subject.instance(whole=whole, many=subject.many, multiple=setting.multiple).data
        labels = other_labels(data.train_labels, stream)
        other = once_more(subject, found, labels=labels, all_rows=True)
        subject.note(f"{setting.name} once more, with other labels, for the traffic")
        yield Pair(setting.name, found.traffic, other)


def label_traffic(
    subject: Subject, by: Callable[[MessageKey], bool] | None = None
) -> tuple[str, str]:
    """Dependence of traffic on the labels, for somebody who sees some messages, or for all.

    Parameters
    ----------
    subject : Subject
    by : callable, optional
        Which messages are seen; without it all, and what parties tell the history.

    Returns
    -------
    (str, str)
        The first difference in words, empty for none, and the settings that were compared.

    Raises
    ------
    UnequalError
        Where traffic differs between runs with equal inputs already: then it says nothing.
    """
    equal = small_traffic(subject), small_traffic_again(subject)
    for _, what in _differing(*equal, by):
        raise UnequalError(f"traffic differs between two runs with equal inputs: {what}")
    pairs = with_other_labels(subject)
    for pair in pairs:
        for key, what in _differing(pair.one, pair.other, by):
            told = f"traffic depends on the labels ({pair.setting}), round {key.round}: {what}"
            return told, pair.setting
    return "", ", ".join(pair.setting for pair in pairs)


def _differing(
    one: Traffic, other: Traffic, by: Callable[[MessageKey], bool] | None
) -> Iterator[tuple[MessageKey, str]]:
    if by is not None:
        one, other = one.seen(by), other.seen(by)
    return differences(one, other)


def other_labels(labels: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Labels of the same kind: other ones, in other numbers of each class."""
    if labels.dtype.kind == "f":
        turned = (labels.min() + labels.max() - labels) * stream.uniform(0.5, 0.9)
        return stream.permutation(turned).astype(labels.dtype)
    classes = np.unique(labels)
    shares = stream.dirichlet(np.ones(len(classes)))
    drawn: np.ndarray = stream.choice(classes, len(labels), p=shares).astype(labels.dtype)
    return drawn
