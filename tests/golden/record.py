"""The golden record: says whether a change changed the results of runs, bit for bit.

Use it before and after a change that must not change results, such as a move of modules::

    python -m tests.golden.record                     # compare with histories.json; exit code 1
    python -m tests.golden.record --only 'fedvs/*'    # those cases only
    python -m tests.golden.record --write             # set the record anew, and say why
    python -m tests.golden.record --json              # print what was found
    python -m tests.golden.record --write-fixed       # only wire bytes, forecasts and help pages

Run it in the root of the repository. ``tests/golden/histories.json`` holds, for each case of
`tests.golden.cases`:

- ``history``, ``events``: SHA-256 of the rows of the history and of all other events, value for
  value (virtual times are among them, real times are not);
- ``messages``: SHA-256 of the transcript's columns: kind, sender, receiver, round, bytes, sent,
  arrived (virtual nanoseconds), late;
- ``models``, ``state``: SHA-256 of ``model.npz``, name by name, and of ``parties.state`` but for
  shares of models;
- ``layout``: of ``parties.state``, the names with types and shapes (where those are long, the
  start of a digest of them); ``files``: names in the run folder;
- ``counts``: steps, events by name, messages and bytes by kind, late messages;
- ``last``: loss and measures of the last step, for a reader only; they are not compared.

Floats may differ between processors and between versions of numpy and torch. The record names the
machine on which it was set; on another one only ``layout``, ``files`` and ``counts`` are compared,
and the command says so. To check floats there, write the record at the parent commit first
(``--write --file /tmp/before.json``), then check the change against it (``--file``).

Every case is deterministic, although masks, keys and names of runs are random: masks cancel
exactly, CKKS's noise is rounded away, keys and sealed frames have fixed sizes, noise of mechanisms
is seeded, and no case measures time. Real seconds and the random name of a run are left out, and no
payload is hashed, and no share.

Nothing is imported but public names of `securevfl`, and files are read as files, so that this
script outlives every move of a module.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import fnmatch
import hashlib
import json
import os
import platform
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import securevfl as svfl
from securevfl.engine import wire
from securevfl.engine.party_state import shares_of
from securevfl.protocols.protocol import find_protocols

from . import fixed
from .cases import OWN, SMALL, Case, cases

RECORD = Path(__file__).with_name("histories.json")
FLOATS = ("history", "events", "messages", "models", "state")  # compared on one machine only
EXACT = ("layout", "files", "counts")
HEAD = 8 + 4 + 32  # of a state file: magic word, version, checksum


# -- one case ------------------------------------------------------------------------------------


def names() -> tuple[str, ...]:
    """Protocols of the library itself, without those of other installed packages."""
    found = find_protocols()
    return tuple(n for n in sorted(found) if found[n].__module__.startswith("securevfl."))


def everything() -> dict[str, Case]:
    """All cases by name."""
    return cases(names())


def options_of(case: Case) -> dict[str, Any]:
    """All options of a case's protocol that are not left at their defaults."""
    known = find_protocols()[case.protocol].Config.model_fields
    small = {name: value for name, value in SMALL.items() if name in known}
    return small | OWN.get(case.protocol, {}) | dict(case.options)


def data_of(case: Case) -> Any:
    """The data set of a case."""
    if case.data == "few":
        return svfl.load_dataset("digits", parties=4, aligned=80, rest="kept", local=60)
    if case.data == "strips":
        return svfl.load_dataset("digits", parties=4, strips="rows").subset(101, 41)
    return svfl.load_dataset("digits", parties=7 if case.data == "wide" else 5).subset(101, 41)


def carried_out(case: Case, folder: Path) -> Any:
    """Run of a case, saved in a folder."""
    data = data_of(case)
    looks = 0

    def interrupted() -> bool:
        nonlocal looks
        looks += 1
        return looks == case.resumed

    try:
        run = svfl.run(
            case.protocol,
            data,
            seed=7,
            conditions=case.conditions,
            faults=case.faults,
            sealed=case.sealed,
            until=case.until,
            eval_every=2,
            out=folder,
            checkpoint_seconds=None,
            interrupted=interrupted if case.resumed else None,
            **options_of(case),
        )
    except svfl.Interrupted:
        return svfl.resume(folder, data=data, checkpoint_seconds=None)
    if case.resumed:
        raise AssertionError(f"the run ended before look {case.resumed}; interrupt it earlier")
    return run


