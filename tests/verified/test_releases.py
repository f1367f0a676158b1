"""Releases with noise: what they cost, what may be computed from them, and what is none."""

from __future__ import annotations

import numpy as np
import pytest

from securevfl.privacy.accountant import gaussian_epsilon, noise_multiplier
from securevfl.verified import SERVER, FlowError, World, decide
from securevfl.verified.costs import costs, price

SIGMA = 2 * noise_multiplier(5.0, 1e-5)  # of rows clipped to 1


def plus(one, other):
    return one + other


def times(one, other):
    return one * other


def part(value, first):
    return value[first : first + 4]


def one_hot(labels):
    return np.eye(2)[labels.astype(int)]


def both(one, other):
    return np.array((one + other).sum())


@pytest.fixture
def world():
    return World(2**31 - 1)


def clipped(world, owner=0):
    return world.secret(owner, "h", (4, 2), real=True).clip(1.0)


def test_a_release_costs_what_its_noise_was_made_for(world):
    alice = world.party(0)
    alice.send(SERVER, "up", alice.gaussian(clipped(world), SIGMA, rows=np.arange(4)))
    found = decide(world, {SERVER})
    assert (found.verdict, found.releases) == ("DP", 1)
    assert "(5, 1e-05) for one row of party 0" in found.scope


@pytest.mark.parametrize(("rows", "times"), [(np.arange(4), 1), (np.arange(3, 7), 2), (None, 2)])
def test_a_row_pays_for_the_releases_that_it_is_in(world, rows, times):
    alice, value = world.party(0), clipped(world)
    for own in (np.array([0, 1, 2, -1]) if rows is not None and rows[0] == 0 else rows, rows):
        alice.send(SERVER, "up", alice.gaussian(value, SIGMA, rows=own))
    if rows is not None and rows[0] == 0:
        times = 2  # rows 0 to 2
    wanted = gaussian_epsilon(noise_multiplier(5.0, 1e-5), times, 1e-5)
    assert f"({wanted:.4g}, 1e-05) for one row" in decide(world, {SERVER}).scope


def test_rows_of_other_records_do_not_add_up(world):
    alice, table = world.party(0), world.secret(0, "h", (8, 2), real=True)
    for first in (0, 4):
        value = table.map(part, first, shape=(4, 2)).clip(1.0)
        alice.send(SERVER, "up", alice.gaussian(value, SIGMA, rows=np.arange(first, first + 4)))
    found = decide(world, {SERVER})
    assert found.releases == 2
    assert "(5, 1e-05) for one row" in found.price


def test_batches_that_are_inputs_of_their_own_are_no_one_record(world):
    alice = world.party(0)
    for k in (0, 1):
        value = world.secret(0, f"batch {k}", (4, 2), real=True).clip(1.0)
        alice.send(SERVER, "up", alice.gaussian(value, SIGMA, rows=np.arange(4 * k, 4 * k + 4)))
    assert "(5, 1e-05) for one row of party 0" in decide(world, {SERVER}).scope


def test_weights_in_an_array_are_no_records(world):
    alice, table = world.party(0), world.secret(0, "h", (4, 2), real=True)
    weights = world.secret(0, "w", (2,), real=True)
    alice.send(SERVER, "up", alice.gaussian(table.map(times, weights).clip(1.0), SIGMA))
    assert "(5, 1e-05) for one row of party 0" in decide(world, {SERVER}).scope


def test_a_row_is_its_party_s_whoever_adds_the_noise(world):
    alice, server = world.party(0), world.party(SERVER)
    got = alice.send(SERVER, "up", world.secret(0, "h", (4, 2), real=True))
    world.output("up", world.the(0, "h"), to=[SERVER], alone=True)
    server.send(1, "down", server.gaussian(got.clip(1.0), SIGMA))
    assert decide(world, {1}).price == "(5, 1e-05) for one row of party 0"


def test_noise_on_counted_rows_costs_nothing_more(world):
    alice, helper = world.party(0), world.party(1)
    noisy = alice.gaussian(clipped(world), SIGMA)
    again = helper.gaussian(alice.send(1, "up", noisy).clip(1.0), SIGMA, name="again")
    alice.send(SERVER, "up", noisy)
    helper.send(SERVER, "again", again)
    found = decide(world, {SERVER})
    assert (found.releases, found.price) == (2, "(5, 1e-05) for one row of party 0")


def test_a_label_pays_for_both_mechanisms(world):
    server = world.party(SERVER)
    labels = world.secret(SERVER, "labels", np.arange(8) % 2, real=True)
    server.send(0, "up", server.randomised(labels, 2, 0.5))
    rows = labels.map(one_hot, shape=(8, 2), dtype=float).clip(1.0)
    server.send(0, "up", server.gaussian(rows, SIGMA))
    assert decide(world, {0}).price == "(5.5, 1e-05) for one label of the server"


