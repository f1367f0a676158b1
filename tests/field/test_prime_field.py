"""PrimeField against Python integers, galois and FLINT."""

import flint
import galois
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.errors import FieldError
from securevfl.field import PrimeField, SeededSource
from securevfl.field.kernels import primes

MODULI = [
    3,
    5,
    2**26 - 5,
    2**31 - 1,
    2013265921,
    2**32 - 5,
    2**50 - 27,
    primes.P50,
    2**61 - 1,
    2**62 - 57,
]
FIELDS = [PrimeField(p) for p in MODULI]


def objects(array):
    return array.astype(object)


def edges(p):
    return sorted({0, 1, 2 % p, (p - 1) // 2, (p + 1) // 2, p - 2, p - 1})


@pytest.fixture(params=FIELDS, ids=str)
def F(request):
    return request.param


def test_elementwise_operations_equal_python_integers_at_the_edges(F):
    p = F.modulus
    a, b = (F.elements(v.ravel().tolist()) for v in np.meshgrid(edges(p), edges(p)))
    x, y = objects(a), objects(b)
    assert (objects(F.add(a, b)) == (x + y) % p).all()
    assert (objects(F.subtract(a, b)) == (x - y) % p).all()
    assert (objects(F.multiply(a, b)) == x * y % p).all()
    assert (objects(F.negative(a)) == -x % p).all()


def test_few_and_many_elements_are_inverted_alike(F):
    a = F.reduce(F.random((70,), SeededSource(3))) | F.dtype.type(1)
    a = np.where(a >= F.modulus, F.dtype.type(1), a)
    whole = F.reciprocal(a)
    few = [F.reciprocal(a[i : i + n]) for i, n in ((0, 1), (1, 31), (32, 32), (64, 6))]
    assert (np.concatenate(few) == whole).all()
    assert (F.multiply(a, whole) == 1).all()
    for n, place in ((5, 4), (70, 69), (70, 0)):
        zero = a[:n].copy()
        zero[place] = 0
        with pytest.raises(FieldError, match=rf"index \({place},\) is 0"):
            F.reciprocal(zero)


def test_reciprocal_and_divide_undo_multiplication(F):
    p = F.modulus
    a = F.elements([v for v in edges(p) if v])
    assert (F.multiply(a, F.reciprocal(a)) == 1).all()
    assert (F.divide(F.multiply(a, p - 1), a) == p - 1).all()


def test_power_equals_pow_for_large_negative_and_zero_exponents(F):
    p = F.modulus
    a = F.elements([v for v in edges(p) if v])
    for exponent in (0, 1, 2, p - 1, p, 3 * p + 1, 10**30, -1, -5):
        assert F.power(a, exponent).tolist() == [pow(int(v), exponent, p) for v in a]
    assert F.power([0], 0).tolist() == [1]
    assert F.power([0], p - 1).tolist() == [0]


def test_power_takes_arrays_of_exponents(F):
    p = F.modulus
    a = F.elements([v for v in edges(p) if v])
    exponents = [0, 1, 2, p - 2, p - 1, p, -1, -2, 1 - p, -p]
    found = F.power(a[:, None], np.array(exponents, np.int64))
    assert found.dtype == F.dtype
    assert found.tolist() == [[pow(int(v), e, p) for e in exponents] for v in a]
    large = np.array([10**30, -(10**30), 3 * p * (p - 1)], object)
    wanted = [[pow(int(v), int(e), p) for e in large] for v in a]
    assert F.power(a[:, None], large).tolist() == wanted
    least = np.array([np.iinfo(np.int64).min, np.iinfo(np.int64).max])
    assert F.power(a[-1], least).tolist() == [pow(p - 1, int(e), p) for e in least]
    assert F.power(2, np.arange(5, dtype=np.uint8)).tolist() == [2**e % p for e in range(5)]
    assert F.power(np.zeros(4, F.dtype), [0, 1, p - 1, 2 * (p - 1)]).tolist() == [1, 0, 0, 0]
    assert F.power(a, np.zeros((0, len(a)), int)).shape == (0, len(a))


def test_power_refuses_exponents_that_are_no_integers_and_zeros_to_invert(F):
    for exponents in ([0.5, 1.0], [True, False], ["1", "2"]):
        with pytest.raises(FieldError, match="must be integers"):
            F.power([1, 2 % F.modulus], exponents)
    with pytest.raises(FieldError, match=r"no inverse|zero"):
        F.power([0, 1], [-1, 1])


def test_results_have_the_dtype_of_the_field_and_inputs_stay(F):
    a = F.random((3, 4), SeededSource(1))
    before = a.copy()
    for result in (F.add(a, a), F.multiply(a, 1), F.matmul(a, a.T), F.power(a, 2), F.signed(a)):
        assert result.dtype in (F.dtype, np.int64)
    assert (a == before).all()


def test_operations_broadcast_and_keep_scalars(F):
    a = F.random((4, 1, 3), SeededSource(2))
    b = F.random((5, 1), SeededSource(3))
    assert F.multiply(a, b).shape == (4, 5, 3)
    assert F.add(1, 1).shape == ()
    assert int(F.add(1, 1)) == 2
    with pytest.raises(FieldError, match="do not broadcast"):
        F.add(np.zeros(2, F.dtype), np.zeros(3, F.dtype))


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 5), (17, 33, 9), (2, 100, 31)])
def test_matmul_equals_python_integers(F, shape):
    m, k, n = shape
    a, b = F.random((m, k), SeededSource(4)), F.random((k, n), SeededSource(5))
    expected = (objects(a) @ objects(b)) % F.modulus
    assert (objects(F.matmul(a, b)) == expected).all()
    assert (objects(F.matmul(a, b, threads=2)) == expected).all()
    assert (objects(F.matmul(a, b, trusted=True)) == expected).all()


