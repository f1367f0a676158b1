"""The attack on uploads: server and T clients solve for all data and models."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from securevfl.audit.games.on_runs import Size
from securevfl.audit.proof.exhaustive import SmallInstance, exhaust, small_code
from securevfl.audit.recorded_runs import run_factory
from securevfl.audit.share_recovery import Recovery, coalitions, pool_shares, recover_by_server
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence, Leakage
from securevfl.audit.verifiers.coded import P31, CodedVerifier, coded, followed, wrong
from securevfl.errors import ConfigurationError
from securevfl.privacy.adversary import SERVER_AND_T_CLIENTS
from securevfl.privacy.claims import Claim
from securevfl.privacy.coalition import Coalition


class RecoveryAttack(CodedVerifier):
    """Solves the equations of uploads and shares, and gives the figures of plain evaluation."""

    name = "recovery"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """Evidence of exact recovery, and without masks of the server's information in bits."""
        if claim.against == SERVER_AND_T_CLIENTS and recovered(subject).has_solution:
            found = recovered(subject)
            text = (
                f"linear algebra at p = 2^31-1 recovered {found.data:.0%} of the honest clients' "
                f"data and {found.models:.0%} of their models exactly ({found.elements} elements, "
                "24 features, 60 rows a segment, 8 rounds of h = 8)"
            )
            yield Evidence(self.name, "accuses", text, "demonstration", 0.0)
        if claim.against.server and not coded(subject).masked:
            yield Evidence(self.name, "silent", self._figures(subject), "demonstration")

    def _figures(self, subject: Subject) -> str:
        """Exact information of the server of plain evaluation in a small field."""

        subject.progress("exact figures of plain evaluation")
        return _exact_figures()


@functools.cache  # the instances are the same for every configuration
def _exact_figures() -> str:
    code, server = small_code(5, 1, 1), Coalition(server=True)
    one = [exhaust(SmallInstance(code, masked=False, honest=n), server) for n in (3, 2, 1)]
    two = exhaust(SmallInstance(code, masked=False, honest=3, rounds=2), server)
    bits = ", ".join(f"{found.bits:.6e}" for found in one)
    return (
        "exactly, at p = 5, K = T = 1, 1x1 blocks, uniform secrets, given the sums: "
        f"{bits} bits for three, two and one data holders, {two.bits:.6e} for three over "
        "two rounds; the largest total variation between equal-sum secrets is "
        f"{one[0].distance:g}, and {two.distance:g} over two rounds"
    )


def recovered(subject: Subject) -> Recovery:
    """Server and T clients at 2^31-1, 24 features, 60 rows a segment, 8 rounds of h = 8."""
    return subject.shared("recovery", lambda: _recover(subject))


def _recover(subject: Subject) -> Recovery:
    subject.progress("recovery attack")
    protocol = coded(subject)
    K, T = protocol.code.segments, protocol.code.privacy
    stream = np.random.Generator(np.random.Philox(subject.seed + 2))
    widths = [len(part) for part in np.array_split(np.arange(24), Size(K, T).parties - T)]
    features = [stream.random((60 * K, d)) for d in [2] * T + widths]
    options: dict[str, Any] = {"segments": K, "privacy": T, "prime": P31, "masked": protocol.masked}
    try:
        made = run_factory(type(protocol), features, rounds=8, width=8, **options)
        return recover_by_server(made.run(), tuple(range(T)))
    except ConfigurationError:  # points that no sound code has
        return Recovery(False, 0.0, 0.0, 0)


def leaks_of_shares(subject: Subject) -> Iterator[Leakage]:
    """Leakage to coalitions beyond T, from shares, and to the server, by its attack."""
    code = coded(subject).code
    if wrong(subject):
        return
    for clients in coalitions(followed(subject)):
        if len(clients) == code.privacy:
            continue
        pooled = pool_shares(followed(subject), clients, code.parties - 1)
        what = (
            f"{pooled.combinations} of K = {code.segments} combinations of each other client's "
            f"segments{', the whole data' if pooled.data else ''}"
            f"{', and its models' if pooled.model else ', and nothing of its models'}"
        )
        note = "decoded exactly from a run's shares" if pooled.exact else "not as the theory says"
        yield Leakage(f"{len(clients)} clients", what, f"{note}; T = {code.privacy}")
    if not recovered(subject).has_solution:
        note = "the attack that recovers everything from plain uploads finds no solution"
        what = "no more than the sums and what they imply"
        yield Leakage(f"server + {code.privacy} client(s)", what, note)
