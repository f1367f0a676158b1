"""The carrier over a relay that speaks NATS: outbound connections, TLS, one key a party."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from securevfl.engine.carriers.base import Changed, Take
from securevfl.engine.security.identity import Identity


@dataclass(frozen=True)
class RelayAddress:
    """The address of a relay, and the public key of its certificate.

    Attributes
    ----------
    host : str
    port : int
    fingerprint : str
        SHA-256 of the DER public key of the relay's TLS certificate, as 64 hexadecimal digits.
        Nothing else is trusted: no certificate authority, no name.
    """

    host: str
    port: int
    fingerprint: str

    @classmethod
    def parse(cls, text: str) -> RelayAddress:
        """Inverse of `str`: ``host:port#fingerprint``.

        Raises
        ------
        ConfigurationError
        """
        raise NotImplementedError

    def __str__(self) -> str:
        raise NotImplementedError


class NatsCarrier:
    """A party's connection to a relay. It reconnects for ever, by the addresses in turn.

    Parameters
    ----------
    addresses : sequence of RelayAddress
        Tried in this order.
    token : str
        Name of the session in subjects: `Manifest.token`.
    index : int
    identity : Identity
        The relay key is derived from it (`Identity.relay`); it signs nothing of the relay.
    """

    def __init__(
        self, addresses: Sequence[RelayAddress], token: str, index: int, identity: Identity
    ) -> None:
        raise NotImplementedError

    @property
    def connected(self) -> bool:
        """Whether frames can leave at present."""
        raise NotImplementedError

    async def open(self, take: Take, changed: Changed | None = None) -> None:
        """Connect out; see `Carrier.open`."""
        raise NotImplementedError

    def send(self, receiver: int, frame: bytes) -> None:
        """Hand over a frame for a party; see `Carrier.send`."""
        raise NotImplementedError

    async def close(self) -> None:
        """Disconnect."""
        raise NotImplementedError
