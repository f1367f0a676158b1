"""Aggregation of the clients' embeddings into one: mean, concatenation, maximum or sum.

FedVS, section 2.1 and Figure 1, after Ceballos et al., 2020; the sum is that of VFB2. A client may
be absent from a batch or from some of its rows; each rule defines the result then, and the gradient
accordingly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from securevfl.errors import ConfigurationError, UnknownNameError


@dataclass(frozen=True)
class Aggregation(ABC):
    """A rule that joins the embeddings of N clients, all of one width.

    Parameters
    ----------
    parties : int
        Number N of clients, at least 1.
    """

    parties: int

    def width(self, embedding: int) -> int:
        """Width of the joint embedding, which the server model takes in."""
        return embedding

    @abstractmethod
    def combine(self, stack: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Joint embedding H of the clients that are present.

        Parameters
        ----------
        stack : ndarray, (N, rows, h), floating
            Embeddings H_n; zero where a client is absent.
        present : ndarray, (N, rows), bool
            Whether a client has an embedding of a row.

        Returns
        -------
        ndarray, (rows, `width` of h), the dtype of `stack`
            Joint embedding; zero in rows from which all clients are absent.
        """

    @abstractmethod
    def gradient(
        self, gradient: np.ndarray, stack: np.ndarray, present: np.ndarray, party: int
    ) -> np.ndarray:
        """Gradient dL/dH_n of one client, from dL/dH.

        Parameters
        ----------
        gradient : ndarray, (rows, `width` of h), float32
            Gradient dL/dH of the joint embedding.
        stack, present : ndarray, (N, rows, h) and (N, rows) bool
            Embeddings H_n, and whether a client has one of a row; the arguments of `combine`.
        party : int
            Number n of the client; the result is zero in rows from which it is absent.

        Returns
        -------
        ndarray, (rows, h), float32
        """

    def gradients(
        self,
        gradient: np.ndarray,
        stack: np.ndarray,
        present: np.ndarray,
        parties: Iterable[int],
    ) -> dict[int, np.ndarray]:
        """Gradients by client, each as `gradient`'s, perhaps one shared read-only array."""
        return {n: self.gradient(gradient, stack, present, n) for n in parties}


class Mean(Aggregation):
    """Mean H = (1/|S|) sum over S of H_n, S the clients present; each gets (1/|S|) dL/dH."""

    def combine(self, stack: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Mean of the embeddings present, summed in the order of clients as in FedVS's baseline."""
        mean: np.ndarray = _total(stack) / _count(present).astype(stack.dtype)
        return mean

    def gradient(
        self, gradient: np.ndarray, stack: np.ndarray, present: np.ndarray, party: int
    ) -> np.ndarray:
        """Gradient (1/|S|) dL/dH, (rows, h) float32, in rows where `party` is present, else 0."""
        own: np.ndarray = gradient / _count(present).astype(np.float32)
        return np.where(present[party][:, None], own, np.float32(0))

    def gradients(
        self,
        gradient: np.ndarray,
        stack: np.ndarray,
        present: np.ndarray,
        parties: Iterable[int],
    ) -> dict[int, np.ndarray]:
        """Gradients by client, one shared array if all are present in all rows."""
        parties = list(parties)
        if parties and present.all():
            own = self.gradient(gradient, stack, present, parties[0])
            return dict.fromkeys(parties, own)
        return super().gradients(gradient, stack, present, parties)


class Sum(Aggregation):
    """Sum H = sum of H_n over the clients present; each gets dL/dH."""

    def combine(self, stack: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Embeddings of the present clients, summed in the order of clients."""
        return _total(stack)

    def gradient(
        self, gradient: np.ndarray, stack: np.ndarray, present: np.ndarray, party: int
    ) -> np.ndarray:
        """Gradient dL/dH, (rows, h) float32, in rows where `party` is present, else zeros."""
        return np.where(present[party][:, None], gradient, np.float32(0))


class Concatenation(Aggregation):
    """Concatenation H = [H_1 | ... | H_N], zeros for absent clients; each gets its own dL/dH_n."""

    def width(self, embedding: int) -> int:
        """Width N h of the joint embedding, for N embeddings of width h."""
        return self.parties * embedding

    def combine(self, stack: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Embeddings joined side by side."""
        return np.concatenate(list(stack), axis=1)

    def gradient(
        self, gradient: np.ndarray, stack: np.ndarray, present: np.ndarray, party: int
    ) -> np.ndarray:
        """Columns of dL/dH that are the client's own, (rows, h) float32."""
        h = stack.shape[2]
        own = gradient[:, party * h : (party + 1) * h]
        return np.where(present[party][:, None], own, np.float32(0))


class Maximum(Aggregation):
    """Maximum H = max of H_n over clients present, by entry; dL/dH goes to the arg max.

    Ties go to the lowest client number; the paper does not specify this.
    """

    def combine(self, stack: np.ndarray, present: np.ndarray) -> np.ndarray:
        """Largest entry over the present clients, entry by entry."""
        largest: np.ndarray = self._masked(stack, present).max(axis=0)
        anybody = np.logical_or.reduce(present, axis=0)
        return np.where(anybody[:, None], largest, stack.dtype.type(0))

    def gradient(
        self, gradient: np.ndarray, stack: np.ndarray, present: np.ndarray, party: int
    ) -> np.ndarray:
        """Gradient dL/dH, (rows, h), in entries where `party` has the largest value, else zeros."""
        winner = self._masked(stack, present).argmax(axis=0)  # the first of equals
        mine = (winner == party) & present[party][:, None]
        return np.where(mine, gradient, np.float32(0))

    @staticmethod
    def _masked(stack: np.ndarray, present: np.ndarray) -> np.ndarray:
        return np.where(present[:, :, None], stack, stack.dtype.type(-np.inf))


def _total(stack: np.ndarray) -> np.ndarray:
    """Sum over clients one by one, since the order determines the last bits."""
    total: np.ndarray = stack[0]
    for embedding in stack[1:]:
        total = total + embedding
    return total


def _count(present: np.ndarray) -> np.ndarray:
    """Number |S| of clients present in each row, at least 1, as a column."""
    count: np.ndarray = np.maximum(present.sum(axis=0), 1)[:, None]
    return count


AGGREGATIONS: dict[str, type[Aggregation]] = {
    "mean": Mean,
    "concat": Concatenation,
    "max": Maximum,
    "sum": Sum,
}


def make_aggregation(name: str, parties: int) -> Aggregation:
    """Aggregation rule by its name.

    UnknownNameError if no rule has that name, ConfigurationError without a client.
    """
    if parties < 1:
        raise ConfigurationError(f"an aggregation of {parties} clients: at least 1 is needed")
    if name not in AGGREGATIONS:
        raise UnknownNameError("aggregation", name, AGGREGATIONS)
    return AGGREGATIONS[name](parties)


def gather(embeddings: Mapping[int, np.ndarray], parties: int) -> tuple[np.ndarray, np.ndarray]:
    """Embeddings (rows, h) of some of `parties` clients, in the form for `Aggregation.combine`.

    Returns
    -------
    stack : ndarray, (N, rows, h)
        Embeddings; zero for absent clients.
    present : ndarray, (N, rows), bool
        Whether a client is among `embeddings`.
    """
    first = next(iter(embeddings.values()))
    stack = np.zeros((parties, *first.shape), first.dtype)
    present = np.zeros((parties, len(first)), bool)
    for n, embedding in embeddings.items():
        stack[n] = embedding
        present[n] = True
    return stack, present
