"""The commands and their options; other modules of this folder carry them out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from securevfl.cli import output
from securevfl.cli.completion import (
    condition_names,
    dataset_names,
    epilog,
    first_page,
    protocol_names,
)
from securevfl.cli.options import Code, Command, keyword, make_command, plain_flags, run_command
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.protocols.base.defaults import DEFAULT, SHOWN

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo


class ProtocolCommand(TyperCommand):
    """A command whose options are those of protocols, read on use."""

    def __init__(
        self, name: str, text: str, make: Callable[[Sequence[str]], Callable[..., None]]
    ) -> None:
        super().__init__(name, help=text, epilog=epilog(name), callback=lambda: None)
        self._make = make

    def make_context(
        self, info_name: Any, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Context of the command, as click's, once its options have been read from protocols."""
        made = typer.Typer(add_completion=False, rich_markup_mode="rich")
        made.command(name=self.name, cls=Command, help=self.help, epilog=self.epilog)(
            self._make(args)
        )
        command = plain_flags(typer.main.get_command(made))
        return command.make_context(info_name, args, parent, **extra)


def _compare(args: Sequence[str]) -> Callable[..., None]:
    from securevfl.cli.common import shared_parameters
    from securevfl.cli.studies import compare
    from securevfl.studies.compare import all_options

    named = typer.Argument(
        metavar="PROTOCOL...",
        help="Two protocols or more, or variants of one.",
        show_default=False,
        autocompletion=protocol_names,
    )
    protocols = Annotated[list[str], named]
    seeds = typer.Option(
        metavar="N", help="Number of runs of each protocol, with the seeds S, S+1, ..."
    )
    workers = typer.Option(metavar="N", min=1, help="Number of processes that carry out runs.")
    attacks = typer.Option(
        "--attacks",
        help="Carry out every attack of this library on runs of each protocol, in place of the "
        "comparison. In place of protocols it takes the folder of one run, and writes attacks.json "
        "there, where `report` finds it. It takes long.",
    )
    target = typer.Option(
        metavar="VALUE",
        help="Accuracy, as a fraction, or error of a regression, to which the virtual time and the "
        "bytes of each protocol are counted.  \\[default: none]",
        show_default=False,
    )
    shared = {
        "variants": inspect.Parameter(
            "variants", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=protocols
        ),
        **shared_parameters("compare"),
        "seeds": keyword("seeds", Annotated[int, seeds], 3),
        "workers": keyword("workers", Annotated[int, workers], 1),
        "attacks": keyword("attacks", Annotated[bool, attacks], False),
        "target": keyword("target", Annotated[float | None, target], None),
    }
    every = all_options()
    total = {name for _, names in every.values() for name in names}
    few = [key for key, (_, names) in every.items() if 2 * len(names) < len(total)]
    return make_command(shared, _grouped(every), compare, folded=few)


def _grouped(
    every: Mapping[str, tuple[FieldInfo, Sequence[str]]],
) -> dict[str, tuple[FieldInfo, str]]:
    """Field and help heading of each option: those of all protocols, of several, of each."""
    total = {name for _, names in every.values() for name in names}
    groups: list[dict[str, tuple[FieldInfo, str]]] = [{}, {}, {}]
    for key, (field, names) in every.items():
        if len(names) == len(total):
            groups[0][key] = field, "Options of every protocol"
        elif len(names) == 1:
            groups[2][key] = field, f"Options of {names[0]}"
        else:
            others = sorted(total.difference(names))
            few = len(names) <= len(others)
            whose = f"Of {', '.join(names)}" if few else f"Of all but {', '.join(others)}"
            shared = copy(field)
            text, default, note = str(field.description).partition(" Default: ")
            shared.description = f"{text} {whose}.{default}{note}"
            groups[1][key] = shared, "Options of several protocols"
    ordered = sorted(groups[2].items(), key=lambda item: item[1][1])
    return groups[0] | groups[1] | dict(ordered)


