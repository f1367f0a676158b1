"""The theorem's conditions at real parameters, and what breaks each of them."""

from functools import cached_property
from types import SimpleNamespace

import pytest

from securevfl.audit.keyed.certificate import certificate
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.designs import blocks_of
from securevfl.field.prss import Prss

P31, P61 = 2**31 - 1, 2**61 - 1
SHAPES = [(1, 1, 4, P31), (2, 1, 7, P61), (1, 2, 7, P31), (2, 2, 10, P31), (3, 1, 10, P31)]


def subject(K, T, N, p, prss=Prss):
    code = LagrangeCode(PrimeField(p), parties=N, segments=K, privacy=T, degree=3)
    return SimpleNamespace(code=code, prss=prss(code, 3), result_degree=3)


def broken(protocol):
    return {one.name for one in certificate(protocol) if not one.holds}


@pytest.mark.parametrize(("K", "T", "N", "p"), [*SHAPES, (1, 3, 10, P31)])
def test_every_condition_holds(K, T, N, p):
    found = certificate(subject(K, T, N, p))
    assert [one.name for one in found if not one.holds] == []
    assert {one.name for one in found} >= {"points", "shares", "roots", "streams", "keys"}


@pytest.mark.parametrize("place", [0, 2])
def test_a_holder_on_a_data_point_and_two_on_one_point_are_found(place):
    made = subject(1, 1, 5, P31)
    first = made.code.betas[0] if place == 0 else made.code.alphas[0]
    made.code.alphas = (*made.code.alphas[:3], first, *made.code.alphas[4:])
    assert broken(made) == {"points"}


class Short(Prss):
    """Streams of which the last is never used."""

    def weights(self, party, unknown):
        made = super().weights(party, unknown)
        for row in made:
            row[-1] = 0
        return made


class ToAMember(Prss):
    """The dealer of a key of a block with holder 1 sends it to holder 1 as well."""

    def sent(self, dealer, receiver):
        found = super().sent(dealer, receiver)
        return (*found, self.blocks.index((1, 2))) if (dealer, receiver) == (0, 1) else found


class Kept(Prss):
    """Holder 2 uses the key of a block with it."""

    def held(self, party):
        return tuple(sorted({*super().held(party), *((2,) if party == 2 else ())}))


class Fewer(Prss):
    """One window is missing."""

    @cached_property
    def blocks(self):
        return blocks_of(5, 1, 2)[:-1]


@pytest.mark.parametrize(
    ("prss", "names"),
    [
        (Short, {"streams", "stream coefficients"}),
        (ToAMember, {"keys"}),
        (Kept, {"keys"}),
        (Fewer, {"streams"}),
    ],
)
def test_other_keys_and_streams_are_found(prss, names):
    assert broken(subject(1, 1, 5, P31, prss)) == names


def test_another_vanishing_polynomial_is_found():
    made = subject(1, 1, 5, P31)
    made.code.__dict__["vanishing"] = made.code.field.add(made.code.vanishing, made.code.vanishing)
    assert "roots" in broken(made)


def test_other_lagrange_matrices_are_found():
    made = subject(2, 1, 7, P31)
    masks = made.code.mask_matrix.copy()
    masks[3] = 0
    made.code.__dict__["mask_matrix"] = masks
    assert {"shares", "roots"} <= broken(made)


def test_too_few_holders_for_a_result_are_found():
    code = LagrangeCode(PrimeField(P31), parties=6, segments=2, privacy=1)
    made = SimpleNamespace(code=code, prss=Prss(code, 3), result_degree=3)
    assert "number of uploads" in broken(made)
