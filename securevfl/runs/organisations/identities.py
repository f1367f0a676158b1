"""Identities and manifests for ``securevfl keys``: creation, signature, checks."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from securevfl.engine.names import PartyNames
from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import (
    Identity,
    Manifest,
    ManifestEntry,
    fingerprint,
    public_file,
    read_public,
    read_public_keys,
)
from securevfl.engine.security.words import in_words
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.registry import get_protocol
from securevfl.runs.organisations.terms import Terms


def create(file: Path) -> dict[str, str]:
    """Create a key pair; return the path of its public half, and its fingerprint."""
    public = Identity.create(file).public
    return {"public_file": str(public_file(file)), "fingerprint": fingerprint(public)}


def write_public(file: Path) -> dict[str, str]:
    """Write the public half of a key file again; return its path and fingerprint."""
    found = Identity.read(file)
    found.write_public(public_file(file))
    return {"public_file": str(public_file(file)), "fingerprint": fingerprint(found.public)}


def show(files: Iterable[Path]) -> dict[str, str]:
    """Fingerprints of public keys by file."""
    return {str(file): fingerprint(read_public(file)) for file in files}


def write_manifest(
    out: Path,
    server: Path,
    parties: Sequence[str],
    protocol: str,
    session: str | None,
    terms: Callable[[int, Sequence[str]], Mapping[str, object]] | None = None,
) -> dict[str, str]:
    """Write the manifest of the participants to the new file `out`; return `described` of it.

    `server` and FILE are files of public keys. Each of `parties` is ``N=FILE`` or
    ``N=FILE@POINT``, a party's evaluation point; or ``NAME=FILE`` for all, which are then numbered
    in order. `session` is the name of the session, random by default. `terms` returns the
    terms of the session from the number of parties and their names; None for a run that a driver
    starts. ConfigurationError if the file exists, or a party is malformed or named twice.
    """
    get_protocol(protocol)
    if out.exists():
        raise ConfigurationError(f"keys: {out} is there already; name another file")
    entries = {SERVER: _entry(server)}
    names = _names(parties)
    if names and terms is None:
        raise ConfigurationError(
            f"keys: --party {parties[0]!r}: parties of a run that a driver starts have numbers; "
            "write N=FILE.key.pub, or give --label or --data, for organisations"
        )
    for place, text in enumerate(parties):
        word, _, rest = text.partition("=")
        number = place if names else int(word)
        name, _, point = rest.partition("@")
        if not name or (point and not point.isdigit()):
            raise _unreadable(text)
        if number in entries:
            raise ConfigurationError(f"keys: party {number} is named twice")
        entries[number] = _entry(Path(name), int(point) if point else None)
    agreed = {} if terms is None else terms(len(entries) - 1, names)
    made = Manifest(session or secrets.token_hex(8), protocol, entries, terms=agreed)
    made.write(out)
    return described(made)


def _names(parties: Sequence[str]) -> list[str]:
    """Names of the parties; empty if they are given by numbers."""
    words = [text.partition("=")[0] for text in parties]
    numbers = [word for word in words if word.isdigit()]
    if len(numbers) == len(words):
        return []
    if numbers or not all(words):
        raise _unreadable(next(text for text, word in zip(parties, words, strict=True)
                               if not word or word not in numbers))  # fmt: skip
    return words


def _unreadable(text: str) -> ConfigurationError:
    return ConfigurationError(
        f"keys: --party {text!r}: write N=FILE.key.pub, or N=FILE.key.pub@POINT; or "
        "NAME=FILE.key.pub for all parties, in the order of their numbers"
    )


def _entry(file: Path, point: int | None = None) -> ManifestEntry:
    public, relay = read_public_keys(file)
    return ManifestEntry(public, point, relay)


def sign(manifest: Path, key: Path, party: str) -> dict[str, str]:
    """Sign a manifest file as `party`, a number or "server", and return who takes part.

    ConfigurationError for another `party`, or a file or key that cannot be used.
    """
    if party != "server" and not party.isdigit():
        raise ConfigurationError(f"keys: --as {party!r}: write a party number, or server")
    index = SERVER if party == "server" else int(party)
    signed = Manifest.read(manifest).signed(index, Identity.read(key))
    signed.write(manifest)
    return described(signed)


def described(manifest: Manifest) -> dict[str, str]:
    """Texts on participants, signatures and terms, by "session", "server", "party 0" and so on."""
    missing = set(manifest.unsigned)
    lines = {"session": manifest.session, "protocol": manifest.protocol}
    for index, entry in sorted(manifest.entries.items()):
        name = "server" if index == SERVER else f"party {index}"
        point = "" if entry.point is None else f", point {entry.point}"
        signed = "not signed" if index in missing else "signed"
        lines[name] = f"{fingerprint(entry.public)}{point}, {signed}"
    if manifest.terms:
        lines |= Terms.of(manifest).lines(manifest.protocol)
    return lines


def named(lines: Mapping[str, str], manifest: Path) -> dict[str, str]:
    """Lines of text by party, under the party names of a manifest."""
    found = Manifest.read(manifest)
    called = Terms.of(found).called if found.terms else PartyNames()
    return {called.in_text(party): text for party, text in lines.items()}


def look(manifest: Path) -> tuple[dict[str, str], Manifest]:
    """Texts for the user on a manifest file, by name, and the manifest, its signatures unchecked.

    A manifest with terms also gives the fingerprint of the session, and needs no signature before
    its parties join."""
    found = Manifest.read(manifest)
    told = described(found)
    if found.terms:
        told["fingerprint"] = in_words(found.digest)
        told["signatures"] = "each party signs when it joins; nobody has to sign before"
    return told, found
