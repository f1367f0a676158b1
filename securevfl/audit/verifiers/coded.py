"""Small runs at the real N, K, T and p, which the verifiers of coded protocols share."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.audit.proof_deviations import deviations
from securevfl.audit.recorded_runs import CodedRun, RunFactory, run_factory
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.privacy.adversary import (
    SERVER_ALONE,
    SERVER_AND_T_CLIENTS,
    T_CLIENTS,
    T_UPLOADS,
    Adversary,
)
from securevfl.privacy.claims import Claim
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.protocol import Protocol

P31 = 2**31 - 1
ROUNDS, COLUMNS = 6, 3  # of the runs that are held against the proof
ADVERSARIES = (T_CLIENTS, T_UPLOADS, SERVER_ALONE, SERVER_AND_T_CLIENTS)


class CodedVerifier:
    """Base of verifiers of perfect claims of protocols that share by a Lagrange code."""

    name = ""

    def applies(self, claim: Claim, protocol: Protocol) -> bool:
        """Perfect secrecy of features or models against server, clients, or both."""
        return (
            isinstance(protocol, CodedProtocol)
            and claim.strength == "perfect"
            and claim.asset in ("features", "model")
            and claim.against in ADVERSARIES
        )

    def condition(self, holds: bool, text: str) -> Evidence:
        """A condition of the proof: where it does not hold, nothing is proved."""
        if holds:
            return Evidence(self.name, "supports", text, "proof")
        return Evidence(self.name, "silent", text, "gap")


def coded(subject: Subject) -> CodedProtocol:
    """The protocol under verification, as a coded one."""
    assert isinstance(subject.protocol, CodedProtocol)
    return subject.protocol


def provable(protocol: CodedProtocol, against: Adversary) -> bool:
    """Whether the proof covers an adversary: in plain evaluation T clients or T uploads only."""
    return protocol.masked or not against.server


def coalition(against: Adversary, clients: tuple[int, ...]) -> Coalition:
    """Coalition of an adversary with these clients, as far as they take part."""
    return Coalition(
        server=against.server,
        clients=clients if against.clients else (),
        uploads=clients if against.uploads else (),
    )


def factory(subject: Subject, **more: Any) -> RunFactory:
    """The configuration's own N, K, T, p and degree on small data, trained for some rounds.

    Parameters
    ----------
    subject : Subject
    **more
        Options of the protocol; ``exchanged``, a mapping of clients to those whose columns and
        secret choices they have.
    """
    protocol = coded(subject)
    code = protocol.code
    stream = np.random.Generator(np.random.Philox(subject.seed + 1))
    rows = 2 * code.segments + 1
    features = [stream.random((rows, COLUMNS)) for _ in range(code.parties)]
    exchanged: dict[int, int] = more.pop("exchanged", {})
    features = [features[exchanged.get(n, n)] for n in range(len(features))]
    options = {**small_options(protocol), "rounds": ROUNDS, "width": 3, **more}
    subject.note(
        f"{protocol.name} on {rows} rows of {COLUMNS} columns, {ROUNDS} rounds, "
        f"N = {code.parties}, "
        f"K = {code.segments}, T = {code.privacy}, p = {options['prime']}, "
        f"masked = {protocol.masked}; other options by default"
    )
    made = type(protocol)
    return run_factory(made, features, exchanged=exchanged, seed=subject.seed, **options)


def small_options(protocol: CodedProtocol) -> dict[str, Any]:
    """Options that fix the code and the masks."""
    config = protocol.config
    return {
        "segments": protocol.code.segments,
        "privacy": protocol.code.privacy,
        "prime": protocol.code.field.modulus,
        "masked": protocol.masked,
        **({"degree": config.degree} if hasattr(config, "degree") else {}),
    }


def followed(subject: Subject) -> CodedRun:
    """One run at the configuration's own prime."""
    return subject.shared("coded run", lambda: factory(subject).run())


def wrong(subject: Subject) -> list[str]:
    """Deviations of that run from the formulas of the proof."""
    return subject.shared("coded deviations", lambda: list(deviations(followed(subject))))
