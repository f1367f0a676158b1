"""``predict``, ``export`` and ``trace``: uses of a finished run."""

from __future__ import annotations

import csv
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from securevfl.cli import displays, output
from securevfl.cli.completion import epilog
from securevfl.cli.options import Code

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securevfl.runs.from_folder import PartyNames

ARun = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a finished run.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
_FATES = ["arrived", "late", "lost", "under way", "dropped"]
_SHOWN = 40  # messages without --first


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    for name, function in (("predict", predict), ("export", export), ("trace", trace)):
        app.command(name, epilog=epilog(name))(function)


def predict(
    run: ARun,
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE.csv...",
            help="A file of rows with the columns of the training data, or one file for each "
            "party, in their order. Several files are joined by the run's id column.",
        ),
    ],
    coded: Annotated[
        bool,
        typer.Option("--coded", help="Compute on secret shares, by the parties of the protocol."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="File of the predictions.  \\[default: standard output]"
        ),
    ] = None,
    code: Code = None,
    json: AsJson = False,
) -> None:
    """Predict the labels of new rows by the models of a run.

    Predictions are computed in the clear on this machine, or on secret shares with --coded.
    """
    from securevfl.runs.from_folder import predict_files

    with displays.busy(f"predict with {run.name}"):
        found = predict_files(run, files, coded=coded, code=code or ())
    for name, count in found["left_out"].items():
        output.say(f"securevfl: {name}: {count} rows left out, whose id is not in every file")
    rows = list(_rows(found))
    if out is not None:
        with out.open("w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
    if json:
        output.print_json(found | {"written_to": None if out is None else str(out)})
    elif out is not None:
        output.out().print(f"written to {out}", soft_wrap=True)
    else:
        csv.writer(sys.stdout, lineterminator="\n").writerows(rows)


def _rows(found: dict[str, Any]) -> Iterable[list[Any]]:
    """Rows of the table of predictions, the head first."""
    classes, shares, ids = found["classes"], found["probabilities"], found["ids"]
    written = dict(zip(found["class_values"], classes, strict=True))  # as the file has them
    named = [] if ids is None else [found["id_column"]]
    cell = output.csv_cell
    yield [*map(cell, named), "prediction", *(cell(f"p({name})") for name in classes)]
    for place, prediction in enumerate(found["predictions"]):
        who = [] if ids is None else [ids[place]]
        own = [] if shares is None else [f"{value:.6g}" for value in shares[place]]
        yield [*map(cell, who), cell(written.get(prediction, prediction)), *own]


def export(
    run: ARun,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Folder of the files.  \\[default: models, in the run's folder]"
        ),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Write the networks as ONNX files, too.")
    ] = False,
    code: Code = None,
    json: AsJson = False,
) -> None:
    """Write the model of each party into a file of its own.

    A party's file holds nothing of another party's model, so each file can be handed to its owner.
    """
    from securevfl.runs.from_folder import export_folder

    with displays.busy(f"export {run.name}"):
        paths = export_folder(run, out or run / "models", code=code or (), onnx=onnx)
    if json:
        output.print_json({"files": [str(path) for path in paths]})
    else:
        for path in paths:
            output.out().print(f"written to {path}", soft_wrap=True)


def trace(
    run: ARun,
    kind: Annotated[
        str | None,
        typer.Option(metavar="KIND", help="Show only messages of this kind, such as embedding."),
    ] = None,
    round: Annotated[
        int | None, typer.Option(metavar="R", help="Show only messages of this round.")
    ] = None,
    sender: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="NAME|party-N|server", help="Show only what this party sent."
        ),
    ] = None,
    receiver: Annotated[
        str | None,
        typer.Option("--to", metavar="NAME|party-N|server", help="Show only what was sent to it."),
    ] = None,
    fate: Annotated[
        str | None,
        typer.Option(
            metavar="arrived|late|lost|under way",
            help="Show only messages that arrived, came too late to be used, were lost, or were "
            "under way when the run ended.",
            autocompletion=lambda incomplete: [f for f in _FATES if f.startswith(incomplete)],
        ),
    ] = None,
    first: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help=f"Largest number of messages shown.  \\[default: {_SHOWN}; all with --json]",
        ),
    ] = None,
    json: AsJson = False,
) -> None:
    """Show the messages of a run in the order of time.

    A line names the sender, the receiver, the kind, the round and the bytes
    of a message. It gives the virtual seconds at which the message was sent
    and arrived, and says whether it arrived, came too late to be used, was
    lost, or was under way when the run ended.
    """
    from securevfl.runs.from_folder import trace_folder

    chosen: dict[str, Any] = {"kind": kind, "round": round, "fate": fate}
    with displays.busy(f"trace of {run.name}"):
        found, names = trace_folder(run, sender=sender, receiver=receiver, **chosen)
    if json:
        shown = found.head(first).astype(object) if first else found.astype(object)
        messages = shown.where(shown.notna(), None).to_dict("records")
        output.print_json({"messages": messages, "chosen": len(found)})
        return
    shown = found.head(first or _SHOWN)
    columns = ("sent", "arrived", "from", "to", "kind", "round", "bytes", "fate")
    output.print_table(columns, [_cells(message, names) for message in shown.itertuples()])
    if len(found) > len(shown):
        output.out().print(f"{len(shown)} of {len(found):,} messages; --first shows more")


def _cells(message: Any, names: PartyNames) -> tuple[str, ...]:
    from rich.markup import escape

    style = {"late": "[yellow]late[/]", "lost": "[red]lost[/]"}
    return (
        f"{message.sent:.6f}",
        "-" if math.isnan(message.arrived) else f"{message.arrived:.6f}",
        escape(_word(names[message.sender])),
        escape(_word(names[message.receiver])),
        escape(message.kind),
        str(message.round),
        f"{message.bytes:,}",
        style.get(message.fate, message.fate),
    )


def _word(name: str) -> str:
    """A party in the form of --from and --to; ``party-3`` for one without name."""
    return re.sub(r"^party (\d+)$", r"party-\1", name)
