"""Interfaces of protocols whose results are masked from keys, for their verifiers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from securevfl.engine.party import Party
from securevfl.field import LagrangeCode
from securevfl.field.prss import Prss
from securevfl.protocols.base.protocol import Protocol


@dataclass(frozen=True)
class Use:
    """One use of the masks: what a label stands for.

    Attributes
    ----------
    label : callable
        The digest of the steps in the model to all that holders are told: that, and the rows.
    part : str
        Part of the data that the rows are of.
    rows : ndarray
        Row numbers within a segment.
    steps : int
        Steps in the model: exactly 1 to this number.
    """

    label: Callable[[bytes], bytes]
    part: str
    rows: np.ndarray
    steps: int


@dataclass(frozen=True)
class Integers:
    """Numbers that an owner shares, as field elements.

    Attributes
    ----------
    data : mapping
        X-bar by part, (K, rows, columns), in the order in which the owner draws their masks.
    model : ndarray, (columns, h)
        W-bar before the first step.
    """

    data: Mapping[str, np.ndarray]
    model: np.ndarray


class KeyMasked(Protocol):
    """A protocol whose clients compute on shares and mask results by a `Prss`.

    What a party draws of the keys it puts into its own mailbox, kind "own-keys", and a holder's
    attribute `keys` has those that it knows, by their place in `prss.blocks`. A party draws secret
    bytes by its method `secret_bytes`, and field elements by `uniform`.
    """

    @property
    @abstractmethod
    def code(self) -> LagrangeCode:
        """Evaluation points, K and T."""

    @property
    @abstractmethod
    def prss(self) -> Prss:
        """Keys of the masks, by holder."""

    @property
    @abstractmethod
    def result_degree(self) -> int:
        """Degree of an upload in the shares, in units of K + T - 1."""


class SharedModels(KeyMasked):
    """A `KeyMasked` protocol in which models stay in shares, and the server deals its steps.

    An owner has the attributes `features`, its prepared columns by part, and `weights`. The server
    has `labels` by part, and `log`, the steps that it dealt. A holder has `model`: its share, the
    number of steps in it without a hole, those beyond, and their digest. Uploads are of kind
    "embedding".
    """

    def integers(self, owner: Party) -> Integers:
        """Numbers that an owner shares; it must not have begun."""
        raise NotImplementedError

    @abstractmethod
    def quantised_columns(self) -> dict[int, np.ndarray]:
        """X-bar of the training rows by owner, (K, rows, columns), field elements."""

    def use_of(self, round: int) -> Use:
        """The use of the masks whose upload is of this round."""
        raise NotImplementedError

    @property
    def last_use(self) -> int:
        """Round of the last upload of a run."""
        raise NotImplementedError

    @property
    @abstractmethod
    def releases_models(self) -> bool:
        """Whether owners get their own models at the end."""

    @property
    @abstractmethod
    def owners(self) -> int:
        """Number of clients with data: the first ones."""
