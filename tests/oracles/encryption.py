"""Keys and ciphertexts of a run whose sums are encrypted, taken apart by other code.

A formula says what a ciphertext decrypts to. It does not say that others cannot decrypt it: for
that the modulus must be hard to factor by what everybody tries first, the randomness of each
ciphertext of full length and its own, and the key that others get must be a public one.
"""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from securevfl.audit.randomness import Log
from securevfl.models.homomorphic import Ckks, Paillier, Scheme, _unpadded

_WHOLE = 0.3  # of a coefficient from an integer; doubles are off by 0.22 at the largest values
_RESIDUES = 64  # ciphertexts of clients whose noise is looked at, by chance
_SPREAD = 1.05  # root mean square of all that noise, as a part of what it must be: 0.98 to 1.02
_DEVIATIONS = 7.0  # of a mean of products of noise and signs, which are 0 in the mean
_LOOKED_AT = 256  # ciphertexts whose randomness is recovered, by chance; all must differ
_SHORT = 64  # bits: a number that is so much shorter than n is an accident of 2^-64
_NEAR = 100  # bits: factors so near each other are one of 2^-100 (FIPS 186-5, A.1.3)
_SMOOTH = 1 << 20  # primes up to which p - 1 and p + 1 are divided
_MULTIPLES = range(1, 17)  # of the factors, none of which may be near each other
# Bits of a modulus at 128-bit security, by the degree (homomorphic encryption standard, 2018).
_STANDARD = {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}


@dataclass
class Made:
    """Vectors that TenSEAL encrypted, and those whose polynomials have no whole coefficients."""

    encrypted: int = 0
    rounded: int = 0


@contextmanager
def watch_ckks() -> Iterator[Made]:
    """Count what TenSEAL encrypts in this process meanwhile."""
    tenseal: Any = import_module("tenseal")
    made, encrypt = Made(), tenseal.ckks_vector

    def encrypted(context: Any, vector: Any, scale: Any = None, *more: Any, **options: Any) -> Any:
        made.encrypted += 1
        made.rounded += not whole_coefficients(vector, scale)
        return encrypt(context, vector, scale, *more, **options)

    tenseal.ckks_vector = encrypted
    try:
        yield made
    finally:
        tenseal.ckks_vector = encrypt


