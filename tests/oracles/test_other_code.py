"""Kernels that formulas use are held against other code, at full size and exactly."""

import numpy as np
import pytest
from torch import nn

from securevfl.engine.party import SERVER
from securevfl.field import FixedPoint, LagrangeCode, PrimeField, encoding, fixed_point
from securevfl.field.prss import Prss, _Streams
from securevfl.models.networks import CENTRES
from securevfl.models.split import Centre
from securevfl.testing.runs import make
from securevfl.verified import bare_of
from tests.oracles.other_code import OtherCode, own_layers, times

PRIMES = [97, 2**31 - 1, 4294967291, 2**61 - 1]
FEDVS = {"rounds": 2, "batch": 20, "segments": 1}


@pytest.mark.parametrize("p", PRIMES)
def test_products_are_those_of_whole_numbers(p):
    rng = np.random.default_rng(3)
    dtype = PrimeField(p).dtype
    matrix = rng.integers(0, p, (3, 70_000), dtype=np.uint64).astype(dtype)
    matrix[0] = p - 1
    for vector in (matrix[1], np.full(70_000, 2**32 - 1, np.uint32)):
        wanted = [sum(int(a) * int(b) for a, b in zip(row, vector, strict=True)) % p
                  for row in matrix]  # fmt: skip
        assert times(matrix, vector, p) == wanted


@pytest.mark.parametrize("p", PRIMES)
def test_sound_kernels_have_no_fault(p):
    assert everything(PrimeField(p)) == []


def everything(field):
    """Faults of each kernel that is watched, on 5000 columns."""
    code = LagrangeCode(field, parties=7, segments=2, privacy=1)
    prss = Prss(code, degree=2)
    X, Z, W = (field.random((rows, 5000)) for rows in (2, 1, 3))
    x = np.linspace(-3, 3, 5001) / 8
    rng = np.random.Generator(np.random.Philox(5))
    point = FixedPoint(field, bits=2)
    keys = {key: bytes([key]) * 32 for key in prss.held(1)}
    with OtherCode().watching(1) as faults:
        shares = code.encode(X, masks=Z)
        code.encode_constant(X[0], masks=Z)
        code.decode(shares[[2, 5, 1, 3]], (2, 5, 1, 3), degree=1)
        field.matmul(field.random((4, 3)), W)
        prss.mask(1, keys, b"label", X, 2)
        point.quantize(x)
        point.quantize(x.astype(np.float32))
        point.quantize(x, rng=rng)
    return faults


def masks_again(left, blocks, out, threads, apply=encoding.apply):
    """The edit of a review: masks of one part of a share come again in another."""
    if len(blocks) > 1 and out.shape[1] > 2000:
        masks = blocks[1].copy()
        masks[:, 1000:2000] = masks[:, :1000]
        blocks = [blocks[0], masks]
    return apply(left, blocks, out, threads)


def one_column_off(left, blocks, out, threads, apply=encoding.apply):
    good = apply(left, blocks, out, threads)
    if out.shape[1] > 2000:
        out[-1, 1234] = out[-1, 1233]
    return good


@pytest.mark.parametrize("edit", [masks_again, one_column_off])
def test_a_fault_of_large_shares_is_seen(monkeypatch, edit):
    monkeypatch.setattr(encoding, "apply", edit)
    assert "shares are not the polynomial's values, by other code" in everything(
        PrimeField(2**31 - 1)
    )


def test_a_fault_of_large_products_is_seen(monkeypatch):
    monkeypatch.setattr(PrimeField, "matmul", _wide_block_again(PrimeField.matmul))
    assert "a product is not what other code computes" in everything(PrimeField(2**31 - 1))


def _wide_block_again(matmul):
    def product(field, a, b, **options):
        found = matmul(field, a, b, **options)
        if found.ndim == 2 and found.shape[1] > 2000:
            found[:, 1000:2000] = found[:, :1000]
        return found

    return product


def test_a_mask_that_comes_again_is_seen(monkeypatch):
    value = _Streams.value

    def again(*args):
        found = value(*args)
        return found if found is None else np.resize(found[:1000], found.size)

    first = Prss.value

    def alone(self, party, keys, label, shape, unknown):
        found = first(self, party, keys, label, shape, unknown).reshape(-1)
        found[1000:2000] = found[:1000]
        return found.reshape(shape)

    monkeypatch.setattr(_Streams, "value", again)
    monkeypatch.setattr(Prss, "value", alone)
    assert "a masked result is not the result and its mask, by other code" in everything(
        PrimeField(2**31 - 1)
    )


