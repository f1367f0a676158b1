"""The statistical tests on synthetic views: power, silence, and exact failure probabilities."""

import numpy as np
import pytest
from scipy.stats import binom

from securevfl.audit import statistical as st
from securevfl.audit.games.on_runs import TESTS
from securevfl.errors import ConfigurationError
from securevfl.field import PrimeField, sampling

P31, P61 = 2**31 - 1, 2**61 - 1


@pytest.fixture(params=[P31, P61], ids=["2^31-1", "2^61-1"])
def field(request):
    return PrimeField(request.param)


def test_uniform_messages_are_not_accused(field):
    messages = {str(i): field.random((40, 40)) for i in range(20)}
    assert not st.uniformity(field, messages).rejected


@pytest.mark.parametrize(
    "change",
    [
        lambda x, p: x & x.dtype.type(0xFFFF),
        lambda x, p: x & ~x.dtype.type(1),
        lambda x, p: x // x.dtype.type(2),
        lambda x, p: np.where(x > p // 2, x, x.dtype.type(7)),
    ],
    ids=["small", "even", "lower half", "a constant often"],
)
def test_messages_that_are_not_uniform_are_accused(field, change):
    x = field.random((60, 60))
    messages = {"uniform": field.random((60, 60)), "other": change(x, field.modulus)}
    outcome = st.uniformity(field, messages)
    assert outcome.rejected
    assert "other" in outcome.detail


def test_a_message_sent_twice_is_still_uniform(field):
    x = field.random((60, 60))
    assert not st.uniformity(field, {str(i): x for i in range(6)}).rejected


def test_too_small_a_message_is_refused(field):
    with pytest.raises(ConfigurationError, match="has 16 elements"):
        st.uniformity(field, {"x": field.random((4, 4))})


@pytest.mark.parametrize("p", [1009, 15485863, P31, P61])
def test_cell_sizes_add_up_to_the_field(p):
    for part in ("high", "low"):
        sizes = st._cell_sizes(p, part)
        assert sizes.sum() == pytest.approx(p, rel=1e-15)
        assert sizes.min() > p / 25


def test_equality_counts_what_chance_would_not_give(field):
    x = field.random((30, 30))
    other = field.random((30, 30))
    assert not st.equality(field, [("x", x, other)]).rejected
    other[:2, 0] = x[:2, 0]
    outcome = st.equality(field, [("x", x, other)])
    assert outcome.rejected
    assert "2 of 900 elements of x" in outcome.detail


def test_the_bound_of_equality_is_above_the_exact_tail():
    field, n = PrimeField(101), 50
    for k in range(1, 5):
        x = np.zeros(n, np.uint32)
        y = np.ones(n, np.uint32)
        y[:k] = 0
        bound = st.equality(field, [("x", x, y)]).p_value
        assert bound >= binom.sf(k - 1, n, 1 / 101)


def test_two_samples(field):
    one, two = field.random((60, 12)), field.random((60, 12))
    assert not st.two_sample(one, two).rejected
    two[:, 5] = two[:, 5] // two.dtype.type(4)
    assert st.two_sample(one, two).rejected


def test_repeats_are_counted_and_weighed():
    assert not st.repeats(["a", "b", "c"], 64, P31).rejected
    again = st.repeats(["a", "b", "a"], 64, P31)
    assert again.rejected
    assert again.p_value == pytest.approx(3 * float(P31) ** -64, abs=1e-300)
    assert not st.repeats(["a", "a"], 1, 5).rejected  # one element of F_5 repeats often


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


def test_levels_leave_room_for_every_test_of_a_suite():
    assert len(TESTS) * st.LEVEL < 1e-6
