"""``securevfl keys``: identities of parties, and the manifest of a session that all sign."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from securevfl.cli import output
from securevfl.cli.completion import epilog
from securevfl.cli.options import protocol_options, split_data_pairs
from securevfl.errors import ConfigurationError
from securevfl.protocols.base.defaults import DEFAULT
from securevfl.studies.variant import parse_pairs

app = typer.Typer(
    rich_markup_mode="rich",
    help="Make identities of parties, and the signed list of those who take part in a session.\n\n"
    "An identity is a pair of keys. The list is called the manifest; each party signs it, and a "
    "run on a cluster checks it.",
)
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")]
AManifest = Annotated[
    Path, typer.Argument(metavar="MANIFEST.toml", help="Manifest of the session.")
]


def register(root: typer.Typer) -> None:
    """Add the commands to the application."""
    root.add_typer(app, name="keys")


@app.command("new", epilog=epilog("keys new"))
def new(
    file: Annotated[Path, typer.Argument(metavar="FILE.key", help="File of the new secret key.")],
    json: AsJson = False,
) -> None:
    """Make a key pair: the secret half in FILE.key, the public one in FILE.key.pub."""
    from securevfl.runs.organisations import identities

    _say(identities.create(file), as_json=json)


@app.command("public", epilog=epilog("keys public"))
def public(
    file: Annotated[Path, typer.Argument(metavar="FILE.key", help="File of the secret key.")],
    json: AsJson = False,
) -> None:
    """Write FILE.key.pub again, with the key for relays, which older versions did not write."""
    from securevfl.runs.organisations import identities

    _say(identities.write_public(file), as_json=json)


@app.command("show", epilog=epilog("keys show"))
def fingerprints(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.key.pub...", help="Files of public keys.")
    ],
    json: AsJson = False,
) -> None:
    """Show the fingerprints of public keys, to be compared over another channel."""
    from securevfl.runs.organisations import identities

    _say(identities.show(files), as_json=json)


@app.command("manifest", epilog=epilog("keys manifest"))
def manifest(
    out: Annotated[Path, typer.Argument(metavar="MANIFEST.toml", help="File of the new manifest.")],
    party: Annotated[
        list[str],
        typer.Option(
            metavar="N=FILE.key.pub[@POINT]",
            help="Number and public key of a party, and its evaluation point where that is chosen. "
            "Give it once for each party. Organisations may have names instead, as in "
            "bank=bank.key.pub: their numbers are those of their order.",
        ),
    ],
    server: Annotated[Path, typer.Option(metavar="FILE.key.pub", help="Public key of the server.")],
    protocol: Annotated[
        str, typer.Option(metavar="PROTOCOL", help="Protocol that the session runs.")
    ] = DEFAULT,
    session: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Name of the session, which is used once.  \\[default: a random name]",
        ),
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Name of the label column in the server's table, for organisations of which each "
            "has a table of its own.",
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option("--id", metavar="COLUMN", help="Name of the id column in all tables."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Data set that every organisation loads by its name."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Option of the protocol, or data.KEY=VALUE of the data, on which organisations "
            "agree. Give it once for each.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(metavar="S", help="Seed of the organisations' public choices.")
    ] = 0,
    days: Annotated[
        float, typer.Option(metavar="DAYS", help="Days within which organisations must begin.")
    ] = 7.0,
    padded: Annotated[
        bool,
        typer.Option(
            "--padded",
            help="Pad what organisations send to powers of two, so that a relay sees no other "
            "sizes. It costs up to twice as many bytes.",
        ),
    ] = False,
    json: AsJson = False,
) -> None:
    """Write a manifest, the list of those who take part. Nobody has signed it yet.

    With --label or --data it has terms as well, for organisations.
    """
    from securevfl.runs.organisations import identities

    pairs = parse_pairs(setting or (), what="--set")
    terms = None
    if label is not None or data is not None:
        chosen = {"label": label, "id_column": id_column}
        terms = functools.partial(
            _terms,
            protocol,
            data,
            {k: v for k, v in chosen.items() if v},
            pairs,
            seed,
            days,
            padded,
        )
    elif pairs or id_column is not None or padded:
        raise ConfigurationError(
            "keys: --set, --id and --padded need --label or --data; add one of them"
        )
    summary = identities.write_manifest(out, server, party, protocol, session, terms)
    _say(summary, as_json=json, manifest=out)


@app.command("sign", epilog=epilog("keys sign"))
def sign(
    manifest: AManifest,
    key: Annotated[Path, typer.Option(metavar="FILE.key", help="Secret key of who signs.")],
    party: Annotated[str, typer.Option("--as", metavar="N|server", help="Party that signs.")],
    json: AsJson = False,
) -> None:
    """Sign a manifest in place. Compare the fingerprints that it names before you do."""
    from securevfl.runs.organisations import identities

    _say(identities.sign(manifest, key, party), as_json=json, manifest=manifest)


@app.command("check", epilog=epilog("keys check"))
def check(manifest: AManifest, json: AsJson = False) -> None:
    """Show who takes part in a session, and whether all have signed its manifest.

    A manifest with terms is signed by each party when it joins. Compare its fingerprint before.
    """
    from securevfl.runs.organisations import identities

    summary, found = identities.look(manifest)
    _say(summary, as_json=json, manifest=manifest)
    if not found.terms:
        found.check()


def _terms(
    protocol: str,
    data: str | None,
    columns: Mapping[str, str],
    pairs: Mapping[str, str],
    seed: int,
    days: float,
    padded: bool,
    parties: int,
    names: Sequence[str],
) -> Mapping[str, Any]:
    """Terms of a session in plain types; ConfigurationError for --data with --label."""
    from securevfl.runs.catalogue import get_protocol
    from securevfl.runs.organisations.terms import Terms

    if data is not None and columns:
        raise ConfigurationError("keys: --data and --label exclude each other; give one of them")
    own, of_data = split_data_pairs(pairs)
    known = get_protocol(protocol).Config.model_fields
    described: dict[str, Any]
    described = {"tables": {**columns, **of_data}} if data is None else {"name": data}
    if data is not None and of_data:
        described["options"] = of_data
    options = protocol_options(protocol, known, ({}, {}, own))
    return Terms.make(
        protocol,
        parties,
        options=options,
        data=described,
        seed=seed,
        days=days,
        padded=padded,
        names=names,
    ).plain()


def _say(summary: Mapping[str, str], *, as_json: bool, manifest: Path | None = None) -> None:
    from securevfl.runs.organisations.identities import named

    if as_json:
        output.print_json(dict(summary))
        return
    for name, value in (summary if manifest is None else named(summary, manifest)).items():
        # What others wrote must neither steer the terminal nor look like lines of ours.
        typer.echo(output.printable(f"{name}: {value}").replace("\n", "\\n"))
