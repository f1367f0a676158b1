"""Links of one incarnation of a party to the others of its run, over TCP.

Each party listens on its own machine and dials the others. A driver sends it their addresses,
incarnations and signing keys; with a manifest, only the manifest's keys are used. Two parties begin
a link by the handshake of `securevfl.engine.carriers.handshake`, before any frame.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from securevfl.engine import wire
from securevfl.engine.carriers.direct import DirectCarrier
from securevfl.engine.carriers.endpoint import Endpoint
from securevfl.engine.carriers.handshake import Credentials
from securevfl.engine.carriers.session import Session
from securevfl.engine.realtime.assignment import PartyAssignment
from securevfl.engine.realtime.host import PartyHost
from securevfl.engine.security.identity import Identity, verifies

_LARGEST = 1 << 36  # bytes of a frame, and of all that wait for one peer: a share of large data
_KEY_SHIFT = 6  # 64 datagrams have one key: to make one takes longer than to seal by it


class Introduction(NamedTuple):
    """Data by which the driver introduces an incarnation to the others.

    Attributes
    ----------
    epoch : int
        Number of the incarnation.
    public : bytes
        Public key of its signatures, 32 bytes.
    host, port : str, int
        Address at which it listens.
    """

    epoch: int
    public: bytes
    host: str
    port: int


class PeerLinks:
    """Links of one incarnation; all calls must come from one asyncio loop.

    Parameters
    ----------
    host : PartyHost
        Host that receives frames, and sends by `transmit`.
    assignment : PartyAssignment
        The run.
    identity : Identity or None
        Identity in the manifest; without a manifest a new key for this incarnation.
    carrier : DirectCarrier
        Carrier of the datagrams.
    """

    def __init__(
        self,
        host: PartyHost,
        assignment: PartyAssignment,
        identity: Identity | None,
        carrier: DirectCarrier,
    ) -> None:
        self._host = host
        self._identity = identity or Identity.temporary()
        self._manifest = assignment.manifest
        self._keys: dict[int, bytes] = {}
        session = b"" if self._manifest is None else self._manifest.digest
        run = assignment.protocol, assignment.run_id, assignment.start
        links = host.links
        self.session = Session(
            links.index,
            assignment.parties,
            links.epoch,
            Credentials(
                wire.encode(("securevfl cluster 1", session, *run)),
                self._identity.sign,
                self._has_signed,
            ),
            deliver=host.take,
            introduce=lambda peer, epoch: None,  # the driver did
            largest=_LARGEST,
            most_stored=_LARGEST,
            key_shift=_KEY_SHIFT,
            told=True,
            refuse=host.reject,
        )
        self._carrier = carrier
        self._endpoint = Endpoint(self.session, carrier, self._record)
        carrier.reached = self._endpoint.reached

    def _has_signed(self, party: int, signature: bytes, statement: bytes) -> bool:
        if self._manifest is not None:
            return self._manifest.has_signed(party, signature, statement)
        return verifies(self._keys.get(party, b""), signature, statement)

    async def open(self) -> Introduction:
        """Listen; return the introduction of this incarnation for the others."""
        await self._endpoint.open()
        return Introduction(self.session.epoch, self._identity.public, *self._carrier.place)

    def add(self, introduced: Mapping[int, Introduction]) -> None:
        """Register incarnations of other parties and connect to them; ignore older ones."""
        for peer, one in introduced.items():
            if peer == self.session.index or one.epoch < self._host.links.epoch_of(peer):
                continue
            self._keys[peer] = one.public
            self._host.add_peers({peer: one.epoch})
            self.session.expect(peer, one.epoch)
            self._carrier.reach(peer, (one.host, one.port))

    def transmit(self, receiver: int, frame: bytes) -> None:
        """Send a frame, which is stored until the peer is there."""
        self._endpoint.transmit(receiver, frame)

    async def close(self) -> None:
        """End all connections; frames in transit are lost."""
        await self._endpoint.close()

    def _record(self, event: str, fields: dict[str, object]) -> None:
        """Record an endpoint's events, except silence, which the driver notices itself."""
        if event == "gave up":
            self._host.record(self._host.party, event, fields)
