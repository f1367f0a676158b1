"""Interface of a carrier, which brings frames from one party to another.

A carrier may lose, repeat, reorder, change and invent frames, and it may stop for a while. Its only
requirement is that some frames arrive: `securevfl.engine.carriers.session.Session` numbers,
encrypts, acknowledges and resends them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

LARGEST_DATAGRAM = 1 << 19  # bytes of a session's datagram: half of a relay's usual limit of 1 MiB
LARGEST_FRAME = LARGEST_DATAGRAM + 64  # what a carrier takes: there may be a head before a datagram

Take = Callable[[bytes], object]  # true for what a peer has sealed, and is new
Changed = Callable[[bool, str], None]


class Carrier(Protocol):
    """One party's connection to the others. All calls come from one asyncio loop."""

    @property
    def connected(self) -> bool:
        """Whether frames can leave at present."""

    async def open(self, take: Take, changed: Changed | None = None) -> None:
        """Connect to the others; return once the first connection is open, however long it takes.

        CarrierError if waiting cannot help: a wrong certificate, or a key that is refused.

        Parameters
        ----------
        take : callable
            Called on the loop with each frame that arrives; it must not raise.
        changed : callable, optional
            Called on the loop with (connected, sentence on the connection or on the error).
        """

    def send(self, receiver: int, frame: bytes) -> None:
        """Hand over a frame for a party without blocking; a frame that cannot leave now is dropped.

        Parameters
        ----------
        receiver, frame : int, bytes
            Number of the party, and at most `LARGEST_FRAME` bytes.
        """

    async def close(self) -> None:
        """Disconnect. Nothing is received or sent any more."""
