"""Parties as Ray actors: the simulation's numbers, kills, and runs that are taken up again."""

import contextlib
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time

import pytest

import securevfl as svfl
from securevfl.data.source import DataSource
from securevfl.engine.checkpoint import read_file
from securevfl.engine.cluster.supervisor import Cluster
from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from securevfl.errors import ConfigurationError, RunError, SealError
from securevfl.runs.engines.ray import Driver
from securevfl.testing.entropies import kept_entropies, read_entropies, simulated_with
from securevfl.verified import bare_of

pytest.importorskip("ray")
pytestmark = pytest.mark.usefixtures("cluster")

OPTIONS = {"width": 8, "hidden": 16, "segments": 1, "batch": 32}


@pytest.fixture(scope="module")
def digits():
    """Of three parties, the fewest of whom FedVS with K = T = 1 decodes; each costs a process."""
    return DataSource("digits", {"parties": 3, "seed": 0})


def losses(run):
    return [row["loss"] for row in run.history]


SMALL = {"rounds": 200, "seed": 0, "width": 4, "hidden": 4, "batch": 32}


@pytest.fixture(scope="module")
def two():
    """Of two parties, each of which split learning waits for."""
    return DataSource("digits", {"parties": 2, "seed": 0})


@pytest.fixture(scope="module")
def identified(two, tmp_path_factory):
    """A run of parties with identities and without a folder, its options, and the manifest."""
    folder = tmp_path_factory.mktemp("keys")
    names = {SERVER: "server", 0: "party-0", 1: "party-1"}
    made = {n: Identity.create(folder / f"{name}.key") for n, name in names.items()}
    entries = {n: ManifestEntry(one.public) for n, one in made.items()}
    manifest = Manifest("a", "split", entries)
    for n, one in made.items():
        manifest = manifest.signed(n, one)
    manifest.write(folder / "m.toml")
    given = {"engine": "ray", "manifest": folder / "m.toml", "keys": folder}
    return svfl.run("split", two, **given, **SMALL | {"rounds": 8}), given, manifest


def test_parties_with_identities_believe_only_those_of_the_manifest(digits, two, identified):
    run, given, manifest = identified
    assert run.summary()["rounds"] == 8
    with pytest.raises(ConfigurationError, match=r"of split with 2 parties, and this run is of fe"):
        svfl.run("fedvs", digits, rounds=3, **given, **OPTIONS)
    Manifest("b", "split", manifest.entries).write(given["manifest"])
    with pytest.raises(SealError, match="no valid signature of the server, party 0"):
        svfl.run("split", two, **given, **SMALL)


ASK = """
import sys
from ray._raylet import GcsClient

GcsClient(address=sys.argv[1]).internal_kv_keys(b"", namespace=b"fun", timeout=10)
"""


