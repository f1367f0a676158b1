"""Beginnings, resumptions and predictions of users' runs, held against what is verified.

Verifiers make parties by lines of their own, resume them by the simulation's own state, and count
lives themselves. A user's run is made by `securevfl.runs`, which could do these otherwise: so it is
asked to do each of them here, and must give the same parties, other lives, and fresh draws.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from securevfl.audit import randomness
from securevfl.audit.tapes import Tape, record_draws
from securevfl.data.dataset import VerticalDataset
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.streams import OwnEntropy, Secrets
from securevfl.errors import SecureVFLError
from securevfl.protocols.base.coded import CodedProtocol, SharedModels
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import find_protocols
from securevfl.runs import prediction
from securevfl.runs.assembly import specify
from securevfl.runs.engines.own_tables import LocalTableFactory
from securevfl.runs.engines.ray import PartyFactory
from securevfl.runs.engines.run import Interrupted, resume, run
from securevfl.runs.organisations.organisation import Organisation
from securevfl.runs.storage import SUMMARY
from securevfl.runs.threads import one_thread
from securevfl.verified import bare_of
from securevfl.verified.values import Protected
from tests.oracles.stand_ins import in_place_of

_STARTS = 3  # of one run: at its beginning, and resumed twice
_LIVES = 4  # resumptions, and incarnations of each, whose lives are compared
_ROWS = 5  # of a prediction
_DEEP = 3  # mappings and sequences of a party's attributes that are looked into

Make = Callable[[int, Secrets], Any]


def arrays_of(party: Party) -> list[np.ndarray]:
    """All arrays that a party has in its attributes and in those of their parts, in order."""
    return list(_arrays(vars(party), _DEEP))


def _arrays(thing: Any, deep: int) -> Iterator[np.ndarray]:
    if isinstance(thing, Protected):
        thing = bare_of(thing)
    if isinstance(thing, np.ndarray):
        yield thing
    elif hasattr(thing, "parameters") and hasattr(thing, "state_dict"):  # a network
        yield from (one.numpy(force=True) for one in thing.parameters())
    elif hasattr(thing, "detach") and hasattr(thing, "numpy"):
        yield thing.numpy(force=True)
    elif not deep or isinstance(thing, (type, Protocol, VerticalDataset)):
        return
    elif isinstance(thing, (list, tuple)):
        for one in thing:
            yield from _arrays(one, deep - 1)
    elif isinstance(thing, functools.partial):
        yield from _arrays((thing.args, thing.keywords), deep - 1)
    else:
        held = thing if isinstance(thing, dict) else getattr(thing, "__dict__", {})
        for one in held.values():
            yield from _arrays(one, deep - 1)


def beginning_faults(instance: Callable[..., Protocol]) -> Iterator[str]:
    """Faults of the library's own ways to begin, resume and predict a run, in words.

    Parameters
    ----------
    instance : callable
        Makes the protocol at small size, with `secrets` if they are given.
    """
    made = instance()
    yield from _lives_alike(made)
    if not has_engines(made):
        return
    yield from _made_otherwise(instance)
    yield from _resumed_alike(made)
    if isinstance(made, (CodedProtocol, SharedModels)) and made.prediction_messages:
        yield from _predicted_otherwise(made)


def has_engines(made: Protocol) -> bool:
    """Whether clusters, organisations and resumed runs find the protocol's class by its name."""
    return find_protocols().get(made.name) is type(made)


def _lives_alike(made: Protocol) -> Iterator[str]:
    """A party that has one life in two resumptions, or incarnations: labels, so masks, repeat."""
    for index, party in made.parties().items():
        lives = set()
        for resumptions in range(_LIVES):
            for epoch in range(_LIVES):
                party.resumptions, party.epoch = resumptions, epoch
                lives.add(party.life)
        if len(lives) < _LIVES**2:
            yield f"party {index} has one life in two of its resumptions or incarnations"
            return


