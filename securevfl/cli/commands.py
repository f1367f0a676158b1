"""The commands and their options; what they do stands in the modules beside this one."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from securevfl.cli import keys as keys_commands
from securevfl.cli import model, output, verify
from securevfl.cli import report as report_command
from securevfl.cli.completion import dataset_names, epilog, protocol_names
from securevfl.cli.model import Code
from securevfl.cli.options import keyword, make_command, plain_flags, run_command
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.protocols.base.defaults import DEFAULT


class Made(TyperCommand):
    """A command whose options are those of protocols; they are read when it is used."""

    def __init__(self, name: str, text: str, make: Callable[[], Callable[..., None]]) -> None:
        super().__init__(name, help=text, epilog=epilog(name), callback=lambda: None)
        self._make = make

    def make_context(
        self, info_name: Any, args: list[str], parent: Any = None, **extra: Any
    ) -> Any:
        """Context of the command with all its options."""
        made = typer.Typer(add_completion=False, rich_markup_mode="rich")
        made.command(name=self.name, help=self.help, epilog=self.epilog)(self._make())
        command = plain_flags(typer.main.get_command(made))
        return command.make_context(info_name, args, parent, **extra)


def _compare() -> Callable[..., None]:
    from securevfl.cli.common import shared_parameters
    from securevfl.cli.studies import compare
    from securevfl.studies.compare import all_options

    named = typer.Argument(metavar="PROTOCOL...", show_default=False, autocompletion=protocol_names)
    protocols = Annotated[list[str], named]
    seeds = typer.Option(metavar="n", help="Runs of each, with seeds S, S+1, ...")
    workers = typer.Option(metavar="n", min=1, help="Processes.")
    attacks = typer.Option("--attacks", help="Attack each of them in every way instead; long.")
    shared = {
        "variants": inspect.Parameter(
            "variants", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=protocols
        ),
        **shared_parameters("compare"),
        "seeds": keyword("seeds", Annotated[int, seeds], 3),
        "workers": keyword("workers", Annotated[int, workers], 1),
        "attacks": keyword("attacks", Annotated[bool, attacks], False),
    }
    every = all_options()
    most = max(len(names) for _, names in every.values())
    fields = {
        key: (field, "Options of all" if len(names) == most else f"Options of {', '.join(names)}")
        for key, (field, names) in every.items()
    }
    return make_command(shared, fields, compare)


def _plan() -> Callable[..., None]:
    from securevfl.cli.common import DATA, shared_parameters
    from securevfl.cli.studies import plan
    from securevfl.runs.catalogue import protocols

    def number(text: str) -> Any:
        return Annotated[int | None, typer.Option(metavar="n", help=text, rich_help_panel=DATA)]

    bits = typer.Option(metavar="n", help="Fractional bits wanted of data and weights, at least.")
    shared = {
        **shared_parameters("plan"),
        "rows": keyword("rows", number("Training rows, in place of a data set.")),
        "features": keyword("features", number("Columns of all parties together.")),
        "test_rows": keyword("test_rows", number("Test rows, for --secure."), 0),
        "accuracy_bits": keyword("accuracy_bits", Annotated[int, bits], 8),
    }
    config = protocols()[DEFAULT].Config
    title = f"Options of {DEFAULT}"
    return make_command(shared, {k: (f, title) for k, f in config.model_fields.items()}, plan)


def _resume() -> Callable[..., None]:
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


MADE = {
    "resume": Made(
        "resume",
        "Go on with a run that was stopped; the result is that of the unbroken run.",
        _resume,
    ),
    "compare": Made(
        "compare",
        "Run protocols side by side: same data, seeds and delays.\n\nA variant is a protocol with "
        "options in its name: `split:aggregation=max`. Other options go to every protocol that has "
        "them. Differences are against the first.",
        _compare,
    ),
    "plan": Made(
        "plan",
        "Predict a FedVS run: feasible K, field and bits, bytes, memory, expected time.",
        _plan,
    ),
}


class Protocols(TyperGroup):
    """``run``: one command for each protocol, with that protocol's own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Say which protocols there are when none is named first."""
        if ctx.resilient_parsing:  # a shell completes
            return super().parse_args(ctx, args)
        if not args or (args[0].startswith("-") and "--help" not in args):
            first = f"{args[0]} ..." if args else "[OPTIONS]"
            raise ConfigurationError(
                f"run: a protocol comes first: securevfl run PROTOCOL {first}, "
                f"with PROTOCOL one of {', '.join(self.list_commands(ctx))}"
            )
        return super().parse_args(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all protocols."""
        from securevfl.runs.catalogue import protocols

        return list(protocols())

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Command of a protocol or of one of its variants."""
        from securevfl.runs.catalogue import protocols
        from securevfl.studies.variant import parse_variant

        name, variant = parse_variant(cmd_name)
        known = protocols()
        if name not in known and ctx.resilient_parsing:
            return None
        if name not in known:
            raise UnknownNameError("protocol", name, known)
        protocol = known[name]

        def begin(values: dict[str, Any]) -> None:
            from securevfl.cli.run import start

            start(name, variant, values)

        single = typer.Typer(add_completion=False, rich_markup_mode="rich")
        text = f"{protocol.card.title}: {protocol.card.paper}."
        single.command(name=name, help=text, epilog=epilog("run PROTOCOL", name))(
            run_command(protocol.Config, f"Options of {name}", begin)
        )
        return plain_flags(typer.main.get_command(single))


run_app = typer.Typer(
    cls=Protocols,
    rich_markup_mode="rich",
    subcommand_metavar="PROTOCOL [OPTIONS]",
    epilog=epilog("run"),
)
bench_app = typer.Typer(rich_markup_mode="rich", help="Time parts of the library on this machine.")
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder with the files of known data sets.  \\[default: $SECUREVFL_DATA]",
    ),
]


