"""Displays of progress on standard error: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.console import Console

from securevfl.cli.output import say
from securevfl.report.in_words import clock, percent

if TYPE_CHECKING:
    from rich.progress import TaskID

    from securevfl.runs.history import Progress

PATIENCE = 1.0  # seconds after which what is being done is named where there is no terminal
PAUSE = 10.0  # seconds between two lines about a step before the first round
_WIDE = 125  # columns from which the progress bar is written out in full


class TimeLeft:
    """Text for the finished share and the remaining time, at the pace so far."""

    def __init__(self) -> None:
        self._began, self._first = time.monotonic(), -1.0

    def __call__(self, share: float) -> str:
        """Text for a finished share; the first call sets the start of the pace."""
        if self._first < 0:
            self._first = share
        done = share - self._first
        if done <= 0 or share >= 1:
            return f"{100 * share:.0f} %"
        left = max(round((time.monotonic() - self._began) * (1 - share) / done), 1)
        return f"{100 * share:.0f} %, about {f'{left} s' if left < 60 else clock(left)} left"


@contextmanager
def busy(what: str) -> Iterator[Callable[[str], None]]:
    """Show on standard error that work is going on, once it takes more than a second.

    Yields a function, whose argument is a text on the current activity. If the text begins with the
    fraction done, such as "40 %", the remaining time is estimated.
    """
    # The stream of now: `verify` takes what is written on a later one for a party's.
    stream = sys.stderr
    console = Console(file=stream, highlight=False)
    left = TimeLeft()

    def words(part: str) -> str:
        share, percent_sign, rest = part.partition(" %")
        known = percent_sign and share.isdigit()
        return f"{what}: {left(int(share) / 100) + rest if known else part}"

    if console.is_terminal:
        with console.status(what) as status:
            yield lambda part: status.update(words(part))
        return
    started = time.monotonic()
    timer = threading.Timer(PATIENCE, say, [f"{what} ...", stream])
    timer.daemon = True
    timer.start()

    def tell(part: str) -> None:
        if time.monotonic() - started > PATIENCE:
            say(words(part), stream)

    try:
        yield tell
    finally:
        timer.cancel()


class NoteDisplay(Protocol):
    """A display that can write a line while it shows progress."""

    def note(self, text: str) -> None:
        """Show a line of text without disturbing the progress display."""


class ProgressDisplay(NoteDisplay, Protocol):
    """A display of a run's progress, used as a context manager."""

    def __enter__(self) -> ProgressDisplay: ...

    def __exit__(self, *_: object) -> None: ...

    def __call__(self, progress: Progress) -> None:
        """Show the figures of the newest round."""

    def preparing(self, text: str) -> None:
        """Show a text on the progress of a step before round 1."""


def progress_display(name: str) -> ProgressDisplay:
    """Bar on a terminal, else a line for each tenth of the rounds; on standard error."""
    console = Console(file=sys.stderr, highlight=False)
    return Bar(name, console) if console.is_terminal else Lines(name)


def figures(progress: Progress, *, short: bool = False) -> str:
    """Line with loss, accuracy, virtual time, results used and late, and equations that sums gave.

    For a regression R squared replaces the accuracy; `short` abbreviates the words.
    """
    loss = "-" if progress.loss is None else f"{progress.loss:.4f}"
    accuracy, virtual = percent(progress.accuracy, 1), clock(progress.virtual_seconds)
    measure = f"{'acc' if short else 'accuracy'} {accuracy}"
    if progress.r2 is not None:
        measure = f"{'R2' if short else 'R squared'} {progress.r2:.4f}"
    told = progress.released
    if short:
        sums = "" if told is None else f"sums {told.equations}/{told.unknowns} "
        return (
            f"loss {loss} {measure} time {virtual} {sums}used {progress.used} late {progress.late}"
        )
    return (
        f"loss {loss}  {measure}  virtual time {virtual}  "
        f"results used {progress.used}, late {progress.late}"
        + ("" if told is None else f"  sums gave {told.equations} of {told.unknowns}")
    )


class Lines:
    """Display for logs and pipes: a line on standard error for each tenth of the rounds."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._tenth = 0
        self._quiet_until = 0.0

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
        """Write a line of text."""
        say(text)

    def preparing(self, text: str) -> None:
        """Write a line, at most one in `PAUSE` seconds."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + PAUSE
            say(f"{self._name}: {text}")


class Bar:
    """Progress for a terminal; before the first round it shows that the run is being prepared."""

    def __init__(self, name: str, console: Console) -> None:
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as RichProgress

        self._name = name
        self._console = console
        self._progress = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12 if console.width >= _WIDE else 6),
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
        """Redraw the bar with the figures of the newest round."""
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

    def preparing(self, text: str) -> None:
        """Show the progress of preparation in place of figures."""
        if self._task is not None:
            self._progress.update(self._task, figures=text)

    def note(self, text: str) -> None:
        """Write a line above the bar; restore the cursor, since the process may end any time."""
        self._console.print(text)
        self._console.show_cursor(True)
