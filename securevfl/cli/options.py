"""Options of ``run PROTOCOL``: the common ones, and one for each field of the protocol's Config."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer.core import TyperCommand

from securevfl.cli.completion import first_page
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.defaults import is_advanced, our_name

if TYPE_CHECKING:
    from pydantic import BaseModel
    from pydantic.fields import FieldInfo

_POWER = r"(\d+)\s*(?:\^|\*\*)\s*(\d+)"
_TERM = re.compile(rf"\s*([+-]?)\s*(?:{_POWER}|(\d+))")
_SUM = re.compile(rf"\s*{_POWER}\s*(?:[+-]\s*(?:{_POWER}|\d+)\s*){{0,2}}")
Code = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODULE:NAME",
        help="Your own network or loss of the run, which may be imported. Give it once for each.",
    ),
]


class Command(TyperCommand):
    """A command that also understands other programs' names of options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse a command line in which, for example, ``--learning-rate`` means ``--lr``."""
        known = {flag[2:].replace("-", "_") for flag in option_names(self)}
        if "help_all" in known and "--help-all" in args:
            self._unfold()
            args = ["--help"]
        return super().parse_args(ctx, [_our_flag(word, known) for word in args])

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page: one of a few lines an option where some are folded away."""
        if any(getattr(parameter, "hidden", False) for parameter in self.params):
            first_page(self, ctx)
        else:
            super().format_help(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Completions of a word, including folded options."""
        self._unfold()
        return super().shell_complete(ctx, incomplete)

    def _unfold(self) -> None:
        for parameter in self.params:
            parameter.hidden = False  # type: ignore[attr-defined]  # of options


def _our_flag(word: str, known: Collection[str]) -> str:
    if not word.startswith("--"):
        return word
    flag, equals, value = word.partition("=")
    name = our_name(flag[2:].replace("-", "_"), known)
    return f"--{name.replace('_', '-')}{equals}{value}" if flag[2:] != name else word


def choices(words: str, incomplete: str) -> list[str]:
    """Words, from a list separated by ``|``, that begin with the typed text.

    Words in capitals are placeholders, and are left out.
    """
    found = [word for word in words.split("|") if word.startswith(incomplete)]
    return [word for word in found if not word.isupper()]


def run_command(
    config: type[BaseModel], title: str, start: Callable[[dict[str, Any]], None]
) -> Callable[..., None]:
    """Function whose signature lists the common options and those of a protocol.

    Parameters
    ----------
    config : type of BaseModel
        The protocol's Config.
    title : str
        Heading of its own options in the help page.
    start : callable
        Called with all values by option name; those of the protocol only if given.
    """
    from securevfl.cli.common import parameter, shared_options, shared_parameters

    shared = shared_parameters("run")
    rounds = config.model_fields.get("rounds")
    if rounds is not None:
        own = shared_options()["rounds"][0], rounds
        shared["rounds"] = parameter("rounds", *own, str(rounds.default))
    return make_command(shared, {k: (f, title) for k, f in config.model_fields.items()}, start)


def make_command(
    shared: Mapping[str, inspect.Parameter],
    fields: Mapping[str, tuple[FieldInfo, str]],
    start: Callable[[dict[str, Any]], None],
    folded: Collection[str] = (),
) -> Callable[..., None]:
    """Function whose signature lists options, and fields of protocols as options.

    Parameters
    ----------
    shared : mapping
        Options by name; a field of the same name is left out.
    fields : mapping
        Field and heading in the help page, by name.
    start : callable
        Called with all values by option name; those of fields only if given.
    folded : collection of str
        Fields that help pages show with ``--help-all`` only, besides the advanced ones.
    """
    listed = {k: one for k, one in fields.items() if k not in shared}
    advanced = {k for k, (field, _) in listed.items() if is_advanced(k, field.json_schema_extra)}
    own = [_parameter(k, *one, k in folded) for k, one in listed.items() if k not in advanced]
    for key in sorted(advanced, key=list(listed).index):
        field, title = listed[key]
        own.append(_parameter(key, field, f"Advanced: {title[0].lower()}{title[1:]}", hidden=True))
    optional = {parameter.name for parameter in own}
    all_parameters = [*shared.values(), *own]
    hidden = [p for p in all_parameters if _declared(p).hidden]
    more = [_help_all(len(hidden))] if hidden else []

    def command(**values: Any) -> None:
        values.pop("help_all", None)
        start({k: v for k, v in values.items() if k not in optional or v is not None})

    parameters = [*all_parameters, *more]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command


def keyword(name: str, annotation: Any, default: Any = None) -> inspect.Parameter:
    """Keyword parameter, of typer's annotation, with which a generated command takes an option."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _declared(parameter: inspect.Parameter) -> Any:
    """typer's declaration (Option or Argument) of a function parameter."""
    return parameter.annotation.__metadata__[0]


def _help_all(number: int) -> inspect.Parameter:
    """The flag for full help, which `Command.parse_args` handles."""
    text = f"Show {number} options more, and more of each."
    declared = typer.Option("--help-all", help=text, show_default=False)
    return keyword("help_all", Annotated[bool, declared], False)


