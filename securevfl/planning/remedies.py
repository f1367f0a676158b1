"""Changes of a plan that make it tolerate one straggler, each with its cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securevfl.engine.conditions import Conditions
from securevfl.errors import ConfigurationError
from securevfl.planning.choices import Choice, choice_by_needs, choice_of
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import find_protocols, make_config
from securevfl.protocols.base.schedule import Shape

# Options that raise the number of results needed: the least value, and what a smaller one costs.
_LOWER = {
    "segments": (1, "larger shares: more to hold and to compute"),
    "privacy": (1, "claims hold against one colluder fewer"),
    "tolerate_corrupt": (0, "one wrong upload fewer is corrected"),
}
_HELPERS = "machines without columns hold shares, of operators that count apart"
_OF_THE_FIELD = ("prime", "data_bits", "model_bits")  # each protocol takes its own


@dataclass(frozen=True)
class Remedy:
    """A changed plan that tolerates at least one straggler.

    Attributes
    ----------
    protocol : str
        Name of the protocol.
    options : str
        Changed options of ``securevfl run PROTOCOL``.
    price : str
        Cost of the change besides time, bytes and memory, in words.
    tolerated : int
        Number of tolerated stragglers.
    round_seconds, total_seconds : float
        Virtual seconds of a round, and of the run.
    bytes : int
        Bytes that all parties send in the whole run.
    client_memory : int
        Memory of the largest client, in bytes.
    helpers : int
        Number of helpers, parties without columns, that it adds.
    """

    protocol: str
    options: str
    price: str
    tolerated: int
    round_seconds: float
    total_seconds: float
    bytes: int
    client_memory: int
    helpers: int = 0


@dataclass(frozen=True)
class Planned:
    """A plan: its protocol, options and data, and the conditions of the run."""

    protocol: type[Protocol]
    config: Any
    shape: Shape
    conditions: str | Path | Mapping[str, Any] | Conditions
    sealed: bool
    seed: int

    def cost(self, protocol: type[Protocol], config: Any) -> Choice:
        """Expected cost of the plan with another protocol or other options."""
        needs = protocol.needs(config, self.shape)
        more = (self.conditions, self.sealed, self.seed)
        if needs is None:
            return choice_of(protocol, config, self.shape, *more)
        return choice_by_needs(protocol, config, self.shape, needs, *more)


def remedies(planned: Planned, best: Choice) -> tuple[Remedy, ...]:
    """Changes of a plan that make it tolerate a straggler; none if it already tolerates one.

    Parameters
    ----------
    planned : Planned
        Data, options and conditions of the plan.
    best : Choice
        Best choice of the plan.
    """
    if best.tolerated > 0:
        return ()
    config = planned.config.model_copy(update={"segments": best.segments})
    found = []
    for protocol, options, price in (*_lowered(planned.protocol, config), *_helped(planned, best)):
        with suppress(ConfigurationError):  # it fits neither the data nor the conditions
            cost = planned.cost(protocol, config_of(protocol, config, options))
            found.append(_remedy(protocol, options, price, cost))
    return tuple(remedy for remedy in found if remedy.tolerated > 0)


def _lowered(protocol: type[Protocol], config: Any) -> Iterator[tuple[type[Protocol], Any, str]]:
    for name, (least, price) in _LOWER.items():
        value = getattr(config, name, None)
        if value is not None and value > least:
            yield protocol, {name: value - 1}, price


def _helped(planned: Planned, best: Choice) -> Iterator[tuple[type[Protocol], Any, str]]:
    """Protocols with helpers, and the fewest helpers that make room for a straggler."""
    for protocol in find_protocols().values():
        if "helpers" not in protocol.Config.model_fields:
            continue
        with suppress(ConfigurationError):
            config = planned.config.model_copy(update={"segments": best.segments})
            start = getattr(config, "helpers", 0) + 1
            for helpers in range(start, start + 2 * len(planned.shape.widths)):
                changed = config_of(protocol, config, {"helpers": helpers})
                needs = protocol.needs(changed, planned.shape)
                if needs is not None and needs.parties > needs.results:
                    yield protocol, {"helpers": helpers}, _HELPERS
                    break


def config_of(protocol: type[Protocol], config: Any, changed: Mapping[str, Any]) -> Any:
    """Options for a changed plan: options of the plan that the protocol has, and the changes."""
    if isinstance(config, protocol.Config):
        return config.model_copy(update=dict(changed))
    common = {"segments", *config.model_fields_set} & protocol.Config.model_fields.keys()
    shared = {name: getattr(config, name) for name in common if name not in _OF_THE_FIELD}
    return make_config(protocol, {**shared, **changed})


def _remedy(
    protocol: type[Protocol], options: Mapping[str, Any], price: str, cost: Choice
) -> Remedy:
    return Remedy(
        protocol=protocol.name,
        options=" ".join(f"--{k.replace('_', '-')} {value}" for k, value in options.items()),
        price=price,
        tolerated=cost.tolerated,
        round_seconds=cost.round_seconds,
        total_seconds=cost.total_seconds,
        bytes=cost.bytes,
        client_memory=cost.client_memory,
        helpers=options.get("helpers", 0),
    )
