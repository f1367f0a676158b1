"""Table of the newest embeddings of clients' rows, in place of late ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


class LastEmbeddings:
    """Newest embedding of each client and row, with its round.

    Parameters
    ----------
    parties : int
        Number N of parties.
    rows : int
        Number M of rows; 0 to keep nothing at all.
    width : int
        Width h of an embedding.

    Attributes
    ----------
    table : ndarray, (N, M + 1, h), float32
        The last row is that of padding, which has the number -1.
    version : ndarray, (N, M + 1), int64
        Round of each; -1 where none came.
    """

    def __init__(self, parties: int, rows: int, width: int) -> None:
        self.rows = rows
        self.table = np.zeros((parties, rows + 1, width), np.float32)
        self.version = np.full((parties, rows + 1), -1, np.int64)

    @property
    def nbytes(self) -> int:
        """Bytes of the tables of embeddings and of their rounds."""
        return self.table.nbytes + self.version.nbytes

    def keep(self, party: int, places: np.ndarray, embedding: np.ndarray, round: int) -> None:
        """Store a client's embedding of rows, except for rows with a newer one.

        Parameters
        ----------
        party : int
            Number of the party.
        places : ndarray, (rows,)
            Row numbers; -1 for padding.
        embedding : ndarray, (rows, h)
            Embeddings of the rows.
        round : int
            At least 0.
        """
        if not self.rows:
            return
        newer = self.version[party, places] < round
        self.table[party, places[newer]] = embedding[newer]
        self.version[party, places[newer]] = round

    def at(self, places: np.ndarray, *, oldest: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Stored embeddings of rows, in the form for `securevfl.models.aggregation.Aggregation`.

        Parameters
        ----------
        places : ndarray, (rows,)
            Row numbers; -1 for padding.
        oldest : int
            Earliest round that still counts, at least 0.

        Returns
        -------
        stack : ndarray, (N, rows, h), float32
            Zero where there is none.
        present : ndarray, (N, rows), bool
            Whether an embedding exists.
        """
        if not self.rows:
            parties, _, width = self.table.shape
            shape = (parties, len(places), width)
            return np.zeros(shape, np.float32), np.zeros(shape[:2], bool)
        present = self.version[:, places] >= oldest
        stack = np.where(present[:, :, None], self.table[:, places], np.float32(0))
        return stack, present

    def complete(
        self, fresh: Mapping[int, np.ndarray], places: np.ndarray, *, oldest: int = 0
    ) -> tuple[np.ndarray, np.ndarray]:
        """(stack, present) of `at`, with the clients' embeddings in `fresh` in place of stored."""
        stack, present = self.at(places, oldest=oldest)
        for party, embedding in fresh.items():
            stack = stack.astype(embedding.dtype, copy=False)
            stack[party], present[party] = embedding, True
        return stack, present

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint: both tables."""
        return {"table": self.table, "version": self.version}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.table = np.array(state["table"])
        self.version = np.array(state["version"])
