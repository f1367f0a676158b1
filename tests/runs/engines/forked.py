"""Workers of a Ray cluster that are forked from one process, which has imported what they need.

Ray starts Python twice for each worker, and a party of ours imports torch: four seconds of a
processor for each of fifty processes. Here Ray starts `STARTER` instead, which asks this module's
process for a fork and lives as long as that. The fork runs Ray's own worker, with the arguments,
environment, folder, files and network of the starter; it ends when the starter is killed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib.abc
import importlib.machinery
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

PLACE = "SECUREVFL_TEST_FORKS"
STARTER = """
import json, os, socket, sys
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
    link.connect(os.environ["SECUREVFL_TEST_FORKS"])
    told = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
    network = os.open("/proc/self/ns/net", os.O_RDONLY)
    socket.send_fds(link, [told], [0, 1, 2, network])
    link.recv(1)
"""
NEEDED = (  # and not Ray, which reads its environment when it is imported
    "securevfl.runs.engines.ray",
    "securevfl.runs.alignment",
    "securevfl.protocols.base.registry",
    "pandas",
    "jsonschema",
    "requests",
)


class Later(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives what was imported before only to who imports it, so that tests see who does."""

    def __init__(self, package: str) -> None:
        self.package = package
        names = [n for n in sys.modules if n == package or n.startswith(f"{package}.")]
        self.kept = {name: sys.modules.pop(name) for name in names}
        self.spec = self.kept[package].__spec__

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        return importlib.machinery.ModuleSpec(name, self) if name == self.package else None

    def create_module(self, spec: object) -> ModuleType:
        return self.kept[self.package]

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec
        sys.modules.update(self.kept)
        sys.meta_path.remove(self)


def serve(place: str) -> None:
    """Fork whenever somebody connects, until standard input ends."""
    for name in NEEDED:
        import_module(name)
    import_module("securevfl.protocols.base.registry").find_protocols()
    assert "torch" not in sys.modules  # else nobody could see who imports it
    import_module("torch")
    sys.meta_path.insert(0, Later("torch"))
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(place)
        door.listen()
        os.write(1, b"ready\n")
        while sys.stdin not in select.select([sys.stdin, door], [], [])[0]:
            link = door.accept()[0]
            told, files, *_ = socket.recv_fds(link, 1 << 20, 4)
            if os.fork() == 0:
                door.close()
                work(link, told, files)
            for file in (link, *map(os.fdopen, files)):
                file.close()


def work(link: socket.socket, told: bytes, files: list[int]) -> None:
    """Be the worker that Ray would have started."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *standard, network = files
    for number, file in enumerate(standard):
        os.dup2(file, number)
    if not os.path.sameopenfile(network, os.open("/proc/self/ns/net", os.O_RDONLY)):
        assert ctypes.CDLL(None).setns(network, 0) == 0
    words, environment, folder = json.loads(told)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    threading.Thread(target=lambda: os._exit(len(link.recv(1)) or 1), daemon=True).start()
    setup = import_module("ray._private.workers.setup_worker")
    _, sys.argv = setup.parser.parse_known_args(words)
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit()


@contextlib.contextmanager
def forks(folder: Path) -> Iterator[str]:
    """Path of what Ray is to start for a worker, while a process forks them; "" but on Linux."""
    if sys.platform != "linux":
        yield ""
        return
    place, starter = folder / "forks", folder / "starter.py"
    starter.write_text(STARTER)
    with subprocess.Popen(
        [sys.executable, "-m", __name__, str(place)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3],
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        os.environ[PLACE] = str(place)
        yield str(starter)
        del os.environ[PLACE]


def start_forked(starter: str) -> None:
    """Have the clusters that this process starts begin their workers so.

    Where there is no `starter`, or Ray has no such place for it, workers start in Ray's own way.
    """
    params = import_module("ray._private.parameter").RayParams
    given = getattr(params, "update_if_absent", None)
    if not starter or given is None:
        return
    params.update_if_absent = lambda self, **own: given(
        self, **own | {"setup_worker_path": starter}
    )


if __name__ == "__main__":
    serve(sys.argv[1])
