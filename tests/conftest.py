"""What tests of several folders need."""

from __future__ import annotations

import functools
import gc
import hashlib
import math
import os
import sys
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import typer.main
from hypothesis import settings

from securevfl.audit.attack_matrix.registry import ATTACKS
from securevfl.data.alignment import oprf
from securevfl.data.catalogue.registry import DATASETS
from securevfl.engine.conditions import CONDITIONS
from securevfl.protocols.base.registry import find_protocols
from securevfl.report import pictures
from securevfl.runs import plots
from securevfl.runs.history import Rows

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The first example of a property pays for imports and compilation, whatever it is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")

EXAMPLES = Path(__file__).parents[1] / "examples"


# Their tests wait for processes of their own, for minutes in all: begun last, they would leave one
# worker alone, and begun by both workers, they would wait for each other's.
EARLY = "tests/runs/engines/"

# What `pytest -m quick` runs at every push, beside tests that are marked so: 90 seconds in all.
QUICK = ("tests/field/", "tests/engine/", "tests/privacy/", "tests/verified/", "tests/test_")
LENGTHY = {
    "tests/engine/carriers/test_hosts.py",
    "tests/engine/realtime/test_host.py",
    "tests/field/kernels/test_fifty.py",
    "tests/field/kernels/test_streaming.py",
    "tests/field/test_alone.py",
    "tests/test_extras.py",
    "tests/engine/simulation/test_snapshots.py",
    "tests/engine/simulation/test_crashes.py",
    "tests/field/test_error_correction.py",
    "tests/field/test_lagrange_code.py",
    "tests/field/kernels/test_jit.py",
    "tests/field/kernels/test_scratch.py",
    "tests/engine/realtime/test_chaos.py",
    "tests/verified/test_counting.py",
    "tests/verified/test_fedvs.py",
    "tests/verified/test_proofs.py",
    "tests/verified/test_schedules.py",
    "tests/test_exports.py",
}


def _may_be_quick(path: Path) -> bool:
    name = path.relative_to(EXAMPLES.parent).as_posix()
    return (name.startswith(QUICK) and name not in LENGTHY) or "mark.quick" in path.read_text()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no file without a quick test for those alone: collecting all is a third of the time.

    Returns
    -------
    bool or None
        None where pytest decides.
    """
    quick = config.option.markexpr == "quick" and collection_path.match("test_*.py")
    return True if quick and not _may_be_quick(collection_path) else None


def pytest_collectstart(collector: pytest.Collector) -> None:
    """Import test modules from another place in each worker; pytest collects them afterwards.

    Rewriting assertions is half of what a first collection takes, and workers that begin with the
    same module all rewrite the same one: so each reads what another has written meanwhile.
    """
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")
    config = collector.config
    if isinstance(collector, pytest.Session) and config.args == config.getini("testpaths"):
        paths = sorted(Path(__file__).parent.glob("**/test_*.py"))
        files = [path for path in paths if not pytest_ignore_collect(path, config)]
        begin = int(worker) * len(files) // int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        for path in files[begin:] + files[:begin]:
            name = ".".join(path.relative_to(EXAMPLES.parent).with_suffix("").parts)
            with suppress(Exception, pytest.skip.Exception):  # collecting it says so
                import_module(name)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run the longest waits first, the others in the order of their files, verdicts if asked."""
    items.sort(key=lambda item: not item.nodeid.startswith(EARLY))
    for item in items:
        path = item.nodeid.partition("::")[0]
        if path.startswith(QUICK) and path not in LENGTHY:
            item.add_marker(pytest.mark.quick)
    if "verdicts" not in config.option.markexpr:
        left = pytest.mark.skip(reason="minutes of processor time; run with -m verdicts")
        for item in items:
            if item.get_closest_marker("verdicts"):
                item.add_marker(left)


def pytest_collection_finish() -> None:
    """Spare the garbage collector the thousands of tests and all that was imported for them."""
    _spare()
    gc.set_threshold(5_000, 10, 10)


_spared = 0  # modules that were imported at that time


def _spare() -> None:
    global _spared
    _spared = len(sys.modules)
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    """Spare it what tests import, too: a verification collects garbage four times."""
    if len(sys.modules) > _spared + 100:
        _spare()


def _kind(curves: Mapping[str, Sequence[Rows]]) -> tuple[object, ...]:
    """Whatever may make drawing fail: values that are there, their types, signs and infinities."""
    read = ("step", "time", "bytes", "accuracy", "rmse")
    rows = [row for seeds in curves.values() for rows in seeds for row in rows]
    seen = frozenset(
        (name, name in row, type(value), bool(value) and (value > 0, math.isfinite(value)))
        for row in rows
        for name in read
        for value in [row.get(name)]
    )
    return seen, frozenset((len(seeds), *map(bool, seeds)) for seeds in curves.values())


