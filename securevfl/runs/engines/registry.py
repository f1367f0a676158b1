"""Engines by name, and checks of the options and conditions that each supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from securevfl.engine.conditions import Conditions
from securevfl.errors import ConfigurationError
from securevfl.runs.engines.base import Engine
from securevfl.runs.engines.ray_engine import RayEngine
from securevfl.runs.engines.simulation import SimulationEngine
from securevfl.runs.options import options_of
from securevfl.runs.spec import RunSpec

ENGINES: Mapping[str, Engine] = {
    engine.name: engine for engine in (SimulationEngine(), RayEngine())
}


def get_engine(name: str) -> Engine:
    """Engine by its name; ConfigurationError for an unknown one."""
    if name not in ENGINES:
        raise ConfigurationError(f"run: unknown engine {name!r}; known: {', '.join(ENGINES)}")
    return ENGINES[name]


def check_supported(engine: Engine, values: Mapping[str, object]) -> None:
    """Raise ConfigurationError for an option of a run that an engine does not support."""
    for name, declared in options_of(RunSpec).items():
        value = values.get(name)
        usual = RunSpec.model_fields[name].default
        if value is None or value is usual or not declared.needs or name in engine.supports:
            continue
        shown = f" = {value!r}" if isinstance(value, (int, float, str)) else ""
        others = " or ".join(repr(e.name) for e in ENGINES.values() if name in e.supports)
        raise ConfigurationError(
            f"run: {name}{shown} with engine = {engine.name!r}: {name} {declared.needs}. Remove "
            f"it, or set engine = {others}."
        )


def check_conditions(engine: Engine, conditions: Conditions) -> None:
    """Raise ConfigurationError if delays are work of the sender, and the engine is in real time."""
    if conditions.delay_mode == "latency" or "delay_mode" in engine.supports:
        return
    raise ConfigurationError(
        f"run: delay_mode = {conditions.delay_mode!r} with engine = {engine.name!r}: a party on a "
        "machine of its own cannot be kept busy for a time that it does not work. Set delay_mode "
        "= 'latency', or engine = 'simulation'."
    )


def engine_options(engine: Engine, values: Mapping[str, Any]) -> BaseModel:
    """Options of an engine among `values`; refuse options of other engines.

    ConfigurationError for options of another engine, and values of the wrong type.
    """
    own = engine.Options.model_fields
    for other in ENGINES.values():
        given = [n for n in other.Options.model_fields if n not in own and _is_given(values.get(n))]
        if given:
            raise ConfigurationError(
                f"run: {', '.join(given)} {'has' if len(given) == 1 else 'have'} no effect with "
                f"engine = {engine.name!r}. Remove {'it' if len(given) == 1 else 'them'}, or set "
                f"engine = {other.name!r}."
            )
    try:
        return engine.Options(**{name: values[name] for name in own if _is_given(values.get(name))})
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigurationError(
            f"run: {first['loc'][0]} = {first['input']!r}: {first['msg']}. Choose another value."
        ) from None


def _is_given(value: object) -> bool:
    """Whether an option has a value; None and an empty mapping count as none."""
    return value is not None and value != {}
