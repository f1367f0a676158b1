"""``report RUN...``: one HTML page about a run, or about several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from securevfl.cli import output
from securevfl.cli.completion import epilog

_HELP = (
    "Write one HTML page about runs: curves, a timeline of the parties, links, claims, and the "
    "command to repeat them.\n\nSeveral runs are compared. The page needs no network and works on "
    "a phone."
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
            help="Where the page goes.  \\[default: report.html in the folder of a single run, "
            "else here]",
        ),
    ] = None,
    verify: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE.json",
            help="Output of `securevfl verify PROTOCOL --json`, for the verdicts; a verify.json in "
            "a run's folder is found by itself.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Carry out ``securevfl report``."""
    from securevfl.report import write_report

    with output.busy("report"):
        written = write_report(runs, out=out, verifications=verify or ())
    if json:
        output.print_json(written.to_dict())
        return
    output.out().print(f"written to {written.path} ({output.size(written.bytes)})", soft_wrap=True)
    for text in written.missing:
        output.say(f"securevfl: {text}")
