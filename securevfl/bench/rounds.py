"""Real computing time of training rounds on this machine.

A round's cost here is what a simulation computes in one process and on one thread: the work of all
parties, without uploads that come too late. The virtual clock has no part in it. Methods take
turns, block by block, so that a machine that is busy for a while slows them alike, and the ratio is
the median of the ratios of neighbouring blocks.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.engine.conditions import Conditions
from securevfl.engine.network import SERVER, Event
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError
from securevfl.machine import describe_machine
from securevfl.protocols.base.defaults import DEFAULT
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.assembly import check_memory, rules_of
from securevfl.runs.threads import one_thread

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

WARM_UP = 3
_SEED = 0
# Bits that rule out a wrap for 784 features in [0, 1], one layer and |W| <= 16.
FIELDS: tuple[dict[str, int], ...] = (
    {"prime": 2**31 - 1, "data_bits": 7, "model_bits": 8},
    {"prime": 2**50 - 2**14 + 1, "data_bits": 16, "model_bits": 17},
    {"prime": 2**61 - 1, "data_bits": 20, "model_bits": 24},
)
_BANDWIDTH = 300e6  # spreads a round over instants, between which the simulation can pause


@dataclass(frozen=True)
class RoundSize:
    """Size of benchmark rounds; by default that of fashion-mnist in the FedVS paper.

    `parties` N, `segments` K, `privacy` T; rows K |B| of a `batch`, `width` h of an embedding,
    training `rows` M, and columns (`features`) of all clients together.
    """

    parties: int = 28
    segments: int = 4
    privacy: int = 1
    batch: int = 256
    width: int = 64
    rows: int = 60_000
    features: int = 784


class Rounds:
    """A run that proceeds a few rounds at a time and observes its own simulation.

    `protocol` is a name, `options` are its options. Without `conditions` there is a bandwidth and
    no delays; without `lazy` late uploads are computed, too. The attribute `times` has the virtual
    seconds of the server's steps so far.
    """

    def __init__(
        self,
        protocol: str,
        data: VerticalDataset,
        options: dict[str, Any],
        conditions: Conditions | None = None,
        *,
        lazy: bool = True,
    ) -> None:
        cls = get_protocol(protocol)
        made = cls(make_config(cls, options), data, seed=_SEED)
        check_memory(made, messages=False)
        self.times: list[float] = []
        self._simulation = Simulation(
            made.parties(),
            seed=_SEED,
            conditions=conditions or Conditions(name="bench", bandwidth=_BANDWIDTH),
            observer=self,
            rules=rules_of(made),
            lazy=lazy,
        )

    def record(self, event: Event) -> None:
        """Store the time of an event if it is a server step."""
        if event.name == "round" and event.party == SERVER:
            self.times.append(event.time / 1e9)

    def round_over(self, party: int, round: int, time: int, left: bool) -> None:
        """Do nothing: clients' ends of rounds do not matter here."""

    def advance(self, rounds: int) -> float:
        """Run `rounds` more server steps; return the real seconds used."""
        target = len(self.times) + rounds
        started = time.perf_counter()
        self._simulation.run(lambda: len(self.times) >= target)
        return time.perf_counter() - started


def bench_round(
    size: RoundSize | None = None,
    *,
    blocks: int = 9,
    rounds: int = 3,
    fields: Sequence[dict[str, int]] = FIELDS,
) -> dict[str, Any]:
    """Time a round of the default protocol and of its unprotected baseline on equal batches.

    `blocks` of each method, at least 7, of `rounds` rounds each are timed for each of the `fields`
    (options ``prime``, ``data_bits`` and ``model_bits``). The result has ``size``;
    ``protocol`` and ``twin``, their names; ``fields``: for each the times of a round in
    milliseconds (median, lowest, highest and all blocks) of both, as ``NAME_ms``, their ratio, and
    the seconds of the protocol's setup; ``machine``. ConfigurationError when the size cannot run or
    does not fit in memory.
    """
    size = size or RoundSize()
    if blocks < 7 or rounds < 1:
        raise ConfigurationError(
            f"bench round: {blocks} blocks of {rounds} rounds; at least 7 of at least 1 are needed"
        )
    with one_thread():
        _compile(fields)
        data = _data(size)
        results = [_compare(size, data, field, blocks, rounds) for field in fields]
    return {
        "size": {**asdict(size), "rows": data.rows, "data": data.name},
        "protocol": DEFAULT,
        "twin": _twin(),
        "blocks": blocks,
        "rounds_per_block": rounds,
        "fields": results,
        "machine": describe_machine(),
    }


