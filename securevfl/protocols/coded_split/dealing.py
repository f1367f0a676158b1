"""Shares of a step (line 9): seeds for the first T holders, elements for the others.

The polynomial through Gbar_k at the data points is fixed by T more values. The server draws them
at the points of the first T holders, from a seed each, in place of the masks U: the same
distribution, and these holders are sent 32 bytes. A seed is derived from the server's own secret,
the step's number and the step itself; so a server that comes back deals the same shares again, and
other steps would have other masks.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

import numpy as np

from securevfl.engine import wire
from securevfl.field import LagrangeCode, prss
from securevfl.field.lagrange import interpolation_matrix

SEED = 32


@dataclass(frozen=True)
class Dealing:
    """What the shares of a step are.

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
        digest = hashlib.sha256(np.ascontiguousarray(step, np.int64).tobytes()).digest()
        return [
            prss.derive(secret, wire.encode(("deal", number, j, digest)))
            for j in range(self.code.privacy)
        ]

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
