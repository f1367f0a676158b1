"""The server's exact public bound on all sums that it may request next (section 7).

With rho2 = sum_n rho_n^2 and C_k[c] the sum of |Gbar_k[., c]| over all steps and rows, every row i
of segment k has |U[i, c]| <= base + rho2 (C_k[c] - C_k[c] at the base's time). The base is w0 at
time 0, or |U[i, c]| of the row's last decoded sum. A step is dealt only if all these bounds stay
within (p-1)/2, so no sum ever overflows; otherwise it is shrunk first. This needs no message,
because it depends only on values that the server knows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from securevfl.errors import WouldOverflowError
from securevfl.protocols.coded_split.parameters import Parameters


@dataclass
class RangeBound:
    """Bounds on the sums of each training row, or one bound for all rows (cumulative).

    Attributes
    ----------
    square, first, limit : int
        Bound rho2 on a row's squared norm, bound w0 of the first sums, and (p-1)/2.
    spent : ndarray, (K, h), int64
        Sum C of the steps' magnitudes so far (module's docstring).
    base, since : ndarray, (K, length, h), int64
        Base of each training row, and C at the time of the base. Both are empty (length 0) for a
        cumulative bound, which counts from time 0 (`Parameters.cumulative`).
    """

    square: int
    first: int
    limit: int
    spent: np.ndarray
    base: np.ndarray
    since: np.ndarray

    @classmethod
    def of(cls, public: Parameters) -> RangeBound:
        """Initial bound, before any step.

        WouldOverflowError if even the first sums could overflow.
        """
        K, h = public.code.segments, public.config.width
        length = 0 if public.cumulative else public.batches["train"].length
        limit, first = (public.field.modulus - 1) // 2, public.largest_first_sum
        square = sum(public.norms_squared)
        if first + square > limit:
            config = public.config
            raise WouldOverflowError(
                f"coded_split: the first sums can reach {first:.4g}, one unit of a step adds "
                f"{square:.4g}, and (p-1)/2 = {limit:.4g} for p = {public.field.modulus}. Lower "
                f"data_bits ({config.data_bits}) or gradient_bits ({config.gradient_bits}) by "
                f"{math.ceil(math.log2((first + square) / limit))} in all, or use a larger prime"
            )
        base = np.full((K, length, h), first, np.int64)
        spent = np.zeros((K, h), np.int64)
        return cls(square, first, limit, spent, base, np.zeros_like(base))

    @property
    def worst(self) -> np.ndarray:
        """Bound on |U[., c]| of rows that may come next, (K, h), int64, at most `limit`."""
        if not self.base.size:
            return self.first + self.square * self.spent
        rows: np.ndarray = self.base + self.square * (self.spent[:, None] - self.since)
        largest: np.ndarray = rows.max(axis=1)
        return largest

    @property
    def lasting(self) -> int:
        """Bound on the sums of rows that were never decoded, such as new rows."""
        return self.first + self.square * int(self.spent.max(initial=0))

    def promised(self, rows: np.ndarray) -> np.ndarray:
        """Bound on the sums of a training batch, (K, |B|, h)."""
        if not self.base.size:
            shape = len(self.spent), len(rows), self.spent.shape[1]
            return np.broadcast_to(self.worst[:, None], shape)
        added = self.square * (self.spent[:, None] - self.since[:, rows])
        promised: np.ndarray = self.base[:, rows] + added
        return promised

    def decoded(self, rows: np.ndarray, sums: np.ndarray) -> None:
        """Use decoded sums of a training batch, (K, |B|, h) signed, as new bases of its rows."""
        if self.base.size:
            self.base[:, rows] = np.abs(sums)
            self.since[:, rows] = self.spent[:, None]

    def admit(self, step: np.ndarray) -> tuple[np.ndarray, int]:
        """The step (line 8), shrunk if a sum could wrap, and the number of bits by which.

        The returned step is (K, |B|, h) int64; with 0 bits it was not shrunk.

        Parameters
        ----------
        step : ndarray of float, (K, |B|, h)
            The rounded step, whole numbers.
        """
        # A step adds at most rho2 sum_i |step[i, c]| to a sum, so that |U| <= worst + rho2 asked
        # stays within (p-1)/2 while asked <= room. Floats decide it but for their last digits; what
        # they let pass is added up in integers. All columns are computed alike, shrunk or not, so
        # the time of a deal does not tell holders how many were.
        room = (self.limit - self.worst) // self.square
        asked = np.abs(step).sum(axis=1)
        beyond = asked > room * (1 + 1e-9)
        admitted = np.where(beyond[:, None], 0.0, step).astype(np.int64)
        beyond |= np.abs(admitted).sum(axis=1) > room  # exact
        # trunc moves towards 0, and 1e-9 is more than products are rounded by: it stays in room.
        least = room / np.maximum(asked, 1) * (1 - 1e-9)
        factor = np.where(beyond, least, 1.0)
        admitted = np.trunc(step * factor[:, None]).astype(np.int64)
        self.spent = self.spent + np.abs(admitted).sum(axis=1)
        over = np.where(beyond, asked / np.maximum(room, 1), 0.0).max()
        return admitted, max(1, math.ceil(math.log2(over))) if over else 0
