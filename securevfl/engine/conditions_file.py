"""Conditions from a name, a TOML file, or a mapping with the file's keys."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from securevfl.engine.conditions import (
    CONDITIONS,
    Conditions,
    chosen_factor,
    named_conditions,
    paper,
    slow_set,
)
from securevfl.engine.delays import DEFAULT_SHAPE, Delay, Trace
from securevfl.engine.traces import read_trace
from securevfl.errors import ConfigurationError
from securevfl.reading import NOT_PARSED

_COMMON = {
    "bandwidth", "uplinks", "downlinks", "compute", "seconds_per_multiply_add", "delay_mode",
    "slowness", "persistence",
}  # fmt: skip
_SHARING = {"share_factor", "log_base"}
_LAW = {"upload_law", "upload_shape"}
_FORMS = {
    "paper": {"slow", "fast_mean", "slow_base", "slow_step"} | _SHARING | _LAW,
    "slow_set": {"slow_parties", "slow_mean", "fast_mean"} | _SHARING | _LAW,
    "trace": {"trace", "trace_end"} | _SHARING,
    "none": {"upload_mean", "upload_shift"} | _SHARING | _LAW,
}
_KEYS = {"pattern"}.union(_COMMON, *_FORMS.values())
_TEXTS = {"pattern", "compute", "upload_law", "trace", "trace_end", "delay_mode", "log_base"}
_LISTS = {
    "slow_parties", "uplinks", "downlinks", "upload_mean", "upload_shift", "upload_shape",
    "slowness",
}  # fmt: skip


def load_conditions(
    source: str | Path | Mapping[str, object] | Conditions, *, parties: int, batch_rows: int
) -> Conditions:
    """Conditions from a name, a TOML file, or a mapping with the file's keys.

    A `Conditions` is returned unchanged. A name is "none", "paper", one of
    `securevfl.engine.traces.MEASURED`, or one that an installed package declares
    (`named_conditions`). A file or mapping takes one of five forms:

    - ``pattern = "paper"``, with parameters of `paper`;
    - ``pattern = "slow_set"`` and ``slow_parties = [1, 4]``, with parameters of `slow_set`;
    - ``trace = "measured.csv"``, relative to the file (`securevfl.engine.traces.read_trace`), with
      ``trace_end = "wrap"`` (default) or ``"refuse"``;
    - ``upload_mean`` and ``upload_shift``: seconds, one number for all clients or one each;
    - ``pattern = NAME`` of any other name, with that pattern's own parameters and no other.

    All but a trace take ``upload_law`` and ``upload_shape`` (`securevfl.engine.delays.Delay`). All
    take ``share_factor``, or else ``log_base`` of its default log(N)^2 / |B|; ``bandwidth`` (bit/s,
    0 for no limit), ``uplinks`` and ``downlinks`` (a rate for each client, or one for all),
    ``compute``, ``seconds_per_multiply_add`` and ``slowness`` (of each client); ``delay_mode`` and
    ``persistence`` (`Conditions`). ConfigurationError for an unknown name, a missing or malformed
    file, or values out of range.
    """
    if isinstance(source, Conditions):
        for name in ("uploads", "uplinks", "downlinks", "slowness"):
            if 0 < len(getattr(source, name)) < parties:
                raise ConfigurationError(
                    f"conditions: {name} has {len(getattr(source, name))} entries for {parties} "
                    "clients; give one for each, or none"
                )
        return source
    if isinstance(source, Mapping):
        return conditions_from(source, parties=parties, batch_rows=batch_rows, name="custom")
    if not isinstance(source, (str, Path)):
        raise ConfigurationError(
            f"conditions: a {type(source).__name__} is no name, TOML file, table or Conditions. A "
            "pattern of your own is given as Conditions(...), or by name where a package declares "
            f"it (entry point {CONDITIONS.group!r})"
        )
    name = str(source)
    CONDITIONS.refuse_broken(name)
    known = CONDITIONS.all()
    if name in known:
        return named_conditions(name, parties=parties, batch_rows=batch_rows)
    path = Path(source)
    if not path.is_file():
        names = " nor ".join(map(repr, known))
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ConfigurationError(
            f"conditions: {name!r} is neither {names} nor a TOML file that exists{hint}"
        )
    import tomllib

    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(f"conditions: {path} cannot be read: {error.strerror}") from None
    except NOT_PARSED as error:
        raise ConfigurationError(f"conditions: {path} is not valid TOML: {error}") from None
    if isinstance(values.get("trace"), str):
        values["trace"] = str(path.parent / values["trace"])
    return conditions_from(values, parties=parties, batch_rows=batch_rows, name=path.stem)


def conditions_from(
    values: Mapping[str, Any], *, parties: int, batch_rows: int, name: str
) -> Conditions:
    """Conditions from the keys that `load_conditions` describes; ConfigurationError for others."""
    pattern = values.get("pattern")
    CONDITIONS.refuse_broken(str(pattern))
    if isinstance(pattern, str) and pattern not in _FORMS and pattern in CONDITIONS.all():
        own = {key: value for key, value in values.items() if key != "pattern"}
        return named_conditions(pattern, parties=parties, batch_rows=batch_rows, **own)
    for key, value in values.items():
        if key not in _KEYS:
            known = ", ".join(sorted(_KEYS))
            raise ConfigurationError(f"conditions: unknown key {key!r}; known: {known}")
        if key not in _TEXTS | _LISTS and not _is_number(value):
            raise ConfigurationError(f"conditions: {key} must be a number, it is {value!r}")
    form = values.get("pattern", "trace" if values.get("trace") else "none")
    if form not in ("paper", "slow_set") and "pattern" in values:
        known = ", ".join(sorted({"slow_set", *CONDITIONS.all()} - {"none"}))
        raise ConfigurationError(f"conditions: unknown pattern {form!r}; known: {known}")
    own = {key: value for key, value in values.items() if key != "pattern"}
    own = _checked(form, own)
    common = _common(own, parties)
    distributions = _distributions(own, parties)
    own = {key: value for key, value in own.items() if key not in _COMMON | _LAW}
    if form == "paper":
        made = paper(parties, batch_rows=batch_rows, **own)
        return replace(made, uploads=_with_distributions(made, distributions), **common)
    if form == "slow_set":
        made = slow_set(parties, own.pop("slow_parties"), batch_rows=batch_rows, **own)
        return replace(made, uploads=_with_distributions(made, distributions), **common)
    given = own.get("share_factor", None if parties else 0.0)
    factor = chosen_factor(parties, batch_rows, own.get("log_base", "2"), given)
    uploads = _traces(own, parties) if form == "trace" else _delays(own, distributions, parties)
    return Conditions(name=name, uploads=uploads, share_factor=float(factor), **common)


def _checked(form: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of a form of conditions; ConfigurationError for values of another form."""
    # `describe` writes means and shifts beside a trace; they count the clients and are all 0.
    unused = ("upload_mean", "upload_shift") if form == "trace" else ()
    kept = {k: v for k, v in values.items() if k not in unused or not _all_zero(v)}
    for key in kept:
        if key not in _FORMS[form] | _COMMON:
            raise ConfigurationError(
                f"conditions: {key} does not go with pattern {form!r}; leave out one of them"
            )
    if form == "slow_set" and not isinstance(kept.get("slow_parties"), list):
        raise ConfigurationError(
            "conditions: pattern 'slow_set' needs slow_parties, a list of clients' numbers, it is "
            f"{kept.get('slow_parties')!r}"
        )
    return kept


