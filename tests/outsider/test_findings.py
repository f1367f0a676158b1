"""What an outsider got past the prover, or stumbled over; what is not mended is a strict xfail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from securevfl.verified import SERVER, FlowError, World, decide
from tests.outsider.programs import agreed, parties

HALF = 2**30
KEPT: list[Any] = []


def odd_is_refused(x: Any) -> Any:
    if int(x.ravel()[0]) % 2:
        raise ValueError("odd")
    return x


def large_entries(x: Any) -> Any:
    return x[x > HALF]


def kept(x: Any) -> Any:
    KEPT.append(3 * x + 1)
    return x


def kept_by_a_comprehension(x: Any) -> Any:
    return np.array([(KEPT.append(one), one)[1] for one in x])


def kept_by_a_lambda(x: Any) -> Any:
    return np.array(sorted(x, key=lambda one: (KEPT.append(one), one)[1]))


def batch_normalised(x: Any) -> Any:
    return (x - x.mean(axis=0)) / (x.std(axis=0) + 1e-3)


def wrong(reason: str) -> Any:
    return pytest.mark.xfail(strict=True, reason=reason)


def test_a_caught_exception_of_a_function_is_no_free_bit() -> None:
    world, _, alice = parties(1)
    x = world.secret(0, "x", np.array([2]))
    try:
        x.map(odd_is_refused)
        alice.send(SERVER, "bit", 0)
    except ValueError:
        alice.send(SERVER, "bit", 1)
    assert decide(world, {SERVER}).verdict != "PROVED"


def test_a_shape_that_is_tried_out_is_no_free_number() -> None:
    world, _, alice = parties(1)
    x = world.secret(0, "x", (6,))
    for size in range(7):
        try:
            x.map(large_entries, shape=(size,))
        except FlowError:
            continue
        alice.send(SERVER, "size", size)
    assert decide(world, {SERVER}).verdict != "PROVED"


@pytest.mark.parametrize("keep", [kept, kept_by_a_comprehension, kept_by_a_lambda])
def test_an_array_that_a_function_keeps_is_not_public(keep: Any) -> None:
    world, _, _ = parties(1)
    x = world.secret(0, "x", (3,))
    with pytest.raises(FlowError, match="uses KEPT of its module"):
        x.map(keep)


def test_a_value_of_spec_is_not_sent() -> None:
    world, _, alice, _ = parties(2)
    y = world.secret(1, "y", (2,))
    with pytest.raises(FlowError):
        alice.send(SERVER, "up", world.spec(y) + alice.uniform(2))


def test_a_round_is_public() -> None:
    world, _, alice = parties(1)
    try:
        world.round = world.secret(0, "x", ())  # type: ignore[assignment]
        alice.send(SERVER, "up", 1)
    except FlowError:
        return
    assert decide(world, {SERVER}).verdict != "PROVED"


@wrong("messages to a party that was never made are seen by nobody")
def test_messages_go_to_parties_of_the_world() -> None:
    world, _, alice = parties(1)
    with pytest.raises(FlowError):
        alice.send(9, "up", world.secret(0, "x", (2,)))


def test_a_coalition_is_of_parties_of_the_world() -> None:
    world, _, alice = parties(1)
    alice.send(SERVER, "up", world.secret(0, "x", (2,)))
    assert decide(world, {7}).verdict == "NOT PROVED"


def test_a_value_is_sent_in_its_own_world() -> None:
    world, _, _ = parties(1)
    _, _, other = parties(1)
    with pytest.raises(FlowError):
        other.send(SERVER, "up", world.secret(0, "x", (2,)))


def test_clipped_rows_of_a_batch_statistic_are_for_the_reader_to_judge() -> None:
    world, _, alice = parties(1)
    x = world.secret(0, "x", (8, 2), real=True)
    alice.send(SERVER, "up", alice.gaussian(x.map(batch_normalised).clip(1.0), 2.0))
    found = decide(world, {SERVER})
    assert found.verdict != "DP" or any("batch_normalised" in line for line in found.judge)


def test_a_product_at_two() -> None:
    world = World(2)
    x = world.secret(0, "x", (2,))
    assert (x * world.party(0).uniform(2)).shape == (2,)


def test_a_number_added_to_a_sum() -> None:
    world = World()
    assert (world.secret(0, "x", (2,)).sum() + 3).shape == ()


def test_the_shares_of_an_agreed_key_are_joined() -> None:
    _, _, alice, bob = parties(2)
    key, _ = agreed(alice, 0, bob, 1)
    shares = alice.split_key(key, 2, [1, 2, 3])
    assert alice.prf(alice.join_key(shares), "mask", 2).shape == (2,)


def test_public_arrays_are_read_when_they_are_used() -> None:
    """A matrix that is zero in the sum, and written to after it, masks nothing."""
    world, _, alice = parties(1)
    matrix = np.zeros((2, 2), dtype=int)
    up = world.secret(0, "x", (2, 2)) + matrix @ alice.uniform(2, 2)
    matrix[:] = np.eye(2, dtype=int)
    alice.send(SERVER, "up", up)
    assert decide(world, {SERVER}).verdict == "VIOLATED"
