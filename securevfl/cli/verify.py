"""``verify PROTOCOL``: check a protocol's claims and show verdicts with evidence."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from securevfl.cli import displays, output
from securevfl.cli.commands import Protocols
from securevfl.cli.completion import epilog
from securevfl.cli.options import (
    Command,
    keyword,
    make_command,
    plain_flags,
    protocol_options,
)
from securevfl.cli.run import INTERRUPTED, data_source, sort_out
from securevfl.errors import ConfigurationError, UnknownNameError

if TYPE_CHECKING:
    from securevfl.audit.verify import ClaimVerdict, Report
    from securevfl.data.source import DataSource
    from securevfl.runs.spec import RunSpec

_VIOLATED = "VIOLATED"
_STYLES = {
    "PROVED": "green",
    "DP": "green",
    "NOT PROVED": "yellow",
    "NOT PROTECTED": "magenta",
    "VIOLATED": "red",
    "NOT TESTED": "yellow",
    "COULD NOT BE CHECKED": "yellow",
}
_NO_EVIDENCE = "no proof or verifier is about it"
_HELP = (
    "Prove the privacy claims of a protocol, or of a run. `verify PROTOCOL --help` lists "
    "its options."
    "\n\nA small run is traced, and the view of every coalition is proved from what the claim "
    "gives it; another process checks the certificate. Verdicts are on coalitions; with --data, "
    "--party, --plain or --out, and of a run, they are on claims. `verify RUN` takes data and "
    "options from the folder of a run, and writes verify.json there, where `report` finds it."
)


class Verified(Protocols):
    """``verify``: one command for each protocol, with that protocol's own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse arguments; ConfigurationError with all protocols unless one is named first."""
        if ctx.resilient_parsing:  # a shell completes
            return super().parse_args(ctx, args)
        if not args or (args[0].startswith("-") and "--help" not in args):
            raise ConfigurationError(
                "verify: a protocol comes first: securevfl verify PROTOCOL [OPTIONS], "
                f"with PROTOCOL one of {', '.join(self.list_commands(ctx))}"
            )
        return super().parse_args(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Command for a protocol or one of its variants."""
        return _command(cmd_name, completing=ctx.resilient_parsing)


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    verify_app = typer.Typer(
        cls=Verified,
        rich_markup_mode="rich",
        subcommand_metavar="PROTOCOL|RUN [OPTIONS]",
        help=_HELP,
        epilog=epilog("verify"),
    )

    # Without a callback of its own typer would take a lone command for the group itself.
    @verify_app.callback()
    def verify() -> None:
        pass

    verify.__doc__ = _HELP
    app.add_typer(verify_app, name="verify")
    app.command("check", epilog=epilog("check"))(check)
    app.command("evidence", epilog=epilog("evidence"))(evidence)


def _command(text: str, *, completing: bool) -> Any:
    from securevfl.runs.catalogue import protocols
    from securevfl.runs.spec import CONFIG, RunSpec
    from securevfl.studies.variant import parse_variant

    known = protocols()
    spec = None
    if (Path(text) / CONFIG).is_file():
        spec = RunSpec.from_toml(Path(text) / CONFIG)
        name, variant = spec.protocol, spec.options
    else:
        name, variant = parse_variant(text)
    if name not in known and completing:
        return None
    if name not in known and (len(Path(text).parts) > 1 or Path(text).exists()):
        raise ConfigurationError(
            f"verify: {text} is no folder of a run, nor a protocol; name one that holds {CONFIG}"
        )
    if name not in known:
        raise UnknownNameError("protocol", name, known)
    from securevfl.cli.common import shared_parameters

    plain = typer.Option(
        "--plain",
        help="Take the evaluation of the paper, and what the paper claims of it.",
    )
    shared = {
        **shared_parameters("verify"),
        "plain": keyword("plain", Annotated[bool, plain], False),
    }
    if _provable(name):
        shared["certificate"] = keyword("certificate", Annotated[Path | None, _CERTIFICATE], None)
        shared["page"] = keyword("page", Annotated[Path | None, _PAGE], None)
    fields = {k: (f, f"Options of {name}") for k, f in known[name].Config.model_fields.items()}

    def begin(values: dict[str, Any]) -> None:
        start(name, variant, values, None if spec is None else (Path(text), spec))

    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    about = f"Prove the privacy claims of the protocol {name}: {known[name].card.title}."
    single.command(name=name, cls=Command, help=about, epilog=epilog("verify PROTOCOL", name))(
        make_command(shared, fields, begin)
    )
    return plain_flags(typer.main.get_command(single))


def start(
    protocol: str,
    variant: Mapping[str, Any],
    values: Mapping[str, Any],
    run: tuple[Path, RunSpec] | None = None,
) -> None:
    """Carry out ``securevfl verify``; of a run with its data, options and seed, into its folder."""
    from securevfl.runs.attacked import attacked
    from securevfl.runs.catalogue import protocols

    given = dict(values)
    plain = given.pop("plain", False)
    certificate, page = given.pop("certificate", None), given.pop("page", None)
    common, options, pairs, data_pairs = sort_out(given)
    known = protocols()[protocol].Config.model_fields
    chosen = protocol_options(protocol, known, (variant, options, pairs))
    source = data_source(common, data_pairs)
    seed, out = common["seed"], common["out"]
    reported = run is not None or out is not None or plain or common["data"] or common["party"]
    if _provable(protocol) and not reported:
        _prove(protocol, {**variant, **options, **chosen}, common, certificate, page)
        return
    if certificate is not None or page is not None:
        raise ConfigurationError(
            "verify: --certificate and --page are of a protocol by its name; leave out runs, data, "
            "--plain and --out"
        )
    if run is not None:
        folder, spec = run
        source, seed = _data_of(folder, spec, common), seed or spec.seed
        out = out or (None if plain or pairs or options else folder)
    import securevfl

    unfinished = _unfinished(protocol, out)
    with _kept_when_stopped(protocol, unfinished) as progress:
        report = securevfl.verify(
            protocol,
            source,
            plain=plain,
            seed=seed,
            progress=progress,
            limit=24 * 3600.0,
            keep=unfinished,
            **chosen,
        )
    if out is not None:
        _write(report, out)
    if common["as_json"]:
        output.print_json(report.to_dict())
    else:
        where = None if run is None else run[0]
        own_data = run is not None and run[1].source is None
        print_report(report, attacked(where, protocol, own_data=own_data))


def _unfinished(protocol: str, folder: Path | None = None) -> Path:
    """File with the verdicts of finished schedules, from which a stopped verification goes on."""
    name = "verify" if folder else f"verify-{protocol}"
    return (folder or Path("runs")) / f"{name}.unfinished.jsonl"


@contextmanager
def _kept_when_stopped(protocol: str, file: Path) -> Iterator[Callable[[str], None]]:
    """Show progress; on an interruption print what was found and where it is kept, and exit."""
    found: Counter[str] = Counter()
    share = ""

    with displays.busy(f"verify {protocol}") as show:

        def tell(words: str) -> None:
            nonlocal share
            share, _, said = words.partition(" %: ")
            of_one = " so far, " in said  # a line for each coalition would fill a log
            if not of_one or sys.stderr.isatty():
                show(words)
            if of_one:
                found[said.partition(" so far, ")[0]] += 1

        try:
            yield tell
            return
        except KeyboardInterrupt:
            if not found:
                raise
    for said, count in found.items():
        line = f"{said}, so far ({count} trace{'s' * (count > 1)})"
        output.out().print(line, markup=False, soft_wrap=True)
    refuted = any(said.endswith(f": {_VIOLATED}") for said in found)
    stays = f"{_VIOLATED} stays, and no other claim" if refuted else "no claim"
    kept = f"; the same command goes on from {file}" if file.exists() else ""
    output.say(
        f"interrupted at {share} %; {stays} has a verdict yet: not all schedules were traced, and "
        f"no other process checked a certificate{kept}"
    )
    raise typer.Exit(INTERRUPTED)


_CERTIFICATE = typer.Option(
    "--certificate", metavar="FILE", help="Write the certificate of what was proved into a file."
)

_PAGE = typer.Option(
    "--page", metavar="FILE", help="Write a page (HTML) that draws each coalition's view."
)


def _provable(name: str) -> bool:
    from securevfl.verified.traced.proofs import is_provable

    return is_provable(name)


def _prove(
    protocol: str,
    options: Mapping[str, Any],
    common: Mapping[str, Any],
    certificate: Path | None,
    page: Path | None,
) -> None:
    """Prove a protocol's claims on a small traced run; ConfigurationError without the folders."""
    from securevfl.audit.verify import library
    from securevfl.verified.traced.proofs import (
        OUTPUTS_TELL,
        Traced,
        lines,
        prove_protocol,
        verdicts_in,
    )

    for path in (certificate, page):
        if path is not None and not path.parent.is_dir():
            raise ConfigurationError(f"verify: there is no folder {path.parent}; make it first")
    parties = common["parties"] or 4
    traced = Traced(protocol, dict(options), parties, seed=common["seed"] or 0)
    unfinished = _unfinished(protocol)
    with _kept_when_stopped(protocol, unfinished) as progress:
        kept = verdicts_in(unfinished, traced, library())
        proof = prove_protocol(traced, progress=progress, kept=kept)
    if certificate is not None:
        certificate.write_text(json.dumps(proof.certificate(), indent=1) + "\n")
    if page is not None:
        from securevfl.report.proof import proof_page

        page.write_text(proof_page(proof, proof.traced.run()))
    if common["as_json"]:
        claims = [v.to_dict() for v in proof.verdicts]
        output.print_json({**proof.certificate(), "claims": claims, "outputs tell": OUTPUTS_TELL})
        return
    for line in lines(proof):
        output.out().print(line, markup=False, soft_wrap=True)


def evidence(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="evidence.json of a run's folder.")],
    manifest: Annotated[
        Path,
        typer.Option(metavar="MANIFEST.toml", help="Manifest that has the keys of the parties."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check evidence that a party lied, without the run. Exit with 1 if it shows nothing.

    Keys are taken from the manifest, which all parties have signed, and never from the evidence.
    """
    from securevfl.runs.evidence import judged
    from securevfl.verified.trace import name_of

    found = judged(file, manifest)
    if as_json:
        output.print_json({"party": found and found.party, "why": found and found.why})
    else:
        said = "nobody: no party of the manifest signed what would convict it"
        text = said if found is None else f"{name_of(found.party)} lied: {found.why}"
        output.out().print(text, markup=False, soft_wrap=True)
    if found is None:
        raise typer.Exit(1)


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Check a certificate: its protocol is traced again, and nothing is searched."""
    from securevfl.verified.traced.proofs import check_certificate, read_certificate
    from securevfl.verified.verdicts import who

    found = check_certificate(file)
    scopes = {tuple(c["coalition"]): c["scope"] for c in read_certificate(file)["claims"]}
    said = {who(c): why or f"accepted: {scopes[c]}" for c, why in found.items()}
    if as_json:
        output.print_json({"claims": said})
    else:
        text = "\n".join(f"{name}: {answer}" for name, answer in said.items())
        output.out().print(text, markup=False, soft_wrap=True)
    if any(found.values()) or not found:
        raise typer.Exit(1)


def _data_of(folder: Path, spec: RunSpec, common: Mapping[str, Any]) -> DataSource:
    if common["data"] is not None or common["party"]:
        raise ConfigurationError("verify: a run has its own data; leave out --data and --party")
    if spec.source is None:
        raise ConfigurationError(
            f"verify: the run in {folder} was given a data set object; name the protocol and --data"
        )
    return spec.source


def _write(report: Report, folder: Path) -> None:
    from securevfl.writing import write_durably

    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report.to_dict(), indent=1)
    write_durably(folder / "verify.json", text + "\n")


def print_report(report: Report, attacked: str = "") -> None:
    """Print verdicts as a table, then the evidence, then what no claim covers.

    `attacked` is a sentence on the results of attacks, printed after that on decoded sums.
    """
    from rich.markup import escape

    parameters = ", ".join(f"{k} = {v}" for k, v in report.parameters.items())
    out = output.out()
    out.print(f"[bold]{report.protocol}[/] with {escape(parameters)}")
    out.print(f"By {escape(report.library)}")
    output.print_table(
        ("against", "about", "secrecy", "verdict", "failure"),
        [
            (
                finding.who,
                finding.about,
                output.secrecy(finding.claim.to_dict()),
                f"[{_STYLES[finding.verdict]}]{finding.verdict}[/]",
                _probability(finding.failure_probability),
            )
            for finding in report.claims
        ],
    )
    output.print_tells([finding.claim.to_dict() for finding in report.claims], attacked)
    counts = Counter(finding.verdict for finding in report.claims)
    out.print("Claims: " + ", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    for findings, parts in _evidence(report.claims).items():
        out.print("; ".join(f"[bold]{f.who}, {f.about}[/]" for f in findings) + ":")
        for part in parts:
            out.print(f"  - {escape(part)}")
    output.print_table(
        ("who", "learns, outside any claim", "how it is known"),
        [(shown.who, shown.what, shown.evidence) for shown in report.shown],
    )
    for what in report.ran:
        out.print(f"Proved: {escape(what)}.")
    out.print("Not covered: " + escape("; ".join(report.not_covered)) + ".")


def _evidence(claims: Iterable[ClaimVerdict]) -> dict[tuple[ClaimVerdict, ...], list[str]]:
    """Each piece of evidence once, under all claims that it concerns."""
    bears: dict[str, list[ClaimVerdict]] = {}
    for finding in claims:
        for part in dict.fromkeys(one.text for one in finding.evidence) or [_NO_EVIDENCE]:
            bears.setdefault(part, []).append(finding)
    shared: dict[tuple[ClaimVerdict, ...], list[str]] = {}
    for part, findings in bears.items():
        shared.setdefault(tuple(findings), []).append(part)
    return shared


def _probability(value: float | None) -> str:
    return "" if value is None else f"{value:.1g}"
