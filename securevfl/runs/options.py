"""Declarations of options: one line gives an option its type, default, range, flag and help.

A model declares its options as fields (`option`). The command line, study files, ``config.toml``,
the jobs of studies and the docstring of `securevfl.run` read these declarations.
"""

from __future__ import annotations

import functools
import inspect
import textwrap
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from securevfl.errors import ConfigurationError

_KEY = "option"
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True)
class Option:
    """Declaration of an option, besides its type, default, range and help.

    Attributes
    ----------
    metavar : str
        Placeholder of the value in help pages, such as "SECONDS"; lower-case words between ``|``
        are values that a shell completes.
    panel : str
        Group of the option in help pages. An option without a group has no flag.
    flag : str
        The flag, if it is not the name with hyphens; for a switch ``--on/--off``.
    default_text : str
        Text for the default, if the value is None.
    accepts : str
        Text for the type, if the option accepts more types than the field.
    per_job : bool
        Whether studies and comparisons also have the option.
    commands : str
        Further commands that have the flag, separated by spaces.
    folded : bool
        Whether help pages show the option with ``--help-all`` only.
    complete : callable, optional
        Function that returns the completions of a word in a shell.
    file : bool
        Whether the value may be the path of a TOML file.
    to_file, from_file : callable, optional
        Conversions to and from the value in ``config.toml``.
    needs : str
        Reason why some engines do not support the option; they refuse it.
    """

    metavar: str = ""
    panel: str = ""
    flag: str = ""
    default_text: str = ""
    accepts: str = ""
    per_job: bool = False
    commands: str = ""
    folded: bool = False
    complete: Callable[[str], list[str]] | None = None
    file: bool = False
    to_file: Callable[[Any], Any] | None = None
    from_file: Callable[[Any], Any] | None = None
    needs: str = ""

    def has_flag(self, command: str) -> bool:
        """Whether a command has a flag for the option."""
        named = command == "run" or (command == "compare" and self.per_job)
        return bool(self.panel) and (named or command in self.commands.split())


def option(
    default: Any, *, help: str, ge: int | None = None, gt: float | None = None, **details: Any
) -> Any:
    """Declare a field of a model as an option; `details` are attributes of `Option`.

    The default is not checked, and is added to the help. Values must be at least `ge`, or greater
    than `gt`.
    """
    extra: Any = {_KEY: Option(**details)}
    finite = None if gt is None else False
    return Field(
        default, description=help, ge=ge, gt=gt, allow_inf_nan=finite, json_schema_extra=extra
    )


def option_of(info: FieldInfo) -> Option | None:
    """The declaration of a field; None for a field that is no option."""
    extra = info.json_schema_extra
    found = extra.get(_KEY) if isinstance(extra, dict) else None
    return found if isinstance(found, Option) else None


def options_of(model: type[BaseModel]) -> dict[str, Option]:
    """Options of a model by name, in the order of their declaration."""
    found = {name: option_of(info) for name, info in model.model_fields.items()}
    return {name: declared for name, declared in found.items() if declared is not None}


def default_words(info: FieldInfo) -> str:
    """Default value of an option in words; empty if there is none."""
    declared = option_of(info)
    if declared is not None and declared.default_text:
        return declared.default_text
    return "" if info.default is None else str(info.default)


def plain_type(annotation: object) -> Any:
    """The type of an option's values other than None."""
    if get_origin(annotation) is Annotated:
        return plain_type(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return plain_type(next(p for p in get_args(annotation) if p is not type(None)))
    if get_origin(annotation) is Literal:
        return str
    return get_origin(annotation) or annotation


def may_be_none(info: FieldInfo) -> bool:
    """Whether a field may hold None."""
    return type(None) in get_args(info.annotation)


# -- checks --------------------------------------------------------------------------------------


def check_values(model: type[BaseModel], values: Mapping[str, object]) -> None:
    """Refuse values that options of a run do not permit; None stands for the default.

    ConfigurationError names option and requirement. Options whose value may be a file, such as
    conditions, are checked when the file is read.
    """
    for name, declared in options_of(model).items():
        info, value = model.model_fields[name], values.get(name)
        if name not in values or declared.file or (value is None and info.default is None):
            continue
        try:
            _checker(model, name).validate_python(value, strict=_is_scalar(model, name))
        except ValidationError:
            raise ConfigurationError(
                f"run: {name} must be {requirement(info)}, it is {value!r}. Choose another "
                "value, or leave the option out."
            ) from None


def _is_scalar(model: type[BaseModel], name: str) -> bool:
    return plain_type(model.model_fields[name].annotation) in (int, float, bool, str)


@functools.cache
def _checker(model: type[BaseModel], name: str) -> TypeAdapter[Any]:
    info = model.model_fields[name]
    kind: Any = info.annotation
    for part in info.metadata:
        kind = Annotated[kind, part]
    return TypeAdapter(kind, config=ConfigDict(arbitrary_types_allowed=True))


def requirement(info: FieldInfo) -> str:
    """Requirement on a value of an option, in words, such as "a finite number above 0".

    Examples
    --------
    >>> class Model(BaseModel):
    ...     rounds: int | None = option(None, ge=1, help="Rounds.")
    >>> requirement(Model.model_fields["rounds"])
    'an integer of at least 1'
    """
    noun = {int: "an integer", float: "a finite number", bool: "True or False", str: "a text"}
    kind = plain_type(info.annotation)
    words = [noun.get(kind, f"a {getattr(kind, '__name__', kind)}")]
    for part in info.metadata:
        if getattr(part, "ge", None) is not None:
            words.append(f"of at least {part.ge}")
        if getattr(part, "gt", None) is not None:
            words.append(f"above {part.gt:g}")
    return " ".join(words)


# -- docstrings ----------------------------------------------------------------------------------


def documents_options(*models: type[BaseModel]) -> Callable[[_F], _F]:
    """Decorator that replaces ``{options}`` in a docstring by the documentation of options."""
    text = "\n".join(_entry(name, model) for model in models for name in options_of(model))

    def write(function: _F) -> _F:
        if function.__doc__ is not None:  # there is none under python -OO
            function.__doc__ = inspect.cleandoc(function.__doc__).replace("{options}", text)
        return function

    return write


def _entry(name: str, model: type[BaseModel]) -> str:
    """Entry for an option in a docstring's list of parameters."""
    info, declared = model.model_fields[name], options_of(model)[name]
    kind = plain_type(info.annotation)
    words = declared.accepts or getattr(kind, "__name__", str(kind))
    given = default_words(info)
    rest = "optional" if info.default is None else f"default {info.default!r}"
    text = str(info.description)
    if info.default is None and given:
        text += f" Default: {given}."
    return f"{name} : {words}, {rest}\n" + textwrap.indent(textwrap.fill(text, 92), "    ")


def pick(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of `values` that are options of a model."""
    return {name: values[name] for name in options_of(model) if name in values}


def per_job(model: type[BaseModel]) -> Sequence[str]:
    """Names of the options that may differ between the runs of a study."""
    return tuple(name for name, declared in options_of(model).items() if declared.per_job)