@pytest.fixture(scope="session", autouse=True)
def _studies_of_each_kind_once() -> Iterator[None]:
    """Draw the curves of the first study of each kind; others get its picture."""
    draw, drawn = plots.draw_study, dict[object, bytes]()

    def once(curves: Mapping[str, Sequence[Rows]], path: Path, **more: Any) -> None:
        found = _kind(curves)
        if drawn.get(found):
            path.write_bytes(drawn[found])
        else:
            draw(curves, path, **more)
            drawn[found] = path.read_bytes()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "draw_study", once)
        yield


@pytest.fixture(scope="session", autouse=True)
def _figures_of_each_look_once() -> Iterator[None]:
    """Of the figures in reports' pages, which are a half of a small report, too."""
    draw, drawn = pictures.inline, dict[object, str]()

    def names(axes: Axes) -> list[str]:
        """Of classes: they are text of users."""
        return [label.get_text() for label in axes.get_xticklabels()]

    def once(figure: Figure) -> str:
        look = tuple(
            (axes.get_xlabel(), axes.get_ylabel(), len(axes.lines), len(axes.texts), *names(axes))
            for axes in figure.axes
        )
        if look not in drawn:
            drawn[look] = draw(figure)
        return drawn[look]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pictures, "inline", once)
        yield


TRUE_TRANSFERS = (oprf.offer, oprf.choose, oprf.both_seeds)


@pytest.fixture(scope="session", autouse=True)
def _transfers_without_curves() -> Iterator[None]:
    """Base transfers without curves, in a hundredth of the time of half a second a pair.

    `tests/data/alignment/test_base_ot.py` tests the true ones. Tests with `true_transfers` have
    them, and all processes that tests start.
    """

    def seeds(session: bytes, bits: Any) -> np.ndarray:
        told = (hashlib.sha256(session + b"%d %d" % (i, bit)) for i, bit in enumerate(bits))
        return np.frombuffer(b"".join(one.digest()[:16] for one in told), np.uint8).reshape(-1, 16)

    def offer(count: int) -> tuple[list[Any], np.ndarray]:
        return [None] * count, np.frombuffer(os.urandom(65 * count), np.uint8).reshape(-1, 65)

    def choose(session: bytes, offered: Any, choices: Any, whose: str) -> Any:
        given = np.frombuffer(os.urandom(130 * len(choices)), np.uint8)
        return seeds(session, choices), given.reshape(-1, 130)

    def both_seeds(session: bytes, keys: Any, offered: Any, answers: Any, whose: str) -> Any:
        return np.stack([seeds(session, [bit] * len(keys)) for bit in (0, 1)])

    with pytest.MonkeyPatch.context() as patch:
        for function in (offer, choose, both_seeds):
            patch.setattr(oprf, function.__name__, function)
        yield


@pytest.fixture
def true_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Base transfers over the curve, as users have them."""
    for function in TRUE_TRANSFERS:
        monkeypatch.setattr(oprf, function.__name__, function)


@pytest.fixture(scope="session", autouse=True)
def _commands_once() -> Iterator[None]:
    """Make the commands once: a runner of typer makes all of them at each call, in 0.1 s."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def in_this_process(monkeypatch):
    """Verify in this process: another one imports the library for four seconds.

    tests/audit/test_child.py and test_verify.py see what the other process does.
    """
    monkeypatch.setattr("securevfl.audit.verify.in_child", lambda work, _limit, told: work(told))


def look_again() -> None:
    """Forget what was found by entry points."""
    find_protocols.cache_clear()
    for registry in (ATTACKS, DATASETS, CONDITIONS):
        registry.forget()
    with suppress(ImportError):
        import_module("securevfl.audit.verifiers.registry").VERIFIERS.forget()


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put an example on the path as pip would install it, its module and its entry points.

    It takes the example's folder, or a path, and returns the name of its module.
    """
    modules = []

    def put(example: str) -> str:
        folder = EXAMPLES / example
        described = tomllib.loads((folder / "pyproject.toml").read_text())
        project, (module,) = described["project"], described["tool"]["setuptools"]["py-modules"]
        site = tmp_path / "site" / example
        info = site / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        info.mkdir(parents=True)
        lines = []
        for group, entries in project["entry-points"].items():
            lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()), ""]
        info.joinpath("entry_points.txt").write_text("\n".join(lines))
        info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\n")
        site.joinpath(f"{module}.py").write_bytes(folder.joinpath(f"{module}.py").read_bytes())
        monkeypatch.syspath_prepend(site)
        monkeypatch.delitem(sys.modules, module, raising=False)
        modules.append(module)
        look_again()
        return str(module)

    yield put
    for module in modules:
        sys.modules.pop(module, None)
    look_again()


@pytest.fixture
def outside(install):
    """The example protocol as pip would install it: its file and its entry point on the path."""
    return install("own_protocol")


@pytest.fixture
def own_page(install, tmp_path):
    """The protocol that docs/own-protocol.md shows, as pip would install it."""
    from tests.docs.pages import DOCS, files_of

    for name, text in files_of((DOCS / "own-protocol.md").read_text()).items():
        tmp_path.joinpath(name).write_text(text)
    return install(str(tmp_path))
