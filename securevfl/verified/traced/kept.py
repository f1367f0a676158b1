"""Verdicts of finished schedules on disk, from which a verification that was stopped goes on."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from securevfl.verified.prove import Step
from securevfl.verified.verdicts import Verdict


class KeptVerdicts:
    """Verdicts by digest of a trace, in a file of one JSON text a line.

    A trace is made again before its verdicts are taken from here, so that a changed protocol has
    none. Another process checks the certificate of what is proved, kept or not.

    Parameters
    ----------
    path, key : Path, str
        The file; text on library, protocol, options and sizes. Verdicts of other keys are ignored.
    """

    def __init__(self, path: Path, key: str) -> None:
        self.path = path
        self._head = json.dumps({"of": key})
        self._old = [self._head]
        self._begun = False

    def read(self) -> dict[str, tuple[Verdict, ...]]:
        """Verdicts that are kept, by digest; empty where there are none of this key."""
        found: dict[str, tuple[Verdict, ...]] = {}
        self._old, self._begun = [self._head], False
        try:
            lines = self.path.read_text().splitlines()
            for line in lines[1:] if lines[:1] == self._old else ():
                read = json.loads(line)
                found[str(read["digest"])] = tuple(map(verdict_of, read["verdicts"]))
                self._old.append(line)
        except (OSError, KeyError, TypeError, ValueError):
            pass  # no file, or the last line of a process that was killed
        return found

    def add(self, digest: str, verdicts: Sequence[Verdict]) -> None:
        """Keep the verdicts on one trace, where the disk permits it."""
        line = json.dumps({"digest": digest, "verdicts": [one.to_dict() for one in verdicts]})
        with suppress(OSError):  # a verification needs no disk
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("a" if self._begun else "w") as file:
                file.writelines(f"{one}\n" for one in (*(() if self._begun else self._old), line))
            self._begun = True

    def remove(self) -> None:
        """Remove the file, since the verification ended, and its folder if that is empty."""
        with suppress(OSError):
            self.path.unlink()
            self.path.parent.rmdir()


def verdict_of(written: Mapping[str, Any]) -> Verdict:
    """Verdict from the dictionary that `Verdict.to_dict` made of it."""
    read = {one.name: written[one.name] for one in fields(Verdict) if one.name != "steps"}
    read = {name: tuple(v) if isinstance(v, list) else v for name, v in read.items()}
    return Verdict(**read, steps=tuple(map(step_of, written["steps"])))


def step_of(written: Mapping[str, Any]) -> Step:
    """Proof step from its dictionary in a certificate."""
    part = written["part"]
    return Step(
        str(written["what"]),
        int(written["node"]),
        tuple(map(int, written["places"])),
        None if part is None else int(part),
        tuple(map(int, written["entries"])),
        str(written["text"]),
    )
