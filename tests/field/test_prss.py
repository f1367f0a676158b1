"""Pseudo-random secret sharing: degrees, ranks, who holds which key, and fixed vectors."""

import copy
import hashlib
import math
from itertools import combinations, product

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from securevfl.errors import ConfigurationError, FieldError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.kernels import primes
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.prss import (
    Prss,
    derive,
    draw_keys,
    fill_stream,
    mask_streams,
)

P = 2**31 - 1
LABEL = b"train 3"
# (K, T, N), N at least R = 3(K+T-1) + 1.
SHAPES = [(1, 1, 4), (2, 1, 7), (1, 2, 7), (2, 2, 10), (3, 1, 10), (1, 3, 10)]


def prss_of(K, T, N, p=P, degree=3):
    return Prss(LagrangeCode(PrimeField(p), parties=N, segments=K, privacy=T), degree)


def keys_of(prss, seed=0):
    """All keys, from a seed."""
    make = np.random.default_rng(seed)
    found = {}
    for party in range(prss.code.parties):
        found |= draw_keys(prss, party, make.bytes)
    return found


def own(prss, keys, party):
    return {key: keys[key] for key in prss.held(party)}


def rank(rows, p):
    """Rank modulo p, by elimination in Python integers."""
    rows, found = [[int(v) % p for v in row] for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        inverse = pow(rows[found][column], -1, p)
        for i in range(found + 1, len(rows)):
            factor = rows[i][column] * inverse % p
            if factor:
                rows[i] = [(a - factor * b) % p for a, b in zip(rows[i], rows[found], strict=True)]
        found += 1
    return found


def multiply(poly, root, p):
    """Coefficients of poly (z - root)."""
    shifted = [0, *poly]
    return [(a - root * b) % p for a, b in zip(shifted, [*poly, 0], strict=True)]


def stream_polynomials(prss, C, u, p):
    """Coefficients of prod_{a in A} (z - alpha_a) z^e, for the keys that nobody in C holds."""
    m, rows = prss.code.privacy + u, []
    for A in prss.blocks:
        if set(C) <= set(A):
            poly = [1]
            for a in A:
                poly = multiply(poly, prss.code.alphas[a], p)
            for e in range(m - len(A)):
                rows.append([0] * e + poly + [0] * (m - len(A) - 1 - e))
    assert all(len(row) == m for row in rows)
    return rows


@pytest.mark.parametrize(("K", "T", "N"), SHAPES)
def test_every_block_has_a_key_that_exactly_the_parties_outside_it_get(K, T, N):
    prss = prss_of(K, T, N)
    for key, A in enumerate(prss.blocks):
        dealer = prss.dealer(key)
        holders = {dealer} | {n for n in range(N) if key in prss.sent(dealer, n)}
        assert holders == set(range(N)) - set(A)
        assert all(key in prss.held(n) for n in holders)
        assert not any(key in prss.sent(m, n) for n in A for m in range(N))
    assert sum(len(prss.dealt(n)) for n in range(N)) == len(prss.blocks)


@pytest.mark.parametrize(("degree", "lowest"), [(2, 2), (3, 2), (3, 3)])
@pytest.mark.parametrize(("K", "T", "N"), SHAPES)
def test_masked_zeros_decode_to_zero_from_any_r_of_them_and_from_no_fewer(K, T, N, degree, lowest):
    prss = prss_of(K, T, N, degree=lowest)
    code, keys = prss.code, keys_of(prss)
    R = code.recovery_threshold(degree)
    zero = np.zeros((2, 3), code.field.dtype)
    sent = np.stack([prss.mask(n, own(prss, keys, n), LABEL, zero, degree) for n in range(N)])
    assert (sent != 0).all()
    stream = np.random.default_rng(1)
    for _ in range(3):
        some = sorted(stream.permutation(N)[:R].tolist())
        assert not code.decode(sent[some], some, degree=degree).any()
    # The degree is degree (K+T-1) and no lower: one result fewer decodes to noise.
    to_betas = interpolation_matrix(code.field, code.alphas[: R - 1], code.betas[:K])
    assert code.field.matmul(to_betas, sent[: R - 1].reshape(R - 1, -1)).any()


@pytest.mark.parametrize("lowest", [2, 3])
@pytest.mark.parametrize(("K", "T", "N"), SHAPES)
def test_streams_of_unknown_keys_span_all_masks_and_one_fewer_never_does(K, T, N, lowest):
    prss, p = prss_of(K, T, N, degree=lowest), P
    u = mask_streams(prss.code, 3)
    assert u == 2 * K + 2 * T - 2
    for size in range(T + 1):
        for C in combinations(range(N), size):
            wanted = 3 * (K + T - 1) - K + 1 - size  # q of degree 3(K+T-1) - K with q(alpha_C) = 0
            assert rank(stream_polynomials(prss, C, u, p), p) == wanted
            assert rank(stream_polynomials(prss, C, u - 1, p), p) < wanted


@pytest.mark.parametrize(("K", "T", "N"), SHAPES)
def test_streams_of_an_opening_span_all_polynomials_that_vanish_at_the_coalition(K, T, N):
    prss = prss_of(K, T, N, degree=2)
    u = 2 * K + T - 1  # degree (K+T-1) - T + 1, where masks need not vanish at data points
    for C in combinations(range(N), T):
        wanted = 2 * (K + T - 1) + 1 - T
        assert rank(stream_polynomials(prss, C, u, P), P) == wanted
        assert rank(stream_polynomials(prss, C, u - 1, P), P) == wanted - 1


def test_at_7_each_mask_polynomial_comes_equally_often_and_so_it_does_for_a_party_in_the_know():
    prss = prss_of(1, 1, 4, p=7)
    code, u = prss.code, mask_streams(prss.code, 3)
    assert (code.betas, code.alphas, u) == ((1, 2), (3, 4, 5, 6), 2)
    assert prss.blocks == ((0, 1), (0, 3), (1, 2), (2, 3))
    tape = np.indices((7,) * 4).reshape(4, -1)  # every value of every stream, one a key
    values = []
    for n in range(4):
        weights, held = prss.weights(n, u), prss.held(n)
        rho = sum(int(w[0]) * tape[key] for w, key in zip(weights, held, strict=True))
        values.append(int(code.vanishing[n]) * rho % 7)
    counts = np.bincount(np.ravel_multi_index(np.array(values), (7,) * 4), minlength=7**4)
    assert sorted(set(counts.tolist())) == [0, 7**4 // 7**3]
    assert np.count_nonzero(counts) == 7**3  # all cubics that vanish at beta_1
    for c in range(4):  # party c lacks the keys of its two blocks: 7^2 values of their streams
        lacks = [key for key, A in enumerate(prss.blocks) if c in A]
        seen = set()
        for pair in product(range(7), repeat=2):
            known = dict.fromkeys(range(4), 0) | dict(zip(lacks, pair, strict=True))
            row = []
            for n in range(4):
                weights = zip(prss.weights(n, u), prss.held(n), strict=True)
                rho = sum(int(w[0]) * known[key] for w, key in weights)
                row.append(int(code.vanishing[n]) * rho % 7)
            assert row[c] == 0
            seen.add(tuple(row))
        assert len(seen) == 7**2


def test_masks_depend_on_every_bit_of_the_label_and_on_the_key():
    prss = prss_of(1, 1, 4)
    keys = keys_of(prss)
    seen = {
        prss.value(0, own(prss, some, 0), label, (5,), 2).tobytes()
        for some in (keys, keys_of(prss, 1))
        for label in (b"train 3", b"train 4", b"train 3\x00", b"")
    }
    assert len(seen) == 8


def test_parties_that_were_told_different_things_cannot_be_decoded():
    prss = prss_of(1, 1, 8)
    keys, code = keys_of(prss), prss.code
    zero = np.zeros((4,), code.field.dtype)
    told = [b"rows 1 2" if n < 4 else b"rows 1 3" for n in range(8)]
    sent = np.stack([prss.mask(n, own(prss, keys, n), told[n], zero, 3) for n in range(8)])
    assert not code.decode(sent[:4], range(4), degree=3).any()
    assert code.decode(sent[[0, 1, 4, 5]], [0, 1, 4, 5], degree=3).any()


def test_many_streams_are_summed_in_parts_as_at_once(monkeypatch):
    prss = prss_of(2, 2, 10)
    keys = own(prss, keys_of(prss), 3)
    whole = prss.value(3, keys, LABEL, (6, 2), 6)
    monkeypatch.setattr("securevfl.field.prss._AT_ONCE", 200)
    assert (prss.value(3, keys, LABEL, (6, 2), 6) == whole).all()


@pytest.mark.parametrize("p", [7, 97, 2**31 - 1, 2**40 - 87, 2**61 - 1])
def test_a_stream_is_aes_in_counter_mode_under_hkdf_by_rejection(p):
    key, label, dtype = bytes(range(32)), b"label", PrimeField(p).dtype
    context = b"securevfl prss 1" + hashlib.sha256(label).digest()
    derived = HKDF(SHA256(), length=32, salt=None, info=context).derive(key)
    assert derive(key, label) == derived
    cipher = Cipher(algorithms.AES(derived), modes.CTR(bytes(16))).encryptor()
    wanted, bits = [], p.bit_length()
    while len(wanted) < 50:
        word = int.from_bytes(cipher.update(bytes(dtype.itemsize)), "little") % 2**bits
        if word < p:
            wanted.append(word)
    out = np.empty(50, dtype)
    fill_stream(p, out, key, label)
    assert out.tolist() == wanted


@pytest.mark.parametrize(
    ("shape", "p", "digest"),
    [
        ((1, 1, 4), 2**31 - 1, "5aff02e65941019b"),
        ((2, 2, 10), 2**61 - 1, "fbd2d52010ae8788"),
    ],
)
def test_values_are_those_of_the_committed_vectors(shape, p, digest):
    prss = prss_of(*shape, p=p)
    keys = {i: hashlib.sha256(str(i).encode()).digest() for i in range(len(prss.blocks))}
    u = mask_streams(prss.code, 3)
    values = [
        prss.value(n, own(prss, keys, n), LABEL, (3, 2), u).tolist()
        for n in range(prss.code.parties)
    ]
    assert hashlib.sha256(repr(values).encode()).hexdigest()[:16] == digest


def test_results_of_a_lower_degree_than_the_blocks_are_for_are_refused():
    prss = prss_of(1, 1, 4, degree=3)
    with pytest.raises(ConfigurationError, match="u = 2 coefficients or more, and u = 1"):
        prss.mask(0, own(prss, keys_of(prss), 0), LABEL, np.zeros(2, np.uint32), 2)


def test_a_thousand_parties_have_a_thousand_keys_and_masks_that_decode_to_zero():
    prss = prss_of(1, 1, 1000)
    keys, some = keys_of(prss), [0, 1, 500, 999]
    assert (len(prss.blocks), prss.most_streams(2)) == (1000, 998)
    zero = np.zeros(3, prss.code.field.dtype)
    sent = np.stack([prss.mask(n, own(prss, keys, n), LABEL, zero, 3) for n in some])
    assert sent.any(axis=1).all()
    assert not prss.code.decode(sent, some, degree=3).any()


def test_what_parties_of_one_process_compute_once_is_what_each_would_compute(monkeypatch):
    prss, N = prss_of(2, 2, 10), 10
    keys = keys_of(prss)
    odd = own(prss, keys, 3) | {key: bytes(32) for key in prss.held(3)[:2]}  # it was sent others
    labels = ((LABEL, 3), (b"other", 3), (LABEL, 5))
    uses = [(n, own(prss, keys, n), label, (4, size)) for label, size in labels for n in range(N)]
    uses += [(3, odd, LABEL, (4, 5)), (4, own(prss, keys, 4), LABEL, (4, 5))]
    shared = [prss.value(*use, 6) for use in uses]
    alone = [prss_of(2, 2, 10).value(*use, 6) for use in uses]
    copied = copy.deepcopy(prss).value(*uses[-1], 6)
    monkeypatch.setattr("securevfl.field.prss._AT_ONCE", 100)
    in_parts = [prss.value(*use, 6) for use in uses]
    for a, b, c in zip(shared, alone, in_parts, strict=True):
        assert np.array_equal(a, b)
        assert np.array_equal(a, c)
    assert np.array_equal(copied, shared[-1])
    assert not np.array_equal(shared[-2], shared[-9])  # party 3 with its own keys


def test_parties_that_answer_earlier_labels_do_not_undo_what_was_computed(monkeypatch):
    """Late parties ask for labels of earlier rounds in between: no stream is drawn again."""
    made, drawn = prss_of(1, 1, 12), []
    keys = keys_of(made)

    def counted(modulus, out, key, label):
        drawn.append((key, label))
        fill_stream(modulus, out, key, label)

    monkeypatch.setattr("securevfl.field.prss.fill_stream", counted)
    made.value(0, own(made, keys, 0), b"first", (3,), 2)  # alone, as nobody else has asked yet
    drawn.clear()
    labels = [b"round-%d" % n for n in range(4)]
    found = {
        (party, label): made.value(party, own(made, keys, party), label, (3,), 2)
        for party in range(1, 12)
        for label in labels
    }
    assert len(drawn) == len(set(drawn)) <= len(made.blocks) * len(labels)
    monkeypatch.undo()
    for (party, label), value in found.items():
        alone = prss_of(1, 1, 12).value(party, own(made, keys, party), label, (3,), 2)
        assert (alone == value).all()


@pytest.mark.parametrize("p", [13, 2**31 - 1, 2013265921, primes.P50, 2**61 - 1])
def test_what_masks_a_result_is_p_of_alpha_times_rho(p):
    code = LagrangeCode(PrimeField(p), parties=5, segments=2, privacy=1)
    prss, field = Prss(code, degree=2), code.field
    result, rho = field.random((3, 37)), field.random((3, 37))
    for n in range(5):
        wanted = field.add(result, field.multiply(code.vanishing[n], rho))
        assert np.array_equal(prss.add(n, result, rho), wanted)
        assert np.array_equal(prss.add(n, result.T, rho.T), wanted.T)
    rho[2, 36] = p
    with pytest.raises(FieldError, match=f"is {p}"):
        prss.add(0, result, rho)


# -- masks that are dealt -------------------------------------------------------------------------


def dealt_of(K, T, N, p=P):
    return Prss(LagrangeCode(PrimeField(p), parties=N, segments=K, privacy=T), 3, by_dealers=True)


def masks_of(prss, keys, label, shape):
    """Masks of all parties: from their keys, or from what the dealers deal them."""
    field, u = prss.code.field, mask_streams(prss.code, 3)
    parts = [prss.values(i, own(prss, keys, i), label, shape) for i in prss.dealers]
    dealt = parts[0]
    for one in parts[1:]:
        dealt = field.add(dealt, one)
    first = [prss.value(j, own(prss, keys, j), label, shape, u) for j in range(prss.seeded)]
    return np.stack([*first, *dealt])


@pytest.mark.parametrize(("K", "T", "N"), SHAPES)
def test_dealt_masks_are_values_of_one_polynomial_of_the_full_degree(K, T, N):
    prss, p = dealt_of(K, T, N), P
    keys, m = keys_of(prss), 2 * K + 3 * T - 2
    assert (prss.seeded, list(prss.receivers), len(keys)) == (m, [*range(m, N)], (T + 1) * m)
    values = masks_of(prss, keys, LABEL, (2, 3)).reshape(N, -1)
    onto = interpolation_matrix(prss.code.field, prss.code.alphas[:m], prss.code.alphas[m:])
    np.testing.assert_array_equal(prss.code.field.matmul(onto, values[:m]), values[m:])
    fewer = interpolation_matrix(prss.code.field, prss.code.alphas[: m - 1], prss.code.alphas)
    assert (prss.code.field.matmul(fewer, values[: m - 1])[m - 1 :] != values[m - 1 :]).all()
    # rho = sum_ij prod_{a in S, a != j} (z - alpha_a) PRF(k_ij, label), in plain integers
    alphas, total = prss.code.alphas, np.zeros((N, 6), object)
    for key, A in enumerate(prss.blocks):
        stream = np.empty(6, prss.code.field.dtype)
        fill_stream(p, stream, keys[key], LABEL)
        for j in range(N):
            weight = math.prod(alphas[j] - alphas[a] for a in A)
            total[j] += weight * stream.astype(object)
    np.testing.assert_array_equal(values, (total % p).astype(values.dtype))


@pytest.mark.parametrize(("K", "T", "N"), [*SHAPES, (2, 2, 12)])
def test_of_each_honest_dealers_masks_t_parties_lack_every_multiple_that_vanishes_there(K, T, N):
    """They know streams of their keys and the values that they are dealt; rank u is left."""
    prss, p, u = dealt_of(K, T, N), P, mask_streams(dealt_of(K, T, N).code, 3)
    alphas = prss.code.alphas

    def value(key, j):
        return int(np.prod([alphas[j] - alphas[a] for a in prss.blocks[key]], dtype=object)) % p

    for C in combinations(range(N), T):
        honest = [i for i in prss.dealers if i not in C]
        assert honest
        for i in honest:
            lacked = [k for k in prss.dealt(i) if not prss.holders[k] & set(C)]
            every = [[value(key, j) for key in lacked] for j in range(N)]
            told = [every[c] for c in C]
            assert rank(every, p) - rank(told, p) == u  # dimension of what told leaves open


def test_a_key_of_dealt_masks_goes_to_its_dealer_and_one_other():
    prss = dealt_of(1, 2, 9)
    assert prss.seeded == 6
    for key in range(18):
        i, j = divmod(key, 6)
        assert prss.dealer(key) == i
        assert [n for n in range(9) if key in prss.held(n)] == sorted({i, j})
        assert [n for n in range(9) if key in prss.sent(i, n)] == ([j] if i != j else [])


def test_a_party_that_is_dealt_masks_computes_none_and_no_other_degree_is_masked():
    prss = dealt_of(1, 1, 6)
    keys = keys_of(prss)
    with pytest.raises(ConfigurationError, match="party 4 computes no mask"):
        prss.value(4, keys, LABEL, (2,), mask_streams(prss.code, 3))
    with pytest.raises(ConfigurationError, match="dealt masks hide no more"):
        prss.value(0, keys, LABEL, (2,), mask_streams(prss.code, 4))
