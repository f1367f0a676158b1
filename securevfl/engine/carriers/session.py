"""The session of one party: frames on an unreliable carrier, each delivered once and in order.

A frame of `securevfl.engine.realtime.frames.Links` is cut into datagrams of at most
`LARGEST_DATAGRAM` bytes. Each datagram is numbered and sealed with a key of its link's direction,
and kept until the peer has acknowledged it. Acknowledgements are sealed, too; they are cumulative
and tell which later datagrams have come, so a gap is filled at once. What stays unacknowledged is
sent again on a timer that doubles, and when the carrier is connected anew.

A peer counts as present once its introduction, signed by its identity, has come, and then a
datagram that is sealed with the key of that incarnation. An old introduction that a carrier replays
is therefore never believed to be a peer.

The session has no clock, no socket and no randomness: time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from securevfl.engine.realtime.frames import Hello
from securevfl.engine.security.sealing import Sealer


class Session:
    """The reliable links of one incarnation of a party, below its `Links`.

    Parameters
    ----------
    index : int
    peers : iterable of int
        The other parties.
    hello : Hello
        Introduction of this incarnation, signed (`securevfl.engine.security.identity.Identity`).
    sealer : Sealer
        The one of the party's `Links`: its key pair makes the keys of the datagrams, too.
    verify : callable
        Raises a SealError for a hello that its party's identity has not signed (`Manifest.verify`).
    deliver : callable
        Called with each frame of a peer, once and in order: `PartyHost.take`.
    introduce : callable
        Called with a peer and its hello when a new incarnation of it is present:
        `PartyHost.add_peers`.
    largest : int
        Bound on a frame's bytes when it comes in parts; what claims to be larger ends the link.
    most_stored : int
        Bound on the bytes that wait for one peer; `send` refuses more.
    padded : bool
        Whether datagrams are padded to powers of two.

    Attributes
    ----------
    rejected : int
        Number of datagrams that were forged, changed, or for nobody here.
    resent : int
        Number of datagrams that were sent again.
    """

    def __init__(
        self,
        index: int,
        peers: Iterable[int],
        hello: Hello,
        sealer: Sealer,
        *,
        verify: Callable[[int, Hello], None],
        deliver: Callable[[bytes], None],
        introduce: Callable[[int, Hello], None],
        largest: int = 1 << 28,
        most_stored: int = 1 << 26,
        padded: bool = False,
    ) -> None:
        raise NotImplementedError

    def send(self, receiver: int, frame: bytes) -> None:
        """Store a frame until the peer has it; `due` hands out its datagrams.

        Raises
        ------
        CarrierError
            Naming the peer, when more than `most_stored` bytes would wait for it.
        """
        raise NotImplementedError

    def take(self, data: bytes, now: float) -> None:
        """Receive a datagram. What is no valid one is counted, and ignored."""
        raise NotImplementedError

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """Datagrams that are to leave now, as (receiver, bytes)."""
        raise NotImplementedError

    def next_due(self, now: float) -> float:
        """Time at which `due` must be asked again at the latest; `now` where something is due."""
        raise NotImplementedError

    def reconnected(self) -> None:
        """Send what is unacknowledged again at once: the carrier has a new connection."""
        raise NotImplementedError

    def give_up(self, peer: int) -> None:
        """Drop what waits for a peer, and what is sent to it until it begins a new incarnation."""
        raise NotImplementedError

    @property
    def present(self) -> frozenset[int]:
        """Peers that have an incarnation that knows this one."""
        raise NotImplementedError

    def silent(self, now: float, seconds: float) -> list[int]:
        """Peers from which nothing authentic came for so long; a present peer sends every 5 s."""
        raise NotImplementedError

    def stored(self, peer: int) -> int:
        """Bytes that wait for a peer's acknowledgement."""
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        """Whether every frame that was sent is acknowledged."""
        raise NotImplementedError