def _parameter(name: str, field: FieldInfo, title: str, hidden: bool) -> inspect.Parameter:
    kind = field.annotation
    flag = "--" + name.replace("_", "-")
    text = described(field)
    if kind is bool:
        declared = typer.Option(
            f"{flag}/--no-{flag[2:]}",
            help=text,
            show_default=False,
            rich_help_panel=title,
            hidden=hidden,
        )
        return keyword(name, Annotated[bool | None, declared])
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    words = str(extra.get("metavar") or metavar(kind))
    declared = typer.Option(
        flag,
        metavar=words,
        help=text,
        show_default=False,
        rich_help_panel=title,
        hidden=hidden,
        autocompletion=(lambda incomplete: choices(words, incomplete)) if "|" in words else None,
    )
    return keyword(name, Annotated[str | None, declared])


def described(field: FieldInfo) -> str:
    """Sentences on a field, then its default in the form of all help pages.

    The default of a field that has no value is what the sentences say after "Default:".

    Examples
    --------
    >>> from pydantic.fields import FieldInfo
    >>> described(FieldInfo(default=None, description="Number of rows. Default: all rows."))
    'Number of rows.  \\\\[default: all rows]'
    """
    text, _, note = (field.description or "").strip().partition(" Default: ")
    value = field.default
    if isinstance(value, bool):
        default = "on" if value else "off"
    elif value is None or value == "":
        default = note.removesuffix(".")
    else:
        default = power_form(value)
    text = text.replace("[", "\\[")
    return f"{text}  \\[default: {default}]" if default else text


def metavar(kind: Any) -> str:
    """Help page word for the values of a field's type.

    Examples
    --------
    >>> metavar(float | None)
    'NUMBER'
    >>> metavar(Literal["sgd", "adam"])
    'sgd|adam'
    """
    if get_origin(kind) is Literal:
        return "|".join(str(value) for value in get_args(kind))
    if get_origin(kind) in (Union, types.UnionType):
        return metavar(next(part for part in get_args(kind) if part is not type(None)))
    return {int: "INTEGER", float: "NUMBER", bool: "true|false"}.get(kind, "TEXT")


def power_form(value: Any) -> str:
    """Text of a default; a prime near a power of two is written as a sum of powers.

    Examples
    --------
    >>> power_form(2**61 - 1), power_form(2**50 - 2**14 + 1), power_form(2**40 - 87), power_form(64)
    ('2^61-1', '2^50-2^14+1', '2^40-87', '64')
    """
    if not isinstance(value, int) or value <= 2**20 or value % 2 == 0:
        return str(value)
    if value & (value + 1) == 0:
        return f"2^{value.bit_length()}-1"
    above = value.bit_length()  # of 2^above - 2^below + 1
    if (1 << above) - value < 1000:
        return f"2^{above}-{(1 << above) - value}"
    below = ((1 << above) + 1 - value).bit_length() - 1
    return f"2^{above}-2^{below}+1" if (1 << above) - (1 << below) + 1 == value else str(value)


def plain_number(text: str) -> str:
    """Write out ``2^31-1`` and ``2**31-1`` (here a power, not Python's XOR); leave other texts.

    Examples
    --------
    >>> plain_number("2^31-1"), plain_number("2^50-2^14+1"), plain_number("0.05")
    ('2147483647', '1125899906826241', '0.05')
    """
    if _SUM.fullmatch(text) is None:
        return text
    total = 0
    for sign, base, exponent, plain in _TERM.findall(text):
        if len(base) > 20 or len(exponent) > 4 or int(exponent or 0) > 4096:
            return text
        term = int(base) ** int(exponent) if base else int(plain)
        total += -term if sign == "-" else term
    return str(total)


def toml_value(text: str) -> Any:
    """Value in ``--set data.key=value``: parsed as TOML if possible, else the text itself."""
    import tomllib

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def protocol_options(
    protocol: str, known: Collection[str], sources: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """Merge the options of a variant's name, of the command line and of ``--set``.

    Raises
    ------
    ConfigurationError
        For an option that the protocol does not have, or that is given in two of these ways.
    """
    from securevfl.runs.catalogue import unknown_option

    merged: dict[str, Any] = {}
    for source in sources:
        for given, value in source.items():
            key = our_name(given, known)
            if key not in known:
                raise unknown_option(protocol, key, known)
            if key in merged:
                raise ConfigurationError(f"option {key} is given twice; leave out one of them")
            merged[key] = plain_number(value) if isinstance(value, str) else value
    return merged


def split_data_pairs(pairs: Mapping[str, str]) -> tuple[dict[str, str], dict[str, Any]]:
    """Separate ``--set`` pairs for the protocol from those for the data (``data.key``)."""
    data = {k.removeprefix("data."): toml_value(v) for k, v in pairs.items() if k[:5] == "data."}
    return {k: v for k, v in pairs.items() if k[:5] != "data."}, data


def plain_flags(command: Any, *, inner: bool = True) -> Any:
    """The command with help that shows no type for flags such as ``--json``."""
    help_option = command.get_help_option(command.context_class(command, resilient_parsing=True))
    for parameter in (*command.params, help_option):
        if getattr(parameter, "is_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    for one in getattr(command, "commands", {}).values() if inner else ():
        plain_flags(one)
    return command


def option_names(command: Any) -> Sequence[str]:
    """All option flags of a click command, for suggestions."""
    return [
        flag for p in command.params for flag in (*p.opts, *p.secondary_opts) if flag[:2] == "--"
    ]
