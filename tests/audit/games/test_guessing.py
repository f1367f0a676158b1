"""A game on synthetic views: power, and silence."""

import pytest
from scipy.stats import binom

from securevfl.audit.games import guessing
from securevfl.field import PrimeField

P31, P61 = 2**31 - 1, 2**61 - 1


@pytest.fixture(params=[P31, P61], ids=["2^31-1", "2^61-1"])
def field(request):
    return PrimeField(request.param)


def test_the_rank_game_sees_a_secret_dependent_rank(field):
    def statistic(bit):
        block = field.matmul(field.random((4, 1 + bit)), field.random((1 + bit, 4)))
        return guessing.block_ranks(field, block[None, None])

    by_chance = binom.ppf(1 - 1e-7, 40, 0.5)
    assert guessing.rank_game(statistic) > by_chance
    blind = guessing.rank_game(lambda bit: guessing.block_ranks(field, field.random((2, 2, 4, 4))))
    assert blind <= by_chance


def test_block_ranks_see_differences_between_attempts(field):
    blocks = field.random((2, 1, 3, 3))
    blocks[1] = field.add(blocks[0], field.matmul(field.random((3, 1)), field.random((1, 3))))
    assert guessing.block_ranks(field, blocks) == (3, 3, 1, 3)
