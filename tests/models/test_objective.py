import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from securevfl.models.objective import amplification, chosen_exponent


@given(st.floats(0.01, 10), st.floats(1.01, 6))
def test_the_factor_is_the_derivative_of_the_power_or_1(loss, q):
    step = 1e-6 * loss
    slope = ((loss + step) ** q - (loss - step) ** q) / (2 * step)
    assert amplification(loss, q) == pytest.approx(max(slope, 1.0), rel=1e-4)


@pytest.mark.parametrize("q", [1.5, 2.0, 3.0, 10.0])
def test_q_is_given_up_where_the_factor_falls_to_1(q):
    edge = q ** (1 / (1 - q))
    assert amplification(edge * 1.001, q) > 1
    assert amplification(edge * 0.999, q) == 1.0
    assert q * edge ** (q - 1) == pytest.approx(1.0)


def test_q_of_1_changes_nothing():
    assert amplification(5.0, 1.0) == 1.0


@given(st.floats(0.0, 20), st.floats(1, 50))
def test_the_chosen_exponent_gives_the_wanted_factor_or_the_best_there_is(loss, wanted):
    q = chosen_exponent(loss, wanted)
    assert q >= 1
    factor = amplification(loss, q)
    assert factor <= wanted * (1 + 1e-6)
    if factor < wanted * (1 - 1e-6):  # no exponent does better
        assert loss < 1
        assert all(amplification(loss, 1 + k / 10) <= factor + 1e-9 for k in range(300))


def test_it_decays_with_the_loss_and_ends_at_1_over_e():
    chosen = [chosen_exponent(loss, 1e6) for loss in (0.9, 0.7, 0.5, 0.4, 1 / math.e, 0.1)]
    assert chosen == sorted(chosen, reverse=True)
    assert chosen[-2:] == [1.0, 1.0]