def _made_otherwise(instance: Callable[..., Protocol]) -> Iterator[str]:
    """Parties that a cluster or an organisation makes, which are not those that are verified."""
    made = instance()
    options, data = made.config.model_dump(), made.data
    makers: Mapping[str, Make] = {
        "a cluster": PartyFactory(made.name, options, made.seed, data),
        "a cluster with tables of the parties' own": lambda index, secrets: _ask(
            LocalTableFactory.__call__, {"made": lambda _: instance()}, index, secrets
        ),
        "an organisation": lambda index, secrets: _ask(
            Organisation.training_party, {"make": instance}, index, secrets
        ),
    }
    for index in sorted({numbers[0] for numbers in made.roles().values() if numbers}):
        secrets = OwnEntropy.draw(index)
        own = instance()
        own.secrets = secrets
        wanted = own.party(index)
        for where, make in makers.items():
            if not _like(make(index, secrets), wanted):
                yield f"{where} makes party {index} otherwise than of its own entropy"


def _ask(method: Callable[..., Any], has: Mapping[str, Any], *args: Any) -> Any:
    """Result of a method of an object that has nothing but this."""
    return method(SimpleNamespace(**has), *args)


def _like(one: Party, other: Party) -> bool:
    """Whether two parties are of one class and have the same attributes and arrays."""
    if type(one) is not type(other) or vars(one).keys() != vars(other).keys():
        return False
    arrays = arrays_of(one), arrays_of(other)
    if len(arrays[0]) != len(arrays[1]):
        return False
    pairs = zip(*arrays, strict=True)
    return all(np.array_equal(x, y, equal_nan=x.dtype.kind == "f") for x, y in pairs)


def _resumed_alike(made: Protocol) -> Iterator[str]:
    """A run whose parties have a life again that they had before it was resumed."""
    lives: list[dict[int, int]] = []
    begin = Simulation.run

    def noted(simulation: Simulation, *args: Any, **options: Any) -> None:
        lives.append({n: slot.party.life for n, slot in simulation.slots.items()})
        begin(simulation, *args, **options)

    options = made.config.model_dump()
    with tempfile.TemporaryDirectory() as folder, in_place_of((Simulation, "run", noted)):
        out = Path(folder, "run")
        with suppress(Interrupted):
            run(made.name, made.data, seed=made.seed, out=out, interrupted=lambda: True,
                sealed=False, **options)  # fmt: skip
        for _ in range(_STARTS - 1):
            if (out / SUMMARY).exists():  # it ended before it could be stopped
                return
            with suppress(Interrupted):
                resume(out, data=made.data, interrupted=lambda: True)
    for place, one in enumerate(lives):
        for other in lives[:place]:
            again = sorted(n for n in one if one[n] == other.get(n))
            if again:
                yield f"a run that is resumed has parties in a life that they had before: {again}"
                return
    if len(lives) < _STARTS:
        yield f"a run was begun and resumed {_STARTS - 1} times, and ran {len(lives)} times"


def _predicted_otherwise(made: CodedProtocol | SharedModels) -> Iterator[str]:
    """A coded prediction whose parties or draws are not those that are verified."""
    trained = made.parties()
    with one_thread():
        Simulation(trained, seed=made.seed, secrets=made.secrets).run()
    rows = [np.resize(one, (_ROWS, one.shape[1])) for one in made.data.train]
    wanted = made.predictors(trained, rows)
    tapes: list[Tape] = []
    unlike: list[int] = []

    class Noted(Simulation):
        def __init__(self, parties: dict[int, Party], **options: Any) -> None:
            unlike.extend(n for n, party in parties.items() if not _same_form(party, wanted.get(n)))
            tapes.extend(record_draws(p) for p in parties.values() if hasattr(p, "uniform"))
            super().__init__(parties, **options)

    spec = specify(made, {"seed": made.seed, "sealed": False}, conditions="none", source=None)
    with (
        in_place_of((prediction, "Simulation", Noted)),
        in_place_of((type(made.data.transform), "apply", lambda transform, given: given)),
        randomness.watch() as log,
    ):
        try:
            prediction.infer(made, trained, spec, rows)
        except SecureVFLError as error:
            yield f"a coded prediction could not be made: {error}"
            return
    if unlike or not tapes:
        yield f"parties {unlike} of a coded prediction are not those that the protocol makes"
    strange = list(randomness.unexplained(log, tapes, made.code.field.modulus))
    if strange:
        yield f"a coded prediction draws from another source: {strange[0]}"


def _same_form(one: Party, other: Party | None) -> bool:
    return type(one) is type(other) and vars(one).keys() == vars(other).keys()
