"""The command line as a whole: its commands in order, and errors as one line, exit code 2."""

from __future__ import annotations

import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from securevfl.cli import output
from securevfl.cli.completion import epilog, first_page
from securevfl.cli.logs import LEVELS, start_logging, to_the_front
from securevfl.cli.options import (
    choices,
    option_names,
    plain_flags,
)
from securevfl.errors import ConfigurationError, SecureVFLError, SecureVFLWarning, UnknownNameError
from securevfl.protocols.base.defaults import NO_OPTION

USER_MISTAKE, FAILURE, INTERRUPTED = 2, 1, 130
#: The commands in the order in which they are used: the module of each, and its line of help.
TABLE: Mapping[str, tuple[str, str]] = {
    "run": ("commands", "Train a model by a protocol. `run PROTOCOL --help` lists its options."),
    "compare": ("commands", "Run protocols side by side, with the same data, seeds and delays."),
    "study": (
        "commands", "Carry out a study: runs of several protocols and seeds, and a summary of "
        "them.",
    ),
    "plan": ("commands", "Forecast bytes, memory and time of a run before it is made."),
    "verify": (
        "verify", "Prove the privacy claims of a protocol, or of a run. `verify PROTOCOL --help` "
        "lists its options.",
    ),
    "check": (
        "verify", "Check a certificate: its protocol is traced again, and nothing is searched.",
    ),
    "evidence": (
        "verify", "Check evidence that a party lied, without the run. Exit with 1 if it shows "
        "nothing.",
    ),
    "report": ("report", "Write one HTML page about runs."),
    "resume": (
        "commands", "Go on with a run that was stopped. Its result is that of the unbroken run.",
    ),
    "predict": ("model", "Predict the labels of new rows by the models of a run."),
    "export": ("model", "Write the model of each party into a file of its own."),
    "trace": ("model", "Show the messages of a run in the order of time."),
    "datasets": ("commands", "List the data sets that are known by name."),
    "conditions": (
        "commands", "List the conditions that are known by name, or show what one of them is.",
    ),
    "protocols": ("commands", "List the protocols, or show what one of them is."),
    "keys": (
        "keys", "Make identities of parties, and the signed list of those who take part in a "
        "session.",
    ),
    "relay": ("relay", "Run the relay between organisations, to which all parties connect."),
    "invite": (
        "party", "Print one line for each party of a session, which it joins by, and the "
        "fingerprint.",
    ),
    "party": ("party", "Take part in a session of organisations."),
    "bench": ("bench", "Time parts of the library on this machine."),
    "new": ("new", "Begin a protocol, a data set or a study of your own."),
    "doctor": ("doctor", "Examine this computer, and say what to change."),
}  # fmt: skip


