"""Archives of arrays: what they declare is checked before memory is taken."""

import struct
import tracemalloc
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from securevfl.reading import count_rows, read_arrays, read_pieces, read_small


def archive(path, name="a.npy", **header):
    """An .npz file whose member declares a shape and has no elements."""
    text = str({"descr": "<i8", "fortran_order": False, "shape": (3,)} | header).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(name, b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text)
    return path


def test_arrays_come_back_as_they_were(tmp_path):
    wanted = {"a": np.arange(6).reshape(2, 3), "b": np.asfortranarray(np.ones((3, 2), "f4")),
              "c": np.array(["x", "yz"]), "d": np.zeros((0, 4))}  # fmt: skip
    np.savez_compressed(tmp_path / "a.npz", **wanted)
    found = read_arrays(tmp_path / "a.npz")
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


@pytest.mark.parametrize("shape", [(2**43,), (2**31, 2**31, 2), (4,)])
def test_a_shape_that_the_file_does_not_hold_takes_no_memory(tmp_path, shape):
    with pytest.raises(ValueError, match="declares"):
        read_arrays(archive(tmp_path / "a.npz", shape=shape))


def test_objects_are_not_read(tmp_path):
    with pytest.raises(ValueError, match="declares 0 bytes of object"):
        read_arrays(archive(tmp_path / "a.npz", descr="|O", shape=(0,)))


def test_an_archive_that_unpacks_to_more_than_may_be_used_is_refused(tmp_path, monkeypatch):
    """20 kB that declare 20 MB: nothing of it is unpacked."""
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(20_000_000, "i1"))
    assert (tmp_path / "a.npz").stat().st_size < 21_000
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10**7))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="declare 20000128 bytes, and 5000000 may be used"):
            read_arrays(tmp_path / "a.npz")
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("content", [b"", b"PK", b"PK\x03\x04" + bytes(40)])
def test_what_is_no_archive_is_a_value_error(tmp_path, content):
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"not a zip|File is"):
        read_arrays(tmp_path / "a.npz")


def test_a_small_archive_may_not_fill_the_memory(tmp_path):
    """80 kB that declare 80 MB, of which the machine has more: nothing of it is unpacked."""
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(80_000_000, "i1"))
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=r"declare 80000128 bytes, and a file of .* may hold"):
            read_arrays(tmp_path / "a.npz")
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()


CODES = {"a": "q", "b": "b"}


def test_pieces_are_the_columns(tmp_path):
    a, b = np.arange(25), np.arange(25).astype("b")
    np.savez_compressed(tmp_path / "a.npz", a=a, b=b, more=np.zeros(3))
    assert count_rows(tmp_path / "a.npz", CODES) == 25
    pieces = list(read_pieces(tmp_path / "a.npz", CODES, 10))
    assert [len(piece["a"]) for piece in pieces] == [10, 10, 5]
    for name, column in (("a", a), ("b", b)):
        assert np.concatenate([piece[name] for piece in pieces]).tolist() == column.tolist()
    assert read_small(tmp_path / "a.npz", "a", 400).tolist() == a.tolist()
    with pytest.raises(ValueError, match="a has 328 bytes, and 300 are allowed"):
        read_small(tmp_path / "a.npz", "a", 300)


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"a": np.zeros(5, "q")}, "other columns than this version: no b"),
        ({"a": np.zeros(5, "q"), "b": np.zeros(4, "b")}, r"declare \[4, 5\] rows"),
        ({"a": np.zeros(5, "q"), "b": np.zeros(5, "q")}, "b.npy holds int64"),
        ({"a": np.zeros((5, 1), "q"), "b": np.zeros(5, "b")}, "of 2 dimensions"),
    ],
)
def test_columns_of_another_form_are_refused(tmp_path, columns, why):
    np.savez_compressed(tmp_path / "a.npz", **columns)
    with pytest.raises(ValueError, match=why):
        list(read_pieces(tmp_path / "a.npz", CODES, 10))


def test_a_flipped_byte_in_a_column_is_found(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.arange(50), b=np.zeros(50, "b"))
    content = bytearray((tmp_path / "a.npz").read_bytes())
    content[content.index(np.arange(50).tobytes()) + 9] ^= 1
    (tmp_path / "a.npz").write_bytes(content)
    with pytest.raises(ValueError, match="Bad CRC-32"):
        list(read_pieces(tmp_path / "a.npz", CODES, 10))
