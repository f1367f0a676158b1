"""Verifier of noise under differential privacy: its size, shape, independence and origin."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.audit import randomness
from securevfl.audit.coalitions import may_see
from securevfl.audit.noise import labels as randomised
from securevfl.audit.noise import origin
from securevfl.audit.noise.calibration import faults_of_numbers, faults_of_options, sigma_of
from securevfl.audit.noise.gaussian import battery
from securevfl.audit.noise.releases import Releases, releases_of
from securevfl.audit.noise.rows_apart import coupled_rows
from securevfl.audit.recording.recorded_run import RecordedRun
from securevfl.audit.recording.recorder import record
from securevfl.audit.statistical import Outcome
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verifiers.code_of_others import own_words
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.messages import GaussianNoise, RandomisedLabels
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import make_config

_LABEL_RUNS, _LABEL_ROWS = 8, 2000
_TRIES = 3  # other labels, or columns, for what surrounds the payloads
_SIGMA_ERROR = 1e-6  # relative; the library rounds up by 1e-9
_CLIPPED = 0.5  # share of rows that a run must clip, else a run with a smaller C is made


@dataclass
class _Findings:
    """Findings about one claim.

    Attributes
    ----------
    accusing : list of (p value, words, bearing)
    gaps, passed : list of str
    """

    accusing: list[tuple[float, str, Any]] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    passed: list[str] = field(default_factory=list)

    def fault(self, text: str) -> None:
        """Something that is wrong whatever was drawn."""
        self.accusing.append((0.0, text, "demonstration"))

    def tested(self, outcomes: Iterable[Outcome], where: str) -> None:
        """Tests that may have rejected."""
        for one in outcomes:
            if one.rejected:
                self.accusing.append((one.p_value, f"{where}: {one.detail}", "test"))


class Noise:
    """Recomputes what recorded messages are without noise, and tests what is left."""

    name = "noise"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Claims of differential privacy."""
        return claim.strength == "differential"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Exact tests of the noise; all of them together reject sound noise with P < level."""
        noises = _noises(claim, subject.protocol)
        labels = subject.protocol.randomised_labels if claim.asset == "labels" else None
        if not noises and labels is None:
            text = f"{subject.protocol.name} declares no noise on what {claim.who} is sent"
            yield Evidence(self.name, "silent", text, "gap")
            return
        subject.progress(f"noise of {claim.asset} against {claim.who}")
        found = _Findings()
        _examine_numbers(claim, subject, noises, labels, found)
        if noises:
            found.gaps += coupled_rows(subject.instance(), claim.asset)
        runs = 2 + len(subject.beyond)  # of each noise
        share = level / (runs * len(noises) + (labels is not None))
        for noise in noises:
            _examine_noise(subject, noise, found, share)
        if labels is not None:
            _examine_labels(subject, labels, found, share)
        _examine_pattern(subject, claim, found, seed)
        yield from self._evidence(found, level)

    def _evidence(self, found: _Findings, level: float) -> Iterator[Evidence]:
        if found.accusing:
            for p_value, text, bearing in sorted(found.accusing, key=lambda one: one[0])[:3]:
                yield Evidence(self.name, "accuses", text, bearing, p_value, level)
            return
        for gap in found.gaps:
            yield Evidence(self.name, "silent", gap, "gap")
        effect: Any = "silent" if found.gaps else "supports"
        for text in found.passed:
            yield Evidence(self.name, effect, text, "test", None, level / len(found.passed))


def _noises(claim: Claim, protocol: Protocol) -> list[GaussianNoise]:
    """Noise that protects the asset, each once."""
    declared = [spec.noise for spec in protocol.messages
                if spec.noise is not None and spec.noise.asset == claim.asset]  # fmt: skip
    return list({one.clip_option: one for one in declared}.values())


def _examine_numbers(
    claim: Claim,
    subject: Subject,
    noises: list[GaussianNoise],
    labels: RandomisedLabels | None,
    found: _Findings,
) -> None:
    """Numbers that the claim promises, those that are declared, and the options."""
    others = own_words(subject.protocol)
    faults = list(faults_of_numbers(claim, noises, labels)) if claim.guarantees else []
    if others:
        found.gaps.append(others)
    else:  # code of others may mean another thing by these options
        faults += faults_of_options(noises, labels, subject.protocol.config)
    if not claim.guarantees:
        found.gaps.append(
            "the claim has no epsilon and delta (`Claim.guarantees`) that the declared noise could "
            "be held against"
        )
    for noise in noises:
        added, wanted = origin.library_sigma(noise), sigma_of(noise)
        if abs(added / wanted - 1) > _SIGMA_ERROR:
            faults.append(f"the accountant says sigma = {added:.8g}, and {wanted:.8g} is needed")
    for fault in faults:
        found.fault(fault)


# -- Gaussian noise ------------------------------------------------------------------------------


def _examine_noise(subject: Subject, noise: GaussianNoise, found: _Findings, level: float) -> None:
    run, (other, _) = subject.run, subject.again
    releases = releases_of(run, noise.asset)
    again = releases_of(other, noise.asset)
    words = f"noise of {noise.clip_option} = {noise.clip:g}"
    _judge(run, releases, again, subject.log, found, level, words)
    if found.accusing or not releases.found:
        return
    norms = np.concatenate([np.linalg.norm(one.exact, axis=1) for one in releases.found])
    clipped = float((norms > noise.clip).mean())
    _judge_changed(subject, noise, float(np.median(norms)) / 2, clipped, found, level)
    _judge_beyond(subject, noise, found, level)
    rows = sum(len(one.sent) for one in releases.found)
    found.passed.append(
        f"{len(releases.found)} releases of {rows} rows have the noise of sigma = "
        f"{sigma_of(noise):.4g} that epsilon = {noise.epsilon:g}, delta = {noise.delta:g} and C = "
        f"{noise.clip:g} ask for: variance, distribution, independence of entries, rows, messages, "
        f"data and of another run were not rejected; no row was released more than "
        f"{releases.found[0].noise.releases} times in the run"
    )


def _judge(
    run: RecordedRun,
    releases: Releases,
    again: Releases,
    log: randomness.Log,
    found: _Findings,
    level: float,
    words: str,
) -> None:
    """Everything about the releases of one run."""
    for fault in releases.faults:
        found.fault(f"{words}: {fault}")
    if releases.unknown or not releases.found:
        first = releases.unknown[0] if releases.unknown else "nothing was released in the run"
        found.gaps.append(f"{words}: what it is without noise could not be computed: {first}")
    if not releases.found:
        return
    found.tested(battery(releases.found, again.found, level / 2), words)
    keys = origin.system_keys(log.keys)
    origins = origin.origins(run, releases.found, keys)
    for p_value, fault in origin.faults(run, origins, keys, level / 2):
        found.accusing.append((p_value, f"{words}: {fault}", "test"))
    unexplained = [one for one in origins if not one.equal]
    if not unexplained:
        found.passed.append(
            f"{words}: each of {len(origins)} noises is of a key of its own, that the operating "
            "system gave in the run, and every message equals its formula under it byte by byte"
        )
    else:
        key = unexplained[0].release.key
        found.gaps.append(
            f"{words}: {len(unexplained)} of {len(origins)} releases are not what the library's "
            f"sampler gives under a key that the operating system gave in the run, such as "
            f"{key.kind!r} of round {key.round}; so nobody knows who knows their noise"
        )


def _judge_changed(
    subject: Subject,
    noise: GaussianNoise,
    bound: float,
    clipped: float,
    found: _Findings,
    level: float,
) -> None:
    """The same in a run that releases rows several times, and whose bound most rows exceed.

    Parameters
    ----------
    subject, noise, found, level
    bound : float
        Another C, for where too few rows were clipped.
    clipped : float
        Share of the rows that were.
    """
    small = subject.instance()
    given: dict[str, Any] = {}
    if hasattr(small.config, "batch"):
        given["batch"] = max(1, small.data.rows // 2)
    if clipped < _CLIPPED:
        if not bound > 0:
            found.gaps.append(f"all rows are zero, so {noise.clip_option} was not seen to clip any")
            return
        given[noise.clip_option] = bound
    words = ", ".join(f"{name} = {value:.3g}" for name, value in given.items())
    run, log = subject.shared(f"with {words}", lambda: _recorded(subject, given))
    other, _ = subject.shared(f"with {words} again", lambda: _recorded(subject, given))
    subject.note(f"the same with {words}, so that rows are released again, and clipped")
    made, again = releases_of(run, noise.asset), releases_of(other, noise.asset)
    _judge(run, made, again, log, found, level, f"with {words}")


def _judge_beyond(subject: Subject, noise: GaussianNoise, found: _Findings, level: float) -> None:
    """The same in runs of all rounds, and of whole batches."""
    for changed, (run, log) in zip(subject.beyond, subject.runs[1:], strict=True):
        told = _told(changed)
        other = subject.shared(f"again: {told}", lambda c=changed: record(subject.instance(**c)))  # type: ignore[misc]
        made, again = releases_of(run, noise.asset), releases_of(other, noise.asset)
        _judge(run, made, again, log, found, level, f"with {told}")


def _recorded(subject: Subject, given: dict[str, Any]) -> tuple[RecordedRun, randomness.Log]:
    """A run of the small instance with other options, and what was drawn in it."""
    small = subject.instance()
    options = small.config.model_dump(exclude_unset=True) | given
    made = type(small)(make_config(type(small), options), small.data, seed=small.seed)
    with randomness.watch() as log:
        run = record(made)
    return run, log


# -- Randomised labels ---------------------------------------------------------------------------


def _examine_labels(
    subject: Subject, declared: RandomisedLabels, found: _Findings, level: float
) -> None:
    runs = subject.shared("runs of one round", lambda: _label_runs(subject))
    try:
        own, *answers = [
            randomised.answers_of(run, declared_of(run))
            for run in (subject.run, *(one for one, _ in runs))
        ]
    except (KeyError, ValueError) as error:
        found.gaps.append(f"labels could not be computed ({type(error).__name__}: {error})")
        return
    for one in (own, *answers):
        if one.fault:
            found.fault(one.fault)
            return
    epsilon = f"labels of epsilon = {declared.epsilon:g}"
    found.tested(randomised.tests_of(answers, declared, level), epsilon)
    logs = [subject.log, *(log for _, log in runs)]
    drawn = [
        randomised.drawn_by(one, declared, origin.system_keys(log.keys))
        for one, log in zip((own, *answers), logs, strict=True)
    ]
    if not all(drawn):
        found.gaps.append(
            f"{epsilon}: in {drawn.count(False)} of {len(drawn)} runs they are not what randomised "
            "response gives under a key that the operating system gave"
        )
    found.passed.append(
        f"{epsilon}: in {len(runs)} runs of {answers[0].true.size} rows the labels that the "
        f"{declared.role} trains on are true as often as randomised response keeps them, others "
        "evenly, independent between runs, and do not change in a run"
    )


def declared_of(run: RecordedRun) -> RandomisedLabels:
    """The declaration of the protocol that was run."""
    declared = run.protocol.randomised_labels
    assert declared is not None
    return declared


def _label_runs(subject: Subject) -> list[tuple[RecordedRun, randomness.Log]]:
    """Runs of one round on many rows, with the same seeds."""
    protocol, cls = subject.protocol, type(subject.protocol)
    rows = min(_LABEL_ROWS, protocol.data.rows)
    data = protocol.data.subset(rows, min(8, protocol.data.test_rows))
    options = protocol.config.model_dump(exclude_unset=True) | {"rounds": 1}
    made = []
    for _ in range(_LABEL_RUNS):
        with randomness.watch() as log:
            run = record(cls(make_config(cls, options), data, seed=protocol.seed))
        made.append((run, log))
    subject.note(f"{_LABEL_RUNS} runs of one round on {rows} rows")
    return made


# -- What surrounds the payloads -----------------------------------------------------------------


def _examine_pattern(subject: Subject, claim: Claim, found: _Findings, seed: int) -> None:
    """Kinds, sizes, order and times must not depend on what the claim protects."""
    own = _pattern(subject.run, claim)
    if own != _pattern(subject.again[0], claim):
        found.gaps.append("sizes or times differ between two runs with the same seeds and data")
        return
    for number in range(_TRIES):
        name = f"{claim.asset} of others {number}"
        other = subject.shared(name, lambda n=number: _with_other(subject, claim, n, seed))  # type: ignore[misc]
        if own != _pattern(other, claim):
            found.fault(
                f"with other {claim.asset} the kinds, sizes, order or times of what {claim.who} "
                "is sent are others, and no noise hides these"
            )
            return
    for changed, (run, _) in zip(subject.beyond, subject.runs[1:], strict=True):
        own, told = _pattern(run, claim), _told(changed)
        again = subject.shared(f"again: {told}", lambda c=changed: record(subject.instance(**c)))  # type: ignore[misc]
        if own != _pattern(again, claim):
            found.gaps.append(f"sizes or times differ between two equal runs with {told}")
        elif own != _pattern(_with_other(subject, claim, 0, seed, changed), claim):
            found.fault(
                f"with other {claim.asset} and {told} the kinds, sizes, order or times of what "
                f"{claim.who} is sent are others, and no noise hides these"
            )


def _pattern(run: RecordedRun, claim: Claim) -> list[tuple[Any, ...]]:
    sent = zip(run.sent_to_others, run.departures(), strict=True)
    return [
        (*message.key, len(message.content), *times)
        for message, times in sent
        if may_see(claim.against, run.protocol, message.key)
    ]


def _told(changed: Mapping[str, Any]) -> str:
    """Options of a run beyond the small one, in words."""
    return ", ".join(f"{name} = {value}" for name, value in changed["options"].items())


def _with_other(
    subject: Subject, claim: Claim, number: int, seed: int, changed: Mapping[str, Any] | None = None
) -> RecordedRun:
    """A run with the labels, or all columns, in another order; the last with equal rows."""
    stream = np.random.Generator(np.random.Philox([seed, 5, number]))
    more = dict(changed or {})
    data = subject.instance(**more).data
    order = stream.permutation(data.rows) if number < _TRIES - 1 else np.zeros(data.rows, np.int64)
    if claim.asset == "labels":
        return record(subject.instance(labels=data.train_labels[order], **more))
    moved = {n: np.ascontiguousarray(own[order]) for n, own in enumerate(data.train)}
    return record(subject.instance(columns=moved, **more))
