"""Options that turn a table or an array into a data set: names, defaults, checks and texts.

Builders and loaders receive a `TableOptions`, which alone defines the parameters and defaults.
Public functions take the same names as keywords, typed by `TableKeywords` or a part of it;
`table_options` adds them to the signature and the docstring.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ParamSpec, TypedDict, TypeVar

from securevfl.data.base.origin import About
from securevfl.data.preparation.cells import MISSING_TEXTS
from securevfl.data.preparation.columns import listed_names
from securevfl.data.preparation.scaling import Scaling, check_scaling
from securevfl.errors import DataError

P = ParamSpec("P")
R = TypeVar("R")
# The entry "**options" of a docstring, with its text.
_ENTRY = re.compile(r"^( *)\*\*options\n(?:\1 +.*\n)*", re.MULTILINE)


class ScalingKeywords(TypedDict, total=False):
    """Options of data sets with a fixed split into training and test rows."""

    seed: int
    scaling: str


class SplitKeywords(ScalingKeywords, total=False):
    """Options of data sets whose test rows are drawn at random."""

    test_fraction: float


class CodedKeywords(SplitKeywords, total=False):
    """Options of data sets with text columns, besides those of a random split."""

    max_categories: int
    coding: str


class ArrayKeywords(SplitKeywords, total=False):
    """Options of data sets built from numeric arrays."""

    name: str | None
    party_names: Sequence[str] | None
    about: About | None
    task: str | None


class TableKeywords(ArrayKeywords, CodedKeywords, total=False):
    """Types of the fields of `TableOptions`, for keyword arguments."""

    drop: Sequence[str] | str
    group: str | None
    missing_values: Sequence[str]
    stratified: bool


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """Options for turning a table into a data set.

    Parameters
    ----------
    name : str
        Name of the data set; by default the builder chooses it.
    about : About, optional
        Origin of the data, licence and notes; split, scaling and partition are added.
    task : {"binary", "multiclass", "regression"}, optional
        Task; by default inferred from the labels.
    party_names : sequence of str, optional
        One per party.
    drop : sequence of str
        Names of columns to leave out; a single string is one name.
    group : str, optional
        Column (of persons, for example) each of whose values is on one side of the split only; it
        is no feature.
    test_fraction : float
        Fraction of the rows (or groups) that become test rows, in (0, 1).
    stratified : bool
        Whether the same fraction of every class is held out. The test rows then depend on the
        labels, so local tables are never stratified, and `from_files` is not by default.
    seed : int
        Seed of the split, 0 or more.
    scaling : {"minmax", "standard", "none"}
        Scaling of numbers, fitted on training rows; min-max is clipped into [0, 1].
    missing_values : sequence of str
        Texts that mean a missing value, replacing the usual ones; a single string is one text.
    max_categories : int
        Largest number of distinct texts in one column.
    coding : {"onehot", "codes"}
        How texts and pandas categories are encoded: one column for each value of the training
        rows, or one column of category codes (`VerticalDataset.cardinalities`), for networks that
        look them up. With codes, the rarer values beyond `max_categories` share the code 0.

    Raises
    ------
    DataError
        For an unknown scaling or coding. Options that depend on the rows, such as the fraction, are
        checked when the rows are split.
    """

    name: str = ""
    about: About | None = None
    task: str | None = None
    party_names: Sequence[str] | None = None
    drop: Sequence[str] = ()
    group: str | None = None
    test_fraction: float = 0.25
    stratified: bool = True
    seed: int = 0
    scaling: str = "minmax"
    missing_values: Sequence[str] = MISSING_TEXTS
    max_categories: int = 1000
    coding: str = "onehot"

    def __post_init__(self) -> None:
        check_scaling(self.scaling)
        if self.coding not in ("onehot", "codes"):
            raise DataError(f"coding={self.coding!r} does not exist; use onehot or codes.")
        names = None if self.party_names is None else tuple(self.party_names)
        # The value is frozen; sequences become tuples before anybody sees it.
        object.__setattr__(self, "party_names", names)
        object.__setattr__(self, "drop", listed_names(self.drop))
        object.__setattr__(self, "missing_values", listed_names(self.missing_values))

    @classmethod
    def of(cls, given: Mapping[str, Any], **defaults: Any) -> TableOptions:
        """Options from keywords; those of None are not given; `defaults` replace the class's."""
        return cls(**defaults | {key: value for key, value in given.items() if value is not None})

    @property
    def origin(self) -> About:
        """Origin of the data: `about`, or by default "data of the user"."""
        return self.about or own_data("data of the user")

    @property
    def scaling_rule(self) -> Scaling:
        """The option `scaling`; DataError if it is no known rule."""
        return check_scaling(self.scaling)

    @property
    def missing(self) -> tuple[str, ...]:
        """`missing_values` as a tuple."""
        return tuple(self.missing_values)

    def called(self, parties: int) -> tuple[str, ...]:
        """Names of parties: `party_names` if given, else "party 0", "party 1", ..."""
        return tuple(self.party_names or (f"party {n}" for n in range(parties)))


def own_data(origin: str) -> About:
    """Origin entry for the user's own data, before any step of preparation."""
    return About(origin, "the user's own data", "", "", "")


def table_options(keywords: type, **defaults: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a function that takes ``**options: Unpack[keywords]``, fields of `TableOptions`.

    The function's signature then has every option with its default, its docstring describes each,
    and unknown keywords raise TypeError. `defaults` replace those of `TableOptions`, also for
    arguments that are None.
    """
    ours = {field.name: field for field in fields(TableOptions)}
    names = [name for name in ours if name in keywords.__annotations__]
    shown = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults.get(name, ours[name].default),
            annotation=ours[name].type,
        )
        for name in names
    ]

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        signature = inspect.signature(function)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        whole = signature.replace(parameters=[*own, *shown])

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            whole.bind(*args, **kwargs)
            for name, value in defaults.items():
                if kwargs.get(name) is None:
                    kwargs[name] = value
            return function(*args, **kwargs)

        checked.__signature__ = whole  # type: ignore[attr-defined]
        checked.__doc__ = _with_parameters(function.__doc__, names)
        return checked

    return decorate


def _with_parameters(text: str | None, names: Sequence[str]) -> str | None:
    """The docstring `text` in which the documentation of `names` replaces ``**options``."""
    if text is None or TableOptions.__doc__ is None:  # python -OO
        return text
    entry = _ENTRY.search(text)
    if entry is None:
        return text
    entries = _entries(inspect.cleandoc(TableOptions.__doc__))
    listed = "\n".join(entries[name] for name in names)
    indented = re.sub("^(?=.)", entry[1], listed, flags=re.MULTILINE) + "\n"
    return text[: entry.start()] + indented + text[entry.end() :]


def _entries(text: str) -> dict[str, str]:
    """Entries of the section "Parameters" of a clean docstring, by name."""
    section = text.split("Parameters\n----------\n")[1].split("\n\nRaises")[0]
    entries = re.split(r"\n(?=\w)", section)
    return {entry.split(" :")[0]: entry for entry in entries}