def recorded(case: Case) -> dict[str, Any]:
    """What the record holds of a case."""
    with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that few rows lack some classes is known
        folder = Path(place) / "run"
        run = carried_out(case, folder)
        files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))
        state = wire.decode((folder / "parties.state").read_bytes()[HEAD:])
        values = fixed_by_seed(run.parties, state)
        with np.load(folder / "model.npz", allow_pickle=False) as archive:
            models = {name: archive[name] for name in sorted(archive.files)}
        columns = run.transcript.columns()
    counts = counted(run, columns)
    for name, least in case.count.items():
        if counts["events"].get(name, 0) < least:
            raise AssertionError(f"a case that should have {least} {name!r} has not")
    return {
        "history": digest_rows(run.history),
        "events": digest_rows(run.events),
        "messages": digest(columns),
        "models": digest(models),
        "state": digest(values),
        "layout": layouts(state),
        "files": files,
        "counts": counts,
        "last": {k: v for k, v in sorted(run.history[-1].items()) if k not in ("event", "party")},
    }


def fixed_by_seed(parties: Mapping[int, Any], state: Mapping[int, Any]) -> dict[int, Any]:
    """What parties keep, without shares, which masks of the operating system make differ."""
    return {
        index: {name: value for name, value in kept.items()
                if name not in shares_of(parties[index])}
        for index, kept in state.items()
    }  # fmt: skip


