"""Results on standard output: tables, claims, cards, and JSON."""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from securevfl.cli.options import power_form
from securevfl.report.in_words import (
    NAMES,
    beside_baseline,
    clock,
    in_short,
    measured,
    size,
)

_LABELS = NAMES | {
    "dataset": "data set",
    "rows": "training rows",
    "notes": "of the data",
    "notices": "[yellow]mind[/]",
    "delay_mode": "a delay",
    "downlinks": "downlinks, bit/s",
    "released": "decoded sums",
    "planned": "plan and measurement",
    "derived": "parameters",
}
_FIGURE = 11  # letters of a number with its unit, such as 625.47 kB
_WORD = 13  # least width of a column of words: "computational"
_ELSEWHERE = ("claims", "rounds_asked", "party_names")
_STATES = {"below": "green", "beyond": "yellow", "spanned": "red"}  # of an odometer
_ONLY_IF_SET = (
    "released",
    "planned",
    "notices",
    "delay_mode",
    "downlinks",
    "given_up",
    "skipped",
    "filled",
    "clipped",
    "test_auc",
    "test_f1",
    "run_folder",
    "train_loss",
    "derived",
    "notes",
    "faults",
    "until",
    "late",
    "lost",
    "crashes",
)


def out() -> Console:
    """Console on the present standard output, which tests replace."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=False)


def say(line: str, stream: TextIO | None = None) -> None:
    """Write one line of any length to a stream, by default standard error."""
    stream = sys.stderr if stream is None else stream
    stream.write(printable(" ".join(line.split())) + "\n")
    stream.flush()


def printable(text: str) -> str:
    """The text with control characters escaped, so that names in data cannot steer a terminal."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char == "\n" else repr(char)[1:-1] for char in text
    )


def csv_cell(value: Any) -> Any:
    """Cell that spreadsheets read as text; an apostrophe is put before a formula.

    Numbers stay as they are.

    Examples
    --------
    >>> csv_cell("=1+2"), csv_cell("-1.5"), csv_cell("a")
    ("'=1+2", '-1.5', 'a')
    """
    if not isinstance(value, str):
        return value
    text = printable(value)
    if not text.startswith(("=", "+", "-", "@")):
        return text
    try:
        float(text)
    except ValueError:
        return "'" + text
    return text


