"""Records in places that are overwritten: what is whole after a crash or damage at each moment."""

import os

import pytest

from securevfl.engine.realtime import slot_file
from securevfl.engine.realtime.slot_file import SlotFile
from securevfl.errors import CheckpointError


class Disk:
    """What is on the disk: all that was synced, and any part of what was written since."""

    def __init__(self, path, monkeypatch):
        self.path, self.synced, self.calls = path, None, 0
        fdatasync, replace = os.fdatasync, os.replace

        def sync(descriptor):
            fdatasync(descriptor)
            self.calls += 1
            self.synced = path.read_bytes()

        def replaced(source, place):
            replace(source, place)
            self.synced = path.read_bytes()

        monkeypatch.setattr(slot_file, "_sync", sync)
        monkeypatch.setattr(os, "replace", replaced)

    def states(self, page=512):
        """Contents after a power cut: each sector that was written since may be there or not."""
        now = self.path.read_bytes()
        old = self.synced.ljust(len(now), b"\0")
        changed = [at for at in range(0, len(now), page) if now[at:][:page] != old[at:][:page]]
        yield now
        yield old
        for sectors in (changed[::2], changed[1::2], changed[:1], changed[-1:], changed[1:]):
            content = bytearray(old)
            for at in sectors:
                content[at : at + page] = now[at : at + page]
            yield bytes(content)


def reopened(path, content):
    """The file as a new process finds it, beside the one that is written."""
    copy = path.with_name("copy.svfl")
    copy.write_bytes(content)
    file = SlotFile(copy)
    file.open()
    return file


def bodies(file):
    return {round: body for round in file.rounds if (body := file.read(round)) is not None}


@pytest.fixture
def disk(tmp_path, monkeypatch):
    return Disk(tmp_path / "rounds.svfl", monkeypatch)


def test_a_power_cut_at_any_moment_loses_only_what_was_not_synced(disk):
    file, durable, ahead = SlotFile(disk.path), {}, None
    for round in range(8):
        new, newer = bytes([round]) * 3000, bytes([100 + round]) * 700
        file.put(round, new)
        file.keep_only(range(round - 2, round + 1))
        file.put_ahead(round, newer)
        file.put_ahead(round, newer)  # the one before is still there
        for content in disk.states():
            found = reopened(disk.path, content)
            there = bodies(found)
            old = there.pop(round - 4, None)  # its place may not be overwritten yet
            assert old in (None, bytes([round - 4 & 255]) * 3000)
            assert there in (durable, durable | {round: new})
            assert found.ahead in (ahead, newer)
        file.sync()
        durable, ahead = {n: bytes([n]) * 3000 for n in file.rounds}, newer
        for content in disk.states():
            assert reopened(disk.path, content).ahead == ahead
    assert len(disk.path.read_bytes()) <= 8 * 4096


def test_a_round_that_is_not_on_disk_is_synced_before_the_next_takes_a_place(disk):
    file = SlotFile(disk.path)
    for round in range(4):
        file.put(round, b"state")
        file.keep_only([round])
    for content in disk.states():
        assert 2 in bodies(reopened(disk.path, content))


def test_a_record_written_ahead_that_was_on_disk_is_missed(disk):
    """Passed over, it would let a party forget what it had released."""
    file = SlotFile(disk.path)
    for state in (b"first", b"second"):
        file.put_ahead(1, state)
        file.sync()
    whole = disk.path.read_bytes()
    assert reopened(disk.path, whole).ahead == b"second"
    spoilt = whole.replace(b"second", b"sec0nd")
    with pytest.raises(CheckpointError, match=r"damaged.*Nothing was changed"):
        _ = reopened(disk.path, spoilt).ahead
    assert reopened(disk.path, whole.replace(b"first", b"f1rst")).ahead == b"second"
    for at in (0, 4096):  # the size of a place, and the mark
        with pytest.raises(CheckpointError, match="damaged"):
            reopened(disk.path, whole[:at] + b"x" + whole[at + 1 :])


def test_larger_records_move_all_to_larger_places(disk):
    file = SlotFile(disk.path)
    records = {round: bytes([round]) * 5000**round for round in range(3)}
    for round, body in records.items():
        file.put_ahead(round, b"ahead %d" % round)
        file.put(round, body[: 1 << 20])
    file.sync()
    found = reopened(disk.path, disk.synced)
    assert bodies(found) == {round: body[: 1 << 20] for round, body in records.items()}
    assert found.ahead == b"ahead 2"


def test_what_is_erased_or_written_again_does_not_come_back(disk):
    file = SlotFile(disk.path)
    for round in range(6):
        file.put(round, b"of the first attempt")
        file.keep_only(range(round - 1, round + 1))
    file.erase_after(2)
    assert reopened(disk.path, disk.synced).rounds == file.rounds == []
    for state in (b"second", b"third"):
        file.put(3, state)
        file.sync()
    assert bodies(reopened(disk.path, disk.synced)) == {3: b"third"}


def torn(content, body):
    """The content with the second half of a record's body not written."""
    assert content.count(body) == 1
    half = len(body) // 2
    return content.replace(body, body[:half] + bytes(len(body) - half))


def test_a_second_crash_spares_what_the_first_left_written_ahead(disk):
    """The place that is torn is overwritten next, and not the one that is whole."""
    file = SlotFile(disk.path)
    file.put_ahead(1, b"released")
    file.sync()
    unmarked = disk.synced  # the mark of the first is not on disk
    file.put_ahead(2, b"not told yet")
    found = reopened(disk.path, torn(disk.path.read_bytes(), b"not told yet"))
    assert unmarked[:8192] != disk.path.read_bytes()[:8192]
    found.put_ahead(2, b"not told again")
    crashed = unmarked[:8192] + torn(found.path.read_bytes(), b"not told again")[8192:]
    assert reopened(disk.path, crashed).ahead == b"released"


def test_a_crash_while_a_round_is_written_again_leaves_the_one_before(disk):
    """A party that came back from a round writes it anew at its first safe point."""
    file = SlotFile(disk.path)
    file.put(0, b"state")
    file.sync()
    content = disk.path.read_bytes()
    for again in (b"written again", b"and once more"):
        found = reopened(disk.path, content)
        assert found.read(0) == b"state"
        found.put(0, again)
        content = torn(found.path.read_bytes(), again)
    assert bodies(reopened(disk.path, content)) == {0: b"state"}


def test_a_record_that_could_not_be_written_is_not_missed(disk, monkeypatch):
    """On a full disk: the one before is needed, and is still there."""
    file = SlotFile(disk.path)
    for state in (b"first", b"second"):
        file.put_ahead(1, state)
        file.sync()
    file.put_ahead(2, b"third")
    put_at = SlotFile._put_at

    def full(self, at, content):
        put_at(self, at, content[:3])
        if content == b"fourth":
            raise OSError(28, "No space left on device")
        put_at(self, at, content)

    with monkeypatch.context() as patch:
        patch.setattr(SlotFile, "_put_at", full)
        with pytest.raises(OSError, match="No space"):
            file.put_ahead(2, b"fourth")
    file.sync()
    assert reopened(disk.path, disk.path.read_bytes()).ahead == b"second"


def test_after_a_sync_that_failed_none_succeeds(disk, monkeypatch):
    """A second fdatasync says that all is well, though the pages of the first are lost."""
    file = SlotFile(disk.path)
    file.put(0, b"state")

    def fails(descriptor):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(slot_file, "_sync", fails)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
    for step in (file.sync, lambda: file.put(1, b"next")):
        with pytest.raises(OSError, match="Input/output"):
            step()
    file.open()
    file.put(1, b"next")
    file.sync()
