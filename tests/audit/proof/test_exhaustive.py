"""The exhaustive verifier: the published figures, masked shapes, leaks, and brute force."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from securevfl.audit.attacks.shares import coalition_power
from securevfl.errors import ConfigurationError
from securevfl.privacy.coalition import Coalition
from tests.audit.proof import exhaustive
from tests.audit.proof.enumeration import Observation, Table
from tests.audit.proof.exhaustive import (
    SmallInstance,
    equal_views,
    exhaust,
    small_code,
    small_instances,
)

SERVER = Coalition(server=True)


def coalitions(toy):
    C = tuple(range(toy.code.privacy))
    return {
        "server": SERVER,
        "T clients": Coalition(clients=C),
        "server + T clients": Coalition(server=True, clients=C),
        "T uploads": Coalition(uploads=C),
    }


@pytest.mark.parametrize(
    ("p", "honest", "rounds", "bits", "distance"),
    [
        (5, 3, 1, 1.487203e-4, 0.8),
        (5, 2, 1, 3.768627e-3, 0.8),
        (5, 1, 1, 0.1272301, 0.8),
        (7, 3, 1, 2.387048e-5, 6 / 7),
        (5, 3, 2, 9.516780e-4, 0.96),
    ],
)
def test_the_published_figures_of_plain_evaluation(p, honest, rounds, bits, distance):
    toy = SmallInstance(small_code(p, 1, 1), masked=False, honest=honest, rounds=rounds)
    found = exhaust(toy, SERVER)
    assert found.bits == pytest.approx(bits, rel=5e-7)
    assert found.distance == pytest.approx(distance)
    assert not found.equal


def test_the_witness_of_a_leak_has_equal_sums():
    found = exhaust(SmallInstance(small_code(5, 1, 1), masked=False, honest=2), SERVER)
    sums = [sum(int(X.item()) * int(W.item()) for X, W in secret) % 5 for secret in found.witness]
    assert sums[0] == sums[1]
    assert str(found.witness[0]) != str(found.witness[1])


@pytest.mark.parametrize("toy", small_instances(True), ids=SmallInstance.describe)
def test_masked_views_have_equal_histograms(toy):
    for who, coalition in coalitions(toy).items():
        assert exhaust(toy, coalition).equal, who


def test_at_least_twenty_shapes_are_enumerated():
    made = small_instances(True, slow=True)
    assert len(made) >= 20
    assert {(t.code.segments, t.code.privacy) for t in made} == {(1, 1), (2, 1), (1, 2), (2, 2)}
    assert any(t.rounds > 1 for t in made)


@pytest.mark.parametrize("masked", [True, False])
def test_single_uploads_and_shares_say_nothing_even_in_plain_evaluation(masked):
    for toy in (
        SmallInstance(small_code(5, 1, 1), masked=masked, rounds=2),
        SmallInstance(small_code(11, 2, 1)),
    ):
        assert exhaust(toy, coalitions(toy)["T uploads"]).equal
        assert exhaust(toy, coalitions(toy)["T clients"]).equal


@pytest.mark.parametrize(("p", "K", "T"), [(5, 1, 1), (11, 2, 1), (11, 1, 2)])
def test_one_stream_fewer_leaks_to_server_and_clients(p, K, T):
    toy = SmallInstance(small_code(p, K, T), streams=K + T - 2)
    assert exhaust(toy, coalitions(toy)["server"]).equal == (K + T > 2)  # else no mask is left
    assert not exhaust(toy, coalitions(toy)["server + T clients"]).equal


@pytest.mark.parametrize(("p", "K", "T"), [(5, 1, 1), (11, 2, 1), (11, 1, 2)])
def test_keys_that_everybody_has_leak_to_server_and_clients_and_not_to_the_server(p, K, T):
    toy = SmallInstance(small_code(p, K, T), given=True)
    assert exhaust(toy, SERVER).equal
    assert not exhaust(toy, coalitions(toy)["server + T clients"]).equal


def test_plain_uploads_leak_to_the_server_for_two_segments_too():
    found = exhaust(SmallInstance(small_code(11, 2, 1), masked=False), SERVER)
    assert found.bits > 0
    assert not found.equal


@pytest.mark.parametrize(("K", "T"), [(2, 1), (1, 1)])
def test_more_than_t_clients_learn_what_the_theory_says(K, T):
    toy = SmallInstance(small_code(11, K, T))
    for c in range(T, K + T + 1):
        clients = tuple(range(c))
        power = coalition_power(toy.code, clients)
        found = exhaust(toy, Coalition(clients=clients))
        known = power.combinations + power.model  # elements of one 1x1 secret, unconditionally
        assert found.bits == pytest.approx(known * math.log2(11), abs=1e-9)


def test_the_exceptional_pair_learns_nothing_of_the_model():
    code = small_code(11, 2, 1)  # betas 0, 1: pairs of alphas that sum to 1 modulo 11
    pair = next(
        pair
        for pair in itertools.combinations(range(code.parties), 2)
        if sum(code.alphas[n] for n in pair) % 11 == 1
    )
    found = exhaust(SmallInstance(code), Coalition(clients=pair))
    assert found.bits == pytest.approx(math.log2(11))  # one combination of the data and no more


def brute_force(toy, coalition):
    """Histograms of the whole view by plain enumeration of X, W, Z, V and rho, 1x1 blocks."""
    code, p = toy.code, toy.modulus
    K, T, E = code.segments, code.privacy, toy.rounds
    betas, alphas = code.betas, code.alphas

    def at(values, point):
        total = 0
        for j, value in enumerate(values):
            others = [b for i, b in enumerate(betas) if i != j]
            top = math.prod(point - b for b in others)
            total += value * top * pow(math.prod(betas[j] - b for b in others), -1, p)
        return total % p

    P = [math.prod(a - b for b in betas[:K]) % p for a in alphas]
    degree = (K + 2 * T - 1) if toy.masked else 0
    found = {}
    for secret in itertools.product(range(p), repeat=toy.honest * (K + E)):
        views = Counter()
        holders = [secret[i * (K + E) : (i + 1) * (K + E)] for i in range(toy.honest)]
        sums = tuple(sum(h[k] * h[K + e] for h in holders) % p for e in range(E) for k in range(K))
        for tape in itertools.product(range(p), repeat=toy.honest * T * (1 + E) + E * degree):
            masks = [tape[i * T * (1 + E) : (i + 1) * T * (1 + E)] for i in range(toy.honest)]
            rhos = tape[toy.honest * T * (1 + E) :]
            view = []
            for h, m in zip(holders, masks, strict=True):
                view += [at([*h[:K], *m[:T]], alphas[c]) for c in coalition.clients]
            for e in range(E):
                G = [[h[K + e]] * K + list(m[T * (1 + e) : T * (2 + e)])
                     for h, m in zip(holders, masks, strict=True)]  # fmt: skip
                view += [at(g, alphas[c]) for g in G for c in coalition.clients]
                rho = rhos[e * degree : (e + 1) * degree]
                dealt = [sum(r * a**i for i, r in enumerate(rho)) % p for a in alphas]
                view += [dealt[c] for c in coalition.clients] if toy.masked else []
                for n in range(code.parties) if coalition.server else ():
                    psi = sum(
                        at([*h[:K], *m[:T]], alphas[n]) * at(g, alphas[n])
                        for h, m, g in zip(holders, masks, G, strict=True)
                    )
                    view.append((psi + P[n] * dealt[n]) % p)
            views[tuple(view)] += 1
        found.setdefault(sums if coalition.server else (), []).append(views)
    return found


def bits_of(groups):
    """I(view; secret given the output), and the largest distance, from those histograms."""
    total = sum(map(len, groups.values()))
    bits, distance = 0.0, 0.0
    for group in groups.values():
        size = sum(group[0].values())
        mixture = Counter()
        for views in group:
            mixture.update(views)
        for views in group:
            bits += sum(c / size * math.log2(c * len(group) / mixture[v]) for v, c in views.items())
        distance = max(
            distance,
            *(sum(abs(a[v] - b[v]) for v in a | b) / 2 / size for a in group[:9] for b in group),
        )
    return bits / total, distance


@pytest.mark.parametrize(
    ("toy", "coalition"),
    [
        (SmallInstance(small_code(5, 1, 1), masked=False), SERVER),
        (SmallInstance(small_code(5, 1, 1), masked=False), Coalition(server=True, clients=(1,))),
        (SmallInstance(small_code(5, 1, 1)), SERVER),
        (SmallInstance(small_code(5, 1, 1)), Coalition(server=True, clients=(0,))),
        (SmallInstance(small_code(5, 1, 1)), Coalition(clients=(0, 2))),
    ],
    ids=lambda x: str(x) if isinstance(x, Coalition) else x.describe(),
)
def test_against_enumeration_of_every_tape(toy, coalition):
    bits, distance = bits_of(brute_force(toy, coalition))
    found = exhaust(toy, coalition)
    assert found.bits == pytest.approx(bits, abs=1e-12)
    assert found.distance == pytest.approx(distance, abs=1e-12)
    assert found.equal == equal_views(toy, coalition) == (distance == 0)


def test_views_of_a_code_that_hides_nothing_are_told_apart_at_once():
    """Their histograms are too many to be measured: verify would take minutes and gigabytes."""
    code = small_code(11, 2, 1)
    toy = SmallInstance(code, masked=False, honest=3)
    taken = []
    joint = exhaustive._Joint(toy, Table(toy, Observation(toy, SERVER)))
    joint.histogram = lambda chosen, known=joint.histogram: taken.append(chosen) or known(chosen)
    assert len(exhaustive._unequal(joint, first=True)) == 1
    assert len(taken) < 100


def test_fourier_and_direct_convolution_agree(monkeypatch):
    toy = SmallInstance(small_code(5, 1, 1), masked=False, honest=2)
    fast = exhaust(toy, SERVER)
    monkeypatch.setattr(exhaustive, "_DENSE", 0)
    slow = exhaust.__wrapped__(toy, SERVER)
    assert (fast.bits, fast.distance) == (slow.bits, slow.distance)


def test_an_instance_that_is_too_large_is_refused():
    with pytest.raises(ConfigurationError, match=r"views of one client.*Use fewer rows"):
        exhaust(replace(SmallInstance(small_code(5, 1, 1)), rows=6), SERVER)


def test_toys_follow_the_points_of_their_code():
    code = small_code(11, 2, 2)
    assert (*code.betas, *code.alphas) == tuple(range(11))
    assert np.array_equal(code.alphas, range(4, 11))