def _all_zero(value: object) -> bool:
    return isinstance(value, list) and not any(value)


def _common(values: Mapping[str, Any], parties: int) -> dict[str, Any]:
    lists = {"uplinks", "downlinks", "slowness"}
    common = {key: values[key] for key in _COMMON - lists if key in values}
    if common.get("bandwidth") == 0:
        common["bandwidth"] = None
    for links in ("uplinks", "downlinks"):
        if links in values:
            rates = _per_party(values, links, parties)
            common[links] = tuple(rate or None for rate in rates)
    if "slowness" in values:
        common["slowness"] = tuple(_per_party(values, "slowness", parties))
    return common


def _distributions(values: Mapping[str, Any], parties: int) -> list[tuple[str, float]]:
    """Distribution and shape of each client's delay."""
    given = values.get("upload_law", "exponential")
    names = _one_each("upload_law", given, parties)
    if "upload_shape" in values:
        return list(zip(names, _per_party(values, "upload_shape", parties), strict=True))
    return [(name, DEFAULT_SHAPE.get(str(name), 0.0)) for name in names]


def _with_distributions(
    made: Conditions, distributions: Sequence[tuple[str, float]]
) -> tuple[Delay, ...]:
    means = [delay.expectation for delay in made.uploads]
    return tuple(Delay(mean, 0.0, *law) for mean, law in zip(means, distributions, strict=True))


def _delays(
    values: Mapping[str, Any], distributions: Sequence[tuple[str, float]], parties: int
) -> tuple[Delay, ...]:
    means = _per_party(values, "upload_mean", parties)
    shifts = _per_party(values, "upload_shift", parties)
    each = zip(means, shifts, distributions, strict=True)
    return tuple(Delay(mean, shift, *law) for mean, shift, law in each)


def _traces(values: Mapping[str, Any], parties: int) -> tuple[Trace, ...]:
    trace, end = values["trace"], values.get("trace_end", "wrap")
    if isinstance(trace, str):
        return read_trace(Path(trace), parties=parties, end=end)
    if not isinstance(trace, list) or len(trace) != parties:
        raise ConfigurationError(
            f"conditions: trace must name a file or hold a list for each of {parties} clients"
        )
    rows = [_numbers("trace", recorded) for recorded in trace]
    return tuple(Trace(tuple(row), end) for row in rows)


def _per_party(values: Mapping[str, Any], key: str, parties: int) -> list[float]:
    return _numbers(key, _one_each(key, values.get(key, 0.0), parties))


def _one_each(key: str, value: object, parties: int) -> list[Any]:
    each = value if isinstance(value, list) else [value] * parties
    if len(each) != parties:
        raise ConfigurationError(
            f"conditions: {key} has {len(each)} entries for {parties} clients; give one value "
            "or one for each"
        )
    return each


def _numbers(key: str, values: Any) -> list[float]:
    if not isinstance(values, list) or not all(map(_is_number, values)):
        raise ConfigurationError(f"conditions: {key} must hold numbers only, it is {values!r}")
    return [float(number) for number in values]


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