def test_matmul_of_the_largest_elements(F):
    p = F.modulus
    a = np.full((2, 1037), p - 1, F.dtype)
    assert (F.matmul(a, a.T) == 1037 % p).all()


def test_matmul_follows_numpy_on_vectors_stacks_and_views(F):
    a, b = F.random((2, 1, 3, 4), SeededSource(6)), F.random((5, 4, 2), SeededSource(7))
    expected = np.matmul(objects(a), objects(b)) % F.modulus
    assert (objects(F.matmul(a, b)) == expected).all()
    v = F.random(4, SeededSource(8))
    assert F.matmul(v, b[0]).shape == (2,)
    assert F.matmul(a[0, 0], v).shape == (3,)
    assert F.matmul(v, v).shape == ()
    wide = F.random((8, 6), SeededSource(9))
    view = wide[::2, ::-2]
    assert (objects(F.matmul(view, view.T)) == objects(view) @ objects(view.T) % F.modulus).all()


def test_matmul_writes_into_out_and_refuses_a_wrong_one():
    F = PrimeField(2**31 - 1)
    a = F.random((3, 3), SeededSource(10))
    out = np.empty((3, 3), F.dtype)
    assert F.matmul(a, a, out=out) is out
    assert (out == F.matmul(a, a)).all()
    with pytest.raises(FieldError, match="share memory"):
        F.matmul(a, a, out=a)
    with pytest.raises(FieldError, match="shape"):
        F.matmul(a, a, out=np.empty((2, 3), F.dtype))
    with pytest.raises(FieldError, match="contiguous"):
        F.matmul(a, a, out=np.empty((3, 6), F.dtype)[:, ::2])
    with pytest.raises(FieldError, match="must be as long as the last but one of b"):
        F.matmul(a, a[:2])
    with pytest.raises(FieldError, match="do not fit: the last axis of a must be as long as b"):
        F.matmul(a, a[0, :2])
    with pytest.raises(FieldError, match="do not fit: neither may be a single number"):
        F.matmul(a, a[0, 0])