def test_a_quantiser_that_repeats_a_part_is_seen(monkeypatch):
    apply = FixedPoint._apply

    def again(*args):
        found = apply(*args)
        found[-10:] = found[:10]
        return found

    monkeypatch.setattr(fixed_point.FixedPoint, "_apply", again)
    assert "quantised numbers are not what other code rounds to" in everything(
        PrimeField(2**31 - 1)
    )


def test_a_product_that_differs_by_an_antisymmetric_matrix_is_seen(monkeypatch):
    matmul = PrimeField.matmul

    def turned(field, a, b, **options):
        found = matmul(field, a, b, **options)
        found[0, 1] = (int(found[0, 1]) + 1) % field.modulus
        found[1, 0] = (int(found[1, 0]) - 1) % field.modulus
        return found

    monkeypatch.setattr(PrimeField, "matmul", turned)
    field = PrimeField(2**31 - 1)
    with OtherCode().watching(1) as faults:
        field.matmul(field.random((4, 3)), field.random((3, 4)))
    assert faults == ["a product is not what other code computes"]


@pytest.mark.parametrize("class_weights", ["none", "balanced"])
def test_a_gradient_with_something_else_in_its_low_bits_is_seen(monkeypatch, class_weights):
    stream = np.random.default_rng(3)
    embedding, labels = stream.normal(size=(6, 4)).astype(np.float32), np.arange(9) % 3
    rows = np.array([4, 1, -1, 8, 0, 2])

    def faults():
        adam = {"name": "adam", "lr": 0.1}
        given = {"network": "mlp", "hidden": 5, "seed": 1, "optimizer": adam}
        centre = Centre("multiclass", 3, 4, class_weights=class_weights, **given)
        with OtherCode().watching(1) as found:
            centre.step(embedding, rows, labels)
            centre.gradients(embedding, rows, labels)
        return found

    assert faults() == []
    backward = Centre._backward

    def telling(self, embedding, *given):
        loss, gradient = backward(self, embedding, *given)
        halves = embedding.astype(np.float16).view(np.uint16)
        return loss, (gradient.view(np.uint32) & 0xFFFF0000 | halves).view(np.float32)

    monkeypatch.setattr(Centre, "_backward", telling)
    assert faults() == ["dL/dH is not the gradient of the loss"] * 2


def test_late_rounds_are_watched_every_second_time_by_chance():
    other, before = OtherCode(), vars(LagrangeCode)["encode"]
    watched = 0
    for _ in range(400):
        with other.watching(100):
            watched += vars(LagrangeCode)["encode"] is not before
    assert 120 < watched < 280  # else with probability below 1e-14


def test_methods_are_as_before_when_nothing_is_watched():
    before = dict(vars(LagrangeCode)), dict(vars(PrimeField))
    with OtherCode().watching(1):
        assert vars(LagrangeCode)["encode"] is not before[0]["encode"]
    assert (dict(vars(LagrangeCode)), dict(vars(PrimeField))) == before


def dropped(prss, n, keys, told, psi):
    return psi


def discarded(prss, n, keys, told, psi):
    prss.mask(n, keys, told, psi, degree=2)
    return psi


def subtracted(prss, n, keys, told, psi):
    field = prss.code.field
    mask = field.subtract(prss.mask(n, keys, told, psi, degree=2), psi)
    return prss.mask(n, keys, told, field.subtract(psi, mask), degree=2)


class Own(nn.Linear):
    """A layer whose way back may be another one."""


def hooked():
    layer = nn.Linear(4, 4)
    layer.register_full_backward_hook(lambda *given: None)
    return layer


def instead():
    layer = nn.Linear(4, 4)
    layer.forward = lambda rows: rows
    return layer


@pytest.mark.parametrize("make_layer", [lambda: Own(4, 4), hooked, instead])
def test_a_layer_that_is_not_torchs_is_named(make_layer):
    party = make("fedvs").parties()[SERVER]
    assert own_layers(party) == ""
    bare_of(party.centre).network = nn.Sequential(nn.Linear(4, 4), make_layer())
    assert "has a layer of its own (1, " in own_layers(party)


@pytest.mark.parametrize("name", sorted(CENTRES))
def test_the_librarys_server_models_have_torchs_layers_alone(name):
    party = make("fedvs", centre=name, width=16).parties()[SERVER]
    assert own_layers(party) == ""
