"""Solving sums of polynomial embeddings for rows, and going on from batch to batch."""

import numpy as np
import pytest

from securevfl.audit.attack_matrix.on_embeddings import solve_sums
from securevfl.audit.attack_matrix.registry import ATTACKS
from securevfl.audit.attack_matrix.setting import AttackCase, AttackSettings
from securevfl.audit.attacks.sum_equations import (
    Step,
    equality_solving_of_sums,
    solve_rows,
    unfold,
)
from securevfl.engine.streams import Composed, SecretSeed, keyed_stream
from securevfl.errors import ConfigurationError
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.protocols.protocol import find_protocols
from securevfl.studies.jobs import Job

WIDTHS, H, GRID = (3, 5, 2), 16, 2.0**-20
ADAM = {"name": "adam", "lr": 0.01}
SGD = {"name": "sgd", "lr": 0.5, "momentum": 0.9}


def stream(seed=0):
    return np.random.Generator(np.random.Philox(seed))


class Copy:
    """A client's network; `weights` are those of its forward pass."""

    def __init__(self, n, degree, optimizer, seed):
        draw = keyed_stream(seed, n, "init")
        self.network = PolynomialNetwork(WIDTHS[n], H, degree, stream=draw, optimizer=optimizer)

    def weights(self, step):
        return self.network.values

    def update(self, rows, gradient):
        self.network.update(rows, gradient)


def copies(degree, optimizer=ADAM, seed=0):
    return [Copy(n, degree, optimizer, seed) for n in range(len(WIDTHS))]


def columns(rows=60, seed=5):
    """On the grid, some of them mostly zero."""
    found = np.round(stream(seed).random((rows, sum(WIDTHS))) / GRID) * GRID
    found[:, :3] *= stream(seed + 1).random((rows, 3)) < 0.4
    return np.split(found.astype(np.float32), np.cumsum(WIDTHS)[:-1], axis=1)


def trained(parts, degree, optimizer=ADAM, steps=4, batch=12, seed=0):
    """What a server sees of some steps, with two padded rows in each."""
    clients, seen = copies(degree, optimizer, seed), []
    for number in range(steps):
        rows = np.append(np.arange(number * batch, (number + 1) * batch), [-1, -1])
        own = [np.where(rows[:, None] >= 0, x[rows], 0) for x in parts]
        joint = np.mean(
            [c.network.forward(x).astype(np.float64) for c, x in zip(clients, own, strict=True)], 0
        )
        gradient = (0.1 * stream(number).normal(size=joint.shape)).astype(np.float32)
        gradient[rows < 0] = 0
        seen.append(Step(rows, joint, gradient))
        for client, x in zip(clients, own, strict=True):
            client.update(x, gradient / np.float32(len(clients)))
    return seen


@pytest.mark.parametrize("optimizer", [ADAM, SGD], ids=lambda o: o["name"])
@pytest.mark.parametrize("degree", [1, 2, 3])
def test_all_rows_of_all_steps_are_found_to_the_last_bit(degree, optimizer):
    parts = columns()
    seen = trained(parts, degree, optimizer)
    found = unfold(
        seen, copies(degree, optimizer), WIDTHS, degree, bounds=(0, 1), stream=stream(), grid=GRID
    )
    truth = np.concatenate(parts, axis=1)
    for step, rows in zip(seen, found, strict=True):
        assert (rows[:-2] == truth[step.rows[:-2]]).all()
        assert not rows[-2:].any()


def test_the_outcome_has_share_chance_and_steps():
    parts = columns()
    found = equality_solving_of_sums(
        trained(parts, 2), copies(2), parts, 2, stream(), bounds=(0.0, 1.0), grid=GRID
    )
    assert (found.success, found.low, found.samples) == (1.0, 1.0, 48)
    truth = np.concatenate(parts, axis=1)[:48]
    once = (sum(WIDTHS) - 3) / truth.size  # a value that occurs once in each of the other columns
    assert found.chance == pytest.approx((truth == 0).mean() + once)
    assert "16 equations a row, 10 columns, degree 2; 4 steps" in found.note


def test_without_the_weights_it_is_at_chance():
    parts = columns()
    found = equality_solving_of_sums(
        trained(parts, 2), copies(2, seed=9), parts, 2, stream(), bounds=(0.0, 1.0), grid=GRID
    )
    assert found.success <= found.chance
    assert "0.0% of the rows fit" in found.note


