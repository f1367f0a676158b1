"""Two Ray nodes in network namespaces of their own, with TLS and a token: as two machines are.

Needs root and iproute2, as a container has; skipped where namespaces cannot be made.
"""

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.engine.cluster.certificates import authority
from tests.runs.engines.conftest import RAY_SETTINGS

pytest.importorskip("ray")

ROOT = Path(__file__).parents[3]
ONE, TWO = (f"svfl-{os.getpid()}-{which}" for which in "ab")  # each test process has its own
SPACES = {ONE: "10.77.0.1", TWO: "10.77.0.2"}
HEAD = "10.77.0.1:6399"
NO_LOGS = ("--include-log-monitor", "false")  # nobody reads them, and it costs a process
TOKEN = "an-hour-s-token-of-a-test-0123456789"


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def spaces():
    """Two namespaces, joined by a cable."""
    if os.geteuid() or shutil.which("ip") is None:
        pytest.skip("namespaces need root and iproute2")
    try:
        for name in SPACES:
            ip("netns", "add", name)
        ip("link", "add", "svfl0", "netns", ONE, "type", "veth", "peer", "name", "svfl1",
           "netns", TWO)  # fmt: skip
        for (name, address), device in zip(SPACES.items(), ("svfl0", "svfl1"), strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", device)
            ip("-n", name, "link", "set", device, "up")
            ip("-n", name, "link", "set", "lo", "up")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"namespaces cannot be made here: {error.stderr.decode().strip()}")
    else:
        yield
    finally:
        for name in SPACES:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture(scope="module")
def settings(tmp_path_factory, starter):
    """The environment of all nodes: certificates of one authority, a token, where forks are."""
    folder = tmp_path_factory.mktemp("tls")
    authority("127.0.0.1", *SPACES.values(), folder=folder)
    return (
        os.environ
        | RAY_SETTINGS
        | {
            "RAY_USE_TLS": "1",
            "RAY_TLS_CA_CERT": str(folder / "ca.crt"),
            "RAY_TLS_SERVER_CERT": str(folder / "node.crt"),
            "RAY_TLS_SERVER_KEY": str(folder / "node.key"),
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": TOKEN,
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
    )


def within(space, settings, *command, seconds=150):
    return subprocess.run(
        ["ip", "netns", "exec", space, *command],
        env=settings, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False,
    )  # fmt: skip


RAY = """
import sys

from ray.scripts.scripts import main
from tests.runs.engines.forked import start_forked

start_forked(sys.argv.pop(1))
main()
"""


@pytest.fixture(scope="module")
def nodes(spaces, settings, tmp_path_factory, starter):
    place = tmp_path_factory.mktemp("r")
    ray = (sys.executable, "-c", RAY, starter)
    started = [
        within(ONE, settings, *ray, "start", "--head", "--node-ip-address", SPACES[ONE],
               "--port", "6399", "--num-cpus", "2", "--include-dashboard", "false", *NO_LOGS,
               "--no-monitor", "--resources", '{"node-a": 1}', "--temp-dir", str(place)),
        within(TWO, settings, *ray, "start", "--address", HEAD, "--node-ip-address",
               SPACES[TWO], "--num-cpus", "2", *NO_LOGS, "--resources", '{"node-b": 1}'),
    ]  # fmt: skip
    try:
        for node in started:
            assert node.returncode == 0, node.stdout + node.stderr
        yield
    finally:  # and no other cluster that may be about
        for space in SPACES:
            found = subprocess.run(
                ["ip", "netns", "pids", space], check=False, capture_output=True, text=True
            )
            for process in found.stdout.split():
                subprocess.run(["kill", "-9", process], check=False, capture_output=True)


RUN = """
import sys

import securevfl as svfl
from securevfl.engine.network import SERVER
from securevfl.runs.spec import DataSource
from securevfl.testing.entropies import kept_entropies, simulated_with

if __name__ == "__main__":
    digits = DataSource("digits", {"parties": 3})
    place = {SERVER: "node-a", 0: "node-a", 1: "node-b", 2: "node-b"}
    options = {"rounds": 6, "width": 8, "hidden": 16}
    ray = {"engine": "ray", "address": "10.77.0.1:6399", "place": place, "out": sys.argv[1]}
    with kept_entropies() as entropies:
        found = svfl.run("fedvs", digits, **ray, **options)
    with simulated_with(entropies):
        wanted = svfl.run("fedvs", digits, conditions="none", **options)
    same = [row["loss"] for row in found.history] == [row["loss"] for row in wanted.history]
    print(same, found.summary()["test_accuracy"] == wanted.summary()["test_accuracy"])
"""
CONNECT = """
import os
import sys

import ray  # reads its own settings now, which are right but for the token

from securevfl.engine.cluster.ray_connection import connect
from securevfl.errors import ConfigurationError

for changed in sys.argv[1:]:
    before = dict(os.environ)
    os.environ |= dict([changed.split("=")])
    try:
        connect("10.77.0.1:6399")
    except ConfigurationError as error:
        print(error)
    os.environ |= before
"""


def test_two_nodes_decode_what_the_simulation_decodes(nodes, settings, tmp_path):
    script = tmp_path / "run.py"
    script.write_text(textwrap.dedent(RUN))
    done = within(ONE, settings, sys.executable, str(script), str(tmp_path / "run"))
    assert done.stdout.split() == ["True", "True"], done.stderr[-2000:]


def test_who_lacks_certificate_or_token_is_told_so(nodes, settings, tmp_path):
    """In one process, which has another token from the start."""
    script = tmp_path / "connect.py"
    script.write_text(textwrap.dedent(CONNECT))
    own = settings | {"RAY_AUTH_TOKEN": TOKEN[::-1]}
    changed = ("RAY_USE_TLS=0", "RAY_TLS_CA_CERT=", f"RAY_AUTH_TOKEN={TOKEN[::-1]}")
    done = within(TWO, own, sys.executable, str(script), *changed)
    said = done.stdout.splitlines()
    assert len(said) == 3, done.stderr[-2000:]
    assert said[0].startswith("engine: what listens at '10.77.0.1:6399' is no Ray cluster, ")
    assert said[1].startswith("engine: no Ray cluster answers")
    assert said[2].startswith(
        "engine: the Ray cluster at '10.77.0.1:6399' did not let this process in"
    )