def print_json(value: Any) -> None:
    """Write one JSON object as one line on standard output; values that are not finite are null."""
    sys.stdout.write(json.dumps(_plain(value), allow_nan=False) + "\n")
    sys.stdout.flush()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    item = getattr(value, "item", None)  # a numpy scalar
    return _plain(item()) if callable(item) else str(value)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a plain table with a heading; no cell is cut, even on a narrow terminal.

    In a terminal, cells are wrapped to its width. Output to a file or a pipe is as wide as the
    table.
    """
    from rich.box import SIMPLE_HEAD

    console = out()
    cells = [tuple(map(printable, row)) for row in rows]
    folding = [Column(name, overflow="fold") for name in columns]
    if console.is_terminal:
        _give_room(folding, cells, console.width)
    table = Table(
        *folding, box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False
    )
    for row in cells:
        table.add_row(*row)
    if not console.is_terminal:
        console.width = 10_000
        console.width = console.measure(table).maximum
    console.print(table)


def _give_room(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> None:
    """Set widths: figures stay beside their units; the last column gets the remaining width."""
    longest = [
        max((Text.from_markup(row[place]).cell_len for row in rows), default=0)
        for place in range(len(columns))
    ]
    fixed = [
        max(length, *map(len, str(column.header).split()), 1) if length <= _FIGURE else 0
        for column, length in zip(columns, longest, strict=True)
    ]
    place = width - 3 * len(columns)
    if sum(longest) <= place:
        return
    others = [min(length, _WORD) for length, own in zip(longest, fixed, strict=True) if not own]
    rest = place - sum(fixed) - sum(others[:-1])
    if longest[-1] > width and rest > _WORD:
        fixed[-1], others = rest, others[:-1]
    if sum(fixed) + sum(others) <= place:
        for column, own in zip(columns, fixed, strict=True):
            column.width = own or None


def print_brief(summary: Mapping[str, Any]) -> None:
    """Print a run's key figures: measures with baseline, cost, and what it does not hide.

    The first notice is printed with them; the report has the others.
    """
    from rich.markup import escape

    from securevfl.runs.result import TOLD

    asked, rounds = summary.get("rounds_asked"), summary["rounds"]
    made = f"{rounds:,} of {asked:,}" if asked and rounds < asked else f"{rounds:,}"
    lines = [
        (str(summary["protocol"]), f"{summary['dataset']}: {summary['parties']} parties, "
         f"{summary['rows']:,} training rows, {made} rounds, seed {summary['seed']}"),
        *beside_baseline(summary),
    ]  # fmt: skip
    count, late = summary["messages"], summary.get("late")
    sent = f"{size(summary['bytes'])} in {count:,} messages"
    lines.append(("sent", f"{sent}, {late:,} of them late" if late else sent))
    if "wall_seconds" in summary:
        modelled, real = clock(summary["virtual_seconds"]), clock(summary["wall_seconds"])
        lines.append(("virtual time", f"{modelled} (modelled), computed in {real}"))
    lines.append(("not hidden", in_short(summary.get("claims", ()), summary.get("released"))))
    notices = [text for text in summary.get("notices", ()) if not text.startswith(TOLD)]
    if notices:
        more = f". {len(notices) - 1} more in the report" * (len(notices) > 1)
        lines.append(("mind", notices[0] + more))
    grid = Table.grid(padding=(0, 2))
    for name, text in lines:
        grid.add_row(f"[bold]{escape(name)}[/]", escape(printable(text)))
    out().print(grid)
    if folder := summary.get("run_folder"):
        made = f"securevfl report {shlex.quote(folder)}"
        if isinstance(summary.get("party"), int):
            made = "at the server, of its folder"
        out().print(f"report: {made}", soft_wrap=True, markup=False)


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print a run's figures, then the claims of its protocol."""
    grid = Table.grid(padding=(0, 2))
    for key, value in summary.items():
        if key == "parties" and "party_names" in summary:
            value = f"{value}: {', '.join(summary['party_names'])}"
        unset = not value and key in _ONLY_IF_SET
        if not (unset or key in _ELSEWHERE or (key, value) == ("compute", "none")):
            grid.add_row(f"[bold]{_LABELS.get(key, key.replace('_', ' '))}[/]", _shown(key, value))
    out().print(grid)
    claims = summary.get("claims") or ()
    if claims:
        print_claims(claims, (summary.get("released") or {}).get("attacks", ""))


def print_claims(claims: Sequence[Mapping[str, Any]], attacked: str = "") -> None:
    """Print the claims; those of strength "none" appear as not protected.

    `attacked` is a sentence on the results of attacks, printed after that on decoded sums.
    """
    about: dict[tuple[str, str, str], list[str]] = {}
    for claim in claims:
        strength = "[yellow]not protected[/]" if claim["notion"] == "none" else secrecy(claim)
        why = claim["source"].removesuffix(f". {claim.get('tells', '')}")
        about.setdefault((claim["who"], strength, why), []).append(claim["about"])
    against: dict[tuple[str, str, str], list[str]] = {}
    for (who, strength, why), what in about.items():
        against.setdefault((", ".join(what), strength, why), []).append(who)
    rows = [("; ".join(who), *claimed) for claimed, who in against.items()]
    print_table(("against", "about", "secrecy", "why"), rows)
    print_tells(claims, attacked)


def print_tells(claims: Sequence[Mapping[str, Any]], attacked: str = "") -> None:
    """Print, below a claims table, what ideal outputs reveal, in full width."""
    from rich.markup import escape

    about: dict[str, list[str]] = {}
    for claim in claims:
        if claim.get("tells"):
            about.setdefault(claim["tells"], []).append(f"{claim['who']}, {claim['about']}")
    for tells, whose in about.items():
        text = f"[yellow]Given decoded sums[/] ({escape('; '.join(whose))}). {escape(tells)}."
        text += f" {escape(attacked)}." * bool(attacked)
        out().print(text, soft_wrap=not out().is_terminal)


def secrecy(claim: Mapping[str, Any]) -> str:
    """Strength of a claim with the facts granted to its adversary.

    Examples
    --------
    >>> secrecy({"notion": "perfect", "given": ["decoded sums"]})
    'perfect, given decoded sums'
    """
    given = ", ".join(claim.get("given") or ())
    return f"{claim['notion']}, given {given}" if given else str(claim["notion"])


def coloured(text: str, state: str) -> str:
    """Text with a colour for the state of decoded sums ("below": fewer equations than unknowns)."""
    return f"[{_STATES[state]}]{text}[/]"


