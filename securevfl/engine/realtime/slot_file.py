"""File of a party's checkpoints in places of equal size, each for one record, overwritten in turn.

A write needs one sync and no renaming. A new file for each checkpoint would take three times as
long: file and folder are synced, and the file system writes its journal for both.

The file is a page (4,096 bytes) with the size of a place, a page with the mark, and the places. A
record has a checksum, so one that was written in part counts as missing. A record that is needed is
not overwritten before a newer one is on disk, so a crash never loses the last one.

The first two places hold in turn the state written ahead (`Party.write_ahead`), the others the
checkpoints of rounds. The mark is the number of the newest record written ahead that is known to be
on disk. If no record of this number or a later one can be read, the file is damaged.
"""

from __future__ import annotations

import hashlib
import os
import struct
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from io import FileIO
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from securevfl.errors import CheckpointError
from securevfl.writing import put_in_place, write_beside, write_durably

_MAGIC, _VERSION = b"SVFLSLOT", 1
_PAGE = 4096
_SIZE = struct.Struct("<8sIQ")  # magic, version, bytes of a place
_MARK = struct.Struct("<q")
_HEAD = struct.Struct("<qqQ32s")  # number, round, bytes of the body and their SHA-256
_CHECK = 16  # bytes of the SHA-256 of a size, mark or head, which follow it
_FIRST = 2 * _PAGE
_AHEAD = (0, 1)  # places of what is written ahead
_sync = getattr(os, "fdatasync", os.fsync)  # times of a file need not be on disk


class _Head(NamedTuple):
    number: int  # ascending over all records of the file
    round: int
    length: int
    digest: bytes


