"""Assignment of a run's parties to processes, and the start of an incarnation.

An actor of a cluster and a process of an organisation create their party in the same way: from the
assignment, on the machine with the party's data and keys, and from its own checkpoint after a
restart.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from secrets import token_hex

from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.message_rules import MessageRules
from securevfl.engine.network import SERVER, Event, name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import restore
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.realtime.host import PartyHost, Transmit
from securevfl.engine.security.frames import Links
from securevfl.engine.security.identity import Identity, Manifest
from securevfl.engine.security.used_sessions import list_beside, use_session
from securevfl.engine.streams import OwnEntropy, Secrets
from securevfl.errors import ConfigurationError, RunError


@dataclass(frozen=True)
class PartyAssignment:
    """Assignment of a run's actors, in plain values except `make`.

    Attributes
    ----------
    make : callable
        Creates a party from its number and secrets, with its own data, on the party's node.
    protocol, run_id : str
        Names bound into the keys of every link.
    parties : tuple of int
        Numbers of all parties.
    seed : int
        Seed of the run's public choices.
    conditions : Conditions
        Delays to inject.
    folder : str or None
        Folder of checkpoints on the machine of each party; None for no checkpoints.
    every : int
        Rounds between checkpoints.
    manifest : Manifest or None
        Signed list of parties. Without one the driver distributes keys, and must be trusted.
    keys : str or None
        Folder of key files, ``server.key`` and ``party-0.key``, on each party's own machine.
    points : mapping
        Evaluation point of each party's shares, for comparison with the manifest.
    rules : MessageRules or None
        Rules from the protocol's declared messages; None if it declares none.
    start : str
        Random token of this start of the run, bound into the keys of its links. In a run without a
        folder it also names the run in the list of used sessions.
    """

    make: Callable[[int, Secrets], Party]
    protocol: str
    run_id: str
    parties: tuple[int, ...]
    seed: int
    conditions: Conditions = NONE
    folder: str | None = None
    every: int = 1
    manifest: Manifest | None = None
    keys: str | None = None
    points: Mapping[int, int] = field(default_factory=dict)
    rules: MessageRules | None = None
    start: str = field(default_factory=lambda: token_hex(16))

    def identity(self, index: int) -> Identity | None:
        """A party's long-term key, read on its node; None without a manifest.

        ConfigurationError if the manifest has another key for it.
        """
        if self.manifest is None:
            return None
        found = Identity.read(self._key_file(index))
        self.manifest.signed(index, found)
        return found

    def _key_file(self, index: int) -> Path:
        assert self.keys is not None
        return Path(self.keys) / f"{_key_name(index)}.key"

    def use_session(self, index: int, store: CheckpointStore | None) -> None:
        """Record at a party's node that its run uses the manifest's session.

        ConfigurationError if another run used it, or the list of used sessions is unusable.
        """
        run = self.start if store is None else store.run_token()
        used = list_beside(self._key_file(index))
        use_session(used, self.run_id, run, None if store is None else store.folder)

    def check(self) -> None:
        """Check the manifest, if there is one, against the run.

        SealError for missing signatures; ConfigurationError for another protocol, other parties or
        points, and without `keys`.
        """
        manifest = self.manifest
        if manifest is None:
            return
        if self.keys is None:
            raise ConfigurationError(
                "cluster: a manifest needs keys, the folder of the parties' key files"
            )
        manifest.check()
        if manifest.protocol != self.protocol or sorted(manifest.entries) != sorted(self.parties):
            raise ConfigurationError(
                f"cluster: the manifest is of {manifest.protocol} with {len(manifest.entries) - 1} "
                f"parties, and this run is of {self.protocol} with {len(self.parties) - 1}"
            )
        for index, entry in manifest.entries.items():
            point = self.points.get(index)
            if entry.point is not None and entry.point != point:
                raise ConfigurationError(
                    f"cluster: {name_of(index)} has the point {entry.point} in the manifest, and "
                    f"{point} in this run"
                )

    def checkpoint_store(self, index: int) -> CheckpointStore | None:
        """Store of a party's own checkpoints; None for a run without folder."""
        if self.folder is None:
            return None
        return CheckpointStore(own_folder(self.folder, index), every=self.every)