class Commands(Mapping[str, Any]):
    """All commands by name; a command's module is imported on first use."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(TABLE)

    def __iter__(self) -> Iterator[str]:
        return iter(TABLE)

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            module = import_module(f"securevfl.cli.{TABLE[name][0]}")
            part = typer.Typer(rich_markup_mode="rich")
            module.register(part)
            found = {**typer.main.get_group(part).commands, **getattr(module, "COMMANDS", {})}
            self._made |= {key: plain_flags(command) for key, command in found.items()}
        return self._made[name]


class Root(TyperGroup):
    """The whole command line: prints errors in one line and sets exit codes."""

    _words: Sequence[str] = ()

    def __init__(self, **extra: Any) -> None:
        super().__init__(**extra)
        self.commands: Any = Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands in their usual order."""
        return list(TABLE)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page with a line for each command, without importing its module."""
        lines = copy(self)
        lines.commands = {n: TyperCommand(n, help=text) for n, (_, text) in TABLE.items()}
        first_page(lines, ctx)

    def invoke(self, ctx: Any) -> Any:
        """Run a command; if interrupted with nothing stored, print how to start again, and exit."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            again = shlex.join(["securevfl", *self._words])
            output.say(f"interrupted; nothing was kept; start again with: {again}")
            raise typer.Exit(INTERRUPTED) from None

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run a command line and exit with its code."""
        with warnings.catch_warnings():
            warnings.showwarning = in_one_line(warnings.showwarning)
            return self._main(*args, **extra)

    def _main(self, *args: Any, **extra: Any) -> Any:
        plain_flags(self, inner=False)
        given = extra.pop("args", args[0] if args else None)
        words = to_the_front(sys.argv[1:] if given is None else list(given))
        extra = {**extra, "args": words}
        self._words = words
        args = args[1:]
        if os.environ.get("SECUREVFL_TRACEBACK") == "1":
            return super().main(*args, **extra)
        try:
            code = super().main(*args, **(extra | {"standalone_mode": False}))
        except SecureVFLError as error:
            code = USER_MISTAKE if isinstance(error, ConfigurationError) else FAILURE
            output.say(f"securevfl: {error}{in_flags(str(error))}")
        except (OSError, MemoryError) as error:
            code = FAILURE
            output.say(f"securevfl: {type(error).__name__}: {error}")
        except typer.Abort:
            code = INTERRUPTED
        except Exception as error:
            if not hasattr(error, "format_message"):
                raise  # a fault of ours: the traceback is wanted
            code = USER_MISTAKE
            output.say(f"securevfl: {usage_message(error)}")
        raise SystemExit(code if isinstance(code, int) else 0)


# Options of data as a Python caller writes them, and as they are typed.
_TYPED = {
    "id_column": "--id", "label": "--label", "label_file": "--label-file", "parties": "--parties",
    "party_files": "--party", "align": "--align", "data_dir": "--data-dir", "seed": "--seed",
} | {
    name: f"--set data.{name}=VALUE"
    for name in (
        "drop", "separator", "max_categories", "missing_values", "scaling", "coding", "task",
        "group", "test_fraction", "unmatched", "columns", "rows", "aligned", "rest", "local",
        "validation", "strips", "trees", "tree_depth", "tree_labels",
    )
}  # fmt: skip


def in_one_line(other: Callable[..., None]) -> Callable[..., None]:
    """Handler that prints this library's warnings as one line on standard error.

    Others are left to `other`.
    """

    def show(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, SecureVFLWarning):
            output.say(f"securevfl: warning: {message}")
        else:
            other(message, category, *place, **more)

    return show


def in_flags(message: str) -> str:
    """Text in brackets on the flags of options that a message names as ``name=``; else ""."""
    named = dict.fromkeys(re.findall(r"(?<![-\w.])([a-z_]+)=", message))
    typed = [f"{name}= is {_TYPED[name]}" for name in named if name in _TYPED]
    return f" (On the command line {', '.join(typed)}.)" if typed else ""


def usage_message(error: Any) -> str:
    """Message of an error of the option parser, with suggestions for an unknown option."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "securevfl"
    unknown = str(getattr(error, "option_name", ""))
    if type(error).__name__ == "NoSuchOption" and context is not None:
        from securevfl.runs.catalogue import why_refused

        name = unknown.lstrip("-").replace("-", "_")
        gone = why_refused(str(context.info_name), name)
        if gone is not None:
            return gone
        found = UnknownNameError(f"option of {path!r}", unknown, option_names(context.command))
        why = NO_OPTION.get(name, "there is none like it")
        return f"{found if found.near else _unknown(path, unknown, why)} (see {path} --help)"
    text = error.format_message().rstrip(".")
    takes_tables = context is not None and "--party" in option_names(context.command)
    if "extra argument" in text and takes_tables:
        text += "; give a table by --data FILE, or one for each party by --party FILE"
    return f"{text} (see {path} --help)"


def _unknown(path: str, option: str, why: str) -> str:
    return f"unknown option of {path!r} {option!r}: {why}"


app = typer.Typer(
    cls=Root,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    invoke_without_command=True,
    help="Secure vertical federated learning.\n\nSeveral parties hold different columns about the "
    "same rows, and train a model together. This program simulates their protocols or runs them on "
    "a cluster, and tests what each party could learn of the others' data.",
    epilog=epilog("")
    + "\n\nErrors are one line; SECUREVFL_TRACEBACK=1 shows where they come from.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from securevfl.doctor import one_line

        typer.echo(one_line())
        raise typer.Exit


@app.callback()
def root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the version, and what it runs on.",
        ),
    ] = False,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            metavar="",
            show_default=False,
            help="Write a log on standard error, and all figures of a run; -vv says more. It may "
            "also stand after the command.",
        ),
    ] = 0,
    log_level: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(LEVELS),
            help="Write a log on standard error, from this level on.",
            autocompletion=lambda incomplete: choices("|".join(LEVELS), incomplete),
        ),
    ] = None,
) -> None:
    """Secure vertical federated learning."""
    start_logging(verbose, log_level)
    if ctx.invoked_subcommand is None:
        typer.echo(ctx.get_help())
