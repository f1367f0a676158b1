"""Conversion to CSV of the AWS Lambda calls measured by Sequential Gradient Coding (ICLR 2023).

Its files are pickles, which the package never reads. ``python benchmarks/lambda_calls.py FILE.pkl
FILE.csv`` converts a copy without running code from it. A file is a list of rounds with
``results``, each of which has ``worker_id``, ``started`` and ``finished``.
"""

from __future__ import annotations

import csv
import io
import pickle
import sys
from collections import defaultdict
from pathlib import Path


class _Nothing:
    """Stand-in without behaviour for any object in a pickle that is no number."""

    def __init__(self, *given: object, **more: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


def _scalar(kind: object, content: bytes) -> int:
    """NumPy integer from its bytes; the files have no other scalars."""
    return int.from_bytes(content, "little")


class _Numbers(pickle.Unpickler):
    """Unpickler for lists, dictionaries, texts and numbers; it imports nothing, so no code runs."""

    def find_class(self, module: str, name: str) -> object:
        """Stand-in for a class or function that the file names."""
        return _scalar if name == "scalar" and module.startswith("numpy") else _Nothing


def seconds_of(content: bytes) -> list[list[float]]:
    """Durations of calls in seconds, a list for each worker in the order of numbers.

    Any error is possible if the bytes are something else.
    """
    workers: dict[int, list[float]] = defaultdict(list)
    for each in _Numbers(io.BytesIO(content)).load():
        for call in each["results"]:
            workers[int(call["worker_id"])].append(float(call["finished"] - call["started"]))
    return [workers[number] for number in sorted(workers)]


def write(source: Path, table: Path) -> None:
    """Write the CSV file that ``--trace`` reads: a row for each step, a column for each worker."""
    workers = seconds_of(source.read_bytes())
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *range(len(workers))])
        writer.writerows((n, *row) for n, row in enumerate(zip(*workers, strict=True), 1))


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:3]))
