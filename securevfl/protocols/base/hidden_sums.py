"""Interface of protocols that encrypt embeddings and reveal their sums, for their verifiers."""

from __future__ import annotations

from abc import abstractmethod

from securevfl.models.homomorphic import Scheme
from securevfl.protocols.base.messages import RunSecrets
from securevfl.protocols.base.protocol import Protocol


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
