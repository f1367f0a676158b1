"""Fuzzers: whatever a stranger's bytes are, they are read or refused by an error of this library.

Each input follows from its number, which a failure names. CI makes as many as stand here;
``SECUREVFL_FUZZ=100 pytest tests/fuzz`` makes a hundred times as many, and is to be run before a
release.
"""

from __future__ import annotations

import asyncio
import bz2
import contextlib
import gzip
import json
import lzma
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

import securevfl as svfl
from securevfl.engine import wire
from securevfl.engine.checkpoint import read_file
from securevfl.engine.conditions_file import load_conditions
from securevfl.engine.faults import load_faults
from securevfl.engine.security.frames import Frame
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from securevfl.errors import SecureVFLError, WireError
from securevfl.report.loading import read_records
from securevfl.runs.spec import RunSpec
from securevfl.runs.storage import read_history, read_transcript
from securevfl.studies.study import read_study
from tests.engine.carriers.world import World, hello_of
from tests.fuzz.mutation import damaged, varied
from tests.runs.folders import small

TIMES = int(os.environ.get("SECUREVFL_FUZZ", "1"))


def survives(inputs: int, attempt: Callable[[random.Random], None]) -> None:
    """Make so many inputs; each is read, or refused by an error of this library."""
    for number in range(inputs * TIMES):
        try:
            attempt(random.Random(number))
        except SecureVFLError:
            continue
        except Exception as error:
            raise AssertionError(f"input {number}: {type(error).__name__}: {error}") from error


PAYLOADS = (
    {"a": (1, 2.5, None), 3: [b"x", "text", True]},
    {"array": np.arange(12.0).reshape(3, 4), "scalar": np.float32(2), "none": np.zeros((0, 5))},
    ((((1,),),), [[], {}], np.array([True, False])),
)
FRAMES = [Frame("run", 1, -1, "share", 3, 0, 0, 7, wire.encode(value)) for value in PAYLOADS]


def test_bytes_of_messages_and_frames():
    """2,000 inputs, as messages and as frames."""
    valid = [wire.encode(value) for value in PAYLOADS] + [frame.encode() for frame in FRAMES]

    def attempt(rng: random.Random) -> None:
        data = damaged(rng.choice(valid), rng)
        for read in (wire.decode, Frame.decode, lambda d: wire.decode(d, 2**31 - 1)):
            try:
                read(data)
            except WireError:
                continue

    survives(2000, attempt)


def test_datagrams_of_a_carrier():
    """1,000 inputs: damaged introductions and sealed datagrams change nothing of a session."""
    world = World()
    world.meet()
    sent = [b"x" * n for n in range(20)]
    for frame in sent:
        world.sessions[-1].send(0, frame)
    hello = hello_of(world.sessions[-1], 0)
    valid = [hello] + [data for _, data in world.sessions[-1].due(world.now)]

    def attempt(rng: random.Random) -> None:
        data = damaged(rng.choice(valid), rng)
        if data not in valid:
            world.sessions[0].take(data, world.now)
            assert world.got[0] == [], "damage was believed"

    survives(1000, attempt)
    for data in valid:
        world.sessions[0].take(data, world.now)
    assert world.got[0] == sent
    assert world.met[0] == [(-1, 0)]


class _Writer:
    """The side of a connection on which a relay is answered; it takes nothing off it."""

    def __init__(self) -> None:
        self.kept = 0
        self.transport = self

    def write(self, data: bytes) -> None:
        self.kept += len(data)

    def get_write_buffer_size(self) -> int:
        return self.kept

    def get_extra_info(self, name: str) -> None:
        return None


LINES = (
    b'INFO {"nonce": "abc", "headers": true}\r\n', b"PING\r\n", b"PONG\r\n", b"+OK\r\n",
    b"-ERR 'Permissions Violation for Publish'\r\n", b"-ERR 'Authorization'\r\n",
    b"MSG svfl.token.0.1 1 5\r\nhello\r\n", b"MSG a 1 0\r\n\r\n", b"INFO {}\r\n",
    b"INFO " + b"[" * 100_000 + b"\r\n", b"MSG a 1 " + b"9" * 5000 + b"\r\n",
    b"MSG a 1 524352\r\n" + bytes(1000), b"x" * 200_000 + b"\r\n", b"\xff\xfe\r\n",
)  # fmt: skip


