"""Interfaces of protocols that hide embeddings and reveal their sums, for their verifiers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from securevfl.field import LagrangeCode
from securevfl.models.homomorphic import Scheme
from securevfl.protocols.base.messages import MessageKey, RunSecrets
from securevfl.protocols.base.protocol import Protocol


@dataclass(frozen=True)
class MaskedUpload:
    """Values that determine an upload y_u = x_u + PRG(b_u) + sum over v of +-PRG(s_{u,v}).

    Attributes
    ----------
    value : ndarray
        x_u, field elements.
    seed : bytes
        b_u.
    secrets : mapping of int to bytes
        s_v^SK of all sharers v, the sender among them.
    """

    value: np.ndarray
    seed: bytes
    secrets: Mapping[int, bytes]


class PairMasked(Protocol):
    """A protocol whose uploads are hidden by seeds, of which clients hold shares.

    PRG is AES-256 in counter mode, cut to the bits of p, without words at or above p; s_{u,v} is
    HKDF-SHA256 of the X25519 secret of u and v, bound to the round, both numbers and both keys. A
    client puts s_u^SK and b_u of a round into its own mailbox. Receivers of a gradient are those
    whose uploads were summed.

    Source: Bonawitz et al., "Practical Secure Aggregation", CCS 2017, Figure 4.
    """

    @property
    @abstractmethod
    def sharing(self) -> LagrangeCode:
        """Code of the shares of secrets: one segment, t - 1 masks."""

    @abstractmethod
    def upload_parts(self, secrets: RunSecrets, key: MessageKey) -> MaskedUpload:
        """Parts of an upload of a recorded run."""

    @abstractmethod
    def dealt(
        self, secrets: RunSecrets, client: int, round: int
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Field elements that a client shared in a round, (limbs,), and their shares, (N, limbs).

        None where it did not.
        """


class Encrypted(Protocol):
    """A protocol whose uploads are ciphertexts that the server adds.

    Receivers of a gradient are those whose uploads were summed.
    """

    @property
    @abstractmethod
    def scheme(self) -> Scheme:
        """The scheme, as a party has it."""

    @abstractmethod
    def secret_key(self, secrets: RunSecrets) -> bytes:
        """The key of the party that decrypts, in a recorded run."""
