"""Simulations with the secrets of a cluster run, to compare both exactly.

Parties on a cluster draw secret choices from their own entropy, which is deleted when the run ends.
Tests and benchmarks read it before that by this module. No option of a run uses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from securevfl.engine.network import SERVER
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.streams import Composed, OwnEntropy
from securevfl.runs.engines.ray_engine import RayEngine
from securevfl.runs.spec import RunSpec


def read_entropies(folder: Path) -> dict[int, OwnEntropy]:
    """Entropies of the parties, by party, from the folder of an unfinished run."""
    found = {}
    for place in sorted((folder / "parties").iterdir()):
        index = SERVER if place.name == "server" else int(place.name)
        entropy = CheckpointStore(place).entropy()
        if entropy is not None:
            found[index] = OwnEntropy(index, entropy)
    return found


@contextmanager
def kept_entropies() -> Iterator[dict[int, OwnEntropy]]:
    """Context manager with a mapping that gets each party's entropy at the end of a cluster run.

    The run needs a folder.
    """
    kept: dict[int, OwnEntropy] = {}
    clear = RayEngine.clear

    def reading(engine: RayEngine, folder: Path) -> None:
        kept.update(read_entropies(folder))
        clear(engine, folder)

    with mock.patch.object(RayEngine, "clear", reading):
        yield kept


@contextmanager
def simulated_with(entropies: dict[int, OwnEntropy]) -> Iterator[None]:
    """Context in which simulations use these entropies for the parties' secret choices."""
    with mock.patch.object(RunSpec, "secrets", Composed(entropies)):
        yield
