"""How kernels are called, where their code is kept, and what is said where it cannot be."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import securevfl
from securevfl.field.kernels import jit, objects

PROGRAM = """
import numpy as np
from securevfl.field import PrimeField
F = PrimeField(2**31 - 1)
assert F.add([1, 2], [3, F.modulus - 2]).tolist() == [4, 0]
from securevfl.field.kernels import fixed_point
"""

NO_NUMBA = """
import sys
assert "llvmlite" in sys.modules
assert not {"numba", "scipy", "torch"} & set(sys.modules)
"""


@pytest.fixture
def unwritable(tmp_path):
    """Return a copy of the package and an environment in which numba may write nowhere.

    Files stand where folders would be made, so that this holds for the superuser too.
    """
    package = tmp_path / "site" / "securevfl"
    shutil.copytree(
        Path(securevfl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "field" / "kernels" / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    nowhere = str(tmp_path / "home" / "cache")
    variables = {"HOME": nowhere, "XDG_CACHE_HOME": nowhere, "PYTHONPATH": str(package.parent)}
    return {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | variables


def run(environment, folder, more=""):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM + more],
        env=environment, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_where_nothing_can_be_kept_kernels_compile_and_one_line_names_the_variable(
    unwritable, tmp_path
):
    said = run(unwritable, tmp_path)
    assert said.count("Set NUMBA_CACHE_DIR to a folder") == 1
    assert run(unwritable | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}, tmp_path) == ""
    (kept,) = (tmp_path / "kept").rglob("scalar.add-*.kernel")
    about = kept.stat().st_mtime_ns
    assert run(unwritable | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}, tmp_path, NO_NUMBA) == ""
    assert kept.stat().st_mtime_ns == about


def weighted(x, factors, some, out):
    """Sum a row, and write it scaled: arrays of several kinds, numbers, a tuple."""
    shift, scale = some
    total = 0
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            total += x[i, j] * factors[j]
            out[i, j] = x[i, j] * scale + shift
    return total


@pytest.fixture
def kept(tmp_path, monkeypatch):
    """Return a folder in which kernels are kept, and count how many are compiled."""
    compiled = []

    def counted(*arguments):
        compiled.append(arguments)
        return found(*arguments)

    found = jit.compile_to_object
    monkeypatch.setattr(jit, "compile_to_object", counted)
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path / "securevfl-kernels", compiled


def call(kernel, x):
    """Call `weighted` and compare with numpy."""
    out, factors = np.empty(x.shape), np.arange(x.shape[1], dtype=np.uint64)
    total = kernel(x, factors, (np.float32(0.5), 2.0), out)
    assert total == int((np.asarray(x, object) * np.asarray(factors, object)).sum())
    assert (out == x * 2.0 + 0.5).all()


def test_arrays_are_read_where_they_stand(kept, tmp_path):
    kernel, x = jit.Kernel(weighted), np.arange(60, dtype=np.uint32).reshape(6, 10)
    mapped = np.memmap(tmp_path / "x", np.uint32, "w+", shape=x.shape)
    mapped[:] = x
    unaligned = np.frombuffer(b" " + x.tobytes(), np.uint32, offset=1).reshape(x.shape)
    fixed = x.copy()
    fixed.flags.writeable = False
    for one in (x, mapped, unaligned, fixed, x[:0]):
        call(kernel, one)
    assert len(kept[1]) == 1
    for one in (x[::2, ::3], x.T, x[::-1], np.broadcast_to(x[0], (3, 10))):
        call(kernel, one)
    assert len(kept[1]) == 2
    call(kernel, x.astype(np.uint64))
    assert len(kept[1]) == 3


@pytest.mark.parametrize("wrong", ["two", None, np.arange(3, dtype=">u4"), 1j])
def test_what_no_kernel_takes_is_refused(wrong):
    with pytest.raises((TypeError, ValueError)):
        jit.Kernel(weighted)(wrong)


def test_a_kernel_that_may_raise_is_refused(kept):
    def kernel(n):
        for i in range(0, 5, n):
            if i > 3:
                return i
        return n

    with pytest.raises(TypeError, match="may not raise"):
        jit.Kernel(kernel)(1)


def test_kept_code_is_used_unless_it_is_damaged_or_somebody_else_may_write_it(kept):
    folder, compiled = kept
    assert jit.Kernel(counted)(5) == 5
    assert jit.Kernel(counted)(5) == 5
    (file,) = folder.iterdir()
    assert len(compiled) == 1
    content = file.read_bytes()
    for spoil in (
        lambda: file.write_bytes(content[:-1]),
        lambda: file.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:]),
        lambda: file.write_bytes(b""),
        lambda: file.chmod(0o666),
        lambda: file.chmod(0o664),
    ):
        before = len(compiled)
        spoil()
        assert jit.Kernel(counted)(5) == 5
        assert len(compiled) == before + 1
        assert objects._read(file)
        assert file.stat().st_mode & 0o777 == 0o644
    before = len(compiled)
    assert jit.Kernel(counted)(5) == 5
    assert len(compiled) == before


def test_code_of_another_owner_is_not_read(kept, monkeypatch):
    assert jit.Kernel(counted)(5) == 5
    (file,) = kept[0].iterdir()
    assert objects._read(file)
    if os.geteuid():  # the superuser's code is everybody's
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        os.chown(file, 12345, 12345)
    assert objects._read(file) is None


def test_an_edit_of_a_source_makes_code_stale_and_removes_it(kept, monkeypatch):
    folder, compiled = kept
    assert jit.Kernel(counted)(5) == 5
    (old,) = folder.iterdir()
    monkeypatch.setattr(objects, "folder_stamp", lambda: (("ir.py", 1, 2),))
    assert jit.Kernel(counted)(5) == 5
    (new,) = folder.iterdir()
    assert old.name != new.name
    assert len(compiled) == 2


def counted(number):
    """Return the number."""
    return number


def test_integers_beyond_a_word_are_refused_and_the_outermost_ones_are_right():
    kernel = jit.kernel(counted)
    assert [kernel(n) for n in (2**63 - 1, -(2**63))] == [2**63 - 1, -(2**63)]
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError, match="64 bits with a sign"):
            kernel(number)


def test_a_numpy_with_other_array_objects_is_refused(monkeypatch):
    jit.refuse_other_layout.cache_clear()
    jit.refuse_other_layout()
    jit.refuse_other_layout.cache_clear()

    monkeypatch.setattr(jit, "_HEAD", jit._HEAD + 8)  # As if a field stood before the others.
    with pytest.raises(RuntimeError, match="lays out its arrays"):
        jit.refuse_other_layout()
    jit.refuse_other_layout.cache_clear()


def test_kernels_that_may_not_be_compiled_are_refused_in_one_line(tmp_path):
    settings = {"NUMBA_DISABLE_JIT": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].endswith("NUMBA_DISABLE_JIT forbids that; unset it")
