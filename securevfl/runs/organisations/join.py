"""A party that joins a session: checks the invitation, waits for the others, takes part."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import ClassVar

from securevfl.active.judge import LieFoundError
from securevfl.engine.carriers.base import Carrier
from securevfl.engine.carriers.nats import NatsCarrier
from securevfl.engine.network import SERVER
from securevfl.engine.organisations.manifests import obtain_manifest
from securevfl.engine.organisations.process import OthersFailedError, Process
from securevfl.engine.security.identity import Identity, Manifest
from securevfl.engine.security.used_sessions import list_beside, refuse_used, use_session
from securevfl.engine.security.words import in_words
from securevfl.errors import CarrierError, ConfigurationError, RunError
from securevfl.runs.evidence import keep_evidence
from securevfl.runs.folders.checksums import Summary, read_summary
from securevfl.runs.organisations.folder import SESSION, OwnFolder
from securevfl.runs.organisations.invitation import Invitation
from securevfl.runs.organisations.organisation import Organisation
from securevfl.runs.organisations.terms import Terms
from securevfl.runs.storage import SUMMARY
from securevfl.writing import is_full

_APART = 1 << 20  # lives of a party are a number below this apart, so that none is taken twice
_AGAIN = 10.0  # seconds at most in which a party whose session is over tells others so


class Member:
    """A party invited to a session, before its first message.

    `index` is its number. The manifest need not have all signatures. The list of used sessions is
    beside the key file. `data` is this party's own table, if the terms require one.

    ConfigurationError if the key is not the manifest's, the terms have another version or have
    expired, the session was used before, the folder belongs to another session, or the data do not
    fit the terms. DataError if the table lacks the id column or the labels, or has labels that
    belong to the server.
    """

    kind: ClassVar[type[Organisation]] = Organisation

    def __init__(
        self, manifest: Manifest, index: int, *, key: Path, folder: Path, data: Path | None
    ) -> None:
        self.index = index
        self.identity = Identity.read(key)
        manifest.signed(index, self.identity)
        self.terms = Terms.of(manifest)
        self.terms.check(manifest.protocol, len(manifest.entries) - 1)
        self._check_data(data, helps=index >= len(manifest.entries) - 1 - self.terms.helpers)
        if not (folder / "own").exists() and self.terms.seconds_left() <= 0:
            raise ConfigurationError(
                f"session {manifest.session!r}: it had to begin by {self.terms.begin_by}. Agree on "
                "another time: write another manifest"
            )
        if data is not None and not (folder / "own").exists():
            self.terms.tables(index, data, len(manifest.entries) - 1).checked(index)
        self.data = data
        self._organisation: Organisation | None = None
        self.folder = OwnFolder(folder, manifest, index)
        self._use_data()
        self.manifest = self.folder.manifest(manifest)
        used = list_beside(key), manifest.session, self.folder.store.run_token()
        refuse_used(*used)
        self._use = functools.partial(use_session, *used, folder)

    def agrees_to(self) -> dict[str, str]:
        """Terms that the party signs, in words by name."""
        return self.terms.lines(self.manifest.protocol)

    def _use_data(self) -> None:
        """Raise ConfigurationError for another table than the one whose rows were joined."""
        self.folder.use_data(self.data)

    def _check_data(self, data: Path | None, *, helps: bool) -> None:
        """Refuse a missing table, or one for a party that needs none (ConfigurationError)."""
        if (self.terms.own_tables and not helps) == (data is not None):
            return
        if data is None:
            raise ConfigurationError(
                "session: its terms say that each party has a table of its own; name yours with "
                "--data FILE"
            )
        where = f"the set {self.terms.data.get('name')!r}, which every party loads by its name"
        if self.terms.own_tables:
            where = "tables of the others, and this party is a helper, which has shares alone"
        raise ConfigurationError(f"session: its data are {where}; leave --data out")

    async def take_part(
        self, carrier: Carrier, say: Callable[[str], None], *, patience: float = 15.0
    ) -> Summary:
        """Carry out the session; return this party's summary.

        `say` is called with sentences for the user. A party from which nothing arrives for
        `patience` seconds is named. RunError if a party's code raised an error.
        """
        process = Process(
            self.index,
            self.manifest,
            self.identity,
            carrier,
            life=self.folder.store.begin_incarnation(apart=_APART),
            renew=lambda known: self.folder.store.begin_incarnation(known + 1, apart=_APART),
            used=self._use,
            record=self._record,
            say=say,
            patience=patience,
            padded=self.terms.padded,
        )
        try:
            return await self._from_open_to_leave(process, say)
        finally:
            if self._organisation is not None:  # until it has left it may record a lost relay
                self._organisation.log.close()

    async def _from_open_to_leave(self, process: Process, say: Callable[[str], None]) -> Summary:
        """Connect, carry out the session, and report its end to the other parties."""
        if self.folder.ended:
            self.folder.clear()  # a process that was killed at its very end has left its shares
            say(f"this session is over, and its result stands in {self.folder.path}")
            return await self._over(process)
        await process.open()
        try:
            summary = await self._session(process, say)
        except (OthersFailedError, asyncio.CancelledError, KeyboardInterrupt):
            await process.close()
            raise
        except LieFoundError as error:
            await process.leave(None)
            raise keep_evidence(error, self.folder.path) from None
        except BaseException:
            await process.leave(None)
            raise
        await process.leave(len(self.kind.phases))
        return summary

    async def _over(self, process: Process) -> Summary:
        """Report the end to parties that missed it, if a relay is reachable; return the summary."""
        try:
            async with asyncio.timeout(_AGAIN):
                await process.open()
                await process.leave(len(self.kind.phases))
        except (TimeoutError, CarrierError):
            await process.close()
        return read_summary(self.folder.path / SUMMARY)

    async def _session(self, process: Process, say: Callable[[str], None]) -> Summary:
        """Gather all parties, and carry out the remaining phases."""
        manifest = await process.gather(self.terms.seconds_left)
        self.folder.keep_manifest(manifest)
        own = self._organisation = self._organise(manifest, say)
        for number, name in enumerate(self.kind.phases):
            if number < self.folder.phase:
                continue
            phase = own.phase(name)
            if phase is not None:
                await process.carry_out(phase)
            self.folder.phase = number + 1
        return own.save()

    def _organise(self, manifest: Manifest, say: Callable[[str], None]) -> Organisation:
        """This party with its data, after all have signed."""
        return self.kind(manifest, self.terms, self.index, self.folder, self.data, say)

    def _record(self, name: str, fields: dict[str, object]) -> None:
        """Record an event of the process itself, once all parties have signed."""
        if self._organisation is not None:
            self._organisation.note(name, fields)


def kept_manifest(folder: Path, invitation: Invitation) -> Manifest:
    """The manifest in a party's folder, stored when all had signed it.

    ConfigurationError if it is of another session than the invitation's.
    """
    found = Manifest.read(folder / SESSION)
    if found.digest != invitation.digest:
        raise ConfigurationError(
            f"party: the folder {folder} is of the session {found.session!r}, and the invitation "
            f"is to {invitation.session!r}. Choose another folder with --out"
        )
    return found


def join(
    invitation: Invitation,
    *,
    key: Path,
    folder: Path,
    data: Path | None,
    manifest: Path | None,
    say: Callable[[str], None],
    patience: float = 15.0,
    agree: Callable[[], bool] = lambda: True,
) -> Summary:
    """Take part in the session of an invitation over its relays; return this party's summary.

    `key` is the party's key file, `data` its table. A stopped party continues in the same `folder`.
    The server needs the `manifest` file; others without it receive it from the server. `say` gets
    sentences for the user, such as the terms, and parties not heard for `patience` seconds. After
    the terms `agree` is called, unless all have seen the party's signature: if it returns false,
    nothing is signed, and a ConfigurationError is raised. Other errors are those of `Member`;
    CarrierError if no relay admits the party; RunError if a party's code or the disk fails.
    """
    index = invitation.index
    if index == SERVER and manifest is None:
        raise ConfigurationError("party: the server needs the manifest; name it with --manifest")

    async def member(carrier: Carrier) -> Member:
        if manifest is not None:
            found = invitation.check(Manifest.read(manifest))
        elif (folder / SESSION).exists():
            found = kept_manifest(folder, invitation)
        else:
            if not (folder / "own").exists():
                refuse_used(list_beside(key), invitation.session)
            if data is not None and not data.is_file():
                raise ConfigurationError(f"party: {data} is no file; name your table with --data")
            if data is None:
                say("no --data was given: right only of a helper, or where data are a set by name")
            found = await obtain_manifest(carrier, index, invitation.digest, say, patience=patience)
        return Member(found, index, key=key, folder=folder, data=data)

    joined = (folder / SESSION).exists()
    ask = None if joined else agree
    return take_part(member, invitation, key, folder, say, patience=patience, agree=ask)


def take_part(
    make: Callable[[Carrier], Awaitable[Member]],
    invitation: Invitation,
    key: Path,
    folder: Path,
    say: Callable[[str], None],
    *,
    patience: float,
    agree: Callable[[], bool] | None = None,
) -> Summary:
    """Create a member by `make`, show (`say`) the terms, and take part; return the summary.

    ConfigurationError if `agree` returns false; RunError if the disk is full or a party's code
    fails.
    """
    identity = Identity.read(key)

    def carrier() -> NatsCarrier:
        return NatsCarrier(invitation.relays, invitation.token, invitation.index, identity)

    async def all_of_it() -> Summary:
        member = await make(carrier())
        found, names = member.manifest, member.terms.called
        parties = len(found.entries) - 1
        signs = "signed" if member.folder.ended else "signs"
        say(f"{signs} the session {found.session!r}: {found.protocol} with {parties} parties")
        for name, text in member.agrees_to().items():
            say(f"{name}: {text}")
        words = in_words(found.digest)
        say(f"Compare this fingerprint with the others over another channel: {words}")
        if agree is not None and not agree():
            raise ConfigurationError(
                "party: nothing was signed. Give the same command again to join"
            )
        with names.in_errors():
            return await member.take_part(
                carrier(), lambda text: say(names.in_text(text)), patience=patience
            )

    try:
        return asyncio.run(all_of_it())
    except OSError as error:
        if not is_full(error):
            raise
        raise RunError(
            f"party: {folder} could not be written: {error.strerror}. What was whole is kept: make "
            "room, and give the same command again"
        ) from error
