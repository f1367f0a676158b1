"""A CSV trace of the AWS Lambda calls that Sequential Gradient Coding measured (ICLR 2023).

Their files are pickles, which the package never reads: ``python benchmarks/lambda_calls.py FILE.pkl
FILE.csv`` makes the table of a copy of one's own, and runs no code of it. A file is a list of
rounds, each with ``results``, of which each has ``worker_id``, ``started`` and ``finished``.
"""

from __future__ import annotations

import csv
import io
import pickle
import sys
from collections import defaultdict
from pathlib import Path


class _Nothing:
    """Stands for any object of a pickle that is no number, and does nothing."""

    def __init__(self, *given: object, **more: object) -> None:
        pass

    def __setstate__(self, state: object) -> None:
        pass


def _scalar(kind: object, content: bytes) -> int:
    """A NumPy integer; no other scalar is used in these files."""
    return int.from_bytes(content, "little")


class _Numbers(pickle.Unpickler):
    """Reads lists, dictionaries, texts and numbers; imports nothing, so no code can run."""

    def find_class(self, module: str, name: str) -> object:
        """Stand-ins in place of what the file names."""
        return _scalar if name == "scalar" and module.startswith("numpy") else _Nothing


def seconds_of(content: bytes) -> list[list[float]]:
    """Seconds of each worker, by its number; any error where the bytes are something else."""
    workers: dict[int, list[float]] = defaultdict(list)
    for each in _Numbers(io.BytesIO(content)).load():
        for call in each["results"]:
            workers[int(call["worker_id"])].append(float(call["finished"] - call["started"]))
    return [workers[number] for number in sorted(workers)]


def write(source: Path, table: Path) -> None:
    """Write the table with a column for each worker that ``--trace`` reads."""
    workers = seconds_of(source.read_bytes())
    with table.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["step", *range(len(workers))])
        writer.writerows((n, *row) for n, row in enumerate(zip(*workers, strict=True), 1))


if __name__ == "__main__":
    write(*map(Path, sys.argv[1:3]))
