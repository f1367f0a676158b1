"""Store of a party's own checkpoints: kept attributes at safe points of several rounds.

Each party has a folder: ``rounds.svfl`` for the stored rounds and the state written by
`write_ahead` (`securevfl.engine.realtime.slot_file`), ``once.svfl`` for constants, ``entropy.svfl``
with the entropy of the party's secret choices, ``run.svfl`` with a random name of the run if there
is a manifest, ``origin.svfl`` with all parties' incarnation numbers at the last start without a
checkpoint if there is no driver, ``life`` with the number of its incarnation, and ``lock``, which
the writing process holds. Each ``.svfl`` file is written completely or not at all, has a checksum,
is never unpickled, and has the mode 0600. A damaged round is skipped.

The store keeps the newest eight rounds, the newest eight multiples of eight, of 64, and so on.
Parties that finished the same rounds keep the same ones. So a driver with a history some rounds old
finds a round in it of which every party has a checkpoint.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.engine import wire
from securevfl.engine.checkpoint import read_file, write_file
from securevfl.engine.realtime.slot_file import SlotFile
from securevfl.engine.streams import ENTROPY
from securevfl.errors import CheckpointError, WireError
from securevfl.writing import make_folder, sync_folder, write_durably

if TYPE_CHECKING:
    from filelock import FileLock

    from securevfl.engine.party import Party

_ONCE = "once.svfl"
_ENTROPY = "entropy.svfl"
ROUNDS = "rounds.svfl"
_RUN = "run.svfl"
_ORIGIN = "origin.svfl"
_INCARNATION = "life"
_LOCK = "lock"
_KEPT = 8  # rounds of each step, and the ratio of steps


class CheckpointStore:
    """The checkpoints of one party, in a folder.

    Parameters
    ----------
    folder : Path
        The party's own folder; created if needed.
    every : int
        Rounds between checkpoints.
    """

    def __init__(self, folder: Path, *, every: int = 1) -> None:
        self.folder = folder
        self.every = every
        self._last = -1
        self._since = -1  # round of the checkpoint after which the party goes on
        self._file = SlotFile(folder / ROUNDS)
        self._once_there = False
        self._lock: FileLock | None = None
        self._once: dict[str, Any] | None = None  # as it was read
        make_folder(folder, mode=0o700)

    def claim(self, patience: float = 30.0) -> None:
        """Lock the folder for this process until its end.

        CheckpointError if another process, such as one whose driver was killed, does not end within
        `patience` seconds.
        """
        from filelock import FileLock, Timeout

        lock = FileLock(self.folder / _LOCK, mode=0o600, thread_local=False)
        try:
            lock.acquire(timeout=patience)
        except Timeout:
            raise CheckpointError(
                f"checkpoint: another process of this run still writes to {self.folder}, and has "
                f"not ended in {patience:g} s. End it, and resume again; nothing was changed"
            ) from None
        self._lock = lock

    def release(self) -> None:
        """Unlock the folder, as the end of the process does."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def begin_incarnation(self, least: int = 0, *, apart: int = 1) -> int:
        """Number of a new incarnation (start of the party): unused before, at least `least`.

        It is a random one of the next `apart` numbers, so that a restored old copy of the folder
        does not reuse the number of a later incarnation. CheckpointError if the file with the
        number is damaged, because no number may be used twice.
        """
        path = self.folder / _INCARNATION
        try:
            before = int(path.read_text()) if path.exists() else -1
            incarnation = max(before + 1, least) + secrets.randbelow(apart)
        except ValueError:
            raise CheckpointError(
                f"checkpoint: {path} is damaged: it holds no number. Put it back from a copy, or "
                "start another run"
            ) from None
        write_durably(path, str(incarnation))
        return incarnation

    def run_token(self) -> str:
        """Random name of the folder's run; a resumed run has the same name.

        If the file is damaged, a new name is drawn.
        """
        try:
            token = read_file(self.folder / _RUN)
        except CheckpointError:
            token = secrets.token_hex(16)
            write_file(self.folder / _RUN, token)
        return str(token)

    def begin_anew(self, era: tuple[int, ...]) -> None:
        """Write the era (incarnation number of each party) of all further checkpoints."""
        write_file(self.folder / _ORIGIN, {"era": era})

    def origin(self) -> tuple[int, ...]:
        """Era written by `begin_anew`; empty if there is none, or the file is damaged."""
        try:
            return tuple(read_file(self.folder / _ORIGIN)["era"])
        except (CheckpointError, KeyError, TypeError):
            return ()

    def new_entropy(self, entropy: bytes) -> None:
        """Write the random bytes for a party's secret choices, replacing an earlier run's."""
        write_file(self.folder / _ENTROPY, {"entropy": entropy})

    def entropy(self) -> bytes | None:
        """Random bytes that the party's secret choices follow from; None if missing or damaged."""
        try:
            entropy: bytes = read_file(self.folder / _ENTROPY)["entropy"]
        except (CheckpointError, KeyError, TypeError):
            return None
        return entropy if isinstance(entropy, bytes) and len(entropy) == ENTROPY else None

    def __call__(self, party: Party, state: Callable[[], dict[str, Any]]) -> None:
        """Write a checkpoint if one is due; the party must be at a safe point.

        It is on disk after `sync`.
        """
        if party.round % self.every or party.round == self._last:
            return
        saved = state()
        if not self._once_there and not (self.folder / _ONCE).exists():
            write_file(self.folder / _ONCE, saved["once"])
        self._once_there = True
        saved["once"] = dict.fromkeys(saved["once"])
        self._file.put(party.round, wire.encode(saved))
        self._last = self._since = party.round
        self._file.keep_only(_worth_keeping(self._file.rounds))

    def sync(self) -> None:
        """Have all checkpoints and what was written ahead on disk on return.

        Call it before anything leaves the party that follows from them.
        """
        self._file.sync()

    def write_ahead(self, round: int, state: bytes, begins_once: bool = False) -> None:
        """Write state that the party must not lose, without waiting for a checkpoint.

        It is on disk after `sync`.

        Parameters
        ----------
        round, state : int, bytes
            Current round, and state from `securevfl.engine.party_state.ahead`.
        begins_once : bool
            Whether the run must never start again in this folder (`refuse_to_begin_anew`).
        """
        content = {"round": round, "since": self._since, "state": state, "once": begins_once}
        self._file.put_ahead(round, wire.encode(content))

    def _ahead(self, round: int) -> dict[str, bytes]:
        """State written by `write_ahead` after the checkpoint of a round; empty if none."""
        found = self._written_ahead()
        # The round is not enough: a party may write both in one, and no older state may win.
        return {} if found is None or found["since"] < round else {"ahead": found["state"]}

    def _written_ahead(self) -> dict[str, Any] | None:
        body = self._file.ahead
        if body is None:
            return None
        try:
            found: dict[str, Any] = wire.decode(body)
            if isinstance(found["state"], bytes) and isinstance(found["since"], int):
                return found
        except (WireError, KeyError, TypeError):
            pass
        raise self._file.damaged()

    def refuse_to_begin_anew(self, who: str) -> None:
        """Raise CheckpointError where a fresh start would repeat counted releases.

        That is if the party has released values that a privacy guarantee counts, or the
        file that records this is damaged.

        Parameters
        ----------
        who : str
            Name of the party.
        """
        self._file.open()
        found = self._written_ahead()
        if found is not None and found.get("once"):
            raise CheckpointError(
                f"checkpoint: {who} has sent already in this run what its guarantee counts, such "
                "as rows with noise. Begun anew it would send it again, and count from 0. Put back "
                "the folders that parties have lost, and go on; or start another run, in another "
                "folder, and add up the epsilons of both. Nothing was changed"
            )

    def rounds(self) -> list[int]:
        """Rounds with a checkpoint, ascending; it may be damaged."""
        self._file.open()
        self._file.keep_only(_worth_keeping(self._file.rounds))
        return self._file.rounds

    def whole(self) -> list[int]:
        """Rounds with readable checkpoints, ascending."""
        return [round for round in self.rounds() if self._read(round) is not None]

    def read(self, at: int | None = None) -> dict[str, Any] | None:
        """Checkpoint of a round, or the newest readable one; None if there is none."""
        rounds = self.rounds()
        for round in reversed(rounds) if at is None else [at]:
            state = self._read(round)
            if state is not None:
                self._once = None  # it is the party's from here on
                self._since = round
                return state | self._ahead(round)
        return None

    def _read(self, round: int) -> dict[str, Any] | None:
        body = self._file.read(round)
        if body is None:
            return None
        try:
            state: dict[str, Any] = wire.decode(body)
            if state["once"]:
                if self._once is None:
                    self._once = read_file(self.folder / _ONCE)
                state["once"] = self._once
        except (CheckpointError, WireError, KeyError, TypeError):
            return None
        return state

    def forget(self, after: int) -> None:
        """Delete the checkpoints of rounds after `after`, which a run that goes back repeats.

        With -1 all checkpoints, the constants and the state written ahead are deleted.
        """
        self._once, self._once_there = None, False
        if after < 0:
            self._file.remove()
            (self.folder / _ONCE).unlink(missing_ok=True)
            sync_folder(self.folder)  # else a power cut could bring back what others forgot
        else:
            self._file.erase_after(after)


def _worth_keeping(rounds: Sequence[int]) -> set[int]:
    """Rounds to keep: the newest eight, the newest eight multiples of 8, of 64, and so on."""
    worth: set[int] = set()
    step = 1
    while True:
        level = [round for round in rounds if round % step == 0][-_KEPT:]
        worth |= set(level)
        if len(level) < _KEPT:
            return worth
        step *= _KEPT