def _plan(args: Sequence[str]) -> Callable[..., None]:
    """Command ``plan`` with the options of the protocol named first, or of the default."""
    from securevfl.cli.common import DATA, shared_parameters
    from securevfl.cli.studies import plan
    from securevfl.runs.catalogue import protocols

    def number(text: str) -> Any:
        return Annotated[int | None, typer.Option(metavar="N", help=text, rich_help_panel=DATA)]

    bits = typer.Option(
        metavar="N", help="Least number of fractional bits wanted of data and of weights."
    )
    known = protocols()
    name = next((word for word in args if word in known), DEFAULT)
    named = typer.Argument(
        metavar="PROTOCOL",
        help=f"A protocol whose messages are known beforehand. Default: {DEFAULT}.",
        show_default=False,
        autocompletion=protocol_names,
    )
    shared = {
        "protocol": inspect.Parameter(
            "protocol",
            inspect.Parameter.POSITIONAL_OR_KEYWORD,
            default=name,
            annotation=Annotated[str, named],
        ),
        **shared_parameters("plan"),
        "rows": keyword("rows", number("Number of training rows, in place of a data set.")),
        "features": keyword("features", number("Number of columns of all parties together.")),
        "test_rows": keyword(
            "test_rows", number("Number of test rows, which --secure evaluates on shares."), 0
        ),
        "accuracy_bits": keyword("accuracy_bits", Annotated[int, bits], 8),
    }
    fields = known[name].Config.model_fields.items()
    return make_command(shared, {k: (f, f"Options of {name}") for k, f in fields}, plan)


def _resume(args: Sequence[str]) -> Callable[..., None]:
    from securevfl.cli.common import shared_parameters
    from securevfl.cli.run import go_on

    named = typer.Argument(help="Folder of a run that did not end.", show_default=False)
    folder = inspect.Parameter(
        "folder", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Annotated[Path, named]
    )
    shared = {
        "folder": folder,
        **shared_parameters("resume"),
        "code": keyword("code", Code),
    }
    return make_command(shared, {}, go_on)


COMMANDS = {
    "resume": ProtocolCommand(
        "resume",
        "Go on with a run that was stopped. Its result is that of the unbroken run.",
        _resume,
    ),
    "compare": ProtocolCommand(
        "compare",
        "Run protocols side by side, with the same data, seeds and delays.\n\nA variant is a "
        f"protocol with options in its name: `{SHOWN['baseline']}:aggregation=max`. Any other "
        "option goes to every protocol that has it. The table gives each protocol's measures, and "
        "their differences from the first protocol, as means over the seeds with intervals.",
        _compare,
    ),
    "plan": ProtocolCommand(
        "plan",
        f"Forecast bytes, memory and time of a run before it is made.\n\nIt is a run of {DEFAULT}, "
        "or of another protocol whose messages are known beforehand. The plan names the largest "
        "number K of data segments with which the run can decode, and for it the field and its "
        "bits, bytes sent, memory, and expected time.",
        _plan,
    ),
}


class Protocols(TyperGroup):
    """``run``: one command for each protocol, with that protocol's own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; ConfigurationError with all protocols unless one is named first."""
        if ctx.resilient_parsing:  # a shell completes
            return super().parse_args(ctx, args)
        if not args or (args[0].startswith("-") and "--help" not in args):
            first = f"{args[0]} ..." if args else "[OPTIONS]"
            raise ConfigurationError(
                f"run: a protocol comes first: securevfl run PROTOCOL {first}, "
                f"with PROTOCOL one of {', '.join(self.list_commands(ctx))}"
            )
        return super().parse_args(ctx, args)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help page with the title of each protocol."""
        first_page(self, ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all protocols."""
        from securevfl.runs.catalogue import protocols

        return list(protocols())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Command for a protocol or one of its variants."""
        from securevfl.runs.catalogue import get_protocol
        from securevfl.studies.variant import parse_variant

        name, variant = parse_variant(cmd_name)
        try:
            protocol = get_protocol(name)
        except UnknownNameError:
            if ctx.resilient_parsing:
                return None
            raise

        def begin(values: dict[str, Any]) -> None:
            from securevfl.cli.run import start

            start(name, variant, values)

        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        text = "\n\n".join(_headed(protocol.card))
        single.command(name=name, cls=Command, help=text, epilog=epilog("run PROTOCOL", name))(
            run_command(protocol.Config, f"Options of {name}", begin)
        )
        return plain_flags(typer.main.get_command(single))


def _headed(card: Any) -> Iterator[str]:
    """Paragraphs of a protocol's help page: its paper and the roles."""
    yield f"{card.title}. Paper: {card.paper}."
    yield "The parties and their roles:"
    for role, what in card.roles.items():
        yield f"- {role}: {what}."