class SlotFile:
    """Records of rounds, and the newest one written ahead, in one file.

    What is written is on disk after `sync`. One process writes; `open` reads what others wrote.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: FileIO | None = None
        self._size = 0
        self._heads: dict[int, _Head] = {}  # whole heads by place; their bodies may be damaged
        self._used: dict[int, int] = {}  # places of rounds that are kept
        self._next = 0
        self._mark = -1
        self._unsynced: set[int] = set()  # places
        self._lost: OSError | None = None  # by a sync

    def open(self) -> None:
        """Read the heads of the file as it is now; what it holds is on disk on return.

        CheckpointError if the file is damaged as a whole.
        """
        self.close()
        with suppress(FileNotFoundError):
            self._opened()
        if self._file is None:
            return
        _sync(self._file.fileno())  # a process that was killed may have left it to be written
        found = self._checked(0, _SIZE)
        marked = self._checked(_PAGE, _MARK)
        if found is None or marked is None or found[:2] != (_MAGIC, _VERSION):
            self.close()
            raise self.damaged()
        self._size, self._mark = found[2], marked[0]
        places = range(-(-max(0, os.fstat(self._file.fileno()).st_size - _FIRST) // self._size))
        for place in places:
            head = self._checked(self._start(place), _HEAD)
            if head is not None:
                self._heads[place] = _Head(*head)
        newest = sorted((head.number, place) for place, head in self._heads.items())
        self._used = {self._heads[place].round: place for _, place in newest if place not in _AHEAD}
        self._next = 1 + max([self._mark, *(number for number, _ in newest)])
        for place in _AHEAD:  # what a crash left half written is next to be overwritten
            if place in self._heads and self._body(place) is None:
                del self._heads[place]

    def close(self) -> None:
        """Close the file, without a sync."""
        if self._file is not None:
            self._file.close()
        self._file, self._heads, self._used = None, {}, {}
        self._next, self._mark, self._unsynced, self._lost = 0, -1, set(), None

    def remove(self) -> None:
        """Delete the file."""
        self.close()
        self.path.unlink(missing_ok=True)

    def damaged(self) -> CheckpointError:
        """Error that the file is damaged."""
        return CheckpointError(
            f"checkpoint: {self.path} is damaged. In it stands what has left this party since its "
            "last checkpoint, so that none of it leaves twice: put it back from a copy, or start "
            "another run. Nothing was changed"
        )

    @property
    def rounds(self) -> list[int]:
        """Rounds with a record, ascending; the record may be damaged."""
        return sorted(self._used)

    def read(self, round: int) -> bytes | None:
        """Newest whole record of a round; None if there is none.

        A restarted party writes a round again; if it crashes then, the earlier record remains.
        """
        here = [n for n, head in self._heads.items() if n not in _AHEAD and head.round == round]
        for place in sorted(here, key=lambda n: -self._heads[n].number):
            body = self._body(place) if round in self._used else None
            if body is not None:
                self._used[round] = place
                return body
        return None

    def put(self, round: int, body: bytes) -> None:
        """Write the record of a round into a free place."""
        self._open_once()
        if any(place not in _AHEAD for place in self._unsynced):
            self.sync()  # the free place may hold the newest round but one that is on disk
        taken = {*_AHEAD, *self._used.values()}
        place = next(n for n in range(len(taken) + 1) if n not in taken)
        self._write(place, round, body)
        self._used[round] = place

    def keep_only(self, rounds: Iterable[int]) -> None:
        """Let the places of all other rounds be overwritten."""
        self._used = {round: self._used[round] for round in rounds if round in self._used}

    def erase_after(self, round: int) -> None:
        """Erase the records of later rounds; they are gone on return, also after a power cut."""
        self._open_once()
        late = [p for p, head in self._heads.items() if p not in _AHEAD and head.round > round]
        for place in late:
            self._put_at(self._start(place), bytes(_HEAD.size + _CHECK))
            del self._heads[place]
            self._unsynced.add(place)
        self.keep_only([old for old in self._used if old <= round])
        self.sync()

    @property
    def ahead(self) -> bytes | None:
        """Newest record written ahead; None if there is none.

        CheckpointError if a newer one was on disk and cannot be read.
        """
        there = [place for place in _AHEAD if place in self._heads]
        for place in sorted(there, key=lambda place: -self._heads[place].number):
            body = self._body(place)
            if body is not None:
                if self._heads[place].number < self._mark:
                    raise self.damaged()
                return body
        if self._mark >= 0:
            raise self.damaged()
        return None

    def put_ahead(self, round: int, body: bytes) -> None:
        """Write the newest state written ahead; the one on disk stays there until `sync`."""
        self._open_once()
        new = [place for place in _AHEAD if place in self._unsynced]
        old = sorted(_AHEAD, key=lambda p: self._heads[p].number if p in self._heads else -1)
        self._write((new or old)[0], round, body)

    def sync(self) -> None:
        """Have all that was written on disk on return.

        OSError if that fails, then and each time after: the system may have dropped what it could
        not write, and report success to a second sync.
        """
        if self._lost is not None:
            raise self._lost
        if self._file is None or not self._unsynced:
            return
        try:
            _sync(self._file.fileno())
        except OSError as error:
            self._lost = error
            raise
        ahead = [self._heads[p].number for p in self._unsynced if p in _AHEAD and p in self._heads]
        self._unsynced.clear()
        if ahead:  # it may come to the disk with what is written next
            self._mark = max(self._mark, *ahead)
            self._put_at(_PAGE, _checksummed(_MARK.pack(self._mark)))

    def _opened(self) -> None:
        self._file = self.path.open("r+b", buffering=0)
        weakref.finalize(self, self._file.close)  # also where both are parts of a cycle

    def _open_once(self) -> None:
        if self._file is None:
            self.open()

    def _start(self, place: int) -> int:
        return _FIRST + place * self._size

    def _write(self, place: int, round: int, body: bytes) -> None:
        needed = _HEAD.size + _CHECK + len(body)
        if self._file is None or needed > self._size:
            self._grow(needed)
        head = _Head(self._next, round, len(body), hashlib.sha256(body).digest())
        self._unsynced.add(place)
        self._heads.pop(place, None)  # gone, also if the disk is full
        self._put_at(self._start(place), _checksummed(_HEAD.pack(*head)))
        self._put_at(self._start(place) + _HEAD.size + _CHECK, body)
        self._heads[place] = head
        self._next += 1

    def _grow(self, needed: int) -> None:
        """Create the file, or replace it by one with larger places."""
        self.sync()
        size = -(-(needed + needed // 4) // _PAGE) * _PAGE
        first = _checksummed(_SIZE.pack(_MAGIC, _VERSION, size)).ljust(_PAGE, b"\0")
        second = _checksummed(_MARK.pack(self._mark)).ljust(_PAGE, b"\0")
        if self._file is None:
            write_durably(self.path, first + second, mode=0o600)
        else:
            kept = {*self._used.values(), *_AHEAD} & set(self._heads)
            self._heads = {place: self._heads[place] for place in kept}
            moved = chain((first, second), self._moved(size))
            part = write_beside(self.path, moved, mode=0o600)
            self._file.close()
            put_in_place([(part, self.path)])
        self._opened()
        self._size = size

    def _moved(self, size: int) -> Iterator[bytes]:
        """The places in use, each with as many bytes as it will have."""
        for place in range(1 + max(self._heads, default=-1)):
            there = self._size if place in self._heads else 0
            yield self._at(self._start(place), there).ljust(size, b"\0")

    def _body(self, place: int) -> bytes | None:
        head = self._heads[place]
        body = self._at(self._start(place) + _HEAD.size + _CHECK, head.length)
        return body if hashlib.sha256(body).digest() == head.digest else None

    def _checked(self, at: int, form: struct.Struct) -> tuple[Any, ...] | None:
        """Fields, by `form`, of a size, mark or head at byte `at`; None for a false checksum."""
        found = self._at(at, form.size + _CHECK)
        if len(found) < form.size or found != _checksummed(found[: form.size]):
            return None
        return form.unpack(found[: form.size])

    def _at(self, at: int, length: int) -> bytes:
        assert self._file is not None
        self._file.seek(at)
        pieces = []
        while length and (piece := self._file.read(length)):
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)

    def _put_at(self, at: int, content: bytes) -> None:
        assert self._file is not None
        self._file.seek(at)
        left = memoryview(content)
        while left:
            left = left[self._file.write(left) :]


def _checksummed(content: bytes) -> bytes:
    return content + hashlib.sha256(content).digest()[:_CHECK]