def test_words_of_a_hostile_relay():
    """1,000 streams of a relay end in a sentence or an error of a connection, bounded in length."""
    from securevfl.engine.carriers import nats

    who = World().identities[0]
    carrier = nats.NatsCarrier([nats.RelayAddress("h", 1, "0" * 64)], "token", 0, who)
    taken: list[bytes] = []
    carrier._take = taken.append
    carrier._task = object()  # it reads

    async def hear(data: bytes, log_in: bool) -> None:
        reader = asyncio.StreamReader(limit=nats._LIMIT)
        reader.feed_data(data)
        reader.feed_eof()
        writer: Any = _Writer()
        if log_in:
            with contextlib.suppress(*nats._FAILURES):
                await carrier._log_in(reader, writer)
        else:
            assert isinstance(await carrier._read(reader, writer), str)
        await asyncio.sleep(0)
        assert writer.kept <= nats._MOST_WAITING + len(data)

    def attempt(rng: random.Random) -> None:
        lines = rng.choices(LINES, k=rng.randrange(1, 8))
        data = b"".join(damaged(line, rng) if rng.random() < 0.5 else line for line in lines)
        asyncio.run(hear(data, rng.random() < 0.5))

    survives(1000, attempt)
    assert b"hello" in taken
    assert max(map(len, taken)) <= nats.LARGEST_FRAME


def test_a_relay_that_asks_and_takes_no_answers_is_left(monkeypatch):
    from securevfl.engine.carriers import nats

    monkeypatch.setattr(nats, "_MOST_WAITING", 600)
    who = World().identities[0]
    carrier = nats.NatsCarrier([nats.RelayAddress("h", 1, "0" * 64)], "token", 0, who)

    async def ask() -> str:
        reader = asyncio.StreamReader()
        reader.feed_data(b"PING\r\n" * 1000)
        return await carrier._read(reader, writer)

    writer: Any = _Writer()
    assert "takes no answers" in asyncio.run(ask())
    assert writer.kept <= 606


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fuzz") / "run"
    small.run(folder)
    return folder


FILES = ("config.toml", "history.jsonl", "messages.npz", "parties.state", "summary.json")
DATA = small.dataset()


@pytest.mark.parametrize("name", FILES)
def test_files_of_a_folder_whose_checksums_are_there(folder, tmp_path, name):
    """60 inputs a file: none is believed."""
    copy = shutil.copytree(folder, tmp_path / "run")
    whole = (copy / name).read_bytes()

    def attempt(rng: random.Random) -> None:
        changed = damaged(whole, rng)
        (copy / name).write_bytes(changed)
        svfl.load_run(copy, data=DATA)
        if name != "summary.json":  # other spaces there change nothing
            assert changed == whole, "damage was believed"

    survives(60, attempt)


@pytest.mark.parametrize("name", FILES)
def test_files_of_an_old_folder_without_checksums(folder, tmp_path, name):
    """150 inputs a file, by each of their readers."""
    copy = shutil.copytree(folder, tmp_path / "run")
    summary = json.loads((copy / "summary.json").read_text())
    (copy / "summary.json").write_text(
        json.dumps({k: v for k, v in summary.items() if k not in ("files", "checksum")})
    )
    whole = (copy / name).read_bytes()
    readers: dict[str, Callable[[], Any]] = {
        "config.toml": lambda: (RunSpec.from_toml(copy / name), read_records([copy])),
        "history.jsonl": lambda: (read_history(copy), read_records([copy])),
        "messages.npz": lambda: (read_transcript(copy).columns(), read_records([copy])),
        "parties.state": lambda: read_file(copy / name),
        "summary.json": lambda: read_records([copy]),
    }

    def attempt(rng: random.Random) -> None:
        (copy / name).write_bytes(damaged(whole, rng))
        readers[name]()

    survives(150, attempt)


