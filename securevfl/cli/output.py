"""What a person sees: progress on standard error, tables and JSON on standard output."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from rich.console import Console
from rich.table import Table
from rich.text import Text

from securevfl.cli.options import power_form

if TYPE_CHECKING:
    from rich.progress import TaskID

    from securevfl.runs.history import Progress

_LABELS = {
    "dataset": "data set",
    "rows": "training rows",
    "notes": "of the data",
    "test_accuracy": "test accuracy",
    "test_auc": "test AUC",
    "test_f1": "test F1",
    "test_rmse": "test error (RMSE)",
    "virtual_seconds": "virtual time",
    "wall_seconds": "real time",
    "bytes": "sent",
    "late": "late messages",
    "skipped": "skipped rounds",
    "filled": "imputed for absent clients",
    "clipped": "clipped weights",
    "planned": "plan and measurement",
    "derived": "parameters",
}
PATIENCE = 1.0  # seconds after which what is being done is named where there is no terminal
_WIDE = 125  # columns from which the progress bar is written out in full
_ELSEWHERE = ("claims",)
_ONLY_IF_SET = (
    "planned",
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
    """Console on standard output, as it is now (tests replace it)."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=False)


def say(line: str) -> None:
    """Write one line on standard error, whatever its length."""
    sys.stderr.write(" ".join(line.split()) + "\n")
    sys.stderr.flush()


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


def percent(fraction: float | None, places: int = 2) -> str:
    """Fraction as a percentage, or a dash."""
    if fraction is None or not math.isfinite(fraction):
        return "-"
    return f"{100 * fraction:.{places}f} %"


def clock(seconds: float) -> str:
    """Duration as h:mm:ss, or seconds where it is short.

    Examples
    --------
    >>> clock(1391.2), clock(0.5)
    ('0:23:11', '0.50 s')
    """
    if seconds < 60:
        return f"{seconds:.2f} s"
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def size(nbytes: float) -> str:
    """Bytes in decimal units.

    Examples
    --------
    >>> size(1_234_567)
    '1.23 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.2f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} TB"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str = "") -> None:
    """Print a plain table with a heading."""
    from rich.box import SIMPLE_HEAD

    table = Table(
        *columns, box=SIMPLE_HEAD, title=title or None, title_justify="left", pad_edge=False
    )
    for row in rows:
        table.add_row(*row)
    out().print(table)


def print_summary(summary: Mapping[str, Any]) -> None:
    """Print the figures of a run, then what its protocol claims and what it does not."""
    grid = Table.grid(padding=(0, 2))
    for key, value in summary.items():
        unset = not value and key in _ONLY_IF_SET
        if not (unset or key in _ELSEWHERE or (key, value) == ("compute", "none")):
            grid.add_row(f"[bold]{_LABELS.get(key, key.replace('_', ' '))}[/]", _shown(key, value))
    out().print(grid)
    claims = summary.get("claims") or ()
    if claims:
        print_claims(claims)


def print_claims(claims: Iterable[Mapping[str, str]]) -> None:
    """Print the claims; those of the notion "none" are stated as no protection."""
    about: dict[tuple[str, str, str], list[str]] = {}
    for claim in claims:
        strength = "[yellow]not protected[/]" if claim["notion"] == "none" else claim["notion"]
        about.setdefault((claim["who"], strength, claim["source"]), []).append(claim["about"])
    rows = [(who, ", ".join(what), strength, why) for (who, strength, why), what in about.items()]
    print_table(("against", "about", "secrecy", "why"), rows)


def _shown(key: str, value: Any) -> str:
    from rich.markup import escape

    if key in ("test_accuracy", "test_f1"):
        return percent(value)
    if key == "virtual_seconds":
        return f"{clock(value)} (modelled)"
    if key.endswith("_seconds"):
        return clock(value)
    if key == "bytes":
        return size(value)
    if key == "planned":
        return planned(value)
    if key == "notes":
        return escape("\n".join(value))
    if isinstance(value, Mapping):
        return "  ".join(f"{name}={power_form(item)}" for name, item in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4f}"
    return escape(str(value))


def planned(value: Mapping[str, Any]) -> str:
    """Predicted against measured bytes and round time."""
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
        return "[red]FAILED[/]" if cell["verdict"] == "FAILED" else "-"
    text = f"{cell['success']:.2f} ({cell['chance']:.2f})"
    return f"[red]{text}[/]" if cell["verdict"] == "above chance" else text


def print_card(card: Mapping[str, Any]) -> None:
    """Print what a protocol is and what each role sees."""
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
        console.print("\n[bold]What is claimed[/], with the default options")
        print_claims(card["claims"])
    console.print(f"\nOptions: securevfl run {card['name']} --help")


def print_datasets(entries: Sequence[Any]) -> None:
    """Print the known data sets in a table, or one of them with all that is known of it."""
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
            "The files of the others belong in a folder that --data-dir or SECUREVFL_DATA names;\n"
            "`securevfl datasets NAME` says which files, and where they come from.",
            soft_wrap=True,
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


def print_rounds(result: Mapping[str, Any]) -> None:
    """Print what `securevfl.bench.rounds.bench_round` measured."""
    size = result["size"]
    print_table(
        ("field", "FedVS round", "float round", "ratio", "setup"),
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


def _with_spread(block: Mapping[str, float]) -> str:
    return f"{block['median']:.1f} ms ({block['low']:.1f} to {block['high']:.1f})"


def print_machine(machine: Mapping[str, Any]) -> None:
    """Print where figures were measured; they mean little without it."""
    out().print(", ".join(f"{key} {value}" for key, value in machine.items()), soft_wrap=True)


def print_field(result: Mapping[str, Any]) -> None:
    """Print the figures of the field arithmetic, each beside its yardstick and its target."""
    verdicts = {True: "met", False: "[red]missed[/]", None: ""}
    print_table(
        ("operation", "ours", "unit", "yardstick", "theirs", "ratio", "target", ""),
        [
            (
                row["operation"],
                f"{row['ours']:.4g}",
                row["unit"],
                row["yardstick"],
                f"{row['theirs']:.4g}",
                f"{row['ratio']:.2f}",
                row["target"],
                verdicts[row["met"]],
            )
            for row in result["rows"]
        ],
    )
    print_machine(result["machine"])


@contextmanager
def busy(what: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error that something is being done, once it takes more than a second.

    Gives a function that is told what is being done just now.
    """
    console = Console(file=sys.stderr, highlight=False)
    if console.is_terminal:
        with console.status(what) as status:
            yield lambda part: status.update(f"{what}: {part}")
        return
    started = time.monotonic()
    timer = threading.Timer(PATIENCE, say, [f"{what} ..."])
    timer.daemon = True
    timer.start()

    def tell(part: str) -> None:
        if time.monotonic() - started > PATIENCE:
            say(f"{what}: {part}")

    try:
        yield tell
    finally:
        timer.cancel()


