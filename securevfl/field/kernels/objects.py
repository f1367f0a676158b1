"""Object code of kernels: storage, invalidation and loading.

A file of machine code is read only if its owner is this user or the superuser and nobody else may
write to it, and if its digest is right; else the kernel is compiled again.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import stat
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import llvmlite
import numpy as np
from llvmlite import binding

ENTRY = "securevfl_entry"  # The symbol of each kernel's entry; each kernel has an engine.
SUFFIX = ".kernel"
_HERE = Path(__file__).parent
_engines: list[Any] = []  # Code lives as long as its engine.


def find(name: str, kinds: str, make: Callable[[], tuple[list[bytes], str]]) -> tuple[int, str]:
    """Address of a kernel's entry and the type of its result.

    Parameters
    ----------
    name : str
        Name of the kernel.
    kinds : str
        Types of its arguments.
    make : callable
        Compiles it, unless an earlier process did; returns its object code and the type.
    """
    stamp = _digest(folder_stamp())[:12]
    file = f"{name}-{stamp}-{_digest((kinds, *_environment()))[:16]}{SUFFIX}"
    content = next((kept for folder in folders() if (kept := _read(folder / file))), None)
    if content is None:
        objects, result = make()
        content = _packed(objects, result)
        _keep(content, file, f"{name}-*{SUFFIX}", stamp)
    objects, result = _unpacked(content)
    return _load(objects), result


def _load(objects: list[bytes]) -> int:
    engine = binding.create_mcjit_compiler(binding.parse_assembly(""), _machine())
    for data in objects:
        engine.add_object_file(binding.ObjectFileRef.from_data(data))
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address(ENTRY))


def assemble(text: str) -> bytes:
    """Return the object code of LLVM's text."""
    machine, module = _machine(), binding.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    return bytes(machine.emit_object(module))


def _machine() -> Any:
    _initialise()
    return binding.Target.from_default_triple().create_target_machine(jit=True)


@lru_cache(maxsize=1)
def _initialise() -> None:
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


# Files.


@lru_cache(maxsize=1)
def folder_stamp() -> tuple[tuple[str, int, int], ...]:
    """Name, modification time and size of each kernel source file."""
    files = sorted(_HERE.rglob("*.py"))
    return tuple((f.name, f.stat().st_mtime_ns, f.stat().st_size) for f in files)


@lru_cache(maxsize=1)
def _environment() -> tuple[Any, ...]:
    """Other facts that machine code depends on: processor, compilers and settings."""
    found = importlib.util.find_spec("numba")
    numba = Path(found.origin).stat().st_mtime_ns if found and found.origin else 0
    settings = [(k, v) for k, v in sorted(os.environ.items()) if k.startswith("NUMBA_")]
    processor = binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()
    versions = sys.implementation.cache_tag, np.__version__, llvmlite.__version__, numba
    return *processor, *versions, *(s for s in settings if s[0] != "NUMBA_CACHE_DIR")


def folders() -> Iterator[Path]:
    """Folders for cached code: the configured one alone, or beside the source and at home."""
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(named) / "securevfl-kernels"
        return
    yield _HERE / "__pycache__"
    with suppress(RuntimeError):  # There is no home.
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        yield Path(home) / "securevfl-kernels"


def _read(file: Path) -> bytes | None:
    """Content of a cache file that may be trusted; else None."""
    try:
        with file.open("rb") as stream:
            about = os.fstat(stream.fileno())
            if os.name == "posix":
                ours = about.st_uid in (0, os.geteuid())
                if not ours or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                    return None
            content = stream.read()
    except OSError:
        return None
    return content if hashlib.sha256(content[32:]).digest() == content[:32] else None


def _keep(content: bytes, file: str, pattern: str, stamp: str) -> None:
    """Write a file to the first writable cache folder; delete older ones like `pattern`."""
    for folder in folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder, suffix=".new", delete=False) as new:
                new.write(content)
            os.chmod(new.name, 0o644)
            os.replace(new.name, folder / file)
        except OSError:
            continue
        for old in folder.glob(pattern):
            if f"-{stamp}-" not in old.name:
                old.unlink(missing_ok=True)
        return
    _say_uncached()


@lru_cache(maxsize=1)
def _say_uncached() -> None:
    warnings.warn(
        f"Compiled loops of the field are not kept, and each process takes seconds to make them: "
        f"neither {_HERE} nor the user's cache folder can be written. Set NUMBA_CACHE_DIR to a "
        f"folder that you, and nobody else, can write.",
        RuntimeWarning,
        stacklevel=7,
    )


def _packed(objects: list[bytes], result: str) -> bytes:
    head = json.dumps({"result": result, "sizes": [len(data) for data in objects]}).encode()
    body = b"\n".join([head, b"".join(objects)])
    return hashlib.sha256(body).digest() + body


def _unpacked(content: bytes) -> tuple[list[bytes], str]:
    head, _, body = content[32:].partition(b"\n")
    about, objects = json.loads(head), []
    for size in about["sizes"]:
        objects.append(body[:size])
        body = body[size:]
    return objects, about["result"]


def _digest(value: object) -> str:
    return hashlib.sha256(repr(value).encode()).hexdigest()
