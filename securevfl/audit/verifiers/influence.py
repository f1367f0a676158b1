"""Verifier of influence: a secret must not change the adversary's view at equal randomness.

The parties' secret choices follow from one secret seed in a simulation, so two runs with the same
inputs are the same run, and whatever differs when one input is exchanged depends on that input. The
view is all that is seen: kinds, rounds, senders, sizes, times of leaving and arriving, payloads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from securevfl.audit.coalitions import coalitions_of, may_see
from securevfl.audit.recording.recorded_run import RecordedRun
from securevfl.audit.recording.recorder import record
from securevfl.audit.subject import Subject
from securevfl.audit.traffic.pairs import UnequalError, label_traffic
from securevfl.audit.verdicts import Evidence
from securevfl.engine import wire
from securevfl.privacy.claims import Claim
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.protocol import Protocol

_TRIES = 3  # other labels that are tried


class Influence:
    """Runs the protocol with another secret and compares the adversary's views."""

    name = "influence"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Perfect secrecy of labels, and all claims that nothing is protected."""
        labels = claim.asset == "labels" and claim.strength == "perfect"
        return labels or (claim.strength == "none" and claim.asset != "messages")

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Views of runs with the same secrets, and with others."""
        subject.progress(f"influence of {claim.asset} on {claim.who}")
        found = [self._on(claim, subject, one, seed) for one in coalitions_of(
            claim.against, subject.protocol
        )]  # fmt: skip
        said = [one for one in found if one is not None]
        if claim.strength == "none":
            yield from said[:1]
            return
        worst = [one for one in said if one.effect != "supports"]
        yield from (worst or said)[:1]
        yield from self._in_settings(claim, subject)

    def _in_settings(self, claim: Claim, subject: Subject) -> Iterator[Evidence]:
        """Traffic in runs in which somebody is late, crashes or comes back, with other labels."""
        try:
            seen, settings = label_traffic(
                subject, lambda key: may_see(claim.against, subject.protocol, key)
            )
        except UnequalError as error:
            yield Evidence(self.name, "silent", str(error), "gap")
            return
        if seen:
            yield Evidence(self.name, "accuses", seen, "demonstration", 0.0)
            return
        text = (
            f"pairs of runs that differ in the labels alone ({settings}) have the same traffic for "
            f"{claim.who}"
        )
        yield Evidence(self.name, "supports", text, "test")

    def _on(
        self, claim: Claim, subject: Subject, coalition: Coalition, seed: int
    ) -> Evidence | None:
        """Evidence from the change in the view of one coalition; None for nothing to speak of."""
        one = _view(subject.run, coalition)
        subject.note(f"{subject.describe()}; other {claim.asset} of others than {coalition}")
        again = _view(subject.again, coalition)
        fixed = [a == b for a, b in zip(one, again, strict=False)]
        whole = all(fixed) and len(one) == len(again)
        if claim.strength == "perfect" and not whole:
            text = "two runs with equal inputs differ, so that views of others say nothing"
            return Evidence(self.name, "silent", text, "gap")
        changes = [_view(run, coalition) for run in self._others(claim, subject, coalition, seed)]
        differing = sum(_differs(one, other, fixed) for other in changes)
        if differing and claim.strength == "perfect":
            text = f"runs that differ in the {claim.asset} alone give {coalition} other views"
            return Evidence(self.name, "accuses", text, "demonstration", 0.0)
        if differing:
            text = (
                f"in {differing} of {len(changes)} runs that differ from another in the "
                f"{claim.asset} of others alone, at equal randomness, {coalition} sees something "
                "else"
            )
            return Evidence(self.name, "supports", text, "demonstration", 0.0)
        if claim.strength != "perfect":
            return None
        text = (
            f"{len(changes)} runs that differ in the {claim.asset} alone gave {claim.who} the same "
            f"messages ({len(one)} to and from {coalition}), to the last bit and nanosecond"
        )
        return Evidence(self.name, "supports", text, "test")

    def _others(
        self, claim: Claim, subject: Subject, coalition: Coalition, seed: int
    ) -> Iterable[RecordedRun]:
        """Runs with other labels, or with other columns or networks of somebody else."""
        stream = np.random.Generator(np.random.Philox(seed + 3))
        small = subject.instance()
        if claim.asset == "labels":
            for number in range(_TRIES):
                labels = _other_labels(small.data.train_labels, stream, drawn=number > 0)
                yield subject.shared(
                    f"other labels {number}",
                    lambda labels=labels: record(subject.instance(labels=labels)),  # type: ignore[misc]
                )
            return
        victim = next((n for n in reversed(small.peers()) if n not in coalition.clients), None)
        if victim is None:
            return
        if claim.asset == "features":
            rows = stream.permutation(small.data.rows)
            moved = np.ascontiguousarray(small.data.train[victim][rows])
            yield subject.shared(
                f"other columns of {victim}",
                lambda: record(subject.instance(columns={victim: moved})),
            )
        else:
            yield subject.shared(
                f"other network of {victim}", lambda: record(subject.instance(reseeded=victim))
            )


def _other_labels(labels: np.ndarray, stream: np.random.Generator, *, drawn: bool) -> np.ndarray:
    """The labels in another order; or drawn from them, so that classes have other sizes."""
    if not drawn:
        return stream.permutation(labels)
    values = np.unique(labels)
    most = values[stream.integers(len(values))]
    found: np.ndarray = np.where(stream.random(len(labels)) < 0.5, most, stream.permutation(labels))
    return found.astype(labels.dtype)


def _view(run: RecordedRun, coalition: Coalition) -> list[tuple[Any, ...]]:
    """Each message that the coalition sends or receives, with its times."""
    seen = run.view(coalition).messages
    members = set(coalition.members)
    columns = run.transcript.columns()
    ends = zip(columns["sender"].tolist(), columns["receiver"].tolist(), strict=True)
    rows = [row for row, pair in enumerate(ends) if members & set(pair)]
    times = [(int(columns["sent"][row]), int(columns["arrived"][row])) for row in rows]
    return [
        (m.kind, m.round, m.sender, m.receiver, m.nbytes, when, wire.encode(m.payload))
        for m, when in zip(seen, times, strict=True)
    ]


def _differs(one: list[tuple[Any, ...]], other: list[tuple[Any, ...]], fixed: list[bool]) -> bool:
    """Whether two views differ in messages that do not differ by chance alone."""
    if len(one) != len(other):
        return True
    places = zip(one, other, fixed, strict=False)
    return any(alike and a != b for a, b, alike in places)