class NoteDisplay(Protocol):
    """What can say something while it shows progress."""

    def note(self, text: str) -> None:
        """Say something without disturbing the display."""


class ProgressDisplay(NoteDisplay, Protocol):
    """What shows the progress of a run."""

    def __enter__(self) -> ProgressDisplay: ...

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, progress: Progress) -> None:
        """Show the newest round."""


def progress_display(name: str) -> ProgressDisplay:
    """Bar on a terminal, else a line for each tenth of the rounds; both on standard error."""
    console = Console(file=sys.stderr, highlight=False)
    return Bar(name, console) if console.is_terminal else Lines(name)


def figures(progress: Progress, *, short: bool = False) -> str:
    """Loss, accuracy, virtual time, and results used and late, in fixed order."""
    loss = "-" if progress.loss is None else f"{progress.loss:.4f}"
    accuracy, virtual = percent(progress.accuracy, 1), clock(progress.virtual_seconds)
    if short:
        return (
            f"loss {loss} acc {accuracy} time {virtual} used {progress.used} late {progress.late}"
        )
    return (
        f"loss {loss}  accuracy {accuracy}  virtual time {virtual}  "
        f"results used {progress.used}, late {progress.late}"
    )


class Lines:
    """Progress for logs and pipes."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tenth = 0

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __call__(self, progress: Progress) -> None:
        """Write a line when another tenth of the rounds is done."""
        tenth = 10 * progress.round // max(progress.rounds, 1)
        if tenth != self._tenth:
            self._tenth = tenth
            say(f"{self._name}: round {progress.round}/{progress.rounds} {figures(progress)}")

    def note(self, text: str) -> None:
        """Write a line."""
        say(text)


class Bar:
    """Progress for a terminal; before the first round it shows that the run is being prepared."""

    def __init__(self, name: str, console: Console) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._name = name
        self._console = console
        self._progress = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TextColumn("{task.fields[figures]}"),
            console=console,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Bar:
        self._progress.start()
        self._task = self._progress.add_task(
            self._name, total=None, figures="preparing: data, kernels, shares"
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, progress: Progress) -> None:
        """Redraw."""
        if self._task is None:
            return
        short = self._console.width < _WIDE
        self._progress.update(
            self._task,
            description=self._name.split()[0] if short else self._name,
            total=progress.rounds,
            completed=progress.round,
            figures=f"{progress.round}/{progress.rounds} {figures(progress, short=short)}",
        )

    def note(self, text: str) -> None:
        """Write a line above the bar, and give the cursor back: the process may end any time."""
        self._console.print(text)
        self._console.show_cursor(True)