def _shown(key: str, value: Any) -> str:
    from rich.markup import escape

    if key == "virtual_seconds":
        return f"{clock(value)} (modelled)"
    if key.endswith("_seconds") or key == "until":
        return clock(value)
    if key == "bytes":
        return size(value)
    if key == "planned":
        return planned(value)
    if key == "released":
        return coloured(value["words"], value["state"])
    if key in ("notes", "notices"):
        return escape(printable("\n".join(value)))
    if key == "bytes_by_kind":
        return "  ".join(f"{name} {size(item)}" for name, item in value.items())
    if isinstance(value, Mapping):
        return "  ".join(f"{name}={power_form(item)}" for name, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return measured(value, key)
    return escape(printable(str(value)))


def planned(value: Mapping[str, Any]) -> str:
    """Text of predicted and measured bytes and round time."""
    text = (
        f"a round takes {clock(value['measured_round_seconds'])}, "
        f"{clock(value['round_seconds'])} predicted"
    )
    if value["bytes"] is None:
        return text
    same = "as predicted" if value["bytes"] == value["measured_bytes"] else "NOT as predicted:"
    return f"{text}; {value['measured_bytes']:,} bytes, {same} {value['bytes']:,}"


def print_attacks(content: Mapping[str, Any]) -> None:
    """Print a matrix of attacks: figures of each protocol, then success and chance."""
    labels, figures = content["labels"], content["figures"]
    rows = []
    for name in ("test_accuracy", "test_auc", "test_rmse", "virtual_seconds", "bytes"):
        values = [figures[label].get(name, {}).get("mean") for label in labels]
        if any(value is not None for value in values):
            rows.append((_LABELS[name], *(_figure(name, value) for value in values)))
    cells = {(cell["protocol"], cell["attack"]): cell for cell in content["cells"]}
    group = None
    for attack in dict.fromkeys(cell["attack"] for cell in content["cells"]):
        own = [cells[label, attack] for label in labels]
        if group != (group := (own[0]["role"], own[0]["about"])):
            rows.append((f"[bold]{group[0]}, on {group[1]}[/]", *[""] * len(labels)))
        rows.append((f"  {attack}", *map(_attacked, own)))
    seeds = len(content["settings"]["seeds"])
    print_table(("", *labels), rows, title=f"{content['title']} (means over {seeds} seeds)")
    out().print(
        "success (chance); red where the 95 % interval lies above chance; '-' where the role sees "
        "nothing that the attack could use, FAILED where it ended in an error: attacks.json says "
        "why",
        soft_wrap=True,
    )


def _figure(name: str, value: float | None) -> str:
    if value is None:
        return "-"
    return clock(value) if name == "virtual_seconds" else _shown(name, value)


def _attacked(cell: Mapping[str, Any]) -> str:
    if cell["success"] is None:
        return {"FAILED": "[red]FAILED[/]", "not run": "not run"}.get(cell["verdict"], "-")
    text = f"{cell['success']:.2f} ({cell['chance']:.2f})"
    return f"[red]{text}[/]" if cell["verdict"] == "above chance" else text


def print_card(card: Mapping[str, Any]) -> None:
    """Print a protocol's card: what it is and what each role sees."""
    console = out()
    console.print(f"[bold]{card['title']}[/]  ({card['paper']})")
    absence = f"when a party's message is missing, the protocol {card['absence']}"
    for heading, rows in (
        ("Roles", card["roles"]),
        ("What each sees", card["sees"]),
        ("Stragglers", {"": absence}),
        ("Departures from the paper", dict.fromkeys(card["deviations"], "")),
    ):
        if not rows:
            continue
        console.print(f"\n[bold]{heading}[/]")
        grid = Table.grid(padding=(0, 0, 0, 2))
        for who, what in rows.items():
            grid.add_row(*(Text(part) for part in (who, what) if part))
        console.print(grid)
    if card.get("claims"):
        console.print(
            f"\n[bold]What is claimed[/], with the default options on the set {card['claims_on']}. "
            "Figures below are of its columns and rows; `securevfl plan` forecasts yours."
        )
        print_claims(card["claims"])
    console.print(f"\nOptions: securevfl run {card['name']} --help")


def print_datasets(entries: Sequence[Any]) -> None:
    """Print the known data sets in a table, or all facts of a single one."""
    if len(entries) == 1:
        _print_dataset(entries[0])
        return
    print_table(
        ("name", "rows", "features", "classes", "parties", "here"),
        [
            (
                entry.name,
                f"{entry.rows:,}",
                f"{entry.features:,}",
                str(entry.classes),
                str(entry.parties),
                "[green]yes[/]" if entry.available else "no",
            )
            for entry in entries
        ],
    )
    if not all(entry.available for entry in entries):
        out().print(
            "The files of the others belong in a folder that --data-dir or SECUREVFL_DATA "
            "names;\n`securevfl datasets NAME` says which files, and where they come from.",
            soft_wrap=not out().is_terminal,
        )


def _print_dataset(entry: Any) -> None:
    grid = Table.grid(padding=(0, 2))
    for label, value in (
        ("name", entry.name),
        ("rows, features, classes", f"{entry.rows:,}, {entry.features:,}, {entry.classes}"),
        ("default parties", str(entry.parties)),
        ("split", entry.split),
        ("origin", entry.origin),
        ("licence", entry.licence),
        ("files", ", ".join(entry.files) or "none needed"),
        ("obtain", entry.obtain),
        ("here", "yes" if entry.available else "no"),
    ):
        grid.add_row(f"[bold]{label}[/]", value)
    out().print(grid)


def print_conditions(found: Mapping[str, Any]) -> None:
    """Print conditions with the delays of each client."""
    title = f"{found['name']}: {found['what']}" if found["what"] else found["name"]
    rows = [
        (str(n), row["law"], f"{row['mean']:.3g} s", row["slowest"] and f"{row['slowest']:.3g} s")
        for n, row in enumerate(found["parties"])
    ]
    print_table(
        ("client", "delay", "mean", "slowest"), [(*r[:3], r[3] or "-") for r in rows], title=title
    )
    lists = ("name", "upload_mean", "upload_shift", "upload_law", "upload_shape", "trace")
    for key, value in found["values"].items():
        if key not in lists:
            out().print(f"{key} = {value}", soft_wrap=True)
    if found["source"]:
        out().print(f"source: {found['source']}", soft_wrap=True)


def print_rounds(result: Mapping[str, Any]) -> None:
    """Print the results of `securevfl.bench.rounds.bench_round`."""
    size = result["size"]
    print_table(
        ("field", "shared round", "float round", "ratio", "setup"),
        [
            (
                power_form(row["prime"]),
                _with_spread(row[f"{result['protocol']}_ms"]),
                _with_spread(row[f"{result['twin']}_ms"]),
                f"{row['ratio']:.1f}",
                f"{row['setup_seconds']:.1f} s",
            )
            for row in result["fields"]
        ],
        title=f"{size['data']}: N={size['parties']} K={size['segments']} T={size['privacy']} "
        f"b={size['batch']} h={size['width']}",
    )
    print_machine(result["machine"])


def print_field(result: Mapping[str, Any]) -> None:
    """Print the results of `securevfl.bench.field.bench_field`."""
    rates = {"words": "32-bit products", "doubles": "products of doubles"}
    limits = [
        f"{result['limits'][k]:.1f} G/s {what}"
        for k, what in rates.items()
        if k in result["limits"]
    ]
    limits += [f"{result['limits'][k]:.1f} GB/s {k}" for k in ("copy", "read", "keystream")]

    def ratio(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    out().print(f"kernels {result['tier']}; limits: {', '.join(limits)}", soft_wrap=True)
    print_table(
        ("field", "product", "GMAC/s", "share", "/ dgemm", "/ FLINT"),
        [
            (
                power_form(row["prime"]),
                " x ".join(map(str, row["shape"])),
                f"{row['gmacs']:.1f}",
                *map(ratio, (row["share"], row["dgemm"], row["flint"])),
            )
            for row in result["products"]
        ],
    )
    print_table(
        ("field", "operation", "time", "share", "/ FLINT"),
        [
            (
                power_form(row["prime"]),
                row["operation"],
                f"{row['ms']:.2f} ms",
                *map(ratio, (row["share"], row["flint"])),
            )
            for row in result["passes"]
        ],
    )
    print_machine(result["machine"])


def _with_spread(block: Mapping[str, float]) -> str:
    return f"{block['median']:.1f} ms ({block['low']:.1f} to {block['high']:.1f})"


def print_machine(machine: Mapping[str, Any]) -> None:
    """Print the machine on which figures were measured."""
    out().print(", ".join(f"{key} {value}" for key, value in machine.items()), soft_wrap=True)
