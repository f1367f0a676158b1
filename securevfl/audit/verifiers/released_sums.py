"""Verifier of the claim that sums leave columns undetermined: Theorem 1 of docs/sums.md."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

import numpy as np

from securevfl.audit.equal_sums import equal_sums
from securevfl.audit.recording import record
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.engine.party import SERVER
from securevfl.privacy.claims import Claim
from securevfl.privacy.released_equations import visits_allowed
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.split import SplitProtocol

_BEYOND = 3  # rounds that are asked for beyond the budget


class ReleasedSums:
    """Verifier of a budget of sums: counts each row's sums; finds another table with equal sums."""

    name = "released sums"

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Whether the claim is "undetermined" and the protocol counts revealed equations."""
        return claim.strength == "undetermined" and protocol.released() is not None

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Evidence on a budget of sums: a row's equations; another table, by `seed`, of equal sums.

        Equations (sums with a row times width) are counted in a run with more rounds than its
        budget allows. The other table is found on small data (Theorem 1, docs/sums.md).
        """
        yield subject.shared(self.name, lambda: _counted(subject))
        yield subject.shared("equal sums", lambda: _another_table(subject, seed))


def _counted(subject: Subject) -> Evidence:
    """Evidence from a run beyond the budget: the number of sums that its most used row is in."""
    subject.progress("a run beyond the budget of sums")
    whole = {"batch": subject.instance().data.rows}  # of which each round is an epoch
    odometer = subject.instance(whole).released()
    assert odometer is not None
    asked = visits_allowed(odometer.unknowns, odometer.width, odometer.budget) + _BEYOND
    made = subject.instance(whole | {"rounds": asked})
    run = record(made)
    summed = {m.key.round for m in run.messages if _to_server(m.key)}
    assert isinstance(made, SplitProtocol)  # others have no odometer
    layout = made.train_layout()
    rounds = [layout.draw(t) for t in sorted(summed) if t <= asked]
    visits = int(np.bincount(np.concatenate(rounds)).max()) if rounds else 0
    equations = visits * odometer.width
    text = (
        f"{len(rounds)} of {asked} rounds were summed: no row is in more than {visits} sums, "
        f"{equations} equations for {odometer.unknowns} unknowns"
    )
    if equations >= Fraction(str(odometer.budget)) * odometer.unknowns:  # as it is written
        return Evidence(ReleasedSums.name, "accuses", text, "proof", p_value=0.0)
    return Evidence(ReleasedSums.name, "supports", f"E h < u: {text}", "proof")


def _to_server(key: MessageKey) -> bool:
    return (key.kind, key.receiver) == ("embedding", SERVER)


def _another_table(subject: Subject, seed: int) -> Evidence:
    """Theorem 1 checked at a small size, with the configured degree and optimiser."""
    subject.progress("another table with equal sums")
    config = subject.protocol.config
    optimizer = getattr(config, "client_step", config.optimizer)
    found = equal_sums(degree=config.degree, optimizer=optimizer, seed=seed)
    text = (
        f"at {found.rows.shape[0]} rows of {found.rows.shape[1]} columns, degree {config.degree}, "
        f"{optimizer}: another table, no row nearer than {found.least_change:.2g}, gives "
        f"{found.first.size} sums that differ by {found.distance:.1g} at most; the fibre has "
        f"dimension {found.free}, at least {found.promised} are promised"
    )
    if not (found.equal and found.free >= found.promised):
        return Evidence(ReleasedSums.name, "silent", f"no second table was found: {text}", "gap")
    return Evidence(ReleasedSums.name, "supports", text, "proof")
