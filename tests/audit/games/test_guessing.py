"""Games on synthetic views: power, silence, and the exact probability of chance."""

import numpy as np
import pytest
from scipy.stats import binom

from securevfl.audit.games import guessing
from securevfl.field import PrimeField

P31, P61 = 2**31 - 1, 2**61 - 1


@pytest.fixture(params=[P31, P61], ids=["2^31-1", "2^61-1"])
def field(request):
    return PrimeField(request.param)


def test_guessing_tail_is_the_binomial_tail():
    for n in (1, 7, 40):
        for k in range(n + 1):
            assert guessing.guessing_tail(k, n) == pytest.approx(binom.sf(k - 1, n, 0.5))


def test_the_span_game_sees_a_secret_dependent_subspace(field):
    """Views z, z + s with the secret s: each half is uniform, their difference is the secret."""

    def leaky(bit):
        z = field.random(5)
        return np.concatenate([z, field.add(z, field.dtype.type(bit))])

    def clean(bit):
        return field.random(10)

    stream = np.random.default_rng(1)
    caught = guessing.span_game(field, leaky, stream=stream)
    assert (caught.right, caught.rounds) == (40, 40)
    assert caught.outcome().rejected
    assert not guessing.span_game(field, clean).outcome().rejected


def test_the_span_of_points(field):
    origin, one, two = field.random((3, 6))
    span = guessing.Span(field, origin)
    assert span.add(one)
    assert not span.add(one)
    assert not span.contains(two)
    assert span.add(two)
    t = field.random(())
    line = field.add(one, field.multiply(t, field.subtract(two, one)))
    assert span.contains(line)
    assert span.rank == 2


def test_the_rank_game_sees_a_secret_dependent_rank(field):
    def statistic(bit):
        block = field.matmul(field.random((4, 1 + bit)), field.random((1 + bit, 4)))
        return guessing.block_ranks(field, block[None, None])

    assert guessing.rank_game(statistic).outcome().rejected
    blind = guessing.rank_game(lambda bit: guessing.block_ranks(field, field.random((2, 2, 4, 4))))
    assert not blind.outcome().rejected


def test_block_ranks_see_differences_between_attempts(field):
    blocks = field.random((2, 1, 3, 3))
    blocks[1] = field.add(blocks[0], field.matmul(field.random((3, 1)), field.random((1, 3))))
    assert guessing.block_ranks(field, blocks) == (3, 3, 1, 3)