@pytest.mark.parametrize("behind", [False, True], ids=["of rows", "of releases"])
def test_an_output_without_noise_of_paid_rows_is_named(world, behind):
    parties, tables = [world.party(n) for n in (0, 1)], []
    for n, alice in enumerate(parties):
        tables.append(world.secret(n, "h", (4, 2), real=True))
        noisy = alice.gaussian(tables[n].clip(1.0), SIGMA)
        alice.send(SERVER, "up", noisy)
        alice.send(2, "up", noisy if behind else tables[n])
    specs = [world.released(n, "release") if behind else world.spec(tables[n]) for n in (0, 1)]
    world.output("total", specs[0].map(both, specs[1], shape=()), to=[SERVER])
    found = decide(world, {SERVER})
    assert found.clear == (() if behind else ("total",))
    assert "(5, 1e-05) for one row of party 0, party 1" in found.scope


def test_labels_by_randomised_response_are_released(world):
    server = world.party(SERVER)
    labels = world.secret(SERVER, "labels", np.arange(8) % 2, real=True)
    server.send(0, "up", server.randomised(labels, 2, 0.5))
    found = decide(world, {0})
    assert found.scope.startswith("DP, 1 releases, (0.5, 0) for one label of the server")


def test_noise_of_a_public_seed_hides_nothing(world):
    alice, server = world.party(0), world.party(SERVER)
    alice.send(SERVER, "up", alice.gaussian(clipped(world), SIGMA, seed=b"seed"))
    labels = world.secret(SERVER, "labels", np.arange(8) % 2, real=True)
    server.send(0, "down", server.randomised(labels, 2, 0.5, seed=b"seed"))
    assert decide(world, {SERVER}).verdict == "VIOLATED"
    assert decide(world, {0}).verdict == "VIOLATED"


def test_an_output_may_be_computed_from_a_release_which_is_then_paid_for(world):
    alice, bob, server = world.party(0), world.party(1), world.party(SERVER)
    got = alice.send(SERVER, "up", alice.gaussian(clipped(world), SIGMA))
    y = world.secret(1, "y", (4, 2), real=True)
    z = world.secret(SERVER, "z", (4, 2), real=True)
    total = got.map(plus, bob.send(SERVER, "y", y)).map(plus, z)
    server.send(0, "down", total)
    wanted = (
        world.released(0, "release").map(plus, world.the(1, "y")).map(plus, world.the(SERVER, "z"))
    )
    world.output("total", wanted, to=[0])
    world.output("y", world.spec(y), to=[SERVER], alone=True)
    assert decide(world, {0}).verdict == "PROVED"  # its own release
    found = decide(world, {SERVER})
    assert (found.verdict, found.releases, found.clear) == ("NOT PROTECTED", 1, ("y",))


def test_an_output_of_an_own_tape_behind_a_release_is_refused(world):
    alice = world.party(0)
    tape = alice.uniform(4, 2).map(np.float64, real=True)
    released = alice.gaussian(tape.clip(1.0), SIGMA)
    alice.send(SERVER, "up", released)
    world.output(
        "one", world.released(0, "release").map(plus, world.spec(clipped(world))), alone=True
    )
    found = decide(world, {SERVER})
    assert found.verdict == "NOT PROVED"


def test_a_release_that_the_output_adds_to_data_is_no_excuse(world):
    alice, value = world.party(0), clipped(world)
    released = alice.gaussian(value, SIGMA)
    alice.send(SERVER, "up", released)
    alice.send(SERVER, "more", released.map(plus, value))
    world.output("more", world.released(0, "release").map(plus, world.spec(value)), to=[SERVER])
    found = decide(world, {SERVER})
    assert found.verdict == "NOT PROVED"
    assert "tell of party 0 alone" in found.text


def test_records_are_public_and_one_for_each_row(world):
    alice, value = world.party(0), clipped(world)
    with pytest.raises(FlowError, match="records for rows"):
        alice.gaussian(value, SIGMA, rows=np.arange(3))
    with pytest.raises(FlowError, match="must be public"):
        alice.gaussian(value, SIGMA, rows=value)
    with pytest.raises(FlowError, match="made 0 releases"):
        world.released(0, "release")


def test_what_differs_in_sigma_is_composed_exactly(world):
    alice, value = world.party(0), clipped(world)
    for sigma in (6.0, 8.0):
        alice.gaussian(value, sigma)
    nodes = [node.number for node in world.nodes if node.op == "release"]
    assert price(world, nodes) == (
        f"({gaussian_epsilon(4.8 / 2, 1, 1e-5):.4g}, 1e-05) for one row of party 0"
    )


def test_each_party_pays_for_all_its_own_releases_and_no_other_s(world):
    alice, bob, server = world.party(0), world.party(1), world.party(SERVER)
    value, labels = clipped(world), world.secret(SERVER, "labels", np.arange(8) % 2, real=True)
    alice.gaussian(value, SIGMA, rows=np.arange(4))
    alice.gaussian(value, SIGMA)  # of all rows: beside those of named ones
    bob.gaussian(clipped(world, 1), SIGMA)
    for epsilon in (0.5, 0.25):
        server.randomised(labels, 2, epsilon)
    nodes = [node.number for node in world.nodes if node.op == "release"]
    found = {(party, what): epsilon for party, epsilon, _, what in costs(world, nodes)}
    twice = gaussian_epsilon(noise_multiplier(5.0, 1e-5), 2, 1e-5)
    wanted = {(0, "row"): twice, (1, "row"): 5.0, (SERVER, "label"): 0.75}
    assert found == pytest.approx(wanted, rel=1e-3)
