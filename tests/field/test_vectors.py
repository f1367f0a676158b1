"""The committed vectors, computed by galois (tests/vectors/field/generate.py)."""

import json
from pathlib import Path

import pytest

from securevfl.errors import ConfigurationError, FieldError, NotEnoughResultsError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.kernels import primes

FILE = Path(__file__).parents[1] / "vectors" / "field" / "vectors.json"
VECTORS = json.loads(FILE.read_text())


def code_of(vector):
    sizes = {name: vector[name] for name in ("parties", "segments", "privacy")}
    return LagrangeCode(PrimeField(vector["modulus"]), **sizes)


@pytest.mark.parametrize("vector", VECTORS["arithmetic"], ids=lambda v: str(v["modulus"]))
def test_arithmetic(vector):
    F = PrimeField(vector["modulus"])
    a, b = F.elements(vector["a"]), F.elements(vector["b"])
    for name in ("add", "subtract", "multiply", "divide"):
        assert getattr(F, name)(a, b).tolist() == vector[name]
    assert F.power(a, 5).tolist() == vector["power_5"]
    assert F.matmul(vector["left"], vector["right"]).tolist() == vector["matmul"]


@pytest.mark.parametrize(
    "vector", VECTORS["coding"], ids=lambda v: f"{v['modulus']}-{v['parties']}"
)
def test_coding(vector):
    code = code_of(vector)
    shares = code.encode(vector["data"], masks=vector["masks"])
    assert shares.tolist() == vector["shares"]
    R = code.recovery_threshold()
    last = range(code.parties - R, code.parties)
    results = code.field.elements(vector["squares"])
    assert code.decode(results[-R:], last).tolist() == vector["decoded_squares"]
    with pytest.raises(NotEnoughResultsError):
        code.decode(results[-R + 1 :], last[1:])


@pytest.mark.parametrize("p", VECTORS["refused"]["moduli"])
def test_moduli_that_are_no_odd_primes_below_2_to_the_62_are_refused(p):
    with pytest.raises(FieldError):
        PrimeField(p)


@pytest.mark.parametrize("vector", VECTORS["refused"]["codes"], ids=lambda v: v["why"])
def test_refused_codes(vector):
    with pytest.raises(ConfigurationError):
        code_of(vector)


def test_the_usual_primes_have_vectors():
    for kind in ("arithmetic", "coding"):
        assert set(primes.USUAL) <= {vector["modulus"] for vector in VECTORS[kind]}