def counted(run: Any, columns: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Numbers of a run that depend on no float."""
    kinds = columns["kind"].tolist()
    sizes: Counter[str] = Counter()
    for kind, size in zip(kinds, columns["bytes"].tolist(), strict=True):
        sizes[kind] += size
    return {
        "steps": len(run.history),
        "events": dict(sorted(Counter(event["event"] for event in run.events).items())),
        "messages": dict(sorted(Counter(kinds).items())),
        "bytes": dict(sorted(sizes.items())),
        "late": int(columns["late"].sum()),
    }


# -- digests -------------------------------------------------------------------------------------


def digest_rows(rows: Iterable[Mapping[str, Any]]) -> str:
    """SHA-256 of rows, value for value; of a history it is the digest that a study records."""
    lines = (json.dumps(row, sort_keys=True) for row in rows)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def digest(value: Any) -> str:
    """SHA-256 of numbers, texts, arrays and containers of them."""
    found = hashlib.sha256()
    _feed(found.update, value)
    return found.hexdigest()


def _feed(take: Callable[[bytes], Any], value: Any) -> None:
    if isinstance(value, Mapping):
        take(f"mapping {len(value)}".encode())
        for key in value:  # in their order, which a checkpoint keeps too
            _feed(take, key)
            _feed(take, value[key])
    elif isinstance(value, (tuple, list)):
        take(f"sequence {len(value)}".encode())
        for item in value:
            _feed(take, item)
    elif isinstance(value, np.ndarray) or hasattr(value, "detach"):
        array = np.asarray(value)
        if array.dtype.kind == "U":
            _feed(take, array.tolist())
        else:
            take(f"array {array.dtype.str} {array.shape}".encode())
            take(np.ascontiguousarray(array).tobytes())
    else:
        take(f"{type(value).__name__} {value!r};".encode())


def layout(value: Any) -> Any:
    """Names, types and shapes of what a party keeps, without its values."""
    if isinstance(value, Mapping):
        return {str(key): layout(item) for key, item in sorted(value.items(), key=_by_text)}
    if isinstance(value, (tuple, list)):
        kinds = sorted({json.dumps(layout(item), sort_keys=True) for item in value})
        return f"{type(value).__name__} of {', '.join(kinds) or 'nothing'}"
    if isinstance(value, np.ndarray) or hasattr(value, "detach"):
        array = np.asarray(value)
        return f"{array.dtype.name} {list(array.shape)}"
    return type(value).__name__


def layouts(state: Mapping[int, Any]) -> dict[str, Any]:
    """Names of what each party keeps; of what lies deeper the start of a digest."""
    found = {}
    for party, kept in sorted(state.items()):
        found[str(party)] = {name: _brief(layout(value)) for name, value in sorted(kept.items())}
    return found


def _brief(form: Any) -> str:
    if isinstance(form, str) and len(form) < 60:
        return form
    return hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()[:12]


def _by_text(item: tuple[Any, Any]) -> str:
    return str(item[0])


# -- the machine ---------------------------------------------------------------------------------


def machine() -> dict[str, str]:
    """What floats depend on: processor, BLAS and its kernels, versions."""
    import scipy.linalg  # noqa: F401 (its BLAS counts, whether or not a case has loaded it)
    import torch

    found = {name: metadata.version(name) for name in ("numpy", "numba", "torch", "scikit-learn")}
    found["python"] = ".".join(platform.python_version_tuple()[:2])
    found["processor"] = processor()
    found["kernels"] = os.environ.get("SECUREVFL_KERNELS", "as the processor allows")
    found["torch kernels"] = torch.backends.cpu.get_cpu_capability()
    found["blas"] = blas()
    return found


def processor() -> str:
    """Name of this machine's processor."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or "unknown"


def blas() -> str:
    """The BLAS libraries in this process and the kernels that they chose."""
    try:
        from threadpoolctl import threadpool_info
    except ModuleNotFoundError:
        return "unknown: threadpoolctl is absent"
    pools = {
        f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip()
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    }
    return "; ".join(sorted(pools)) or "none found"


# -- comparing -----------------------------------------------------------------------------------


def differences(old: Mapping[str, Any], new: Mapping[str, Any], floats: bool) -> list[str]:
    """What differs between two records of a case, each with both values."""
    found: list[str] = []
    for name in (*EXACT, *(FLOATS if floats else ())):
        _compare(name, old.get(name), new.get(name), found)
    return found


def _compare(path: str, old: Any, new: Any, found: list[str]) -> None:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            _compare(f"{path}.{key}", old.get(key), new.get(key), found)
    elif old != new:
        found.append(f"{path}: {_short(old)} became {_short(new)}")


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else text[:197] + "..."


def compare(before: Mapping[str, Any], now: Mapping[str, Any], floats: bool) -> list[str]:
    """Every difference between two records of the same selection."""
    lines = []
    for name in sorted({*before, *now}):
        if name not in now:
            lines.append(f"{name}: the case is gone")
        elif name not in before:
            lines.append(f"{name}: a new case, not in the record; write it with --write")
        else:
            lines += [f"{name}: {line}" for line in differences(before[name], now[name], floats)]
    return lines


# -- the command ---------------------------------------------------------------------------------


def chosen(pattern: str | None, known: Iterable[str]) -> list[str]:
    """Names that fit a pattern: a shell's, or a part of the name."""
    return [
        name
        for name in sorted(known)
        if pattern is None or fnmatch.fnmatch(name, pattern) or pattern in name
    ]


def main(arguments: list[str] | None = None) -> int:
    """Carry out the command; the exit code is 1 where something differs."""
    asked = _asked(arguments)
    if asked.write_fixed:
        print(f"{fixed.write_fixed()} files were written beside {fixed.FIXED}", file=sys.stderr)
        return 0
    known = everything()
    selected = chosen(asked.only, known)
    if not selected:
        print(f"no case fits {asked.only!r}", file=sys.stderr)
        return 2
    now = {name: _timed(name, known[name], asked.verbose) for name in selected}
    old = json.loads(asked.file.read_text()) if asked.file.exists() else {"cases": {}}
    if asked.json:
        print(json.dumps({"machine": machine(), "cases": now}, indent=1, sort_keys=True))
    if asked.write:
        kept = {} if asked.only is None else old["cases"]
        content = {"machine": machine(), "cases": {**kept, **now}}
        asked.file.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
        print(f"{len(now)} cases were written to {asked.file}", file=sys.stderr)
        return 0
    return _checked(old, now, asked.only)


def _checked(old: Mapping[str, Any], now: Mapping[str, Any], only: str | None) -> int:
    before = {name: old["cases"][name] for name in chosen(only, old["cases"])}
    same = old.get("machine") == machine()
    lines = compare(before, now, same)
    for line in lines:
        print(line, file=sys.stderr)
    if not same:
        apart: list[str] = []
        _compare("machine", old.get("machine"), machine(), apart)
        print("another machine than that of the record: only counts, files and layouts were "
              "compared, no floats", *apart, sep="\n  ", file=sys.stderr)  # fmt: skip
    print(f"{len(now)} cases, {len(lines)} differences", file=sys.stderr)
    return 1 if lines else 0


def _timed(name: str, case: Case, verbose: bool) -> dict[str, Any]:
    started = time.monotonic()
    try:
        found = recorded(case)
    except Exception as error:
        error.add_note(f"in the case {name!r}")
        raise
    if verbose:
        print(f"{time.monotonic() - started:6.2f} s  {name}", file=sys.stderr)
    return found


def _asked(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.record", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="compare with the record; the default")
    what.add_argument("--write", action="store_true", help="set the record anew")
    what.add_argument("--write-fixed", action="store_true", help="wire bytes, forecasts, help")
    parser.add_argument("--only", metavar="PATTERN", help="cases whose names fit")
    parser.add_argument("--json", action="store_true", help="print what was found")
    parser.add_argument("--file", type=Path, default=RECORD, help="another record")
    parser.add_argument("--verbose", action="store_true", help="say how long each case took")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