def test_values_of_a_config(folder, tmp_path):
    """300 inputs."""
    import tomllib

    content = tomllib.loads((folder / "config.toml").read_text())
    path = tmp_path / "config.toml"

    def attempt(rng: random.Random) -> None:
        write(path, content, rng)
        RunSpec.from_toml(path)

    survives(300, attempt)


def write(path: Path, content: Any, rng: random.Random) -> None:
    """Write a varied document, sometimes with damaged bytes too."""
    value = varied(content, rng)
    try:
        text = tomli_w.dumps(value).encode() if isinstance(value, dict) else b"= 1"
    except (TypeError, ValueError, AttributeError):
        text = b"[" * 5000
    path.write_bytes(damaged(text, rng) if rng.random() < 0.2 else text)


CSV = (
    "id,age,city,y\n" + "\n".join(f"{k},{20 + k % 7}.5,{'ab'[k % 2]},{k % 3}" for k in range(24))
).encode()
PACKED = {
    ".csv": bytes,
    ".csv.gz": gzip.compress,
    ".csv.xz": lzma.compress,
    ".csv.bz2": bz2.compress,
}


@pytest.mark.parametrize("ending", PACKED)
def test_csv_files(tmp_path, ending):
    """150 inputs of each kind; of packed ones half are damaged before they are packed."""
    path = tmp_path / f"data{ending}"

    def attempt(rng: random.Random) -> None:
        before = rng.random() < 0.5
        data = PACKED[ending](damaged(CSV, rng) if before else CSV)
        path.write_bytes(data if before else damaged(data, rng))
        svfl.load_dataset(str(path), label="y", parties=2)

    survives(150, attempt)


FAULTS = {
    "tick": 1.0, "first": 2, "client": {"fault": 0.3, "rejoin": 0.5},
    "link": {"fault": 0.1, "rejoin": 0.5},
    "outage": [{"party": 1, "rounds": [1, 2]}, {"link": [0, "server"], "seconds": [12.0]}],
}  # fmt: skip
CONDITIONS = (
    {"pattern": "paper", "slow": 0.5, "bandwidth": 1e8, "compute": "none"},
    {"pattern": "slow_set", "slow_parties": [1], "upload_law": "pareto", "upload_shape": 3.0},
    {"upload_mean": [1.0, 2.0], "upload_shift": 0.1, "uplinks": [1e6, 1e7], "share_factor": 0.1},
    {"trace": [[1.0, 2.0], [0.5]], "trace_end": "wrap"},
)
STUDY = {
    "title": "t", "dataset": "digits", "conditions": "none", "seeds": [1], "baseline": "a",
    "data": {"parties": 4}, "options": {"rounds": 2},
    "runs": {"a": {"protocol": "split"}, "b": {"protocol": "fedvs", "segments": 1}},
}  # fmt: skip


def test_toml_files_of_faults_conditions_and_studies(tmp_path):
    """1,200 inputs; faults and conditions are then asked for their first rounds."""
    path = tmp_path / "file.toml"

    def attempt(rng: random.Random) -> None:
        kind = rng.randrange(3)
        if kind == 0:
            write(path, FAULTS, rng)
            faults = load_faults(path)
            assert faults is not None
            faults.bind({"server": (-1,), "client": (0, 1)}, 0)
        elif kind == 1:
            write(path, rng.choice(CONDITIONS), rng)
            conditions = load_conditions(path, parties=2, batch_rows=8)
            conditions.delay(0, 1, 1, "upload")
            conditions.transfer(10**6, 1)
        else:
            write(path, STUDY, rng)
            read_study(path)

    survives(1200, attempt)


def test_manifests(tmp_path):
    """300 inputs."""
    keys = {n: Identity.create(tmp_path / f"{n}.key") for n in (-1, 0, 1)}
    entries = {n: ManifestEntry(key.public, None if n < 0 else n + 3) for n, key in keys.items()}
    made = Manifest("a", "fedvs", entries).signed(0, keys[0])
    path = tmp_path / "m.toml"
    made.write(path)
    import tomllib

    content = tomllib.loads(path.read_text())

    def attempt(rng: random.Random) -> None:
        write(path, content, rng)
        found = Manifest.read(path)
        assert found.unsigned
        assert len(found.digest) == 32

    survives(300, attempt)