def _compare(
    size: RoundSize, data: VerticalDataset, field: dict[str, int], blocks: int, rounds: int
) -> dict[str, Any]:
    options = {
        "rounds": WARM_UP + blocks * rounds + 1,
        "batch": size.batch,
        "width": size.width,
        "hidden": size.width,
        "degree": 1,
        "segments": size.segments,
    }
    started = time.perf_counter()
    coded = Rounds(DEFAULT, data, {**options, **field, "privacy": size.privacy})
    coded.advance(1)
    setup = time.perf_counter() - started
    twin = _twin()
    floats = Rounds(twin, data, options)
    floats.advance(1)
    coded.advance(WARM_UP - 1)
    floats.advance(WARM_UP - 1)
    turns = [(coded.advance(rounds), floats.advance(rounds)) for _ in range(blocks)]
    secure, plain = ([1e3 * turn[k] / rounds for turn in turns] for k in (0, 1))
    return {
        **field,
        f"{DEFAULT}_ms": _spread(secure),
        f"{twin}_ms": _spread(plain),
        "ratio": statistics.median(a / b for a, b in zip(secure, plain, strict=True)),
        "setup_seconds": setup,
    }


def _twin() -> str:
    twin = get_protocol(DEFAULT).twin
    if twin is None:
        raise ConfigurationError(
            f"bench round: {DEFAULT} declares no `twin`, an unprotected protocol to compare it with"
        )
    return twin


def _spread(times: Sequence[float]) -> dict[str, Any]:
    return {
        "median": statistics.median(times),
        "low": min(times),
        "high": max(times),
        "blocks": times,
    }


def _data(size: RoundSize) -> VerticalDataset:
    """The real fashion-mnist if available in this size, else uniform features."""
    from securevfl.data import dataset_catalogue, load_dataset

    for entry in dataset_catalogue():
        here = entry.name == "fashion-mnist" and entry.available
        if here and (size.rows, size.features) == (RoundSize.rows, RoundSize.features):
            return load_dataset("fashion-mnist", parties=size.parties)
    return uniform(size)


def uniform(size: RoundSize) -> VerticalDataset:
    """Data set of uniform features in [0, 1] and ten random classes, with nothing to learn."""
    from securevfl.data.dataset import VerticalDataset

    stream = np.random.Generator(np.random.Philox(_SEED))
    features = stream.random((size.rows + 100, size.features), np.float32)
    labels = np.arange(size.rows + 100) % 10
    return VerticalDataset.from_numpy(
        features[:-100],
        labels[:-100],
        test_features=features[-100:],
        test_labels=labels[-100:],
        name="uniform features",
        task="multiclass",
        parties=size.parties,
    )


def _compile(fields: Sequence[dict[str, int]]) -> None:
    """Run two small rounds with each of `fields`, so that no compilation is timed.

    A field has the options prime, data_bits and model_bits.
    """
    size = RoundSize(parties=5, segments=1, batch=4, width=2, rows=20, features=10)
    data = uniform(size)
    for field in fields:
        small = {**field, "rounds": 3, "batch": 4, "width": 2, "degree": 1, "segments": 1}
        Rounds(DEFAULT, data, small).advance(2)
