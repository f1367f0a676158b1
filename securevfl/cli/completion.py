"""First pages of help, examples in the help of each command, and shell completion."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from securevfl.protocols.base.defaults import SHOWN

EXAMPLES: dict[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("run {default}", "Train on digits with 8 parties, half of them stragglers."),
        (
            "compare {default} {baseline} {asynchronous} --until 60",
            "Compare them on the same data and delays.",
        ),
        ("protocols {default}", "Show what a protocol is, and what each role sees."),
        ("-v run {default}", "Run with a log on standard error."),
        ("--install-completion", "Let the shell complete commands, protocols and options."),
    ),
    "run": (
        ("run {default}", "Train on digits with 8 parties."),
        ("run {default} --help", "List all options of a protocol."),
        ("run {baseline}:aggregation=max", "Give options as part of the name."),
        ("run {default} --data own.csv --label income", "Divide the columns of your own table."),
    ),
    "run PROTOCOL": (
        ("run {name} --rounds 200 --seed 1 --out runs/mine", ""),
        ("run {name} --data own.csv --label income --parties 4", "Use your own table."),
        (
            "run {name} --party bank.csv --party shop.csv --id customer --label bad",
            "Give a table for each party.",
        ),
        ("run {name} --conditions none --live", "Run without delays, and watch the curves."),
        ("run {name} --set data.scaling=standard --json", "Set options by name, and print JSON."),
    ),
    "resume": (
        (
            "resume runs/{default}-digits-20260101-120000",
            "Go on after Ctrl-C, or after the process was killed.",
        ),
    ),
    "compare": (
        (
            "compare {default} {baseline} {asynchronous} --until 60 --seeds 3",
            "Show measures at equal virtual time.",
        ),
        ("compare {baseline} {baseline}:stragglers=ignore", "Compare a protocol with its variant."),
        (
            "compare {default} {noisy} --attacks --seeds 1",
            "Show what each role can infer, over chance.",
        ),
    ),
    "study": (
        ("study study.toml --quick", "Run the short form, which the table [quick] describes."),
        ("study study.toml --workers 2 --out results", ""),
    ),
    "new": (
        ("new protocol my_method", "Write a package whose protocol trains and is proved."),
        ("new study delays --out studies", ""),
    ),
    "plan": (
        ("plan --data digits --parties 8 --privacy 2", "Show feasible K, bytes, memory and time."),
        ("plan --rows 60000 --features 784 --parties 28", "Plan before the data are here."),
    ),
    "verify": (
        ("verify {default}", "Show the verdict on each coalition."),
        ("verify {default} --plain --json", "Test the paper's own evaluation, and print JSON."),
    ),
    "check": (("check certificate.json", "Written by verify --certificate."),),
    "evidence": (
        ("evidence runs/mine/evidence.json --manifest session.toml", "Name who lied, and why."),
    ),
    "verify PROTOCOL": (
        ("verify {name}", ""),
        ("verify {name} --parties 6 --out verdicts", "Write verify.json into a folder, too."),
    ),
    "datasets": (
        ("datasets", "List all sets, and whether each is on this machine."),
        ("datasets parkinson", "Show where the files of a set come from."),
    ),
    "conditions": (
        ("conditions", "List them."),
        ("conditions ranks_st --parties 4", "Show the delays of each party."),
    ),
    "protocols": (
        ("protocols", ""),
        ("protocols {default} --json", "Print card and options as JSON."),
    ),
    "predict": (
        ("predict runs/mine new.csv", "Print one line for each row."),
        ("predict runs/mine bank.csv shop.csv", "Give one file for each party, in order."),
        ("predict runs/mine new.csv --coded", "Predict on secret shares, by the protocol itself."),
    ),
    "export": (
        ("export runs/mine --out models", "Write server.npz, party-0.npz and so on."),
    ),
    "trace": (
        ("trace runs/mine --round 1", "Show every message of the first round."),
        ("trace runs/mine --kind embedding --to server --fate late", "Show what came too late."),
    ),
    "report": (
        ("report runs/mine", "Write runs/mine/report.html, which needs no network."),
        ("report runs/{default} runs/{baseline} --out both.html", "Show two runs side by side."),
        ("report runs/mine --verify verify.json", "Show what `verify --json` said, too."),
    ),
    "keys new": (("keys new bank.key", "Write bank.key, and bank.key.pub for the others."),),
    "keys public": (("keys public bank.key", "Write bank.key.pub again."),),
    "keys show": (
        ("keys show bank.key.pub shop.key.pub", "Compare them over the telephone."),
    ),
    "keys manifest": (
        (
            "keys manifest session.toml --party 0=bank.key.pub --party 1=shop.key.pub "
            "--server server.key.pub",
            "",
        ),
    ),
    "keys sign": (("keys sign session.toml --key bank.key --as 0", ""),),
    "keys check": (
        ("keys check session.toml", "Show who takes part, and whether all have signed."),
    ),
    "invite": (
        (
            "invite session.toml --relay relay.example.org:4222#FINGERPRINT",
            "Print one line for each party.",
        ),
    ),
    "party": (),
    "party join": (
        ("party join INVITATION --key bank.key --data bank.csv", "Take part, and wait for all."),
        ("party join INVITATION --key server.key --data labels.csv --manifest session.toml", ""),
    ),
    "party predict": (
        ("party predict INVITATION --key bank.key --data bank.csv --new new.csv --for bank", ""),
    ),
    "relay": (("relay --folder relay", "Run the relay of a folder until it is stopped."),),
    "relay init": (
        (
            "relay init session.toml --host relay.example.org",
            "Write what it needs, and print its address for the parties.",
        ),
    ),
    "bench round": (
        ("bench round", "Show what secrecy costs. It takes minutes."),
        ("bench round --parties 8 --segments 2 --rows 2000 --features 64", "Time smaller rounds."),
    ),
    "bench field": (("bench field", "Show what the kernels leave on the table."),),
    "bench threshold": (
        ("bench threshold --workers 2", "Find thresholds of three methods. It takes minutes."),
        ("bench threshold {default} --law lognormal:1.0 --conditions ranks_st --seeds 5", ""),
    ),
    "bench methods": (
        ("bench methods {default} {baseline} --data digits", "Make a part of the table."),
        ("bench methods --seeds 5 --attacks --workers 2", "Make all of it. It takes hours."),
    ),
    "bench decoding": (("bench decoding --parties 6,10 --privacy 1,2 --out map.png", ""),),
    "bench scale": (
        ("bench scale --out scale.png", "Draw the growth of three protocols. It takes minutes."),
        ("bench scale --protocols all --rows '' --features ''", "Vary parties and rounds only."),
    ),
    "doctor": (("doctor", "Show what this computer lacks."), ("doctor --json", "")),
}  # fmt: skip


def commands(command: str, name: str = "PROTOCOL") -> list[str]:
    """Command lines that are the examples of a command, with `name` for the protocol."""
    return [f"securevfl {line.format(name=name, **SHOWN)}" for line, _ in EXAMPLES[command]]


def epilog(command: str, name: str = "PROTOCOL") -> str:
    """Section of examples that ends the help page of a command."""
    lines = ["[bold]Examples[/]"]
    for line, (_, why) in zip(commands(command, name), EXAMPLES[command], strict=True):
        lines.append(f"  {line}" + (f"  [dim]# {why}[/]" if why else ""))
    return "\n\n".join(lines)  # typer joins single lines into one


#: Where a help text's first clause ends.
_CLAUSE = re.compile(r"(?<!\.)[.:;](?: |$)|, (?:in |with )?which\b|, (?:such as|even|as in)\b")
_WIDTH = 26  # of what is typed
_LONG = 21  # letters of a default that first pages leave out


def first_page(command: Any, ctx: Any) -> None:
    """Print options that are not hidden, and commands, each with the first clause of its text.

    Parameters
    ----------
    command, ctx : object
        A command or group of typer, and its context.
    """
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table

    panels: dict[str, list[tuple[str, str]]] = {}
    for parameter in command.get_params(ctx):
        if not getattr(parameter, "hidden", False):
            heading = getattr(parameter, "rich_help_panel", None) or "Options"
            panels.setdefault(heading, []).append((_typed(parameter), _short(parameter)))
    names = command.list_commands(ctx) if hasattr(command, "list_commands") else []
    for name in names:
        said = command.get_command(ctx, name).help.partition("\n\n")[0].partition(". ")[0]
        panels.setdefault("Commands", []).append((f"[bold cyan]{name}[/]", f"{said.rstrip('.')}."))
    console = Console(file=sys.stdout, highlight=False)
    console.print(f"[yellow]{_plain(command.get_usage(ctx))}[/]\n")
    console.print("\n\n".join(command.help.split("\n\n")[: 2 if names else 1]))
    for heading, rows in panels.items():
        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=None if heading == "Commands" else _WIDTH)
        for row in rows:
            table.add_row(*row)
        console.print(f"\n[bold]{heading}[/]", Padding(table, (0, 0, 0, 1)))
    for line in ["", *command.epilog.split("\n\n")[:4]]:
        console.print(line if len(line) < 95 else line.partition("  [dim]#")[0])


def _typed(parameter: Any) -> str:
    """A parameter as it is typed, with a word for its value."""
    metavar = parameter.metavar or ""
    while len(metavar) > _WIDTH:  # choices, of which some are shown
        metavar = metavar.removesuffix("|...").rpartition("|")[0] + "|..."
    if parameter.param_type_name == "argument":
        return f"[bold cyan]{_plain(metavar or parameter.name.upper())}[/]"
    flag = ", ".join(parameter.opts)
    if parameter.secondary_opts:
        flag = "/".join([flag, *parameter.secondary_opts]).replace("/--no-", "/no-")
    return f"[bold cyan]{flag}[/] {_plain(metavar)}".rstrip()


def _plain(text: str) -> str:
    """Text with "[" escaped, so that rich does not read it as markup."""
    return text.replace("[", "\\[")


def _short(parameter: Any) -> str:
    """First clause of a parameter's text, and its default unless that is long."""
    said, _, default = (parameter.help or "").partition("  \\[default: ")
    if getattr(parameter, "show_default", False) and parameter.default:
        default = f"{parameter.default}]"
    shown = f" \\[{default}" if default and len(default) < _LONG else ""
    return _first_clause(said) + shown


def _first_clause(text: str) -> str:
    return _CLAUSE.split(text.partition("\n\n")[0])[0].rstrip("., ") + "."


def protocol_names(incomplete: str) -> list[str]:
    """Protocol names that begin with the typed word."""
    from securevfl.runs.catalogue import protocols

    return [name for name in protocols() if name.startswith(incomplete)]


def dataset_names(incomplete: str) -> list[str]:
    """Data set names that begin with the typed word."""
    from securevfl.runs.catalogue import dataset_catalogue

    return [entry.name for entry in dataset_catalogue() if entry.name.startswith(incomplete)]


def condition_names(incomplete: str) -> list[str]:
    """Names of conditions (of delays and bandwidth) that begin with the typed word."""
    from securevfl.runs.catalogue import conditions

    return [name for name in conditions() if name.startswith(incomplete)]


def data_names(incomplete: str) -> list[str]:
    """Data sets, CSV files and folders whose names begin with the typed word."""
    here = sorted(Path(incomplete or ".").parent.glob(f"{Path(incomplete).name}*"))
    files = [str(path) for path in here if path.suffix == ".csv"]
    folders = [f"{path}/" for path in here if path.is_dir() and path.name[:1] != "."]
    return [*dataset_names(incomplete), *files, *folders]
