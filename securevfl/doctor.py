"""Examination of this computer: what securevfl finds on it, and what to change where that helps."""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from securevfl._version import __version__
from securevfl.errors import ConfigurationError
from securevfl.machine import blas, commit, processor, usable_cores

SLOW, FAULT = "slow", "fault"  # it works, but slower than it could; something will not work
RAY_PORTS = {6379: "--port", 8265: "--dashboard-port"}  # of `ray start --head`, and their options
_GIGABYTE = 1e9
_LEAST_MEMORY, _LEAST_DISK = 1.0, 0.1  # gigabytes; a run of the default size takes half a GB


@dataclass(frozen=True)
class Finding:
    """One fact about this computer, with advice.

    Attributes
    ----------
    name, value : str
        What was looked at, and what was found.
    advice : str
        Sentences on what to change; empty where all is well.
    status : {"ok", "slow", "fault"}
        "slow" where it works but could be faster; "fault" where something will not work.
    """

    name: str
    value: str
    advice: str = ""
    status: str = "ok"

    def to_dict(self) -> dict[str, str]:
        """The finding as JSON types."""
        return asdict(self)


def examine() -> list[Finding]:
    """All findings, in display order; takes at most a second."""
    return [
        Finding("securevfl", f"{__version__}, commit {commit()}, {Path(__file__).parent}"),
        Finding("python", f"{platform.python_version()} ({sys.executable})"),
        _processor(),
        _kernels(),
        _kernel_cache(),
        _blas(),
        *_packages(),
        _memory(),
        _folder(),
        _data_sets(),
        _ports(),
    ]


def one_line() -> str:
    """Versions, kernels, BLAS and processor in one line, for `securevfl --version`."""
    numbers = [f"{name} {_version(name) or 'missing'}" for name in ("numpy", "numba", "torch")]
    parts = (f"Python {platform.python_version()}", *numbers, f"kernels {_tier()}", _blas().value)
    return f"securevfl {__version__} ({', '.join(parts)}, {processor()})"


# -- processor and arithmetic --------------------------------------------------------------------


def _processor() -> Finding:
    usable = usable_cores()
    text = f"{processor()}, {usable} of {os.cpu_count()} cores usable, {platform.machine()}"
    if usable == 1:
        advice = "One core is usable: studies and attacks with --workers gain nothing here."
        return Finding("processor", text, advice, SLOW)
    return Finding("processor", text)


def _tier() -> str:
    from securevfl.field.kernels import cpu

    try:
        return cpu.tier()
    except ConfigurationError:
        return "none"


def _kernels() -> Finding:
    """The kernels of field arithmetic in use, and why these."""
    from securevfl.field.kernels import cpu

    if os.environ.get("NUMBA_DISABLE_JIT", "0") not in ("", "0"):
        advice = (
            "NUMBA_DISABLE_JIT forbids to compile the kernels, and no others are there. Unset it."
        )
        return Finding("kernels", "none: they may not be compiled", advice, FAULT)
    able, asked = cpu.available(), os.environ.get(cpu.VARIABLE)
    there = f"this processor can run {', '.join(able)}"
    try:
        tier = cpu.tier()
    except ConfigurationError as error:
        return Finding("kernels", f"none: {there}", str(error), FAULT)
    if asked and tier != able[-1]:
        advice = f"{cpu.VARIABLE}={asked} chooses slower kernels. Unset it to use {able[-1]}."
        return Finding("kernels", f"{tier}, by {cpu.VARIABLE}; {there}", advice, SLOW)
    if tier == "portable":
        advice = (
            "The processor has no AVX2, or hides it: field arithmetic takes 2 to 8 times as long. "
            "In a virtual machine, let it see the host's processor."
        )
        return Finding("kernels", f"{tier}; {there}", advice, SLOW)
    return Finding("kernels", f"{tier}, the fastest; {there}")


def _kernel_cache() -> Finding:
    """Folder where compiled kernels are stored, and its content."""
    from securevfl.field.kernels import objects

    folders = list(objects.folders())
    kept = [file for folder in folders for file in folder.glob(f"*{objects.SUFFIX}")]
    size = sum(file.stat().st_size for file in kept)
    count = f"{len(kept)} compiled ({size / 1e6:.1f} MB)"
    able = next((folder for folder in folders if writable(folder)), None)
    if able is None:
        advice = (
            "Each process compiles its kernels anew, which takes seconds. Set NUMBA_CACHE_DIR to a "
            "folder that you, and nobody else, can write."
        )
        where = " or ".join(map(str, folders))
        return Finding("kernel cache", f"{count}; cannot write {where}", advice, SLOW)
    return Finding("kernel cache", f"{count}; new ones go to {able}")


