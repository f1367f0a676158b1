"""Encoding in panels: memory maps, bounded memory, threads, the order of masks."""

import tracemalloc

import numpy as np
import pytest

from securevfl.errors import FieldError
from securevfl.field import LagrangeCode, PrimeField, SeededSource, encoding
from securevfl.field.kernels import primes

F31, F50, F61 = (PrimeField(p) for p in primes.USUAL)


@pytest.mark.parametrize("F", [F31, F50, F61], ids=str)
def test_panels_and_threads_do_not_change_the_shares(F, monkeypatch):
    code = LagrangeCode(F, parties=9, segments=2, privacy=2, degree=1)
    X = F.random((2, 70, 101), SeededSource(1))
    shares = code.encode(X, source=SeededSource(2))
    monkeypatch.setattr(encoding, "_MASK_BYTES", 1)
    assert (code.encode(X, source=SeededSource(2), threads=2) == shares).all()
    source = SeededSource(2)
    masks = np.stack([F.random((70, 101), source) for _ in range(2)])
    assert (code.encode(X, masks=masks) == shares).all()


def test_memory_maps_are_read_and_written_within_64_mib(tmp_path):
    code = LagrangeCode(F31, parties=10, segments=4, privacy=1, degree=1)
    columns = 6_000_000
    X = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.uint32, (4, columns))
    for row in X:
        row[:] = np.arange(columns, dtype=np.uint32)
    out = np.lib.format.open_memmap(tmp_path / "out.npy", "w+", np.uint32, (10, columns))
    tracemalloc.start()
    code.encode(X, out=out)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    some = np.r_[0:50, columns - 50 : columns]
    assert (code.decode(out[3:8][:, some].copy(), range(3, 8), degree=1) == some).all()


def test_numbers_outside_the_field_are_named_by_the_pass_that_reads_them():
    code = LagrangeCode(F31, parties=5, segments=2, privacy=1)
    X = np.zeros((2, 300_000), np.uint32)
    X[1, 299_999] = 2**31 - 1
    with pytest.raises(FieldError, match=r"index \(1, 299999\) is 2147483647"):
        code.encode(X)
    results = np.zeros((5, 40), np.uint32)
    results[2, 7] = 2**32 - 1
    with pytest.raises(FieldError, match=r"index \(2, 7\)"):
        code.decode(results, range(5))


def test_other_layouts_and_dtypes_are_converted():
    code = LagrangeCode(F31, parties=5, segments=2, privacy=1)
    X = F31.random((40, 2), SeededSource(3))
    masks = F31.random((40, 1), SeededSource(4))
    shares = code.encode(X.T, masks=masks.T)
    assert (shares == code.encode(X.T.astype(np.uint64), masks=masks.T.tolist())).all()
    assert (code.decode(shares[::-1], [4, 3, 2, 1, 0]) == X.T).all()
    assert (code.decode(shares.T.copy().T, range(5), degree=1, threads=2) == X.T).all()


@pytest.mark.parametrize("F", [F31, F61], ids=str)
def test_nothing_is_encoded_to_nothing(F):
    code = LagrangeCode(F, parties=5, segments=2, privacy=1)
    shares = code.encode(np.zeros((2, 0, 3), F.dtype))
    assert shares.shape == (5, 0, 3)
    assert code.decode(shares, range(5)).shape == (2, 0, 3)
    assert code.decode_with_errors(shares, range(5))[0].shape == (2, 0, 3)


def test_wide_aligned_results_equal_those_in_panels_of_any_alignment():
    code = LagrangeCode(F31, parties=10, segments=4, privacy=1)
    X, masks = F31.random((4, 40_000), SeededSource(5)), F31.random((1, 40_000), SeededSource(6))
    room = np.zeros(10 * 40_000 + 16, np.uint32)
    results = []
    for offset in range(0, 16, 5):
        out = room[offset : offset + 400_000].reshape(10, 40_000)
        results.append(code.encode(X, out=out, masks=masks).copy())
    assert all((result == results[0]).all() for result in results)
    matrix = np.concatenate([code.data_matrix, code.mask_matrix], axis=1)
    some = [0, 1, 15, 16, 20_000, 39_999]
    rows = np.concatenate([X, masks])[:, some].astype(object)
    assert (results[0][:, some] == matrix.astype(object) @ rows % F31.modulus).all()


@pytest.mark.parametrize("F", [F31, F50, F61], ids=str)
def test_a_matrix_of_another_size_is_refused_before_anything_is_read(F):
    class Wrong(LagrangeCode):
        """Has (N, N) coefficients, where those of K + T rows are (N, K + T)."""

        @property
        def _basis(self):
            return F.random((5, 5), SeededSource(5))

    words = r"\(5, 5\) cannot be multiplied with 3 rows into 5"
    with pytest.raises(FieldError, match=words):
        Wrong(F, parties=5, segments=2, privacy=1).encode(F.random((2, 3000), SeededSource(6)))
