"""Invitations: a line of text for each party that names session, relays and party."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from securevfl.engine.carriers.nats import RelayAddress
from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import Manifest
from securevfl.engine.security.words import in_words
from securevfl.errors import ConfigurationError
from securevfl.runs.organisations.terms import Terms

_FORM, _WORDS = "svfl1", 5
_DIGEST = 64  # hexadecimal digits of a manifest's digest


@dataclass(frozen=True)
class Invitation:
    """Content of the line of text with which a party joins a session.

    It contains no secret. A change in transit is detected, because the parties compare the
    fingerprint of the session over another channel. `digest` is the manifest's digest, which covers
    participants and terms. Relays are tried in order; each has the fingerprint of its key.
    """

    index: int
    session: str
    digest: bytes
    relays: tuple[RelayAddress, ...]

    def __str__(self) -> str:
        name = "server" if self.index == SERVER else str(self.index)
        relays = ",".join(map(str, self.relays))
        return "/".join((_FORM, name, self.digest.hex(), quote(self.session, safe=""), relays))

    @classmethod
    def parse(cls, text: str) -> Invitation:
        """Invitation from its text (inverse of `str`); ConfigurationError if it is none."""
        # `securevfl invite` prints whose line it is before it, and a whole line is what one copies.
        words = text.strip().rpartition(" ")[2].split("/")
        if len(words) != _WORDS or words[0] != _FORM:
            raise ConfigurationError(
                f"invitation: {text!r} is none; give the whole line that `securevfl invite` "
                f"printed for this party, which begins with {_FORM}/"
            )
        try:
            _, name, digest, session, relays = words
            if len(digest) != _DIGEST:
                raise ValueError(f"its hash has {len(digest)} of {_DIGEST} digits")
            index = SERVER if name == "server" else int(name)
            found = tuple(map(RelayAddress.parse, relays.split(",")))
            return cls(index, unquote(session), bytes.fromhex(digest), found)
        except ValueError as error:
            raise ConfigurationError(
                f"invitation: {text!r} is none ({error}); give the whole line that `securevfl "
                "invite` printed"
            ) from None

    @property
    def token(self) -> str:
        """Name of the session on a relay, as `Manifest.token`."""
        return self.digest.hex()[:32]

    @property
    def fingerprint(self) -> str:
        """Sixteen words for participants and terms, for people to compare."""
        return in_words(self.digest)

    def check(self, manifest: Manifest) -> Manifest:
        """The manifest, if it is that of the invitation; else ConfigurationError."""
        if manifest.digest != self.digest:
            raise ConfigurationError(
                f"invitation: it is to the manifest {self.fingerprint}, and this one of session "
                f"{manifest.session!r} is {in_words(manifest.digest)}. Ask whoever invited you "
                "for the right one"
            )
        return manifest


def invite(manifest: Path, relays: Sequence[str]) -> dict[str, str]:
    """Invitations, as text, by "server", "party 0", ...; also the manifest's "fingerprint".

    If the protocol decodes sums, "sums" is a sentence on what they will reveal. All parties compare
    the fingerprint. `relays` has addresses that ``securevfl relay init`` prints. ConfigurationError
    for a manifest without terms or relay keys, and for malformed addresses.
    """
    found = Manifest.read(manifest)
    terms = Terms.of(found)
    terms.check(found.protocol, len(found.entries) - 1)
    lacking = [n for n, entry in sorted(found.entries.items()) if entry.relay is None]
    if lacking:
        raise ConfigurationError(
            f"invite: the manifest {manifest} has no relay key of party {lacking[0]}. Make it anew "
            "from files that `securevfl keys public` wrote"
        )
    addresses = tuple(map(RelayAddress.parse, relays))
    lines = {
        "server" if n == SERVER else f"party {n}": str(
            Invitation(n, found.session, found.digest, addresses)
        )
        for n in sorted(found.entries)
    }
    sums = terms.sums(found.protocol)
    return lines | ({"sums": sums} if sums else {}) | {"fingerprint": in_words(found.digest)}
