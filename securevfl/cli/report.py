"""``report RUN...``: one HTML page about a run, or about several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from securevfl.cli import displays, output
from securevfl.cli.completion import epilog
from securevfl.report.in_words import size

_HELP = (
    "Write one HTML page about runs.\n\nIt shows curves, a timeline of the parties, what was sent "
    "between them, claims with their verdicts, and the command that makes the run again. Several "
    "runs are shown side by side. The page needs no network and works on a phone."
)


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("report", help=_HELP, epilog=epilog("report"))(report)


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Folders of runs, or of studies.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.html",
            help="File of the page.  \\[default: report.html, in the folder of a single run, else "
            "here]",
        ),
    ] = None,
    figures: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder for the figures as SVG and PDF, and the tables as CSV and LaTeX.  "
            "\\[default: none]",
        ),
    ] = None,
    verify: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.json",
            help="Verdicts, as `securevfl verify PROTOCOL --json` prints them. The file "
            "verify.json in a run's folder is found without this option.",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Carry out ``securevfl report``."""
    from securevfl.report import write_report

    with displays.busy("report"):
        written = write_report(runs, out=out, figures=figures, verifications=verify or ())
    if json:
        output.print_json(written.to_dict())
        return
    output.out().print(f"written to {written.path} ({size(written.bytes)})", soft_wrap=True)
    if written.files:
        output.out().print(f"{len(written.files)} files in {figures}", soft_wrap=True)
    for text in written.missing:
        output.say(f"securevfl: {text}")
