"""Transfer of the manifest from the server to a party that has only an invitation.

The text is public, and the invitation contains its hash, so the sender need not be trusted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from securevfl.engine import wire
from securevfl.engine.carriers.base import Carrier
from securevfl.engine.network import SERVER
from securevfl.engine.organisations.channels import Channels
from securevfl.engine.security.identity import Manifest
from securevfl.errors import ConfigurationError, WireError

TRIES = "tries the relay until it answers"
_ASKED = 0.5  # seconds between requests
_CHANNEL = "manifest"
_MOMENT = 1.0  # seconds after which it says for whom it waits


class ManifestSource:
    """Server's end of the manifest transfer: answers each party's request."""

    def __init__(self, channels: Channels, manifest: Manifest) -> None:
        self._channel = channels.channel(_CHANNEL)
        self._manifest = manifest

    async def open(self) -> None:
        """Answer requests from now on."""
        await self._channel.open(self._answer)

    def _answer(self, data: bytes) -> None:
        try:
            (index,) = wire.decode_flat(data, (int,))
        except WireError:
            return
        if index in self._manifest.entries and index != SERVER:
            self._channel.send(index, self._manifest.to_toml().encode())


async def obtain_manifest(
    carrier: Carrier,
    index: int,
    digest: bytes,
    say: Callable[[str], None],
    *,
    patience: float = 15.0,
) -> Manifest:
    """The manifest with a given digest from the server; waits until the server is there.

    ConfigurationError if the server sends another manifest. CarrierError if no relay admits the
    party.

    Parameters
    ----------
    carrier : Carrier
        Carrier, which is closed at the end.
    index : int
        Number of the asking party.
    digest : bytes
        The wanted `Manifest.digest`, 32 bytes.
    say : callable
        Called with sentences for the user.
    patience : float
        Seconds without an answer after which `say` reports it.
    """
    channels = Channels(carrier, lambda here, why: None if here else say(f"{TRIES}: {why}"))
    came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    channel = channels.channel(_CHANNEL)

    def take(data: bytes) -> None:
        if not came.done():
            came.set_result(data)

    await channels.open()
    try:
        await channel.open(take)
        began, texts = time.monotonic(), _waiting(patience)
        while not came.done():
            channel.send(SERVER, wire.encode((index,)))
            await asyncio.wait({came}, timeout=_ASKED)
            while texts and not came.done() and time.monotonic() - began > texts[0][0]:
                say(texts.pop(0)[1])
    finally:
        await channels.close()
    found = Manifest.from_toml(came.result().decode(errors="replace"), "what the server sent")
    if found.digest != digest:
        raise ConfigurationError(
            f"invitation: the server sent another manifest, of session {found.session!r}. Ask "
            "whoever invited you for the right file, and give it with --manifest"
        )
    return found


def _waiting(patience: float) -> list[tuple[float, str]]:
    """Sentences for a party that waits for the manifest, each with its time in seconds."""
    return [
        (_MOMENT, "waits for the server, which has the manifest"),
        (
            max(patience, _MOMENT),
            f"the server was not heard for {patience:g} s. It joins with --manifest, and sends the "
            "manifest to the others; whoever has the file gives it here with --manifest",
        ),
    ]