def test_a_cluster_that_we_start_lets_nobody_in_without_its_token(cluster, monkeypatch):
    """Ray listens on all interfaces: whoever is let in runs code. This process has the token."""
    import ray

    address = ray.get_runtime_context().gcs_address
    monkeypatch.setattr(sys, "argv", ["", address])
    exec(ASK, {})
    asked = subprocess.run(
        [sys.executable, "-c", ASK, address],
        env=os.environ | {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": 64 * "0"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert asked.stderr.splitlines()[-1].startswith("ray.exceptions.AuthenticationError")


DRIVER = """
import sys, securevfl as svfl
if __name__ == "__main__":
    folder, address = sys.argv[1:]
    svfl.resume(folder, address=address, progress=lambda now: print(now.round, flush=True))
"""


def newest_row(folder):
    """Round of the newest row that the driver has written; it writes ten times a second at most."""
    path = folder / "driver.svfl"
    rows = read_file(path)["rows"] if path.exists() else ()
    return max((row["round"] for row in rows), default=0)


@pytest.fixture(scope="module")
def stopped(digits, tmp_path_factory):
    """Folder of a run of 60 rounds that Ctrl-C ended in one of its first, and a copy of it."""
    folder, stop = tmp_path_factory.mktemp("stopped") / "run", threading.Event()

    def progress(now):
        if now.round >= 3 and (folder / "driver.svfl").exists():
            stop.set()

    with pytest.raises(KeyboardInterrupt):
        svfl.run(
            "fedvs", digits, rounds=60, engine="ray", out=folder, interrupted=stop.is_set,
            progress=progress, **OPTIONS,
        )  # fmt: skip
    wait_until_still(folder)
    return folder, shutil.copytree(folder, folder.with_name("copy"))


def wait_until_still(folder):
    """Wait until nobody writes there: Ray ends processes later than it is asked to."""
    before = None
    for _ in range(60):
        with contextlib.suppress(FileNotFoundError):  # one went while it was looked at
            now = {(path, path.stat().st_mtime_ns) for path in folder.rglob("*")}
            if now == before:
                return
            before = now
        time.sleep(0.5)
    raise AssertionError(f"somebody still writes into {folder}")


def test_entropy_is_kept_for_its_owner_only_and_goes_where_nobody_collects(stopped):
    _, copy = stopped
    entropies = read_entropies(copy)
    assert set(entropies) == {SERVER, 0, 1, 2}
    assert len({own.entropy for own in entropies.values()}) == 4
    for place in (copy / "parties").iterdir():
        assert stat.S_IMODE((place / "entropy.svfl").stat().st_mode) == 0o600
    values = [own.entropy for own in entropies.values()]
    for path in copy.rglob("*"):
        if path.is_file() and path.name != "entropy.svfl":
            assert not any(value in path.read_bytes() for value in values), path


def test_a_run_that_ctrl_c_stopped_and_whose_driver_was_killed_is_taken_up_again(
    digits, stopped, caplog
):
    import ray

    folder, copy = stopped
    script = folder.with_name("driver.py")
    script.write_text(DRIVER)
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, str(script), str(folder), address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            if int(line) >= 15 and newest_row(folder) >= 12:
                break
        child.kill()
    assert not (folder / "summary.json").exists()
    with caplog.at_level("INFO", logger="securevfl.runs.engines.ray"), kept_entropies() as after:
        resumed = svfl.resume(folder)
    (at,) = (record.args[0] for record in caplog.records if "goes on from" in record.msg)
    assert at >= 8  # of 15 and more: what was done is not done again
    entropies = read_entropies(copy)
    assert after == entropies
    with simulated_with(entropies):
        wanted = svfl.run("fedvs", digits, rounds=60, conditions="none", **OPTIONS)
    assert losses(resumed) == losses(wanted)
    assert [row["step"] for row in resumed.history] == list(range(1, 61))
    assert resumed.summary()["rounds"] == 60
    assert resumed.summary()["test_accuracy"] == wanted.summary()["test_accuracy"]
    assert all(0 <= row["accuracy"] <= 1 for row in resumed.history)  # evaluated on the way, too
    assert not {"parties", "driver.svfl"} & {path.name for path in folder.iterdir()}  # no shares
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["rounds"] == 60
    # The saved order is that of the steps, and the clock goes on from the life before.
    loaded = svfl.load_run(folder)
    assert (loaded.history, loaded.events) == (resumed.history, resumed.events)
    assert loaded.summary()["train_loss"] == summary["train_loss"] == resumed.history[-1]["loss"]
    times = [row["time"] for row in loaded.history]
    assert times == sorted(times)
    assert summary["wall_seconds"] > times[-1]


class Killing:
    """Progress that kills parties' processes at given steps, as an operator's kill -9 would.

    A party in `stopped` is stopped instead: it neither dies nor answers.
    """

    def __init__(self, monkeypatch, at, stopped=()):
        self.at, self.stopped, self.cluster, self.killed = at, dict(stopped), None, []
        before = Cluster.run

        def run(cluster, *arguments, **options):
            self.cluster = cluster
            return before(cluster, *arguments, **options)

        monkeypatch.setattr(Cluster, "run", run)

    def __call__(self, progress):
        for party in self.at.pop(progress.round, ()):  # a round may come again
            os.kill(self.cluster.processes[party], signal.SIGKILL)
            self.killed.append(progress.round)
        for party in self.stopped.get(progress.round, ()):
            os.kill(self.cluster.processes[party], signal.SIGSTOP)


def test_parties_and_the_server_come_back_and_nothing_decoded_changes(tmp_path, monkeypatch):
    """Wherever they are killed, the losses are those of the undisturbed run, bit for bit.

    Steps that the server made after the driver's last look at it, and before it was killed, are
    not made again, since a dealt step is never taken back; it tells of them when it comes back.
    At the end a party is stopped, which has come back before: the driver waited for it without end.
    """
    digits = DataSource("digits", {"parties": 4, "seed": 0})  # one may be missing
    killing = Killing(monkeypatch, {20: (3,), 60: (SERVER,)}, stopped={119: (3,)})
    with kept_entropies() as entropies:
        found = svfl.run(
            *("coded_split", digits),
            rounds=120,
            engine="ray",
            answer_timeout=30.0,  # a busy server must not look dead
            out=tmp_path / "run",
            ask_timeout=2.0,  # real seconds: a busy machine must not look like a loss
            progress=killing,
            **OPTIONS,
        )
    assert len(killing.killed) == 2
    down = [(e["party"], e.get("why")) for e in found.events if e["event"] == "down"]
    assert sorted(down, key=str) == [(SERVER, None), (3, "no answer for 30 s"), (3, None)]
    up = [event["party"] for event in found.events if event["event"] == "up"]
    assert sorted(up) == [SERVER, 3, 3]
    with simulated_with(entropies):
        wanted = svfl.run("coded_split", digits, rounds=120, conditions="none", **OPTIONS)
    steps = [row["step"] for row in found.history]
    assert steps == list(range(1, 121))
    undisturbed = {row["step"]: row["loss"] for row in wanted.history}
    assert losses(found) == [undisturbed[step] for step in steps]
    assert found.summary()["test_accuracy"] == wanted.summary()["test_accuracy"]


def test_where_all_wait_for_one_that_died_all_go_back_with_it(digits, tmp_path, monkeypatch):
    """A party that died between its upload and the answer missed a step, and losses differed.

    One of two active parties and the passive one die at once, then the server.
    """
    killing = Killing(monkeypatch, {20: (1, 2), 50: (SERVER,)})
    options = SMALL | {"rounds": 80, "mode": "sync", "active": 2}
    with kept_entropies() as entropies:
        run = {"engine": "ray", "out": tmp_path / "run", "progress": killing}
        found = svfl.run("cvfl", digits, **run, **options)
    assert len(killing.killed) == 3
    with simulated_with(entropies):
        wanted = svfl.run("cvfl", digits, conditions="none", **options)
    assert [row["step"] for row in found.history] == list(range(1, 81))
    assert losses(found) == losses(wanted)
    assert found.summary()["test_accuracy"] == wanted.summary()["test_accuracy"]
    told = [e for e in found.events if e["event"] in ("down", "up")]
    assert sorted(e["party"] for e in told if e["event"] == "down") == [SERVER, 1, 2]
    assert all(0 < e["all from round"] <= 40 for e in told if e["event"] == "up")


@pytest.fixture(scope="module")
def bereaved(two, tmp_path_factory):
    """A run whose parties died for good: first losses, the error, the folder."""
    folder, rows = tmp_path_factory.mktemp("bereaved") / "run", []
    with pytest.MonkeyPatch.context() as patch:
        killing = Killing(patch, {5: (0, 1)})
        patch.setattr(Driver, "restarts", 0)

        def progress(now):
            rows.append(now.loss)
            killing(now)

        with pytest.raises(RunError) as caught:
            svfl.run("split", two, engine="ray", out=folder, progress=progress, **SMALL)
    return rows, str(caught.value), folder


def test_more_losses_than_are_tolerated_end_in_an_error_that_names_them(bereaved):
    _, said, folder = bereaved
    assert "party 0, party 1 died for good" in said
    assert (folder / "parties" / "0").is_dir()  # what was done is kept


def test_two_runs_of_a_seed_have_other_weights_and_the_drivers_seed_gives_none(
    two, bereaved, identified
):
    """The second is without a folder: its entropy is in the parties' memory alone."""
    seeded = svfl.run("split", two, conditions="none", **SMALL | {"rounds": 8})
    first = [bereaved[0][0], identified[0].history[0]["loss"], seeded.history[0]["loss"]]
    assert len(set(first)) == 3
    for n in range(2):
        one, other = (bare_of(run.parties[n].network).values for run in (identified[0], seeded))
        assert abs(one - other).max() > 0.1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"engine": "ray", "until": 5.0}, "until needs virtual time"),
        ({"engine": "ray", "faults": {"client": {"fault": 0.1, "rejoin": 0.5}}}, "faults needs"),
        ({"engine": "ray", "secret_seed": 1}, "secret_seed = 1 with engine = 'ray'"),
        ({"address": "127.0.0.1:1"}, "address has no effect with engine = 'simulation'"),
        ({"engine": "rai"}, "unknown engine"),
        ({"engine": "ray", "place": {2: "node-b"}}, "no node has the resource 'node-b'"),
        ({"engine": "ray", "place": {9: "node-b"}}, "there is no party 9"),
    ],
)
def test_what_only_the_other_engine_can_is_refused(options, said, digits):
    with pytest.raises(ConfigurationError, match=said):
        svfl.run("split", digits, rounds=2, **options)


def test_an_address_where_nobody_listens_is_told():
    from securevfl.engine.cluster.ray_connection import _preflight

    with pytest.raises(ConfigurationError, match=r"no Ray cluster answers at '127\.0\.0\.1:1'"):
        _preflight("127.0.0.1:1")
