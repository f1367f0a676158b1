"""The certificate at real parameters, and what more than T clients learn."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.audit.attacks import shares
from securevfl.audit.proof.certificate import (
    certificate,
    coalition_power,
    exceptional_pairs,
    mask_minor,
)
from securevfl.audit.proof.linear_algebra import left_null, rank, solve_left, solve_right
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.prss import Prss

P31, P61 = 2**31 - 1, 2**61 - 1


class OtherStreams(Prss):
    """Keys that make another number of coefficients of rho than the proof asks for."""

    more = 0

    def weights(self, party, unknown):
        return super().weights(party, unknown + self.more)

    def streams(self, key, unknown):
        return super().streams(key, unknown + self.more)


def with_streams(code, more):
    return type("Changed", (OtherStreams,), {"more": more})(code, 2)


class GivenToAMember(Prss):
    """The key of a block is sent to one of its members."""

    def sent(self, dealer, receiver):
        found = super().sent(dealer, receiver)
        return (
            (*found, next(i for i, A in enumerate(self.blocks) if 0 not in A and 1 in A))
            if (dealer, receiver) == (0, 1)
            else found
        )


@pytest.mark.parametrize("p", [P31, P61])
@pytest.mark.parametrize(("N", "K", "T"), [(3, 1, 1), (8, 2, 1), (12, 3, 2), (28, 4, 2)])
def test_the_certificate_holds_for_the_codes_in_use(p, N, K, T):
    code = LagrangeCode(PrimeField(p), parties=N, segments=K, privacy=T)
    checks = certificate(code, Prss(code, 2), subsets=60)
    assert [check.name for check in checks if not check.holds] == []
    assert len(checks) == 6


def test_a_sample_of_the_subsets_is_called_one():
    code = LagrangeCode(PrimeField(P31), parties=28, segments=4, privacy=3)
    minors = certificate(code, subsets=50)[1]
    assert "50 random ones of the 3276 sets of 3" in minors.detail


@pytest.mark.parametrize("missing", [1, 2])
def test_masks_of_too_low_a_degree_have_no_certificate(missing):
    code = LagrangeCode(PrimeField(P31), parties=9, segments=2, privacy=2)
    names = {c.name for c in certificate(code, with_streams(code, -missing)) if not c.holds}
    assert names == {"mask streams", "masks cover the rest"}


def test_masks_that_are_one_coefficient_too_many_have_no_certificate():
    code = LagrangeCode(PrimeField(P31), parties=9, segments=2, privacy=2)
    names = {c.name for c in certificate(code, with_streams(code, 1)) if not c.holds}
    assert "mask streams" in names


def test_a_key_that_a_member_of_its_set_is_sent_has_no_certificate():
    code = LagrangeCode(PrimeField(P31), parties=9, segments=2, privacy=2)
    names = {c.name for c in certificate(code, GivenToAMember(code, 2)) if not c.holds}
    assert names == {"mask keys"}


def test_an_alpha_on_a_data_point_has_no_certificate():
    code = LagrangeCode(PrimeField(P31), parties=5, segments=2, privacy=1)
    code.alphas = (code.betas[0], *code.alphas[1:])
    names = {c.name for c in certificate(code, Prss(code, 2)) if not c.holds}
    assert {"points", "mask minors"} <= names


def test_a_code_that_encodes_with_other_rows_has_no_certificate():
    code = LagrangeCode(PrimeField(P31), parties=5, segments=2, privacy=1)
    code.__dict__["data_matrix"] = np.roll(code.data_matrix, 1, axis=0)
    assert "evaluation rows" in {c.name for c in certificate(code) if not c.holds}


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_the_closed_form_of_the_minors(data):
    K, T = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    points = data.draw(
        st.lists(st.integers(1, P31 - 1), unique=True, min_size=4 * (K + T), max_size=4 * (K + T))
    )
    N = len(points) - K - T
    code = LagrangeCode(
        PrimeField(P31),
        parties=N,
        segments=K,
        privacy=T,
        betas=points[: K + T],
        alphas=points[K + T :],
    )
    clients = data.draw(st.lists(st.integers(0, N - 1), unique=True, min_size=T, max_size=T))
    assert mask_minor(code, clients) == code.field.det(code.mask_matrix[clients])


@pytest.mark.parametrize(("N", "K", "T"), [(9, 3, 2), (8, 2, 1), (11, 4, 1)])
def test_pooled_shares_are_decoded_exactly_as_far_as_the_theory_goes(N, K, T):
    field = PrimeField(P61)
    code = LagrangeCode(field, parties=N, segments=K, privacy=T)
    X, W = field.random((K, 4, 3)), field.random((3, 2))
    F, G = code.encode(X), code.encode_constant(W)
    for c in range(1, K + T + 1):
        clients = tuple(range(N - c, N))
        power = coalition_power(code, clients)
        assert power.combinations == max(0, c - T)
        held = {n: F[n] for n in clients}
        known = shares.known_combinations(code, held)
        flat = field.matmul(known.matrix, X.reshape(K, -1))
        assert np.array_equal(known.values, flat.reshape(known.values.shape))
        whole = shares.recover_data(code, held)
        assert (whole is not None) == (c == K + T)
        assert whole is None or np.array_equal(whole, X)
        model = shares.recover_model(code, {n: G[n] for n in clients})
        assert (model is not None) == (c > T) == power.model
        assert model is None or np.array_equal(model, W)


def test_pairs_whose_points_sum_to_the_data_points_learn_no_model():
    field = PrimeField(P31)
    code = LagrangeCode(
        field, parties=5, segments=2, privacy=1, betas=(1, 20, 3), alphas=(4, 17, 5, 16, 30)
    )
    assert sorted(exceptional_pairs(code)) == [(0, 1), (2, 3)]
    G = code.encode_constant(field.random((3, 2)))
    assert shares.recover_model(code, {0: G[0], 1: G[1]}) is None
    assert shares.recover_model(code, {0: G[0], 2: G[2]}) is not None
    assert coalition_power(code, (0, 1)) == coalition_power(code, (1, 0)).__class__(
        (0, 1), combinations=1, model=False
    )


def test_default_points_have_no_exceptional_pair():
    for K, T in itertools.product((1, 2, 3), (1, 2)):
        code = LagrangeCode(PrimeField(P31), parties=10, segments=K, privacy=T)
        assert not list(exceptional_pairs(code))


def test_linear_algebra_against_galois():
    import galois

    field, GF = PrimeField(P31), galois.GF(P31)
    a = field.random((4, 6))
    a[3] = field.add(a[0], a[1])
    assert rank(field, a) == np.linalg.matrix_rank(GF(a)) == 3
    null = left_null(field, a)
    assert null.shape == (1, 4)
    assert not field.matmul(null, a).any()
    tall = field.random((7, 4))
    x = field.random((4, 2))
    assert np.array_equal(solve_left(field, tall, field.matmul(tall, x)), x)
    wrong = field.matmul(tall, x)
    wrong[5, 0] = field.add(wrong[5, 0], 1)
    assert solve_left(field, tall, wrong) is None
    y = field.random((2, 4))
    wide = field.random((4, 9))
    assert np.array_equal(solve_right(field, wide, field.matmul(y, wide)), y)
