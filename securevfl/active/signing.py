"""Signing keys of parties: from a manifest if there is one, else made for the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from securevfl.active.statements import RUN
from securevfl.errors import RunError
from securevfl.verified import Key, Participant, Secret
from securevfl.verified.trace import SERVER
from securevfl.verified.values import Bytes

Sworn = tuple[Key, dict[int, Bytes]] | tuple[()]  # as a checkpoint keeps it
PROTECTED: Mapping[str, str] = {"identity": "signature"}


@dataclass(frozen=True)
class Signing:
    """Signing key of a party, and verification keys of parties whose statements it checks.

    Attributes
    ----------
    own : Key
        The party's Ed25519 signing key.
    verifiers : mapping of int to Bytes
        Verification keys by party.
    run : bytes
        Name of the run in all statements: the manifest's digest, or `RUN`.
    """

    own: Key
    verifiers: Mapping[int, Bytes]
    run: bytes


async def exchange_keys(party: Participant, *, server: bool = False) -> Sworn:
    """New signing key of this party, and received public keys; empty if a manifest has keys.

    `signing_of` reads the result, which a checkpoint can store. With `server`, the server checks
    statements, too, so it waits for the clients' keys; otherwise it only sends its own.

    Raises
    ------
    RunError
        If a server that waits was restarted during the exchange: the others have a key of it whose
        secret half is lost.
    """
    if party.signing is not None:
        return ()
    if party.index == SERVER and server and party.returned:
        raise RunError(
            "the server was killed in set-up, and its verifying key, which all others have, is "
            "lost. Start the run again; with a manifest it would have gone on (security = active)"
        )
    identity = party.key("identity")
    verifiers = {party.index: party.verifying_key(identity)}
    party.broadcast("identity", verifiers[party.index])
    if party.index == SERVER and server:
        verifiers |= await party.collect("identity")
    if party.index != SERVER:
        if server:
            party.send(SERVER, "identity", verifiers[party.index])
        others = [n for n in party.peers if n != party.index]
        verifiers |= await party.collect("identity", senders=[SERVER, *others])
    return identity, verifiers


def signing_of(party: Participant, sworn: Sworn) -> Signing:
    """Keys of a party: run keys from `sworn`; manifest keys are in no checkpoint.

    `securevfl.engine.realtime.assignment.begin_incarnation` gives a party those of the manifest.
    """
    named = party.signing
    if named is None:
        assert sworn
        return Signing(*sworn, RUN)
    home = party.index, party.world
    verifiers = {n: Bytes(key, None, *home) for n, key in named.keys.items()}
    return Signing(Key(named.secret, None, *home), verifiers, named.run)


def new_start(party: Participant) -> Secret:
    """Random bytes that name a start, so that an older, restored folder contradicts nothing."""
    found: Secret = party.tag(party.key("start"), "start")
    return found


def tell_again(server: Any) -> None:
    """Send a server's verification key again if it restarts before its first step.

    The first message may be lost in the crash. After the first step all parties have the key.
    """
    if server.returned and server.sworn and not server.steps:
        for n in server.peers:
            server.send(n, "identity", server.sworn[1][SERVER], round=0)
