"""``doctor``: what this computer has and lacks, and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from securevfl.cli import output
from securevfl.cli.completion import epilog

if TYPE_CHECKING:
    from securevfl.doctor import Finding

_STYLE = {"ok": "[green]ok[/]", "slow": "[yellow]slow[/]", "fault": "[red]fault[/]"}


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command("doctor", epilog=epilog("doctor"))(doctor)


def doctor(
    json: Annotated[
        bool, typer.Option("--json", help="Print the result as one JSON object.")
    ] = False,
) -> None:
    """Examine this computer, and say what to change.

    It shows the processor, the kernels of field arithmetic in use and why,
    their cache, BLAS, packages, memory, folders and ports. The exit code is
    1 where something will not work.
    """
    from securevfl.doctor import FAULT, examine

    found = examine()
    if json:
        output.print_json({"findings": [finding.to_dict() for finding in found]})
    else:
        _print(found)
    if any(finding.status == FAULT for finding in found):
        raise typer.Exit(1)


def _print(found: Sequence[Finding]) -> None:
    """Print the findings in a table, then the advice."""
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for one in found:
        table.add_row(f"[bold]{one.name}[/]", _STYLE[one.status], escape(one.value))
    output.out().print(table)
    advice = [f"[bold]{one.name}[/]: {escape(one.advice)}" for one in found if one.advice]
    output.out().print("\n" + "\n".join(advice or ["Nothing has to be changed."]))