@run_app.callback()
def run() -> None:
    """Train with a protocol; `run PROTOCOL --help` lists its options.

    Options may be part of the name, as in `run split:quantized=true,segments=2`.
    """


def study(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="A study; docs/stragglers.md.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Apply the changes of its table \\[quick].")
    ] = False,
    workers: Annotated[int, typer.Option(metavar="n", min=1, help="Processes.")] = 1,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where results go.  \\[default: ./runs/study-NAME]"),
    ] = None,
    data_dir: DataDir = None,
    json: AsJson = False,
) -> None:
    """Carry out a study: runs over seeds, summed up. Finished runs are never done again."""
    from securevfl.cli.studies import study

    study(file, quick=quick, workers=workers, out=out, data_dir=data_dir, as_json=json)


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(help="Show all that is known of this one.", autocompletion=dataset_names),
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
        typer.Argument(help="Show the whole card of this one.", autocompletion=protocol_names),
    ] = None,
    json: AsJson = False,
) -> None:
    """List the protocols, or show what one of them is and what each role sees."""
    from securevfl.runs.catalogue import default_claims, describe_protocol
    from securevfl.runs.catalogue import protocols as find

    known = find()
    if name is not None and name not in known:
        raise UnknownNameError("protocol", name, known)
    cards = [describe_protocol(known[key]) for key in ([name] if name else known)]
    if name:
        cards[0]["claims"] = default_claims(known[name])
    if json:
        output.print_json(cards[0] if name else {"protocols": cards})
    elif name:
        output.print_card(cards[0])
    else:
        output.print_table(
            ("name", "method", "without a party", "paper"),
            [(c["name"], c["title"], c["absence"], c["paper"]) for c in cards],
        )


@bench_app.command("round", epilog=epilog("bench round"))
def bench_round(
    parties: Annotated[int, typer.Option(metavar="N", help="Clients.")] = 28,
    segments: Annotated[int, typer.Option(metavar="K", help="Data segments.")] = 4,
    privacy: Annotated[int, typer.Option(metavar="T", help="Colluding clients.")] = 1,
    batch: Annotated[int, typer.Option(metavar="B", help="Samples of a batch.")] = 256,
    width: Annotated[int, typer.Option(metavar="H", help="Embedding width.")] = 64,
    rows: Annotated[int, typer.Option(metavar="M", help="Training rows.")] = 60_000,
    features: Annotated[int, typer.Option(metavar="D", help="Columns of all clients.")] = 784,
    blocks: Annotated[int, typer.Option(min=7, help="Timed blocks of each method.")] = 9,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of a block.")] = 3,
    json: AsJson = False,
) -> None:
    """Time a FedVS round against the float round of `split`, at the size of fashion-mnist."""
    from securevfl.bench.rounds import RoundSize, bench_round

    size = RoundSize(parties, segments, privacy, batch, width, rows, features)
    with output.busy("bench round"):
        result = bench_round(size, blocks=blocks, rounds=rounds)
    if json:
        output.print_json(result)
    else:
        output.print_rounds(result)


@bench_app.command("threshold", epilog=epilog("bench threshold"))
def bench_threshold(
    parties: Annotated[
        str, typer.Option(metavar="N,...", help="Numbers of parties.")
    ] = "6,10,16,28",
    privacy: Annotated[str, typer.Option(metavar="T,...", help="Colluding clients.")] = "1,2,4,6",
    segments: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="Largest K.  \\[default: N/2 + 1]")
    ] = None,
    tries: Annotated[int, typer.Option(min=1, help="Straggler sets of each cell.")] = 3,
    prime: Annotated[str, typer.Option(metavar="p", help="Field modulus.")] = "2^61-1",
    time_parties: Annotated[int, typer.Option(metavar="N", help="Parties of the times.")] = 16,
    rounds: Annotated[int, typer.Option(min=2, help="Rounds of each time.")] = 50,
    out: Annotated[Path | None, typer.Option(metavar="FILE.png", help="Draw it there.")] = None,
    json: AsJson = False,
) -> None:
    """Map where recovery is exact and where it is refused, and what K and T cost."""
    from securevfl.cli.studies import threshold

    threshold(
        parties=parties,
        privacy=privacy,
        segments=segments,
        tries=tries,
        prime=prime,
        time_parties=time_parties,
        rounds=rounds,
        out=out,
        as_json=json,
    )


@bench_app.command("field", epilog=epilog("bench field"))
def bench_field(json: AsJson = False) -> None:
    """Time the field arithmetic; see docs/performance.md."""
    from securevfl.bench.rounds import bench_field

    with output.busy("bench field"):
        result = bench_field()
    if json:
        output.print_json(result)
    else:
        output.print_field(result)


def register(app: typer.Typer) -> None:
    """Add all commands to the application, but those of `MADE`."""
    for command in (study, datasets, protocols):
        app.command(command.__name__, epilog=epilog(command.__name__))(command)
    app.add_typer(run_app, name="run")
    app.add_typer(bench_app, name="bench")
    app.add_typer(keys_commands.app, name="keys")
    verify.register(app, Protocols)
    report_command.register(app)
    model.register(app)
