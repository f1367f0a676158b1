"""Shares of a step (line 9): seeds for the first T holders, elements for the others.

The polynomial through Gbar_k at the data points is fixed by T more values. The server draws them
at the points of the first T holders, from a seed each, in place of the masks U: the same
distribution, and these holders are sent 32 bytes. A seed is derived from the server's own secret,
the step's number and the step itself; so a server that comes back deals the same shares again, and
other steps would have other masks. A digest of the step is derived in the same way. All holders are
told it, and mask what they compute from the step by it.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.engine import wire
from securevfl.field import LagrangeCode, prss
from securevfl.field.lagrange import interpolation_matrix

SEED = 32


@dataclass(frozen=True)
class Dealing:
    """Shares of a step, computed from its seeds and a code.

    Parameters
    ----------
    code : LagrangeCode
    """

    code: LagrangeCode

    @functools.cached_property
    def matrix(self) -> np.ndarray:
        """From K data and T drawn values to the shares of the holders T, T+1, ...; (N-T, K+T)."""
        K, T = self.code.segments, self.code.privacy
        points = [*self.code.betas[:K], *self.code.alphas[:T]]
        matrix: np.ndarray = interpolation_matrix(self.code.field, points, self.code.alphas[T:])
        return matrix

    def seeds(self, secret: bytes, number: int, step: np.ndarray) -> list[bytes]:
        """Seeds of the first T holders for a step, (K, |B|, h) signed."""
        hashed = _hash(step)
        return [
            prss.derive(secret, wire.encode(("deal", number, j, hashed)))
            for j in range(self.code.privacy)
        ]

    def digest(self, secret: bytes, number: int, step: np.ndarray) -> bytes:
        """Digest that all holders get of a step: 32 bytes, equal for equal steps only.

        It follows from the server's secret, so nobody else can test a guess of the step by it.
        """
        return prss.derive(secret, wire.encode(("digest", number, _hash(step))))

    def from_seed(self, seed: bytes, shape: tuple[int, ...]) -> np.ndarray:
        """Share that a seed stands for."""
        share = np.empty(shape, self.code.field.dtype)
        prss.fill_stream(self.code.field.modulus, share.reshape(-1), seed, b"share")
        return share

    def shares(self, secret: bytes, number: int, step: np.ndarray) -> list[np.ndarray]:
        """Gamma(alpha_j) of all holders, (|B|, h) each."""
        field, shape = self.code.field, step.shape[1:]
        first = [self.from_seed(seed, shape) for seed in self.seeds(secret, number, step)]
        through = np.concatenate([field.reduce(step.astype(np.int64)), np.stack(first)])
        rest = field.matmul(self.matrix, through.reshape(len(through), -1))
        return [*first, *rest.reshape(-1, *shape)]

    def again(
        self, secret: bytes, steps: Sequence[tuple[int, np.ndarray]], holder: int
    ) -> tuple[tuple[int, bytes], np.ndarray]:
        """Payload of "missed": the first number, and the digests and a holder's shares of all."""
        digests = b"".join(self.digest(secret, t, step) for t, step in steps)
        shares = np.stack([self.shares(secret, t, step)[holder] for t, step in steps])
        return (steps[0][0], digests), shares


def _hash(step: np.ndarray) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(step, np.int64).tobytes()).digest()