def writable(folder: Path) -> bool:
    """Whether files can be created in a folder, or the folder itself can be."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _blas() -> Finding:
    importlib.import_module("numpy")  # its BLAS is loaded with it
    found = blas()
    if found is None:
        return Finding("BLAS", "not known", "pip install threadpoolctl, which tells it.", FAULT)
    asked = os.environ.get("OPENBLAS_CORETYPE")
    chosen = f" (by OPENBLAS_CORETYPE={asked})" if asked and "openblas" in found else ""
    return Finding("BLAS", (found or "none found") + chosen)


# -- packages ------------------------------------------------------------------------------------


def _packages() -> Iterator[Finding]:
    """Versions of required packages and extras; packages that are missing or unsuitable."""
    from packaging.requirements import Requirement

    try:
        asked = [Requirement(text) for text in metadata.requires("securevfl") or ()]
    except metadata.PackageNotFoundError:
        advice = "securevfl runs from its source tree. Install it with `pip install -e .`."
        yield Finding("packages", "the required versions are not known", advice, SLOW)
        return
    own = [one for one in asked if one.marker is None or one.marker.evaluate({"extra": ""})]
    versions = {one.name: _version(one.name) for one in own}
    wrong = [one for one in own if not _fits(one, versions[one.name])]
    text = ", ".join(f"{name} {version or 'missing'}" for name, version in versions.items())
    if wrong:
        words = " ".join(f"'{one.name}{one.specifier}'" for one in wrong)
        advice = f"Install what is required: pip install {words}."
        yield Finding("packages", text, advice, FAULT)
    else:
        yield Finding("packages", text)
    extras: dict[str, list[Any]] = {}
    for one in asked:
        if found := re.search(r"extra == ['\"](\w+)['\"]", str(one.marker)):
            extras.setdefault(found[1], []).append(one)
    for name in {"all", "docs", "test"} & extras.keys():  # all of them, and those of authors
        del extras[name]
    yield Finding("extras", "; ".join(_extra(*item) for item in extras.items()))


def _extra(name: str, parts: list[Any]) -> str:
    missing = [one.name for one in parts if not _fits(one, _version(one.name))]
    if not missing:
        return f"{name}: installed"
    return f"{name}: lacks {', '.join(missing)} (pip install 'securevfl[{name}]')"


def _fits(requirement: Any, version: str | None) -> bool:
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


# -- room and ways in ----------------------------------------------------------------------------


def _memory() -> Finding:
    import psutil

    found = psutil.virtual_memory()
    text = f"{found.available / _GIGABYTE:.1f} of {found.total / _GIGABYTE:.1f} GB free"
    if found.available < _LEAST_MEMORY * _GIGABYTE:
        advice = (
            "A run of the default size takes half a gigabyte. End other programs; "
            "`securevfl plan` says how much a run needs."
        )
        return Finding("memory", text, advice, FAULT)
    return Finding("memory", text)


def _folder() -> Finding:
    """The folder in which runs are written."""
    runs = Path("runs").absolute()
    if not writable(runs):
        advice = "Results go to ./runs. Change to a folder that you can write, or give --out."
        return Finding("results", f"{runs} cannot be written", advice, FAULT)
    free = shutil.disk_usage(next(p for p in (runs, *runs.parents) if p.exists())).free / _GIGABYTE
    text = f"{runs}, {free:.1f} GB free"
    if free < _LEAST_DISK:
        advice = "Little room is left for results and checkpoints. Make room, or give --out."
        return Finding("results", text, advice, FAULT)
    return Finding("results", text)


def _data_sets() -> Finding:
    """The folder of data sets that are known by name."""
    named = os.environ.get("SECUREVFL_DATA")
    if not named:
        return Finding("data sets", "bundled ones only; SECUREVFL_DATA names no folder")
    if not Path(named).is_dir():
        advice = f"SECUREVFL_DATA={named} is no folder. Make it, or unset the variable."
        return Finding("data sets", f"{named} does not exist", advice, FAULT)
    return Finding("data sets", named)


def _ports() -> Finding:
    """Sockets on this machine, for a cluster of Ray."""
    if not _can_bind(0):
        advice = "No socket can be opened on 127.0.0.1: --engine ray will not start here."
        return Finding("ports", "none on 127.0.0.1", advice, FAULT)
    taken = [port for port in RAY_PORTS if not _can_bind(port)]
    if not taken:
        return Finding("ports", "127.0.0.1 can be used; those of `ray start --head` are free")
    options = " ".join(f"{RAY_PORTS[port]}=ANOTHER" for port in taken)
    where = ", ".join(map(str, taken))
    advice = (
        f"A program listens on {where} already. If it is Ray, join it with --address auto; else "
        f"start a head with `ray start --head {options}`. Without --address nothing is to be done: "
        "`securevfl run --engine ray` looks for free ports."
    )
    return Finding("ports", f"127.0.0.1 can be used; {where} taken", advice)


def _can_bind(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
