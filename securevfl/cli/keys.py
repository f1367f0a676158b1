"""``securevfl keys``: identities of parties, and the manifest of a session that all sign."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from securevfl.cli import output
from securevfl.cli.completion import epilog
from securevfl.protocols.base.defaults import DEFAULT

app = typer.Typer(
    rich_markup_mode="rich",
    help="Make identities of parties, and the signed list of those who take part in a session.",
)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
AManifest = Annotated[Path, typer.Argument(metavar="MANIFEST.toml", help="Of the session.")]


@app.command("new", epilog=epilog("keys new"))
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE.key", help="Where the secret key goes.")],
    json: AsJson = False,
) -> None:
    """Make a key pair: the secret half in FILE.key, the public one in FILE.key.pub."""
    from securevfl.runs import identities

    _say(identities.create(file), as_json=json)


@app.command("show", epilog=epilog("keys show"))
def fingerprints(
    files: Annotated[list[Path], typer.Argument(metavar="FILE.key.pub...", help="Public keys.")],
    json: AsJson = False,
) -> None:
    """Show the fingerprints of public keys, to be compared over another channel."""
    from securevfl.runs import identities

    _say(identities.show(files), as_json=json)


@app.command("manifest", epilog=epilog("keys manifest"))
def manifest(
    out: Annotated[Path, typer.Argument(metavar="MANIFEST.toml", help="Where it is written.")],
    party: Annotated[
        list[str], typer.Option(metavar="N=FILE.key.pub[@POINT]", help="Once for each party.")
    ],
    server: Annotated[Path, typer.Option(metavar="FILE.key.pub", help="The server's key.")],
    protocol: Annotated[str, typer.Option(metavar="PROTOCOL", help="What will be run.")] = DEFAULT,
    session: Annotated[
        str | None, typer.Option(metavar="NAME", help="Used once.  \\[default: a random one]")
    ] = None,
    json: AsJson = False,
) -> None:
    """Write the list of those who take part; nobody has signed it yet."""
    from securevfl.runs import identities

    told = identities.write_manifest(out, server, party, protocol, session)
    _say(told, as_json=json)


@app.command("sign", epilog=epilog("keys sign"))
def sign(
    manifest: AManifest,
    key: Annotated[Path, typer.Option(metavar="FILE.key", help="The secret key.")],
    party: Annotated[str, typer.Option("--as", metavar="N|server", help="Whose signature.")],
    json: AsJson = False,
) -> None:
    """Sign a manifest in place, after having compared the fingerprints that it shows."""
    from securevfl.runs import identities

    _say(identities.sign(manifest, key, party), as_json=json)


@app.command("check", epilog=epilog("keys check"))
def check(manifest: AManifest, json: AsJson = False) -> None:
    """Show who takes part, and whether all have signed."""
    from securevfl.runs import identities

    told, found = identities.look(manifest)
    _say(told, as_json=json)
    found.check()


def _say(told: Mapping[str, str], *, as_json: bool) -> None:
    if as_json:
        output.print_json(dict(told))
    else:
        for name, value in told.items():
            typer.echo(f"{name}: {value}")
