"""The statistical tests on synthetic views: power, silence, and exact failure probabilities."""

import numpy as np
import pytest

from securevfl.audit import statistical as st
from securevfl.field import PrimeField, sampling

P31, P61 = 2**31 - 1, 2**61 - 1


@pytest.fixture(params=[P31, P61], ids=["2^31-1", "2^61-1"])
def field(request):
    return PrimeField(request.param)


def test_two_samples(field):
    one, two = field.random((60, 12)), field.random((60, 12))
    assert not st.two_sample(one, two).rejected
    two[:, 5] = two[:, 5] // two.dtype.type(4)
    assert st.two_sample(one, two).rejected


class Counting:
    """A keystream whose words are 0, 1, .., 2^b - 1, over and over."""

    def __init__(self, words, dtype):
        self._words, self._dtype, self._next = words, dtype, 0

    def fill(self, out):
        words = out.view(self._dtype)
        words[:] = (self._next + np.arange(words.size)) % self._words
        self._next += words.size


def is_exact(sampler, modulus):
    """Whether every element comes out equally often when every word goes in equally often."""
    words = 1 << modulus.bit_length()
    out = np.empty(modulus * words, np.uint32)
    sampler(modulus, out, Counting(words, out.dtype))
    counts = np.bincount(out, minlength=modulus)
    return len(counts) == modulus and len(set(counts.tolist())) == 1


@pytest.mark.parametrize("p", [3, 5, 7, 11, 13])
def test_the_sampler_is_exact_on_every_word(p):
    assert is_exact(sampling.fill_uniform, p)


@pytest.mark.parametrize("p", [5, 7])
def test_a_sampler_that_reduces_is_caught(p):
    def modulo(p, out, stream):
        stream.fill(out.view(np.uint8))
        out &= out.dtype.type((1 << p.bit_length()) - 1)
        out %= out.dtype.type(p)

    assert not is_exact(modulo, p)