@functools.cache
def _places(n: int) -> list[int]:
    """Powers of 3 modulo 2n, as many as there are slots."""
    return [pow(3, j, 2 * n) for j in range(n // 2)]


def whole_coefficients(slots: Any, scale: float | None) -> bool:
    """Whether CKKS encodes slots at this scale without rounding, in all coefficients.

    Slot j of n / 2 is the value at zeta^(3^j) of a real polynomial of n coefficients, with zeta =
    exp(i pi / n); so coefficient k is the mean of 2 Re(slot_j zeta^(-k 3^j)) over n.
    """
    values = np.asarray(slots, np.float64).reshape(-1) * (scale or 1.0)
    n = 2 * values.size
    if n & (n - 1) or scale is None:
        return False  # another number of slots than the scheme has, or TenSEAL's own scale
    spectrum = np.zeros(2 * n)
    spectrum[_places(n)] = values
    coefficients = 2 * np.fft.fft(spectrum).real[:n] / n
    return bool(np.abs(coefficients - np.rint(coefficients)).max() < _WHOLE)


def encryption_faults(
    scheme: Scheme,
    key_bits: int,
    keys: tuple[bytes, bytes],
    ciphertexts: Sequence[bytes],
    *,
    own: Sequence[bytes] = (),
    log: Log | None = None,
    made: Made | None = None,
) -> Iterator[str]:
    """Faults of the keys and ciphertexts of a run, in words.

    Parameters
    ----------
    scheme : Scheme
    key_bits : int
        Bits of a Paillier modulus, as the options ask for.
    keys : (bytes, bytes)
        The public key as it was sent, and the secret one.
    ciphertexts : sequence of bytes
        As they were sent.
    own : sequence of bytes
        Those of them that a client has encrypted, and that are no sums.
    log : Log, optional
        What was drawn in the run: all randomness of `own` is of it, and none was thrown away.
    made : Made, optional
        What `watch_ckks` counted in the run.
    """
    log = log or Log()
    if not ciphertexts:
        yield "no ciphertext was sent"
    if isinstance(scheme, Paillier):
        yield from _paillier(scheme, key_bits, keys, ciphertexts)
        yield from _of_chance(key_bits, keys, own, ciphertexts, log.keys)
    elif isinstance(scheme, Ckks):
        yield from _ckks(scheme, keys[0], ciphertexts)
        yield from _told_by_noise(scheme, keys[1], own)
        made = made or Made()
        yield from _thrown(made.encrypted, len(own))
        if made.rounded:
            yield (
                f"{made.rounded} of {made.encrypted} plaintexts are rounded when they are encoded: "
                "who opens a sum sees the sum of that, which tells more than the sum"
            )
    else:
        yield f"nobody has taken apart what {type(scheme).__name__} encrypts"


# -- Paillier ----------------------------------------------------------------------------------


def _paillier(
    scheme: Paillier, key_bits: int, keys: tuple[bytes, bytes], ciphertexts: Sequence[bytes]
) -> Iterator[str]:
    n, *factors = (int.from_bytes(one, "little") for one in (keys[0], *_halves(keys[1])))
    if n.bit_length() != key_bits:
        yield f"the modulus has {n.bit_length()} bits, and {key_bits} are asked for"
    p, q = factors
    if p * q != n or any(pow(2, one - 1, one) != 1 for one in factors):
        yield "the secret key does not hold the two prime factors of the modulus"
        return
    yield from _easy(p, q)
    other = int.from_bytes(scheme.generate()[0], "little")
    if other == n or math.gcd(other, n) != 1:
        yield "two keys have a factor in common"
    numbers = _numbers(ciphertexts, key_bits // 4)
    # c mod n is r^n mod n, which two ciphertexts share if and only if they share r.
    if len({c % n for c in numbers}) < len(numbers):
        yield "two ciphertexts have the same randomness"
    chance = np.random.Generator(np.random.PCG64())  # of the operating system's entropy
    places = chance.permutation(len(numbers))[:_LOOKED_AT]
    short = sum(randomness_of(numbers[i], p, q) << _SHORT < n for i in places)
    if short:
        yield f"{short} of {len(places)} ciphertexts have randomness far shorter than the modulus"


def _of_chance(
    key_bits: int,
    keys: tuple[bytes, bytes],
    own: Sequence[bytes],
    ciphertexts: Sequence[bytes],
    given: Sequence[bytes],
) -> Iterator[str]:
    """Randomness that follows from another ciphertext's tells the difference of their plaintexts.

    So each is a number that ``random.SystemRandom().randrange(1, n)`` made in the run; each number
    makes one ciphertext, or makes one of a sum anew.
    """
    n, *factors = (int.from_bytes(one, "little") for one in (keys[0], *_halves(keys[1])))
    p, q = factors
    if p * q != n:
        return
    bits = (n - 1).bit_length()
    size = -(-bits // 8)
    drawn = [
        1 + (int.from_bytes(one, "big") >> 8 * size - bits) for one in given if len(one) == size
    ]
    yield from _thrown(sum(r < n for r in drawn), len(_numbers(ciphertexts, key_bits // 4)))
    numbers = _numbers(own, key_bits // 4)
    chance = np.random.Generator(np.random.PCG64())
    places = chance.permutation(len(numbers))[:_LOOKED_AT]
    other = sum(randomness_of(numbers[i], p, q) not in drawn for i in places)
    if other:
        yield (
            f"{other} of {len(places)} ciphertexts have randomness that is no number of its own "
            "from the operating system"
        )


def _thrown(made: int, sent: int) -> Iterator[str]:
    """Ciphertexts that nobody sent: who encrypts until one pleases says something by it."""
    if made > sent:
        yield f"of {made} fresh ciphertexts {sent} were sent: those that were may be chosen"


def _numbers(ciphertexts: Sequence[bytes], size: int) -> list[int]:
    return [int.from_bytes(one[at : at + size], "little")
            for one in ciphertexts for at in range(0, len(one), size)]  # fmt: skip


def _halves(secret: bytes) -> tuple[bytes, bytes]:
    return secret[: len(secret) // 2], secret[len(secret) // 2 :]


def _easy(p: int, q: int) -> Iterator[str]:
    """Ways in which anybody factors the modulus: Fermat's and Lehman's, and Pollard's p - 1."""
    half = min(p.bit_length(), q.bit_length())
    near = min(abs(a * p - b * q) for a in _MULTIPLES for b in _MULTIPLES)
    if abs(p.bit_length() - q.bit_length()) > 1 or near.bit_length() < half - _NEAR:
        yield "the factors, or small multiples of them, are near each other or of other lengths"
    sieve = np.ones(_SMOOTH, bool)
    sieve[:2] = False
    for i in range(2, math.isqrt(_SMOOTH) + 1):
        sieve[i * i :: i] = False
    primes = np.flatnonzero(sieve).tolist()
    for one in (p - 1, p + 1, q - 1, q + 1):
        left = one
        for prime in primes:
            while left % prime == 0:
                left //= prime
        if left.bit_length() < half // 2:
            yield "a factor is next to a number without large prime factors"


def randomness_of(c: int, p: int, q: int) -> int:
    """r of c = (1 + n)^m r^n mod n^2, in [0, n), with the factors of n: c = r^n mod n."""
    n = p * q
    of_p, of_q = (pow(c % one, pow(n, -1, one - 1), one) for one in (p, q))
    return of_p + p * ((of_q - of_p) * pow(p, -1, q) % q)


# -- CKKS --------------------------------------------------------------------------------------


def _ckks(scheme: Ckks, public: bytes, ciphertexts: Sequence[bytes]) -> Iterator[str]:
    """The key is parsed by TenSEAL, once by its framing and once as parties load it."""
    size = int.from_bytes(public[:4], "little")
    raw, rest = public[4 : 4 + size], public[4 + size :]
    try:
        context = import_module("tenseal").context_from(raw, n_threads=1)
    except (ValueError, RuntimeError) as error:  # of foreign bytes
        yield f"the public key is no context of TenSEAL's ({type(error).__name__})"
        return
    for one in (context, scheme.load(public)):
        if one.is_private() or one.has_secret_key():
            yield "the key that others get holds the secret one"
    kept = {f"save_{name}": name == "public_key"
            for name in ("public_key", "secret_key", "galois_keys", "relin_keys")}  # fmt: skip
    if context.serialize(**kept) != raw or any(rest):
        yield "something stands beside the public key in its bytes"
    whole = context.seal_context().data.key_context_data()
    degree, bits = whole.parms().poly_modulus_degree(), whole.total_coeff_modulus_bit_count()
    if bits > _STANDARD.get(degree, 0):
        yield f"a modulus of {bits} bits at degree {degree} has no 128-bit security"
    if scheme.generate()[0] == public:
        yield "another key is the same"
    if len(set(ciphertexts)) < len(ciphertexts):
        yield "two ciphertexts are equal"
    # Ciphertexts (c_0, c_1) with one c_1 tell the difference of what they hold: c_0 - c_0'.
    known = scheme.load(public)
    second = [scheme.tenseal.ckks_vector_from(known, _unpadded(one)).ciphertext()[0].data(1)
              for one in ciphertexts]  # fmt: skip
    if len(set(second)) < len(second):
        yield "two ciphertexts have the same randomness"


def _told_by_noise(scheme: Ckks, secret: bytes, own: Sequence[bytes]) -> Iterator[str]:
    """Noise of clients' ciphertexts that goes with the numbers in them, or is larger than it is.

    Who opens a sum of ciphertexts sees the sum of their noise, and may know no more than the sum.
    """
    chance = np.random.Generator(np.random.PCG64())  # of the operating system's entropy
    places = chance.permutation(len(own))[:_RESIDUES]
    scheme = copy.copy(scheme)
    scheme._keys = {}  # the protocol's scheme must have no key that it did not take itself
    key = scheme.key(secret)
    found = [
        scheme._values(
            scheme._slots(secret, scheme.tenseal.ckks_vector_from(key, _unpadded(own[i])))
        )
        for i in places
    ]
    if not found:
        return
    values = np.stack(found)
    for part in (values[:, : scheme.SLOTS], values[:, scheme.SLOTS :]):
        numbers = np.rint(part)
        noise, signs = part - numbers, np.sign(numbers)
        products = (noise * signs)[signs != 0]
        deviation = float(np.sqrt((products**2).sum()))
        if deviation and abs(float(products.sum())) > _DEVIATIONS * deviation:
            yield "the noise of ciphertexts has the signs of the numbers in them"
        size = float(np.sqrt((noise**2).mean()))
        if size > _SPREAD * scheme.NOISE:
            yield f"the noise of ciphertexts is {size / scheme.NOISE:.2f} times what it must be"
