import ast
import os
import stat
from pathlib import Path

import numpy as np
import pytest

import securevfl
from securevfl.engine import wire
from securevfl.engine.checkpoint import (
    begin_resumption,
    read_checkpoint,
    remove_checkpoints,
    write_checkpoint,
)
from securevfl.engine.conditions import paper
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import CheckpointError, ConfigurationError
from tests.engine.toys import TOYS, Recorder

NEWEST, PREVIOUS = "checkpoint.svfl", "checkpoint.previous.svfl"


def state(seed=1, instant=30):
    """State of a FedVS-like run in which messages are in flight."""
    made = []
    simulation = Simulation(
        TOYS["fedvs"](), seed=seed, conditions=paper(6, batch_rows=16), observer=Recorder()
    )
    count = iter(range(10**9))

    def pause():
        if next(count) == instant:
            simulation.request_state(made.append)
        return bool(made)

    simulation.run(pause)
    return {"simulation": made[0], "more": (1, "two")}


def equal(a, b):
    return wire.encode(a) == wire.encode(b)


def test_a_checkpoint_comes_back_whole(tmp_path):
    first = state()
    write_checkpoint(tmp_path / "new" / "folder", first)
    assert equal(read_checkpoint(tmp_path / "new" / "folder"), first)
    assert first["simulation"]["parties"][0]["snapshot"]["once"]["held"]  # not changed by writing


def test_only_the_owner_can_read_the_files_whatever_the_umask(tmp_path):
    before = os.umask(0)
    try:
        write_checkpoint(tmp_path, state())
    finally:
        os.umask(before)
    files = sorted(path.name for path in tmp_path.iterdir())
    assert files == [NEWEST] + [f"once-{n}.svfl" for n in range(6)]
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}


def test_constants_are_written_once_and_belong_to_the_first_checkpoint(tmp_path):
    stale = state(seed=9)
    stale["simulation"]["parties"][0]["snapshot"]["once"]["held"] = {0: np.array([99, 99])}
    write_checkpoint(tmp_path, stale)
    (tmp_path / NEWEST).unlink()  # as if that run had been killed before its first checkpoint
    write_checkpoint(tmp_path, state())
    written = (tmp_path / "once-0.svfl").stat().st_mtime_ns
    write_checkpoint(tmp_path, state(instant=60))
    assert (tmp_path / "once-0.svfl").stat().st_mtime_ns == written
    assert equal(read_checkpoint(tmp_path), state(instant=60))


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "foreign", "version", "missing"])
def test_a_damaged_newest_file_falls_back_to_the_one_before(tmp_path, damage):
    older, newer = state(instant=30), state(instant=60)
    write_checkpoint(tmp_path, older)
    write_checkpoint(tmp_path, newer)
    assert equal(read_checkpoint(tmp_path), newer)
    path = tmp_path / NEWEST
    data = bytearray(path.read_bytes())
    if damage == "flip":
        data[len(data) // 2] ^= 1
    elif damage == "cut":
        del data[-1:]
    elif damage == "empty":
        data.clear()
    elif damage == "foreign":
        data[:4] = b"\x80\x04\x95\x00"  # how a pickle begins
    elif damage == "version":
        data[8] += 1
    path.write_bytes(data)
    if damage == "missing":
        path.unlink()
    assert equal(read_checkpoint(tmp_path), older)


def test_every_flipped_byte_is_noticed(tmp_path):
    write_checkpoint(tmp_path, {"simulation": {"parties": {}}, "x": bytes(50)})
    path = tmp_path / NEWEST
    data = path.read_bytes()
    for at in range(len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        with pytest.raises(CheckpointError):
            read_checkpoint(tmp_path)
    path.write_bytes(data)
    assert read_checkpoint(tmp_path)["x"] == bytes(50)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\x80\x04\x95 pickle", "not a checkpoint of securevfl"),
        (b"SVFLCKPT\x63\x00\x00\x00" + bytes(40), "has format 99, this version reads 1"),
        (b"SVFLCKPT\x01\x00\x00\x00" + bytes(40), "checksum does not fit"),
        (b"SVFL", "not a checkpoint"),
        (b"SVFLCKPT", "has format 0"),
    ],
)
def test_foreign_files_are_refused_with_the_reason(tmp_path, content, words):
    (tmp_path / NEWEST).write_bytes(content)
    with pytest.raises(CheckpointError, match=words):
        read_checkpoint(tmp_path)


def test_none_at_all_and_a_missing_constant_are_named(tmp_path):
    with pytest.raises(ConfigurationError, match="there is none in"):
        read_checkpoint(tmp_path)
    write_checkpoint(tmp_path, state())
    (tmp_path / "once-3.svfl").unlink()
    with pytest.raises(CheckpointError, match="once-3"):
        read_checkpoint(tmp_path)


@pytest.mark.parametrize("write", [1, 2, 3])
def test_a_crash_while_writing_loses_nothing(tmp_path, monkeypatch, write):
    older = state(instant=30)
    write_checkpoint(tmp_path, older)
    calls = []
    replace = os.replace

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) == write:
            raise OSError("power cut")
        replace(*arguments)

    monkeypatch.setattr(os, "replace", failing)
    newer = state(instant=60)
    try:
        write_checkpoint(tmp_path, newer)
    except OSError:
        assert equal(read_checkpoint(tmp_path), older)
    else:
        assert write == 3  # a checkpoint needs two renames
        assert equal(read_checkpoint(tmp_path), newer)


def test_removing_leaves_no_share_behind(tmp_path):
    for instant in (30, 60):
        write_checkpoint(tmp_path, state(instant=instant))
    (tmp_path / "checkpoint.part").write_bytes(b"half")
    (tmp_path / "once-0.part").write_bytes(b"half")
    (tmp_path / "history.jsonl").write_text("mine")
    remove_checkpoints(tmp_path)
    remove_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["history.jsonl"]


BANNED_MODULES = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
PACKAGE = Path(securevfl.__file__).parent


def unsafe(tree):
    """Names of what would run code that a file names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from {alias.name.split(".")[0] for alias in node.names} & BANNED_MODULES
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from {node.module.split(".")[0]} & BANNED_MODULES
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            allowed = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if called in ("eval", "exec", "torch.load", "torch.save", "pd.read_pickle"):
                yield called
            if allowed.get("allow_pickle", "False") != "False":
                yield "allow_pickle"


def test_the_package_never_unpickles():
    found = {
        str(path.relative_to(PACKAGE)): names
        for path in PACKAGE.rglob("*.py")
        if (names := list(unsafe(ast.parse(path.read_text()))))
    }
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.numpy_pickle",
        "x = torch.load(f)",
        "np.load(f, allow_pickle=True)",
        "eval(text)",
    ],
)
def test_the_search_for_pickle_finds_it(code):
    assert list(unsafe(ast.parse(code)))


def test_no_two_resumptions_of_a_folder_have_one_number(tmp_path):
    assert [begin_resumption(tmp_path) for _ in range(3)] == [1, 2, 3]
    (number,) = tmp_path.iterdir()
    number.write_bytes(number.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="damaged"):
        begin_resumption(tmp_path)
    remove_checkpoints(tmp_path)
    assert not list(tmp_path.iterdir())
