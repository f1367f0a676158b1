"""The way of the manifest to a party that has only an invitation: the server sends it.

The text is public, and its hash is in the invitation; nothing else is asked of who sends it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from securevfl.engine import wire
from securevfl.engine.carriers.base import Carrier
from securevfl.engine.network import SERVER
from securevfl.engine.organisations.channels import Channels
from securevfl.engine.security.identity import Manifest
from securevfl.errors import ConfigurationError, WireError

_ASKED = 0.5  # seconds between requests
_CHANNEL = "manifest"


class ManifestSource:
    """Answers requests for the manifest, at the server's end."""

    def __init__(self, channels: Channels, manifest: Manifest) -> None:
        self._channel = channels.channel(_CHANNEL)
        self._manifest = manifest

    async def open(self) -> None:
        """Answer from now on."""
        await self._channel.open(self._answer)

    def _answer(self, data: bytes) -> None:
        try:
            (index,) = wire.decode_flat(data, (int,))
        except WireError:
            return
        if index in self._manifest.entries and index != SERVER:
            self._channel.send(index, self._manifest.to_toml().encode())


async def obtain_manifest(
    carrier: Carrier, index: int, digest: bytes, say: Callable[[str], None]
) -> Manifest:
    """The manifest with a digest, from the server; it waits until the server is there.

    Parameters
    ----------
    carrier : Carrier
        It is closed at the end.
    index : int
        The party that asks.
    digest : bytes
        `Manifest.digest`.
    say : callable
        Called with sentences for the user.

    Raises
    ------
    ConfigurationError
        When the server sends another manifest.
    CarrierError
        When no relay lets the party in.
    """
    channels = Channels(carrier, lambda connected, why: None if connected else say(why))
    came: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    channel = channels.channel(_CHANNEL)

    def take(data: bytes) -> None:
        if not came.done():
            came.set_result(data)

    await channels.open()
    try:
        await channel.open(take)
        say("asks the server for the manifest")
        while not came.done():
            channel.send(SERVER, wire.encode((index,)))
            await asyncio.wait({came}, timeout=_ASKED)
    finally:
        await channels.close()
    found = Manifest.from_toml(came.result().decode(errors="replace"), "what the server sent")
    if found.digest != digest:
        raise ConfigurationError(
            f"invitation: the server sent another manifest, of session {found.session!r}. Ask "
            "whoever invited you for the right file, and give it with --manifest"
        )
    return found
