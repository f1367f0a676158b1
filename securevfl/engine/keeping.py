"""A party's own checkpoints on disk: what it keeps at safe points, a few rounds back.

One folder a party: ``round-<r>.svfl`` for each round kept, ``once.svfl`` for what never changes,
and ``life`` with the number of the party's life. Files are written whole or not at all, carry a
checksum, are never unpickled, and have the mode 0600; what is damaged is passed over.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.engine.checkpoint import read_file, write_file
from securevfl.errors import CheckpointError

if TYPE_CHECKING:
    from securevfl.engine.party import Party

_ONCE = "once.svfl"
_LIFE = "life"


class Keeper:
    """Writes and reads one party's checkpoints.

    Parameters
    ----------
    folder : Path
        The party's own; created if needed.
    every : int
        Rounds between checkpoints.
    kept : int
        How many are left in the folder.
    """

    def __init__(self, folder: Path, *, every: int = 1, kept: int = 8) -> None:
        self.folder = folder
        self.every = every
        self.kept = kept
        self._last = -1
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    def begin_life(self) -> int:
        """Number of a new life, which no earlier one had."""
        path = self.folder / _LIFE
        life = int(path.read_text()) + 1 if path.exists() else 0
        part = path.with_suffix(".part")
        part.write_text(str(life))
        os.replace(part, path)
        return life

    def __call__(self, party: Party, state: Callable[[], dict[str, Any]]) -> None:
        """Write a checkpoint if one is due; called at safe points."""
        if party.round % self.every or party.round == self._last:
            return
        saved = state()
        once = self.folder / _ONCE
        if not once.exists():
            write_file(once, saved["once"])
        saved["once"] = dict.fromkeys(saved["once"])
        write_file(self._path(party.round), saved)
        self._last = party.round
        for round in self.rounds()[: -self.kept]:
            self._path(round).unlink(missing_ok=True)

    def rounds(self) -> list[int]:
        """Rounds that there are checkpoints of, ascending; they may turn out to be damaged."""
        found = [path.stem.partition("-")[2] for path in self.folder.glob("round-*.svfl")]
        return sorted(int(text) for text in found if text.isdigit())

    def read(self, at: int | None = None) -> dict[str, Any] | None:
        """The newest whole checkpoint, of no later round than `at`; None where there is none."""
        for round in reversed(self.rounds()):
            if at is not None and round > at:
                continue
            try:
                state: dict[str, Any] = read_file(self._path(round))
                if state["once"]:
                    state["once"] = read_file(self.folder / _ONCE)
            except CheckpointError:
                continue
            return state
        return None

    def forget(self, after: int) -> None:
        """Remove checkpoints of later rounds, which a run that goes back will write anew.

        With -1 everything goes but the number of the life.
        """
        for round in self.rounds():
            if round > after:
                self._path(round).unlink(missing_ok=True)
        if after < 0:
            (self.folder / _ONCE).unlink(missing_ok=True)

    def _path(self, round: int) -> Path:
        return self.folder / f"round-{round:08d}.svfl"