def test_a_wrong_optimiser_loses_the_thread_after_the_first_step():
    parts = columns()
    seen = trained(parts, 2, ADAM)
    found = unfold(seen, copies(2, SGD), WIDTHS, 2, bounds=(0, 1), stream=stream(), grid=GRID)
    truth = np.concatenate(parts, axis=1)
    right = [np.isclose(x, truth[s.rows], atol=1e-4)[:-2].mean() for x, s in zip(found, seen)]  # noqa: B905
    assert right[0] == 1
    assert max(right[1:]) < 0.5


def test_more_columns_than_sums_are_not_found_though_a_solution_is():
    P = [0.3 * stream(n).normal(size=(40, 16)) for n in (1, 2)]
    x = stream(3).random((20, 40))
    sums = x @ P[0] + x**2 @ P[1]
    found, residual = solve_rows(sums, P, bounds=(0, 1), tolerance=1e-18, stream=stream(), starts=3)
    assert (residual < 1e-12).mean() > 0.9
    assert (np.abs(found - x) < 1e-4).mean() < 0.1


def test_several_starts_find_rows_that_one_does_not():
    """As many equations as columns: the hardest case that has an answer."""
    P = [stream(n).uniform(-0.2, 0.2, size=(20, 20)) for n in (1, 2)]
    x = stream(3).random((60, 20)) * (stream(4).random((60, 20)) < 0.5)
    sums = x @ P[0] + x**2 @ P[1]

    def right(starts):
        given = {"bounds": (0, 1), "tolerance": 1e-16, "stream": stream(), "starts": starts}
        found, _ = solve_rows(sums, P, **given)
        return (np.abs(found - x) < 1e-4).all(axis=1).mean()

    assert right(40) > right(1)
    assert right(40) > 0.95


def test_weights_of_other_clients_are_refused():
    seen = trained(columns(), 2)
    with pytest.raises(ConfigurationError, match="weights of 7 rows do not belong to a client of"):
        unfold(seen, copies(2), (2, 5, 2), 2, bounds=(0, 1), stream=stream())


# -- against runs --------------------------------------------------------------------------------


def job(protocol, **options):
    options |= {"paper": True} if protocol == "fedvs" else {}
    return Job(
        label="x", protocol=protocol, options={"rounds": 2, **options}, dataset="breast-cancer",
        data={"parties": 6, "seed": 0}, conditions="none", seed=0,
    )  # fmt: skip


KNOWN = "equality solving of sums"


def solved(case, name):
    case.begin(name)
    return ATTACKS.get(name).run(case, case.settings)


def opened(protocol, *, starts=60, **options):
    return AttackCase(job(protocol, **options), AttackSettings(replayed=3, starts=starts))


@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("fedvs", {"batch": 64}),
        ("fedvs", {"optimizer": "sgd", "batch": 64}),
        ("split", {"batch": 64}),
        ("split", {"quantized": True, "batch": 128}),  # of 64, one row in 200 is not found
    ],
)
def test_a_server_that_knows_the_secret_seed_has_an_epoch_of_rows(protocol, options):
    """30 columns, h = 64: the default of FedVS, masked, and its twins."""
    case = opened(protocol, **options)
    known = solved(case, KNOWN)
    assert known.success > 0.999
    assert known.samples == 3 * options["batch"]
    made, steps = case.opening
    case.opening = made, steps[:1]  # who solves no row of a batch knows no later weights
    unknown = solved(case, f"{KNOWN}, secret seed unknown")
    assert unknown.samples == options["batch"]
    assert unknown.success <= unknown.chance < 0.05


class OwnEntropies(AttackCase):
    """Its parties have entropy of their own, as on a cluster."""

    own = Composed.draw(-1, *range(6))

    def protocol(self, data=None, **options):
        made = super().protocol(data, **options)
        made.secrets = self.own
        return made


def test_parties_with_entropy_of_their_own_resist_who_takes_the_seed_for_secret():
    """And with their entropies the same attack is alive: it is they that protect."""
    case = OwnEntropies(job("fedvs", batch=64), AttackSettings(replayed=2))
    case.begin("x")
    blind, told = solve_sums(case, SecretSeed(0)), solve_sums(case)
    assert blind.success <= blind.chance < 0.05
    assert told.success > 0.999


def test_every_protocol_is_attacked_or_says_why_not():
    reasons = {}
    for name in sorted(set(find_protocols()) & {"vafl", "cvfl", "dvfl", "fedonce", "wait_dp"}):
        known = solved(opened(name, starts=2, batch=64), KNOWN)
        reasons[name] = getattr(known, "reason", None)
    assert reasons["wait_dp"] is None
    assert all(reasons[name] for name in ("vafl", "cvfl", "dvfl", "fedonce"))
