"""Sums that were announced since the last step: which rows may be summed again, and how.

The uploads of an attempt that is given up may still reach the server, which can then decode it. A
second sum of the same rows and models over other clients would tell the difference of the two
sums, which may be one client's embedding. Therefore

    no row stands in two different sums to each of which K + T or more clients may have uploaded.

K + T - 1 uploads are uniform for the server with T clients, whatever the sum is: rho has
K + 2T - 1 coefficients, and T clients know it at T points (docs/masking.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.protocols.fedvs.messages import Attempt, Batch


@dataclass(frozen=True)
class Sum:
    """A sum of embeddings: its rows, and the clients whose models it is over.

    Attributes
    ----------
    batch : Batch
        Part of the data, and rows.
    attempt : Attempt
        The evaluation in which it was announced; its sharers stand in the sum with their present
        models, its stale terms with models of earlier rounds.
    """

    batch: Batch
    attempt: Attempt

    def conflicts(self, other: Sum) -> bool:
        """Whether the two share a row and are of different models."""
        return self.batch.meets(other.batch) and not self.attempt.same_sum(other.attempt)


class SumLedger:
    """Sums announced since the last step, and the clients that may have uploaded to each.

    The server keeps one of all sums that it announced, each client one of the sums to which it
    uploaded itself.

    Parameters
    ----------
    parties : int
        N.
    threshold : int
        Uploads from which something can be learned: K + T. N + 1 where nothing is to be remembered.

    Attributes
    ----------
    sums : dict of int to Sum
        By round.
    uploaders : dict of int to tuple of int
        Possible uploaders of each sum.
    below_threshold : tuple of int
        Rounds since the last step to whose sums fewer than `threshold` clients uploaded.
    last_step : int
        Round of the last step.
    """

    def __init__(self, *, parties: int, threshold: int) -> None:
        self.parties = parties
        self.threshold = threshold
        self.sums: dict[int, Sum] = {}
        self.uploaders: dict[int, tuple[int, ...]] = {}
        self.below_threshold: tuple[int, ...] = ()
        self.last_step = 0

    def conflict(self, total: Sum) -> Sum | None:
        """An announced sum of other models that shares a row with this one, if there is one."""
        return next((one for one in self.sums.values() if one.conflicts(total)), None)

    def same_rows(self, batch: Batch) -> Sum | None:
        """The newest announced sum that has a row of the batch, if there is one."""
        found = [one for one in self.sums.values() if one.batch.meets(batch)]
        return found[-1] if found else None

    def free(self, rows: np.ndarray) -> np.ndarray:
        """Those of the training rows that stand in no announced sum."""
        for one in self.sums.values():
            rows = rows[~np.isin(rows, one.batch.rows)]
        return rows

    def newest(self) -> Sum:
        """The sum that was announced last; there is one."""
        return self.sums[max(self.sums)]

    def announce(self, round: int, total: Sum) -> None:
        """Remember a sum; any client may upload to it."""
        self.sums[round] = total
        self.uploaders[round] = tuple(range(self.parties))

    def report(self, client: int, uploaded: Collection[int]) -> None:
        """Take in the rounds in which a client may have uploaded, as it says itself.

        It says so in a later round, and uploads to no earlier one any more.
        """
        for round, able in self.uploaders.items():
            self.uploaders[round] = tuple(n for n in able if n != client or round in uploaded)

    def settle(self) -> tuple[int, ...]:
        """Forget sums below the threshold; all their rounds since the last step."""
        few = [n for n, able in self.uploaders.items() if len(able) < self.threshold]
        self.forget(few)
        self.below_threshold += tuple(few)
        return self.below_threshold

    def forget(self, rounds: Collection[int]) -> None:
        """Forget the sums of these rounds."""
        for round in rounds:
            self.sums.pop(round, None)
            self.uploaders.pop(round, None)

    def step(self, round: int) -> None:
        """Forget all sums: the models have changed."""
        self.clear()
        self.last_step = round

    def clear(self) -> None:
        """Forget all sums, as after a decoded sum of rows that are summed only once."""
        self.sums, self.uploaders, self.below_threshold = {}, {}, ()

    # -- what checkpoints hold, in the form of the first version ------------------------------

    @property
    def stored_uploads(self) -> dict[int, tuple[Batch, Attempt]]:
        """Batch and attempt of each sum, by round."""
        return {round: (one.batch, one.attempt) for round, one in self.sums.items()}

    @stored_uploads.setter
    def stored_uploads(self, stored: Mapping[int, tuple[Batch, Attempt]]) -> None:
        self.sums = {round: Sum(*one) for round, one in stored.items()}
        self.uploaders = dict.fromkeys(self.sums, tuple(range(self.parties)))

    @property
    def stored_sums(self) -> dict[int, tuple[Batch, Attempt, tuple[int, ...]]]:
        """Batch, attempt and possible uploaders of each sum, by round."""
        return {
            round: (one.batch, one.attempt, self.uploaders[round])
            for round, one in self.sums.items()
        }

    @stored_sums.setter
    def stored_sums(self, stored: Mapping[int, tuple[Batch, Attempt, tuple[int, ...]]]) -> None:
        self.sums = {round: Sum(batch, attempt) for round, (batch, attempt, _) in stored.items()}
        self.uploaders = {round: uploaders for round, (_, _, uploaders) in stored.items()}


def of_ledger(name: str) -> Any:
    """A property of a party that is an attribute of its `ledger`."""

    def get(party: Any) -> Any:
        return getattr(party.ledger, name)

    def put(party: Any, value: Any) -> None:
        setattr(party.ledger, name, value)

    return property(get, put, doc=f"`{name}` of the ledger.")
