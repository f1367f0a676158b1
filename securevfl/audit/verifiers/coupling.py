"""Two runs with different secrets and, by the proof's bijection, the same view."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from securevfl.audit.coupled_runs import Coupled, couple
from securevfl.audit.proof.certificate import certificate
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import Evidence
from securevfl.audit.verifiers.coded import (
    P31,
    CodedVerifier,
    coded,
    factory,
    followed,
    provable,
    wrong,
)
from securevfl.privacy.adversary import T_CLIENTS, T_UPLOADS
from securevfl.privacy.claims import Claim
from securevfl.privacy.coalition import Coalition


class Coupling(CodedVerifier):
    """Runs the bijection with every honest client in another's place."""

    name = "coupling"

    def examine(
        self, claim: Claim, subject: Subject, *, seed: int, level: float
    ) -> Iterable[Evidence]:
        """The first T clients, and random coalitions of every size up to T, at two primes."""
        protocol = coded(subject)
        if not provable(protocol, claim.against):
            return
        if wrong(subject) or not all(c.holds for c in certificate(protocol.code, subsets=8)):
            yield self.condition(False, "no bijection was run, for the conditions do not hold")
            return
        against = T_CLIENTS if claim.against == T_UPLOADS else claim.against
        largest = protocol.code.privacy if against.clients else 0
        for prime in sorted({P31, protocol.code.field.modulus}):
            for clients in self._coalitions(protocol.code.parties, largest, seed):
                found = self._shared(subject, prime, clients, server=against.server)
                if found.differences:
                    yield self.condition(False, f"{found.differences[0]} differ")
                    continue
                text = (
                    f"at p = {prime} two runs in which every client outside {found.coalition} has "
                    "another's secrets, and tapes moved by the proof's bijection, gave identical "
                    f"views ({found.elements} elements)"
                )
                yield self.condition(True, text)

    def _coalitions(self, parties: int, largest: int, seed: int) -> list[tuple[int, ...]]:
        """The first clients, and a random set of each size."""
        stream = np.random.Generator(np.random.Philox(seed + 4))
        chosen = [tuple(range(largest))]
        for size in range(1, largest + 1):
            drawn = tuple(sorted(stream.permutation(parties)[:size].tolist()))
            chosen += [drawn] * (drawn not in chosen)
        return chosen

    def _shared(
        self, subject: Subject, prime: int, clients: tuple[int, ...], *, server: bool
    ) -> Coupled:
        """The pair of runs, made once for the claims on features and on models."""
        name = f"coupled {prime} {clients} {server}"
        return subject.shared(name, lambda: self._coupled(subject, prime, clients, server=server))

    def _coupled(
        self, subject: Subject, prime: int, clients: tuple[int, ...], *, server: bool
    ) -> Coupled:
        own = prime == coded(subject).code.field.modulus
        honest = [n for n in subject.protocol.peers() if n not in clients]
        turned = dict(zip(honest, honest[1:] + honest[:1], strict=True))
        first = factory(subject, prime=prime)
        other = factory(subject, prime=prime, exchanged=turned)
        one = followed(subject) if own else subject.shared(f"run at {prime}", first.run)
        subject.progress(f"coupled runs, p = {prime}")
        coalition = Coalition(server=server, clients=clients)
        subject.note(f"{coalition} at p = {prime}: a pair of runs, coupled by the bijection")
        return couple(first, other, coalition, one=one)
