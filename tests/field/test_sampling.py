"""Uniform sampling: exactness on small fields, provenance, reproducibility."""

import os

import numpy as np
import pytest
from scipy import stats

from securevfl.errors import FieldError
from securevfl.field import PrimeField, SeededSource, SystemSource, sampling
from securevfl.field.kernels import primes

MODULI = [3, 5, 7, 2**26 - 5, 2013265921, 2**31 - 1, 2**32 - 5, primes.P50, 2**61 - 1]


class CountingStream:
    """Yields the words 0, 1, 2, .. of one size, so that every outcome occurs equally often."""

    def __init__(self, itemsize):
        self.itemsize, self.next = itemsize, 0

    def fill(self, out):
        words = out.view(f"u{self.itemsize}")
        words[:] = np.arange(self.next, self.next + words.size, dtype=words.dtype)
        self.next += words.size


@pytest.mark.parametrize("p", [5, 7, 251])
def test_every_element_has_exactly_the_same_probability(p):
    # Over one whole period of the masked words each element must be kept exactly once.
    out = np.empty(p * 40, np.uint32)
    sampling.fill_uniform(p, out, CountingStream(4))
    assert np.bincount(out, minlength=p).tolist() == [40] * p
    assert out[: 2 * p].tolist() == list(range(p)) * 2


@pytest.mark.parametrize("p", MODULI)
def test_samples_are_elements_of_the_right_shape(p):
    F = PrimeField(p)
    for shape in (0, 1, 67, (3, 5)):
        a = F.random(shape)
        assert a.dtype == F.dtype
        assert a.size == np.prod(shape)
        assert a.size == 0 or int(a.max()) < p


@pytest.mark.parametrize("p", MODULI)
def test_samples_fill_the_range_evenly(p):
    # Chi-square over 64 (or p) equal cells; fails by chance with probability 1e-6 per modulus,
    # but the seed is fixed, so the outcome is too.
    cells = min(p, 64)
    a = PrimeField(p).random(200_000, SeededSource(p)).astype(object)
    counts = np.bincount((a * cells // p).astype(np.int64), minlength=cells)
    sizes = np.array([-(-(c + 1) * p // cells) - -(-c * p // cells) for c in range(cells)])
    expected = 200_000 * sizes.astype(float) / p
    assert stats.chisquare(counts, expected).pvalue > 1e-6


def test_the_result_does_not_depend_on_how_the_keystream_is_cut(monkeypatch):
    F = PrimeField(2013265921)
    whole = F.random(100_000, SeededSource(1))
    monkeypatch.setattr(sampling, "_CHUNK", 4096)
    monkeypatch.setattr(sampling, "_REKEY", 1 << 30)
    assert (F.random(100_000, SeededSource(1)) == whole).all()


def test_a_new_key_is_taken_before_a_counter_could_end(monkeypatch):
    monkeypatch.setattr(sampling, "_REKEY", 64)
    out = np.empty(64 * 5, np.uint8)
    sampling.Keystream(b"k" * 32, aes=True).fill(out)
    assert len({out[i : i + 64].tobytes() for i in range(0, out.size, 64)}) == 5


@pytest.mark.parametrize("aes", [True, False])
def test_both_ciphers_yield_a_keystream_that_depends_on_the_key(aes):
    streams = []
    for key in (b"a" * 32, b"b" * 32, b"a" * 32):
        out = np.empty(1000, np.uint8)
        sampling.Keystream(key, aes=aes).fill(out)
        streams.append(out.tobytes())
    assert streams[0] == streams[2] != streams[1]
    assert 100 < np.frombuffer(streams[0], np.uint8).mean() < 155


def test_the_aes_keystream_is_that_of_the_standard():
    # NIST CAVP AESAVS, CTR over a zero block is ECB of the counter 0: AES-256, key of zeros.
    out = np.empty(16, np.uint8)
    sampling.Keystream(bytes(32), aes=True).fill(out)
    assert out.tobytes().hex() == "dc95c078a2408989ad48a21492842087"


def test_the_system_source_takes_fresh_entropy_at_every_call(monkeypatch):
    drawn = []

    def entropy(size):
        drawn.append(size)
        return bytes([len(drawn)]) * size

    monkeypatch.setattr(os, "urandom", entropy)
    F = PrimeField(2**31 - 1)
    a, b = F.random(8), F.random(8)
    assert drawn == [32, 32]
    assert not (a == b).any()


def test_a_forked_child_does_not_repeat_its_parent():
    F = PrimeField(2**61 - 1)
    F.random(4)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(write, F.random(4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    theirs = np.frombuffer(os.read(read, 32), np.uint64)
    assert not np.isin(theirs, F.random(4)).any()


def test_sources_say_whether_they_are_secure():
    assert SystemSource().secure is True
    assert SeededSource(1).secure is False
    assert isinstance(SystemSource(), sampling.Source)
    assert isinstance(SeededSource(1), sampling.Source)


def test_a_seeded_source_repeats_and_its_calls_differ():
    F = PrimeField(2**31 - 1)
    first, second = SeededSource(7), SeededSource(7)
    a, b = F.random(50, first), F.random(50, first)
    assert (a == F.random(50, second)).all()
    assert (b == F.random(50, second)).all()
    assert not (a == b).any()


@pytest.mark.parametrize("seed", [1.7, "1", None, True])
def test_a_seed_is_an_integer_or_bytes(seed):
    with pytest.raises(FieldError, match="integer or bytes"):
        SeededSource(seed)