def begin_incarnation(
    assignment: PartyAssignment,
    index: int,
    store: CheckpointStore | None,
    transmit: Transmit,
    *,
    identity: Identity | None,
    epoch: int,
    restored: bool,
    at: int | None,
    floor: int,
    used: Callable[[], None] | None = None,
    observe: Callable[[Event], None] | None = None,
) -> PartyHost:
    """A new incarnation of a party in its host.

    RunError if there is no such checkpoint, or the party's entropy is lost. CheckpointError if the
    party must not start again (`Party.begins_once`). ConfigurationError or SealError if the
    manifest is invalid, or its session was used before.

    Parameters
    ----------
    assignment, index : PartyAssignment, int
        Assignment of the run, and number of the party.
    store : CheckpointStore or None
        The party's locked checkpoint store.
    transmit : callable
        Sends a frame to a party without blocking; it may lose, repeat or reorder frames.
    identity : Identity or None
        Identity that signs for the party in its protocol; needs a manifest.
    epoch : int
        Lower bound of the incarnation's number.
    restored : bool
        Whether to continue from a checkpoint.
    at : int or None
        Round of the checkpoint; by default the newest readable one.
    floor : int
        Lower bound of a server's round.
    used : callable, optional
        Records that the manifest's session is used; by default `PartyAssignment.use_session`.
    observe : callable, optional
        Called with each event of the party.
    """
    _limit_threads()
    saved = None
    if restored:
        saved = None if store is None else store.read(at)
        if saved is None:
            of = "" if at is None else f" of round {at}"
            raise RunError(f"{name_of(index)} has no checkpoint{of} to come back from")
    elif store is not None:
        store.refuse_to_begin_anew(name_of(index))
    if assignment.manifest is not None:
        assignment.manifest.check()  # before anything is loaded
    secrets = begun_secrets(store, index, restored=restored)
    party = assignment.make(index, secrets)
    if identity is not None and assignment.manifest is not None:
        party.signing = identity.signing(assignment.manifest)
    _limit_threads()  # those of libraries that its data brought
    if saved is not None:
        restore(party, saved)
    if store is not None:
        epoch = store.begin_incarnation(epoch)
        store.forget(-1 if saved is None else saved["round"])
    party.epoch = epoch
    if saved is None:
        party.saved_epoch = epoch  # nobody wrote a checkpoint from which it came back
    if index == SERVER:
        party.round = max(party.round, floor)
    if assignment.manifest is not None:
        if used is None:
            assignment.use_session(index, store)
        else:
            used()
    return PartyHost(
        party,
        Links(assignment.run_id, index, epoch, assignment.parties),
        transmit,
        seed=assignment.seed,
        secrets=secrets,
        conditions=assignment.conditions,
        keep=store,
        keep_ahead=None if store is None else store.write_ahead,
        sync=(lambda: None) if store is None else store.sync,
        setup_done=saved is not None,
        rules=assignment.rules,
        observe=observe,
    )


def begun_secrets(store: CheckpointStore | None, index: int, *, restored: bool) -> OwnEntropy:
    """The party's own secrets: read for a return from a checkpoint, else newly drawn.

    A fresh start draws new entropy even if an earlier attempt left some. With the old entropy, its
    first models would equal those of that attempt, and two sums of the same models over different
    clients reveal their difference. RunError if entropy for a return is missing.
    """
    if not restored:
        secrets = OwnEntropy.draw(index)
        if store is not None:
            store.forget(-1)  # else a crash would leave rounds of other secrets than the new ones
            store.new_entropy(secrets.entropy)
        return secrets
    entropy = None if store is None else store.entropy()
    if entropy is None:
        raise RunError(
            f"{name_of(index)} has checkpoints, but no whole file entropy.svfl beside "
            "them, from which its secret choices follow. Put the file back, or start another "
            "run"
        )
    return OwnEntropy(index, entropy)


def _limit_threads() -> None:
    """Let this process compute on one thread, as `securevfl.runs.threads.one_thread` does.

    Ray could set this by an environment for the party, but would start Python twice. Torch is
    imported only by parties that compute with it; others, such as owners of tables during
    alignment, save one or two seconds.
    """
    from threadpoolctl import threadpool_limits

    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    threadpool_limits(1, user_api="blas")


def own_folder(folder: str, index: int) -> Path:
    """Folder of a party's own files in a run's folder on its machine."""
    return Path(folder) / "parties" / ("server" if index == SERVER else str(index))


def _key_name(index: int) -> str:
    return "server" if index == SERVER else f"party-{index}"