run_app = typer.Typer(
    cls=Protocols,
    rich_markup_mode="rich",
    subcommand_metavar="PROTOCOL [OPTIONS]",
    epilog=epilog("run"),
)
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder with the files of data sets that are known by name.  "
        "\\[default: $SECUREVFL_DATA]",
    ),
]


@run_app.callback()
def run() -> None:
    """Train a model by a protocol. `run PROTOCOL --help` lists its options.

    Options may be part of the name, which is then a variant, as in
    `run PROTOCOL:option=value,option=value`.
    """


def study(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.toml", help="Description of the study; docs/stragglers.md shows one."
        ),
    ],
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Carry out the short form, with the changes in its table \\[quick]."
        ),
    ] = False,
    workers: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of processes that carry out runs.")
    ] = 1,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder of the results.  \\[default: ./runs/study-NAME]"
        ),
    ] = None,
    data_dir: DataDir = None,
    code: Code = None,
    json: AsJson = False,
) -> None:
    """Carry out a study: runs of several protocols and seeds, and a summary of them.

    A study that was interrupted goes on where it stopped; no finished run is made again.
    """
    from securevfl.cli.studies import study

    study(
        *(file, code or ()),
        quick=quick,
        workers=workers,
        out=out,
        data_dir=data_dir,
        as_json=json,
    )


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A data set, of which everything is shown.", autocompletion=dataset_names
        ),
    ] = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """List the data sets that are known by name."""
    from dataclasses import asdict

    from securevfl.runs.catalogue import dataset_catalogue

    entries = {entry.name: entry for entry in dataset_catalogue(data_dir)}
    if name is not None and name not in entries:
        raise UnknownNameError("data set", name, entries)
    chosen = [entries[name]] if name else list(entries.values())
    if json:
        found = [asdict(entry) for entry in chosen]
        output.print_json(found[0] if name else {"datasets": found})
    else:
        output.print_datasets(chosen)


def protocols(
    name: Annotated[
        str | None,
        typer.Argument(
            help="A protocol, whose whole card is shown.", autocompletion=protocol_names
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """List the protocols, or show what one of them is.

    The card of a protocol says what each role does and sees, what happens without a party, how it
    departs from its paper, and which privacy claims it makes.
    """
    from securevfl.runs.catalogue import CLAIMED_ON, default_claims, describe_protocol
    from securevfl.runs.catalogue import protocols as find

    known = find()
    if name is not None and name not in known:
        raise UnknownNameError("protocol", name, known)
    cards = [describe_protocol(known[key]) for key in ([name] if name else known)]
    if name:
        cards[0] |= {"claims": default_claims(known[name]), "claims_on": CLAIMED_ON}
    if json:
        output.print_json(cards[0] if name else {"protocols": cards})
    elif name:
        output.print_card(cards[0])
    else:
        output.print_table(
            ("name", "method", "without a party", "paper"),
            [(c["name"], c["title"], c["absence"], c["paper"]) for c in cards],
        )


def conditions(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            help="Conditions by name or from a TOML file, of which each party's are shown.",
            autocompletion=condition_names,
        ),
    ] = None,
    parties: Annotated[int, typer.Option(metavar="N", min=1, help="Number of clients.")] = 8,
    batch: Annotated[
        int, typer.Option(metavar="B", min=1, help="Number of rows in a coded batch.")
    ] = 64,
    json: AsJson = False,
) -> None:
    """List the conditions that are known by name, or show what one of them is.

    Conditions are delays, links and computing times of the parties; `run` and `compare` take the
    names by --conditions. Measured delays of others are shown with their source.
    """
    from securevfl.runs.catalogue import describe_conditions

    found: Any = describe_conditions(name, parties=parties, batch_rows=batch)
    if json:
        output.print_json(found)
    elif name is None:
        rows = [(each["name"], each["what"]) for each in found["conditions"]]
        output.print_table(("name", "what"), rows)
    else:
        output.print_conditions(found)


def register(app: typer.Typer) -> None:
    """Add this module's commands to the application, except those in `COMMANDS`."""
    for command in (study, datasets, conditions, protocols):
        app.command(command.__name__, epilog=epilog(command.__name__))(command)
    app.add_typer(run_app, name="run")
