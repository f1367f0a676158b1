"""Comparisons of protocols on equal data, seeds and delays, as ad hoc studies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from securevfl.data.source import DataSource
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.registry import (
    find_protocols,
    get_protocol,
    make_config,
    unknown_option,
)
from securevfl.studies.jobs import Job
from securevfl.studies.study import Study
from securevfl.studies.variant import parse_variant

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


def comparison(
    variants: Sequence[str],
    source: DataSource,
    *,
    options: Mapping[str, Any],
    seeds: Sequence[int],
    conditions: str = "paper",
    target: float | None = None,
    **asked: Any,
) -> Study:
    """Study of protocols with identical rows, batches, initial weights and delays.

    Parameters
    ----------
    variants : sequence of str
        ``NAME`` or ``NAME:key=value,...``; differences are paired against the first.
    source : DataSource
        The data set; its seed is that of each run.
    options : mapping
        Options; each goes to every protocol that has it, and one in a variant's name takes
        precedence.
    seeds : sequence of int
        Seeds of the runs.
    conditions : str
        Argument of `securevfl.engine.conditions_file.load_conditions`.
    target : float, optional
        Accuracy, or error of a regression, to which time and bytes are counted.
    **asked
        Further options of every run that a `Job` takes, such as ``until``.

    Raises
    ------
    ConfigurationError
        When a protocol, an option or a value is refused, or two variants or seeds are the same.
    """
    if len(set(variants)) != len(variants):
        raise ConfigurationError(f"compare: {', '.join(variants)}: one of them is given twice")
    if len(set(seeds)) < max(len(seeds), 1):
        raise ConfigurationError(f"compare: seeds {list(seeds)} must be different, at least one")
    chosen = {variant: _options(variant, options) for variant in variants}
    known = {name for protocol, _ in chosen.values() for name in _fields(protocol)}
    for name in options:
        if name not in known:
            raise unknown_option(" or ".join(variants), name, known)
    for protocol, own in chosen.values():
        make_config(get_protocol(protocol), own)
    data = {k: v for k, v in source.options.items() if k != "seed"}
    jobs = [
        Job(
            label=variant,
            protocol=protocol,
            options=own,
            dataset=source.name,
            data=data | {"seed": seed},
            conditions=conditions,
            seed=seed,
            **asked,
        )
        for seed in seeds
        for variant, (protocol, own) in chosen.items()
    ]
    return Study(
        title=f"{', '.join(variants)} on {source.name}",
        jobs=tuple(jobs),
        labels=tuple(variants),
        baseline=variants[0],
        target=target,
    )


def _fields(protocol: str) -> Mapping[str, Any]:
    return get_protocol(protocol).Config.model_fields


def _options(variant: str, options: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Protocol of a variant, and its options, common and own; ConfigurationError if unknown."""
    name, own = parse_variant(variant)
    fields = _fields(name)
    for key in own:
        if key not in fields:
            raise unknown_option(name, key, fields)
    return name, {k: v for k, v in options.items() if k in fields} | own


def all_options() -> dict[str, tuple[FieldInfo, list[str]]]:
    """Field of every protocol option by name, and the names of the protocols that have it.

    Where protocols describe an option differently, the description is that of most of them. A
    default that not all of them have is left to each protocol.
    """
    found: dict[str, dict[str, FieldInfo]] = {}
    for name, protocol in find_protocols().items():
        for key, info in protocol.Config.model_fields.items():
            found.setdefault(key, {})[name] = info
    return {key: (_common(infos), list(infos)) for key, infos in found.items()}


def _common(infos: Mapping[str, FieldInfo]) -> FieldInfo:
    """One common field for an option that several protocols declare."""
    fields = list(infos.values())
    texts = Counter(str(field.description) for field in fields)
    usual, count = texts.most_common(1)[0]
    described = next(name for name, field in infos.items() if field.description == usual)
    made = copy(infos[described])
    words = [get_args(field.annotation) for field in fields]
    if all(get_origin(field.annotation) is Literal for field in fields):
        made.annotation = Literal[tuple(dict.fromkeys(w for ws in words for w in ws))]  # type: ignore[assignment]
    text, _, default = usual.partition(" Default: ")
    if len(texts) > 1 and 2 * count <= len(fields):
        text += f" So in {described}; `run PROTOCOL --help` says what it means elsewhere."
    if any(field.default != made.default for field in fields):
        made.default, default = None, "that of each protocol."
    made.description = f"{text} Default: {default}" if default else text
    return made
