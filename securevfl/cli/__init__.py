"""The command ``securevfl``: parses, calls the library and shows the result."""

from __future__ import annotations


def main() -> None:
    """Run the command line of this process and exit with its code."""
    from securevfl.runs.threads import few_collections

    with few_collections():  # what is imported stays
        from securevfl.cli.app import app

        app(prog_name="securevfl")