def test_empty_operands_give_empty_or_zero_results(F):
    assert F.matmul(np.zeros((2, 0), F.dtype), np.zeros((0, 3), F.dtype)).tolist() == [[0] * 3] * 2
    assert F.matmul(np.zeros((0, 4), F.dtype), np.zeros((4, 3), F.dtype)).shape == (0, 3)
    assert F.add(np.zeros(0, F.dtype), 1).shape == (0,)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_ring_axioms_hold(data):
    F = data.draw(st.sampled_from(FIELDS))
    element = st.integers(0, F.modulus - 1)
    a, b, c = (data.draw(element) for _ in range(3))
    assert F.multiply(a, F.add(b, c)) == F.add(F.multiply(a, b), F.multiply(a, c))
    assert F.multiply(F.multiply(a, b), c) == F.multiply(a, F.multiply(b, c))
    assert F.subtract(F.add(a, b), b) == a
    assert F.divide(F.multiply(a, b), b) == a if b else True


@pytest.mark.parametrize("p", [5, 2**31 - 1])
def test_linear_algebra_equals_galois(p):
    F, G = PrimeField(p), galois.GF(p, compile="python-calculate")
    for n in (1, 2, 5):
        a, b = F.random((n, n), SeededSource(n)), F.random((n, 3), SeededSource(n + 50))
        expected = np.linalg.det(G(objects(a).tolist()))
        assert F.det(a) == int(expected)
        if int(expected):
            x = np.linalg.solve(G(objects(a).tolist()), G(objects(b).tolist()))
            assert F.solve(a, b).tolist() == np.asarray(x).tolist()
            assert (F.matmul(a, F.inv(a)) == np.eye(n)).all()


def test_linear_algebra_and_products_equal_flint(F):
    p = F.modulus
    a, b = F.random((12, 12), SeededSource(11)), F.random((12, 9), SeededSource(12))
    fa, fb = (flint.nmod_mat(*v.shape, objects(v).ravel().tolist(), p) for v in (a, b))
    assert F.matmul(a, b).ravel().tolist() == [int(v) for v in (fa * fb).entries()]
    assert F.det(a) == int(fa.det())
    if F.det(a):
        assert F.solve(a, b).ravel().tolist() == [int(v) for v in fa.solve(fb).entries()]
        assert F.inv(a).ravel().tolist() == [int(v) for v in fa.inv().entries()]
    x, y = F.random(20, SeededSource(13)), F.random(7, SeededSource(14))
    product = flint.nmod_poly(objects(x).tolist(), p) * flint.nmod_poly(objects(y).tolist(), p)
    coefficients = [int(v) for v in product.coeffs()]
    assert F.convolve(x, y).tolist() == coefficients + [0] * (26 - len(coefficients))


def test_determinant_of_a_permutation_has_its_sign():
    F = PrimeField(7)
    assert F.det([[0, 1], [1, 0]]) == 6
    assert F.det(np.zeros((0, 0), F.dtype)) == 1


def test_singular_matrices_are_refused(F):
    singular = F.elements([[1, 1], [1, 1]])
    assert F.det(singular) == 0
    with pytest.raises(FieldError, match="singular"):
        F.inv(singular)
    with pytest.raises(FieldError, match="square"):
        F.inv(np.zeros((2, 3), F.dtype))


def test_reduce_maps_any_integers(F):
    p = F.modulus
    assert F.reduce([-1, p, 10**40, -(10**40)]).tolist() == [p - 1, 0, 10**40 % p, -(10**40) % p]
    assert F.reduce(np.array([-1, -128], np.int8)).tolist() == [p - 1, -128 % p]
    assert F.reduce(np.array([2**64 - 1], np.uint64)).tolist() == [(2**64 - 1) % p]
    with pytest.raises(FieldError, match="must be integers"):
        F.reduce([0.5])


