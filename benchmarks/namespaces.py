"""Nine processes in network namespaces of Linux that reach a relay and nothing else.

Each party has a namespace with one veth pair to the relay's namespace, and one route, to the
relay's address. Nothing is forwarded. It needs root and iproute2.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

RELAY, RELAY_ADDRESS = "svfl-relay", "10.77.255.1"
_CLONE_NEWNET = 0x40000000


def namespace(index: int) -> str:
    """Name of a party's namespace; the server's number is -1."""
    return f"svfl-{index + 1}"


def address(index: int) -> str:
    """A party's own address."""
    return f"10.77.{index + 1}.2"


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=True)
    return done.stdout


@contextmanager
def separate_networks(parties: Sequence[int]) -> Iterator[None]:
    """Namespaces of the parties and of the relay, removed at the end."""
    names = [RELAY, *map(namespace, parties)]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("-n", RELAY, "link", "set", "lo", "up")
        _ip("-n", RELAY, "addr", "add", f"{RELAY_ADDRESS}/32", "dev", "lo")
        forwarding = "echo 0 > /proc/sys/net/ipv4/ip_forward"
        _ip("netns", "exec", RELAY, "sh", "-c", forwarding)
        for index in parties:
            _connect(index)
        yield
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


def _connect(index: int) -> None:
    """One cable from a party to the relay, and the party's only route."""
    name, far, near = namespace(index), f"10.77.{index + 1}.1", address(index)
    cable = f"svfl{index + 1}"
    _ip("link", "add", cable, "netns", RELAY, "type", "veth", "peer", "name", "up0", "netns", name)
    _ip("-n", RELAY, "addr", "add", f"{far}/30", "dev", cable)
    _ip("-n", RELAY, "link", "set", cable, "up")
    _ip("-n", name, "addr", "add", f"{near}/30", "dev", "up0")
    _ip("-n", name, "link", "set", "up0", "up")
    _ip("-n", name, "route", "add", f"{RELAY_ADDRESS}/32", "via", far)


def routes(index: int) -> list[str]:
    """Destinations that a party has a route to."""
    lines = _ip("-n", namespace(index), "route").splitlines()
    return [line.split()[0] for line in lines]


def unreachable(index: int, others: Sequence[int]) -> bool:
    """Whether no other party and nothing outside answers a party: each attempt fails at once."""
    places = [address(n) for n in others if n != index] + ["1.1.1.1"]
    told = [_ip_route_get(index, place) for place in places]
    return all("unreachable" in one for one in told)


def _ip_route_get(index: int, place: str) -> str:
    words = ["ip", "-n", namespace(index), "route", "get", place]
    return subprocess.run(words, capture_output=True, text=True, check=False).stderr


def forked(work: Callable[[], None], log: Path, *, network: str | None = None) -> int:
    """Run something in a forked process, in a network; its process number.

    What is imported before need not be imported again, so nine processes start in a second.
    """
    child = os.fork()
    if child:
        return child
    try:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        if network is not None:
            _enter(network)
        work()
        sys.stdout.flush()
        os._exit(0)
    except SystemExit as ended:
        sys.stdout.flush()
        os._exit(int(ended.code or 0) if isinstance(ended.code, int | None) else 1)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def _enter(network: str) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    with open(f"/var/run/netns/{network}") as file:
        if library.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"cannot enter the namespace {network}")


class Processes:
    """Forked processes of parties, started again by number."""

    def __init__(self) -> None:
        self.running: dict[int, int] = {}
        self.codes: dict[int, int] = {}

    def start(self, index: int, work: Callable[[], None], log: Path) -> None:
        """Start the process of a party in its own namespace."""
        self.running[index] = forked(work, log, network=namespace(index))

    def kill(self, index: int) -> None:
        """Kill it, as a power cut does."""
        child = self.running.pop(index)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)

    def look(self) -> None:
        """Note which have ended, and by which code."""
        for index, child in list(self.running.items()):
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                del self.running[index]
                self.codes[index] = os.waitstatus_to_exitcode(status)

    def wait(self, seconds: float) -> bool:
        """Wait until all have ended; False, and all are killed, where that takes too long."""
        end = time.monotonic() + seconds
        while self.running and time.monotonic() < end:
            self.look()
            time.sleep(0.05)
        hung = bool(self.running)
        for index in list(self.running):
            self.kill(index)
        return not hung


def last_lines(log: Path, most: int = 3) -> str:
    """The end of a log, in one line."""
    lines = re.split(r"\n+", log.read_text().strip()) if log.exists() else []
    return " | ".join(lines[-most:])
