"""``securevfl invite`` and ``securevfl party``: sessions of organisations, without a driver."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from securevfl.cli import output
from securevfl.cli.completion import epilog
from securevfl.cli.logs import is_verbose
from securevfl.cli.run import INTERRUPTED
from securevfl.errors import ConfigurationError

if TYPE_CHECKING:
    from securevfl.runs.organisations.invitation import Invitation

app = typer.Typer(
    rich_markup_mode="rich",
    help="Take part in a session of organisations.\n\nEach party is a process of its own, on a "
    "machine of its own, and connects out to a relay. Nobody drives the others.",
)
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]


AnInvitation = Annotated[
    str, typer.Argument(metavar="INVITATION", help="The line that `securevfl invite` printed.")
]
AKey = Annotated[Path, typer.Option(metavar="FILE.key", help="Secret key of this party.")]
AFolder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Folder of this party. One that was stopped goes on in the same folder.  "
        "\\[default: sessions/SESSION-PARTY]",
    ),
]
Silence = Annotated[
    float,
    typer.Option(
        metavar="SECONDS", help="Seconds without a sign of a party after which it is named."
    ),
]


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.command("invite", epilog=epilog("invite"))(invite)
    root.add_typer(app, name="party")


def invite(
    manifest: Annotated[
        Path, typer.Argument(metavar="MANIFEST.toml", help="Manifest of the session, with terms.")
    ],
    relay: Annotated[
        list[str],
        typer.Option(
            metavar="HOST:PORT#FINGERPRINT",
            help="Address of a relay, as `securevfl relay init` prints it. Give it once for each "
            "relay; they are tried in this order.",
        ),
    ],
    json: AsJson = False,
) -> None:
    """Print one line for each party of a session, which it joins by, and the fingerprint."""
    from securevfl.runs.organisations.identities import named
    from securevfl.runs.organisations.invitation import invite as lines

    found = lines(manifest, relay)
    if json:
        output.print_json(found)
        return
    for name, line in named(found, manifest).items():
        typer.echo(f"{name}: {line}")


@app.command("join", epilog=epilog("party join"))
def join(
    invitation: AnInvitation,
    key: AKey,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="Table of this party, where the session's terms say that each has its own; at the "
            "server the table with the labels. A helper has none.",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            metavar="N|server",
            help="Party that you mean to be; an invitation of another one is refused.",
        ),
    ] = None,
    manifest: Annotated[
        Path | None,
        typer.Option(
            metavar="MANIFEST.toml",
            help="Manifest of the session. The server needs it, and sends it to the others.",
        ),
    ] = None,
    out: AFolder = None,
    silence: Silence = 15.0,
    yes: Annotated[
        bool,
        typer.Option(
            "--yes", help="Sign without being asked. Where nobody types, nobody is asked."
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Sign the manifest, connect to the relay, wait for all, and take part to the end.

    A process that was stopped or killed goes on when the same command is given again.
    """
    from securevfl.runs.organisations.invitation import Invitation
    from securevfl.runs.organisations.join import join as take_part

    found = Invitation.parse(invitation)
    own = "server" if found.index < 0 else str(found.index)
    if role not in (None, own):
        raise ConfigurationError(f"party: the invitation is of {own}, and --role is {role}")
    folder = out or _folder_of(found)
    with _interrupted(silence):
        summary = take_part(
            found, key=key, folder=folder, data=data, manifest=manifest, say=output.say,
            patience=silence, agree=lambda: yes or _agrees(),
        )  # fmt: skip
    if json:
        output.print_json(summary)
        return
    names = summary.get("party_names")
    party = names[found.index] if names and found.index >= 0 else summary.get("party")
    typer.echo(f"session: {summary.get('session')}, party: {party}, folder: {folder}")
    if is_verbose():
        output.print_summary(summary)
    else:
        output.print_brief(summary)


@app.command("predict", epilog=epilog("party predict"))
def predict(
    invitation: AnInvitation,
    key: AKey,
    data: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="Table with which this party joined the session."),
    ] = None,
    new: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="New rows of this party, with their ids; at a server that asks a table of ids.",
        ),
    ] = None,
    asker: Annotated[
        str,
        typer.Option(
            "--for", metavar="NAME|N|server", help="Who asks, and gets a file of predictions."
        ),
    ] = "server",
    name: Annotated[
        str,
        typer.Option(metavar="NAME", help="Name of this prediction. Each has one of its own."),
    ] = "first",
    out: AFolder = None,
    silence: Silence = 15.0,
    json: AsJson = False,
) -> None:
    """Predict new rows on shares, by the models of a session that has ended.

    All parties give it with the same --for and --name. Rows that all have are predicted. Only who
    asks learns the scores; where it is a party, the server sends it its network. A process that
    was stopped goes on when the same command is given again.
    """
    from securevfl.runs.organisations.invitation import Invitation
    from securevfl.runs.organisations.prediction import predict as take_part

    found = Invitation.parse(invitation)
    with _interrupted(silence):
        summary = take_part(
            found, key=key, folder=out or _folder_of(found), data=data, new=new, name=name,
            asker=asker, say=output.say, patience=silence,
        )  # fmt: skip
    if json:
        output.print_json(summary)
        return
    where = summary.get("predictions", "predictions are with who asked")
    typer.echo(f"{summary['predicted_rows']} rows predicted: {where}")


def _agrees() -> bool:
    """Whether the user at a terminal signs the terms shown above; True without a terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return True
    return typer.confirm("Sign these terms and join?", default=False, err=True)


def _folder_of(invitation: Invitation) -> Path:
    own = "server" if invitation.index < 0 else str(invitation.index)
    return Path("sessions") / f"{invitation.token[:8]}-{own}"


@contextmanager
def _interrupted(silence: float) -> Iterator[None]:
    """Context that prints how to go on after Ctrl-C; ConfigurationError for a silence of 0 s."""
    if silence <= 0:
        raise ConfigurationError(f"party: --silence must be above 0, not {silence:g}")
    try:
        yield
    except KeyboardInterrupt:
        output.say("interrupted; the others wait; go on with the same command")
        raise typer.Exit(INTERRUPTED) from None
