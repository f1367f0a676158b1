"""Options shared by commands: data and output options here, run options by declaration.

The options of a run are declared in `securevfl.runs.spec`, those of a cluster with its engine.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from securevfl.cli.completion import condition_names, data_names
from securevfl.runs.engines.cluster_options import ClusterOptions
from securevfl.runs.options import Option, default_words, option, options_of, plain_type
from securevfl.runs.spec import RUN, RunSpec

DATA = "Data"
_EVERY = "compare plan verify"


class DataOptions(BaseModel):
    """The data set of a command."""

    data: str | None = option(
        None, metavar="NAME|PATH", panel=DATA, commands=_EVERY, complete=data_names,
        default_text="digits",
        help="A data set that `securevfl datasets` lists, or a CSV, Parquet or Arrow file.",
    )  # fmt: skip
    label: str | None = option(
        None,
        metavar="COLUMN",
        panel=DATA,
        commands=_EVERY,
        help="Column of the labels, in your own files.",
    )
    parties: int | None = option(
        None, metavar="N", panel=DATA, commands=_EVERY, default_text="that of the data, or 8",
        help="Number of parties among which the columns are divided.",
    )  # fmt: skip
    party: list[str] | None = option(
        None, metavar="[NAME=]FILE.csv", panel=DATA, commands=_EVERY,
        help="One party's own table. Give it once for each party. A party is called NAME, or as "
        "its file.",
    )  # fmt: skip
    id: str | None = option(
        None, metavar="COLUMN", panel=DATA, commands=_EVERY,
        help="Column by whose values rows of the --party files are matched.",
    )  # fmt: skip
    label_file: Path | None = option(
        None, metavar="FILE.csv", panel=DATA, folded=True, commands=_EVERY,
        help="Table with the labels, where no --party file holds them.",
    )  # fmt: skip
    align: str | None = option(
        None, metavar="plain|psi", panel=DATA, folded=True, commands=_EVERY, default_text="plain",
        help="How ids are compared: in the clear, or by private set intersection, which hides the "
        "ids that the parties do not share.",
    )  # fmt: skip
    data_dir: Path | None = option(
        None, metavar="FOLDER", panel=DATA, folded=True, commands=_EVERY,
        default_text="$SECUREVFL_DATA",
        help="Folder with the files of data sets that are known by name.",
    )  # fmt: skip


class LengthOptions(BaseModel):
    """The length of a run; the number of rounds is an option of the protocol."""

    rounds: int | None = option(
        None, metavar="R", panel=RUN, commands=_EVERY, default_text="that of the protocol",
        help="Number of rounds. The server model is updated once in each.",
    )  # fmt: skip


class OutputOptions(BaseModel):
    """Options of results: folder, form, and settings as ``--set key=value``."""

    live: bool = option(
        False, flag="--live", panel=RUN, commands="resume",
        help="Serve a page that follows the run, at an address of this computer only. It ends with "
        "the run.",
    )  # fmt: skip
    out: Path | None = option(
        None, metavar="FOLDER", panel=RUN, commands="compare verify",
        default_text="a new one in ./runs",
        help="Folder of the results.",
    )  # fmt: skip
    as_json: bool = option(
        False, flag="--json", panel=RUN, commands="compare plan verify resume",
        help="Print the summary as one JSON object.",
    )  # fmt: skip
    set: list[str] | None = option(
        None, metavar="KEY=VALUE", panel=RUN, commands=_EVERY,
        help="Set an option of the protocol by its name, or one of the data with data.KEY "
        "(data.scaling=none).",
    )  # fmt: skip


MODELS: tuple[type[BaseModel], ...] = (
    DataOptions,
    LengthOptions,
    RunSpec,
    ClusterOptions,
    OutputOptions,
)


#: Options whose words depend on what is installed.
_INSTALLED = {"conditions": condition_names}


@functools.cache
def shared_options() -> Mapping[str, tuple[Option, FieldInfo]]:
    """All shared options that have a flag, by name, in the order of help pages."""
    return {
        name: (declared, model.model_fields[name])
        for model in MODELS
        for name, declared in options_of(model).items()
        if declared.panel
    }


def shared_parameters(command: str) -> dict[str, inspect.Parameter]:
    """The shared options of a command, as parameters of a function that typer reads."""
    return {
        name: parameter(name, declared, info)
        for name, (declared, info) in shared_options().items()
        if declared.has_flag(command)
    }


def parameter(
    name: str, declared: Option, info: FieldInfo, default: str | None = None
) -> inspect.Parameter:
    """Option `name`, a field `info`, as a parameter; `default` text replaces the declared one."""
    flag = declared.flag or "--" + name.replace("_", "-")
    made = typer.Option(
        flag,
        metavar=declared.metavar or None,
        help=_help(declared, info, default),
        show_default=False,
        rich_help_panel=declared.panel,
        hidden=declared.folded,
        autocompletion=declared.complete or _INSTALLED.get(name) or _completion(declared.metavar),
    )
    kind, value = _kind(info), info.default
    annotation = kind if value is not None else kind | None
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=value,
        annotation=Annotated[annotation, made],
    )


def _help(declared: Option, info: FieldInfo, default: str | None) -> str:
    """Help of the option `info` with its default in words, brackets escaped for rich's markup."""
    words = default or default_words(info)
    if isinstance(info.default, bool):
        on, _, off = declared.flag.replace("--", "").partition("/")
        words = (on if info.default else off) if off else ""
    text = str(info.description).replace("[", "\\[")
    return f"{text}  \\[default: {words}]" if words else text


def _kind(info: FieldInfo) -> Any:
    """Type with which typer reads an option; values other than texts and numbers are texts."""
    kind = plain_type(info.annotation)
    if kind is list:
        return next(a for a in getattr(info.annotation, "__args__", ()) if a is not type(None))
    if kind is Mapping:
        return list[str]
    return kind if kind in (int, float, bool, str, Path) else str


def _completion(metavar: str) -> Callable[[str], list[str]] | None:
    """Completion function for lower-case words of a metavar such as ``none|paper|FILE.toml``."""
    parts = re.sub(r"\[.*?\]", "", metavar).split("|")
    words = [part for part in parts if part.isidentifier() and part.islower()]
    if len(parts) < 2 or not words:
        return None
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]
