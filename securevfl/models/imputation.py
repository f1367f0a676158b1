"""Imputation of missing embeddings: none, zeros, old embeddings, or a moving average.

Zeros are the strategy SplitNN-zeros of DVFL, section 6, and a client's last message is its
SplitNN-buffer: the paper calls it "in a sense, a Byzantine fault" (appendix C) that "cannot exploit
locality in activations" (section 7.1), which is true only of activations of another batch. The last
embeddings of the same rows and the moving average are ours. A client whose embedding was imputed
counts as present.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from securevfl.errors import UnknownNameError
from securevfl.models.aggregation import gather
from securevfl.models.stale import LastEmbeddings

_DECAY = 0.9  # of the running mean, in a round: that of batch normalisation


class Imputation(ABC):
    """A rule for missing embeddings of N clients, M rows and width h.

    Parameters
    ----------
    parties, rows, width : int
        Number N of clients, M of rows, and width h.

    Attributes
    ----------
    kept : tuple of str
        Names of the arrays that are its state.
    """

    kept: ClassVar[tuple[str, ...]] = ()

    def __init__(self, parties: int, rows: int, width: int) -> None:
        self.parties = parties

    def take(  # noqa: B027 - most rules keep something, and two nothing
        self, fresh: Mapping[int, np.ndarray], places: np.ndarray, round: int
    ) -> None:
        """Register the embeddings of a batch before `complete`; this changes the state.

        Parameters
        ----------
        fresh : mapping
            Embeddings (rows, h) that arrived, by client; at least one.
        places : ndarray, (rows,)
            Row numbers; -1 for padding.
        round : int
            Number of the round.
        """

    @abstractmethod
    def complete(
        self, fresh: Mapping[int, np.ndarray], places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Completed embeddings of a batch, and which count as present; parameters as for `take`.

        Returns
        -------
        stack : ndarray, (N, rows, h)
        present : ndarray, (N, rows), bool
            Arguments of `securevfl.models.aggregation.Aggregation.combine`.
        """

    def unknown(self, places: np.ndarray) -> int:
        """Number of (client, row) pairs without a known embedding, for which zeros stand in."""
        return 0

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint."""
        return {name: getattr(self, name) for name in self.kept}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        for name in self.kept:
            setattr(self, name, np.array(state[name]))


class Nothing(Imputation):
    """No imputation: absent clients are left out, and no embedding is stored."""

    def complete(
        self, fresh: Mapping[int, np.ndarray], places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(stack of embeddings received, present); the other clients count as absent."""
        return gather(fresh, self.parties)


class Zeros(Imputation):
    """Zeros for missing embeddings, as if clients had sent zeros."""

    def complete(
        self, fresh: Mapping[int, np.ndarray], places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(stack of embeddings, zeros for missing ones, present); all clients count as present."""
        stack, present = gather(fresh, self.parties)
        return stack, np.ones_like(present)


class Buffer(Imputation):
    """The newest earlier embedding of each row; zeros if there is none."""

    def __init__(self, parties: int, rows: int, width: int) -> None:
        super().__init__(parties, rows, width)
        self.last = LastEmbeddings(parties, rows, width)

    def take(self, fresh: Mapping[int, np.ndarray], places: np.ndarray, round: int) -> None:
        """Store each embedding of `fresh` as the newest, of `round`, of its client and row."""
        for party, embedding in fresh.items():
            self.last.keep(party, places, embedding, round)

    def complete(
        self, fresh: Mapping[int, np.ndarray], places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """(stack, the newest earlier embeddings for missing ones, present); all are present."""
        stack, known = self.last.complete(fresh, places)
        return stack, np.ones_like(known)

    def unknown(self, places: np.ndarray) -> int:
        """Number of (client, row) pairs without any embedding so far."""
        return int((~self.last.at(places)[1][:, places >= 0]).sum())

    def state_dict(self) -> dict[str, Any]:
        """State for a checkpoint: the table of last embeddings."""
        return self.last.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.last.load_state_dict(state)


class LastMessage(Imputation):
    """Imputation by a client's last message, whatever its rows; zeros if it has sent none.

    If the message has fewer rows than the batch, zeros fill the rest.
    """

    kept: ClassVar[tuple[str, ...]] = ("messages", "begun")

    def __init__(self, parties: int, rows: int, width: int) -> None:
        super().__init__(parties, rows, width)
        self.messages = np.zeros((parties, 0, width), np.float32)
        self.begun = np.zeros(parties, bool)

    def take(self, fresh: Mapping[int, np.ndarray], places: np.ndarray, round: int) -> None:
        """Store the embeddings, by client, as the clients' last messages; rows do not matter."""
        rows = len(places)
        more = max(0, rows - self.messages.shape[1])
        self.messages = np.pad(self.messages, ((0, 0), (0, more), (0, 0)))
        for party, embedding in fresh.items():
            self.messages[party, :rows], self.messages[party, rows:] = embedding, 0.0
            self.begun[party] = True

    def complete(
        self, fresh: Mapping[int, np.ndarray], places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings received, and the others' last messages; all clients count as present."""
        stack, present = gather(fresh, self.parties)
        absent = [n for n in range(self.parties) if n not in fresh]
        stack[absent] = self.messages[absent, : len(places)]
        return stack, np.ones_like(present)

    def unknown(self, places: np.ndarray) -> int:
        """Number of (client, row) pairs of clients that have sent nothing so far."""
        return int((~self.begun).sum() * (places >= 0).sum())


class RunningMean(Imputation):
    """Imputation by a running mean of each client's embeddings, ``m <- 0.9 m + 0.1 batch mean``.

    It begins with the first batch that arrived from a client; before that it is zero.
    """

    kept: ClassVar[tuple[str, ...]] = ("means", "begun")

    def __init__(self, parties: int, rows: int, width: int) -> None:
        super().__init__(parties, rows, width)
        self.means = np.zeros((parties, width), np.float32)
        self.begun = np.zeros(parties, bool)

    def take(self, fresh: Mapping[int, np.ndarray], places: np.ndarray, round: int) -> None:
        """Update the running mean, by client, of each that sent an embedding in `fresh`."""
        for party, embedding in fresh.items():
            own = embedding[places >= 0].mean(axis=0)
            if self.begun[party]:
                own = _DECAY * self.means[party] + (1 - _DECAY) * own
            self.means[party], self.begun[party] = own, True

    def complete(
        self, fresh: Mapping[int, np.ndarray], places: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings received, and the others' running means; all clients count as present."""
        stack, present = gather(fresh, self.parties)
        absent = [n for n in range(self.parties) if n not in fresh]
        stack[absent] = self.means[absent, None]
        return stack, np.ones_like(present)

    def unknown(self, places: np.ndarray) -> int:
        """Number of (client, row) pairs of clients that have sent nothing so far."""
        return int((~self.begun).sum() * (places >= 0).sum())


IMPUTATIONS: dict[str, type[Imputation]] = {
    "nothing": Nothing,
    "zeros": Zeros,
    "buffer": Buffer,
    "message": LastMessage,
    "mean": RunningMean,
}


def make_imputation(name: str, parties: int, rows: int, width: int) -> Imputation:
    """Imputation rule by its name, for N `parties`, M `rows` and embeddings of this `width`.

    UnknownNameError when no rule has that name.
    """
    if name not in IMPUTATIONS:
        raise UnknownNameError("imputation", name, IMPUTATIONS)
    return IMPUTATIONS[name](parties, rows, width)
