"""Shares of a step (line 9): seeds for the first T holders, elements for the others.

The polynomial through Gbar_k at the data points is fixed by T more values. The server draws them at
the points of the first T holders, each from a seed, in place of the masks U: the distribution is
the same, and these holders receive only 32 bytes. A seed is derived from the server's secret key,
the step's number and the step itself. So a restarted server deals the same shares again, and other
steps would have other masks. A digest of the step is derived in the same way; all holders receive
it, and it is part of their masks' labels.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from securevfl.engine import wire
from securevfl.field import LagrangeCode
from securevfl.field.lagrange import interpolation_matrix
from securevfl.protocols.coded_split.messages import digest_words
from securevfl.verified.batched import mixed

if TYPE_CHECKING:
    from securevfl.verified import Element, Key, Participant

SEED = 32


@dataclass(frozen=True)
class Dealt:
    """Shares of a step for all holders.

    Attributes
    ----------
    digest : Element
        Digest for all holders; different steps have different digests. It depends on the server's
        secret, so nobody else can test a guess of the step by it.
    seeds : list of Key
        Seeds of the first T holders.
    shares : list of Element, (|B|, h) each
        Gamma(alpha_j) of all holders.
    """

    digest: Element
    seeds: list[Key]
    shares: list[Element]


@dataclass(frozen=True)
class Dealing:
    """Shares, by a Lagrange code, of the server's step -eta dL/dH: elements, (K, batch, h)."""

    code: LagrangeCode

    @functools.cached_property
    def matrix(self) -> np.ndarray:
        """Matrix, (N-T, K+T), from K data and T random values to shares of holders T and on."""
        K, T = self.code.segments, self.code.privacy
        points = [*self.code.betas[:K], *self.code.alphas[:T]]
        matrix: np.ndarray = interpolation_matrix(self.code.field, points, self.code.alphas[T:])
        return matrix

    def dealt(self, server: Participant, secret: Key, number: int, step: Element) -> Dealt:
        """Shares of the step `step`, (K, |B|, h); `secret` and the step determine their masks."""
        K, T, field = self.code.segments, self.code.privacy, self.code.field
        told = wire.encode(("digest", number))
        digest = server.prf(secret, told, digest_words(field), of=[step])
        labels = [wire.encode(("deal", number, j)) for j in range(T)]
        seeds = [server.derived_key(secret, label, of=[step]) for label in labels]
        first = [from_seed(server, seed, step.shape[1:]) for seed in seeds]
        parts = [*(step[k] for k in range(K)), *first]
        return Dealt(digest, seeds, [*first, *mixed(self.matrix, parts)])


def from_seed(party: Participant, seed: Key, shape: tuple[int, ...]) -> Element:
    """Share of a step, computed by a holder from its seed."""
    return party.prf(seed, b"share", shape)
