"""Files are there whole after a power cut: synced before their renaming, and their folder after."""

import os
import re
import stat
from pathlib import Path

import pytest

import securevfl
from securevfl.engine.checkpoint import write_checkpoint, write_file
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.security.identity import Identity, Manifest, ManifestEntry
from securevfl.engine.security.used_sessions import use_session
from securevfl.writing import make_folder, write_durably
from tests.engine.test_checkpoint import state
from tests.runs.folders import small


@pytest.fixture
def calls(monkeypatch):
    """What was done to the disk, in order: "file" and "folder" synced, "named"."""
    done, names = [], {"replace": os.replace, "link": os.link}
    fsync = os.fsync

    def synced(descriptor):
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        fsync(descriptor)

    def naming(name):
        def named(*arguments):
            done.append("named")
            names[name](*arguments)

        return named

    monkeypatch.setattr(os, "fsync", synced)
    for name in names:
        monkeypatch.setattr(os, name, naming(name))
    return done


MANIFEST = Manifest("s", "split", {n: ManifestEntry(bytes([n + 2]) * 32) for n in (-1, 0)})
WRITES = {
    "a text": lambda folder: write_durably(folder / "a", "b"),
    "a new file": lambda folder: write_durably(folder / "a", b"b", new=True),
    "a state": lambda folder: write_file(folder / "a", 1),
    "a checkpoint": lambda folder: write_checkpoint(folder, state()),
    "an incarnation": lambda folder: CheckpointStore(folder).begin_incarnation(),
    "what is sent once": lambda folder: CheckpointStore(folder).write_ahead(1, b""),
    "used sessions": lambda folder: use_session(folder / "a", "s", "r"),
    "a key": lambda folder: Identity.create(folder / "a.key"),
    "a manifest": lambda folder: MANIFEST.write(folder / "a.toml"),
    "a result": lambda folder: small.run(folder),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_what_is_named_was_synced_before_and_its_folder_after(tmp_path, calls, write):
    write(tmp_path)
    assert calls.index("file") < calls.index("named")
    assert calls[::-1].index("folder") < calls[::-1].index("named")


def test_what_is_forgotten_stays_forgotten(tmp_path, calls):
    store = CheckpointStore(tmp_path)
    calls.clear()
    store.forget(-1)
    assert calls == ["folder"]


def test_a_folder_is_on_disk_with_its_parents(tmp_path, calls):
    make_folder(tmp_path / "a" / "b" / "c")
    assert calls == ["folder"] * 3
    make_folder(tmp_path / "a" / "b" / "c")
    assert len(calls) == 3


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path):
    def full():
        yield b"half"
        raise OSError("full")

    (tmp_path / "a").write_text("before")
    with pytest.raises(OSError, match="full"):
        write_durably(tmp_path / "a", full())
    with pytest.raises(FileExistsError):
        write_durably(tmp_path / "a", "b", new=True)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["before"]


# Caches: what they hold is compared with a checksum or its source before it is used.
UNSYNCED = {"field/kernels/objects.py", "writing.py"}


def test_nothing_is_renamed_elsewhere():
    root = Path(securevfl.__file__).parent
    renaming = re.compile(r"os\.(replace|rename|link)\(|\b(part|path|file)\.(replace|rename)\(")
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if renaming.search(path.read_text())
    }
    assert found == UNSYNCED