def test_signed_reads_the_upper_half_as_negative(F):
    p, half = F.modulus, F.half
    assert F.signed([0, half, half + 1, p - 1]).tolist() == [0, half, -half, -1]


@pytest.mark.parametrize("value", [np.array([1], np.int64), np.array([1.0]), 1.5, True, [None]])
def test_values_that_are_no_unsigned_integers_are_refused(value):
    with pytest.raises(FieldError):
        PrimeField(7).add(value, 1)


def test_a_value_outside_is_named_with_its_index():
    F = PrimeField(7)
    with pytest.raises(FieldError, match=r"index \(1, 0\) is 7, outside \[0, 7\)"):
        F.add(np.array([[1, 2], [7, 3]], np.uint8), 1)
    with pytest.raises(FieldError, match="index 1 is -1"):
        F.add([0, -1], 1)


def test_division_by_zero_is_refused_with_its_index(F):
    with pytest.raises(FieldError, match=r"index \(1,\) is 0"):
        F.divide([1, 1], [1, 0])


def test_strong_pseudoprimes_are_seen_through():
    with pytest.raises(FieldError, match="composite"):
        PrimeField(3825123056546413051)  # Strong pseudoprime to the bases 2 to 23.


def test_fields_are_frozen_values():
    assert PrimeField(7) == PrimeField(7)
    assert hash(PrimeField(7)) == hash(PrimeField(7))
    with pytest.raises(AttributeError):
        PrimeField(7).modulus = 11


@pytest.mark.parametrize("threads", [1, 2])
def test_a_product_refuses_a_number_outside_the_field_wherever_it_stands(F, threads):
    a, b = F.random((33, 10)), F.random((10, 71))
    for index in ((0, 0), (9, 63), (9, 70)):  # the last is in an edge of the vectors
        wrong = b.copy()
        wrong[index] = F.modulus
        with pytest.raises(
            FieldError, match=rf"b: .*index \({index[0]}, {index[1]}\).* {F.modulus}"
        ):
            F.matmul(a, wrong, threads=threads)
        with pytest.raises(FieldError, match="b: the element at"):
            F.matmul(a, np.stack([b, wrong]), threads=threads)
        with pytest.raises(FieldError, match="b: the element at"):
            F.matmul(a[:1, :2], np.stack([b, wrong])[:, [0, index[0]]])
    with pytest.raises(FieldError, match="a: the element at"):
        F.matmul(wrong.T.copy(), b.T.copy().T[:, :5])


def test_exponents_in_a_list_are_python_integers():
    F = PrimeField(97)
    assert F.power([2, 3], [2**63, -1]).tolist() == [pow(2, 2**63, 97), pow(3, -1, 97)]
    assert F.power([], []).shape == (0,)
    with pytest.raises(FieldError, match="exponents must be integers"):
        F.power([2, 3], [1.0, 2.0])


@pytest.mark.parametrize(
    ("what", "ask"),
    [
        ("masked", lambda F: F.elements(np.ma.array(np.ones(2, np.uint32), mask=[0, 1]))),
        ("masked", lambda F: F.reduce(np.ma.array([1, 2], mask=[0, 1]))),
        ("masked", lambda F: F.matmul([[1]], np.ma.array([[np.uint32(1)]], mask=[[1]]))),
        ("no array", lambda F: F.reduce([[1], [1, 2]])),
        ("broadcast", lambda F: F.power([2, 3], [1, 2, 3])),
        ("shape", lambda F: F.random((-1,))),
        ("shape", lambda F: F.random(2.5)),
        ("SeededSource", lambda F: F.random(3, 0)),
    ],
)
def test_values_shapes_and_sources_that_are_none_are_refused(what, ask):
    with pytest.raises(FieldError, match=what):
        ask(PrimeField(2**31 - 1))
