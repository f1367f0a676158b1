"""Additively homomorphic encryption of integer arrays: CKKS by TenSEAL, Paillier by
python-paillier."""

from __future__ import annotations

import functools
import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from securevfl.errors import RunError, needs

_LARGEST, _SPREAD = 12, 1.1  # of CKKS's noise, in standard deviations: of a coefficient, of all
LARGEST = 1 << 34  # bound on the sum's integers, in both schemes


class Scheme(ABC):
    """Additively homomorphic encryption of vectors of integers, to bytes of a fixed size.

    Every party needs its own object, which caches the keys that it has read.

    Parameters
    ----------
    parties : int
        Largest number N of summands; each |value| is at most `limit` = floor(2^34 / N).
    """

    def __init__(self, parties: int) -> None:
        self.limit = LARGEST // parties
        self._keys: dict[bytes, Any] = {}

    @abstractmethod
    def generate(self) -> tuple[bytes, bytes]:
        """New key pair (public, secret), each as bytes."""

    @abstractmethod
    def encrypt(self, key: bytes, values: np.ndarray) -> tuple[bytes, ...]:
        """Ciphertexts of int64 values, (size,), under the public key's bytes."""

    @abstractmethod
    def add(self, key: bytes, ciphertexts: Sequence[tuple[bytes, ...]]) -> tuple[bytes, ...]:
        """Ciphertexts of the sum of vectors; `ciphertexts` has a tuple for each summand."""

    @abstractmethod
    def decrypt(
        self, secret: bytes, ciphertexts: tuple[bytes, ...], size: int, summands: int
    ) -> np.ndarray:
        """Exact sum of `summands` encrypted vectors, (size,) int64; RunError if it is not exact."""

    def fault(self, secret: bytes, ciphertexts: Any, values: np.ndarray, summands: int) -> str:
        """Text on a fault of ciphertexts that must hold exactly these values; "" if there is none.

        The check covers number, sizes and framing, and every coefficient, including those beyond
        the values.

        Parameters
        ----------
        secret : bytes
            Secret key of the scheme.
        ciphertexts : object
            The received ciphertexts.
        values : ndarray, int64, flat
            Values that they should hold.
        summands : int
            Number of encryptions of which they are the sum.

        Returns
        -------
        str
            Empty if there is no fault.
        """
        whole = isinstance(ciphertexts, tuple) and all(isinstance(c, bytes) for c in ciphertexts)
        if not whole or sum(map(len, ciphertexts)) != self.nbytes(values.size):
            return f"they are not {self.nbytes(values.size)} bytes in a tuple"
        try:
            return next(iter(self._faults(secret, ciphertexts, values, summands)), "")
        except (ValueError, RuntimeError, OverflowError) as error:  # of foreign bytes
            return f"they cannot be read ({type(error).__name__}: {error})"

    @abstractmethod
    def _faults(
        self, secret: bytes, ciphertexts: tuple[bytes, ...], values: np.ndarray, summands: int
    ) -> Iterator[str]:
        """Sentences on faults of ciphertexts of the right size; arguments are those of `fault`."""

    @abstractmethod
    def nbytes(self, size: int) -> int:
        """Bytes of the ciphertexts of a vector of `size` values."""

    @abstractmethod
    def load(self, key: bytes) -> Any:
        """Key object of the encryption library from the bytes of a key; nothing is cached."""

    def key(self, key: bytes) -> Any:
        """Key object of the library that `load` makes of a key's bytes; made once and kept."""
        if key not in self._keys:
            self._keys[key] = self.load(key)
        return self._keys[key]


class Ckks(Scheme):
    """CKKS with 8192 coefficients, one data prime of 60 bits and one key prime; 128-bit security.

    The homomorphic encryption standard allows 218 bits at this degree; 120 are used.

    Values are *coefficients* of the plaintext polynomial, as integers: 2^14 times a value, and its
    negative at the place that makes all slots real, which is what TenSEAL encrypts. With values in
    slots, each client would round them to coefficients, and the decrypted sum would contain the sum
    of these roundings, which reveals more than the sum of the values. With values in coefficients,
    a decrypted sum contains only noise that does not depend on values: SEAL rounds an encryption of
    zero when it drops the key prime, and adds the plaintext after that. So a fresh coefficient's
    noise has variance (1 + w) / 12, with a ternary key of w nonzero coefficients, two thirds on
    average; that of a sum over N clients is N times as large. Polynomials are evaluated in doubles:
    at the largest value, 2^47 for two clients, coefficients were right to 0.22 and, at twice that,
    to 0.41 after encoding and decoding, where less than 1/2 is needed.
    """

    DEGREE: ClassVar[int] = 8192
    SLOTS: ClassVar[int] = DEGREE // 2
    SCALE: ClassVar[float] = 2.0**24  # of slots; it cancels, and must be large enough for TenSEAL
    GUARD: ClassVar[float] = 2.0**14  # coefficient of a value of 1
    # Two polynomials of one 60-bit prime in words, and TenSEAL's framing. Padded, so that neither
    # chance nor content shows in a size.
    NBYTES: ClassVar[int] = 2 * DEGREE * 8 + 512
    KEY_NBYTES: ClassVar[int] = 4 * DEGREE * 8 + 1024
    NOISE: ClassVar[float] = math.sqrt((1 + DEGREE * 2 / 3) / 12) / GUARD  # of a value, fresh
    _KEYS: ClassVar[Mapping[str, bool]] = {
        "save_galois_keys": False,
        "save_relin_keys": False,
        "save_public_key": True,
    }

    def __init__(self, parties: int) -> None:
        super().__init__(parties)
        needs("encryption: scheme = 'ckks'", "he", "tenseal")
        self.tenseal = import_module("tenseal")

    def generate(self) -> tuple[bytes, bytes]:
        """Context bytes with the public key alone, and with both keys."""
        made = self.tenseal.context(
            self.tenseal.SCHEME_TYPE.CKKS,
            poly_modulus_degree=self.DEGREE,
            coeff_mod_bit_sizes=[60, 60],
            n_threads=1,
        )
        secret: bytes = made.serialize(save_secret_key=True, **self._KEYS)
        public = made.serialize(save_secret_key=False, **self._KEYS)
        return _padded(public, self.KEY_NBYTES), secret

    def encrypt(self, key: bytes, values: np.ndarray) -> tuple[bytes, ...]:
        """One ciphertext for each 4096 values, padded with zeros."""
        padded = np.zeros((self._count(values.size), self.SLOTS))
        padded.reshape(-1)[: values.size] = values  # below 2^53, so exact
        public = self.key(key)
        slots = [_evaluated(_symmetric(row * self.GUARD)).real / self.SCALE for row in padded]
        vectors = [self.tenseal.ckks_vector(public, row, scale=self.SCALE) for row in slots]
        return tuple(_padded(vector.serialize(), self.NBYTES) for vector in vectors)

    def add(self, key: bytes, ciphertexts: Sequence[tuple[bytes, ...]]) -> tuple[bytes, ...]:
        """Ciphertexts of the sum; summands are added one by one."""
        public, sums = self.key(key), []
        for column in zip(*ciphertexts, strict=True):
            vectors = [self.tenseal.ckks_vector_from(public, _unpadded(c)) for c in column]
            total = functools.reduce(lambda a, b: a.add_(b), vectors)
            sums.append(_padded(total.serialize(), self.NBYTES))
        return tuple(sums)

    def decrypt(
        self, secret: bytes, ciphertexts: tuple[bytes, ...], size: int, summands: int
    ) -> np.ndarray:
        """Nearest integers, (size,), of a decrypted sum; RunError if one is farther than 1/8."""
        private = self.key(secret)
        vectors = [self.tenseal.ckks_vector_from(private, _unpadded(c)) for c in ciphertexts]
        slots = [np.array(vector.decrypt()) for vector in vectors]
        values = np.concatenate([self._values(row)[: self.SLOTS] for row in slots])[:size]
        sums: np.ndarray = np.rint(values)
        residue = float(np.abs(values - sums).max(initial=0.0))
        if not residue <= 1 / 8:
            raise RunError(
                f"encryption: a decrypted sum of {summands} embeddings is {residue:.3f} from an "
                "integer, and 1/8 is allowed; its ciphertexts are not those of this run's scheme"
            )
        exact: np.ndarray = sums.astype(np.int64)
        return exact

    def _faults(
        self, secret: bytes, ciphertexts: tuple[bytes, ...], values: np.ndarray, summands: int
    ) -> Iterator[str]:
        """Faults in framing, parameters or any coefficient of the ciphertexts.

        Noise of at most 12 standard deviations in every coefficient, and 1.1 in the root mean
        square, is accepted: smaller deviations cannot be distinguished from it. A coefficient's
        noise is a sum of some 5,461 roundings, so nearly normal: 12 standard deviations have a
        probability of 4e-33, and the root mean square over 8192 of them is within 1 % of what the
        key gives.
        """
        if len(ciphertexts) != self._count(values.size):
            yield f"there are {len(ciphertexts)} ciphertexts of {values.size} values"
        padded = np.zeros((len(ciphertexts), self.SLOTS))
        padded.reshape(-1)[: values.size] = values
        noise = self.NOISE * math.sqrt(summands)
        for framed, wanted in zip(ciphertexts, padded, strict=True):
            vector = self.tenseal.ckks_vector_from(self.key(secret), _unpadded(framed))
            if _padded(vector.serialize(), self.NBYTES) != framed:
                yield "something stands beside a ciphertext in its bytes"
            if not self._as_made(vector):
                yield "a ciphertext has another scale, level or number of slots"
                continue
            residue = self._values(self._slots(secret, vector)) - _symmetric(wanted)
            largest, spread = float(np.abs(residue).max()), float(np.sqrt((residue**2).mean()))
            if not (largest <= _LARGEST * noise and spread <= _SPREAD * noise):
                yield (
                    f"values differ from what they must be by up to {largest:.3g}, and noise by "
                    f"up to {_LARGEST * noise:.3g}"
                )

    def _as_made(self, vector: Any) -> bool:
        """Whether scale, level and shape equal those that `encrypt` gives."""
        (ciphertext,) = vector.ciphertext()
        shape = (ciphertext.size(), ciphertext.coeff_modulus_size(), ciphertext.is_ntt_form())
        return shape == (2, 1, True) and (vector.size(), ciphertext.scale) == (
            self.SLOTS,
            self.SCALE,
        )

    def _values(self, slots: np.ndarray) -> np.ndarray:
        """Coefficients of a decrypted polynomial, as values: (8192,) of (4096,) slots.

        The first half has the values; the second half has their negatives in reverse order.
        """
        return _interpolated(slots * self.SCALE) / self.GUARD

    def _slots(self, secret: bytes, vector: Any) -> np.ndarray:
        """All slots of a ciphertext as complex numbers (TenSEAL returns only real parts)."""
        seal, context = import_module("tenseal.sealapi"), self.key(secret)
        own = context.seal_context().data
        plaintext = seal.Plaintext()
        seal.Decryptor(own, context.secret_key().data).decrypt(vector.ciphertext()[0], plaintext)
        return np.array(seal.CKKSEncoder(own).decode_complex(plaintext))

    def nbytes(self, size: int) -> int:
        """Bytes for `size` values: 131,584 for each 4096 or part of them."""
        return self._count(size) * self.NBYTES

    def load(self, key: bytes) -> Any:
        """TenSEAL context of the bytes of a key."""
        packed = len(key) == self.KEY_NBYTES
        return self.tenseal.context_from(_unpadded(key) if packed else key, n_threads=1)

    def _count(self, size: int) -> int:
        return max(1, -(-size // self.SLOTS))


@functools.cache
def _roots(slots: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions of SEAL's slots and their conjugates among odd powers of zeta; powers zeta^k.

    zeta = exp(i pi / n) for n = 2 `slots` coefficients; slot j is the value at zeta^(3^j).
    """
    n = 2 * slots
    powers = np.array(list(itertools.accumulate(range(slots - 1), lambda g, _: 3 * g % (2 * n),
                                                initial=1)))  # fmt: skip
    places = (powers - 1) // 2
    return places, n - 1 - places, np.exp(1j * np.pi * np.arange(n) / n)


def _symmetric(values: np.ndarray) -> np.ndarray:
    """Coefficients c of a polynomial with real slots: values, and c_(n-k) = -c_k, float64."""
    return np.concatenate([values, [0.0], -values[:0:-1]])


def _evaluated(coefficients: np.ndarray) -> np.ndarray:
    """Slots of a polynomial, complex128, half as many as its coefficients."""
    places, _, powers = _roots(coefficients.size // 2)
    values: np.ndarray = np.fft.ifft(coefficients * powers)[places] * coefficients.size
    return values


def _interpolated(slots: np.ndarray) -> np.ndarray:
    """Inverse of `_evaluated`: real coefficients, float64."""
    places, conjugates, powers = _roots(slots.size)
    values = np.empty(2 * slots.size, np.complex128)
    values[places], values[conjugates] = slots, np.conj(slots)
    coefficients: np.ndarray = (np.fft.fft(values) / powers).real / values.size
    return coefficients


def _padded(raw: bytes, size: int) -> bytes:
    """Bytes preceded by their length and padded with zeros to `size`; RunError if they are more."""
    framed = len(raw).to_bytes(4, "little") + raw
    if len(framed) > size:
        raise RunError(
            f"encryption: {len(raw)} bytes were serialised and {size - 4} were expected; this "
            "version of tenseal has another format"
        )
    return framed.ljust(size, b"\0")


def _unpadded(framed: bytes) -> bytes:
    return framed[4 : 4 + int.from_bytes(framed[:4], "little")]


class Paillier(Scheme):
    """Paillier with packing: as many sums as fit side by side in one plaintext.

    A value v is encrypted as v + `limit`, in slots of 36 bits, so that sums of up to N stay in
    their slots. Plaintexts are integers, without phe's exponents, which travel in the clear. The
    modulus has `key_bits` bits.
    """

    SLOT: ClassVar[int] = 36  # N * 2 limit <= 2^35

    def __init__(self, parties: int, key_bits: int) -> None:
        super().__init__(parties)
        needs("encryption: scheme = 'paillier'", "he", "phe")
        self.phe = import_module("phe")
        self.key_bits = key_bits
        self.slots = (key_bits - 1) // self.SLOT

    def generate(self) -> tuple[bytes, bytes]:
        """Modulus n as public key, and its two factors as secret key."""
        public, private = self.phe.generate_paillier_keypair(n_length=self.key_bits)
        size = self.key_bits // 8
        factors = [int(f).to_bytes(size, "little") for f in (private.p, private.q)]
        return int(public.n).to_bytes(size, "little"), b"".join(factors)

    def encrypt(self, key: bytes, values: np.ndarray) -> tuple[bytes, ...]:
        """One ciphertext for each `slots` values, all joined in one byte string."""
        public = self.key(key)
        shifted = (values + self.limit).tolist()
        packed = [shifted[i : i + self.slots] for i in range(0, len(shifted), self.slots)]
        return (b"".join(self._bytes(public.raw_encrypt(self._pack(row))) for row in packed),)

    def add(self, key: bytes, ciphertexts: Sequence[tuple[bytes, ...]]) -> tuple[bytes, ...]:
        """Ciphertexts of the sums: products of ciphertexts, randomised again."""
        public, number = self.key(key), self.phe.EncryptedNumber
        rows = [[number(public, c) for c in self._numbers(joined[0], 2)] for joined in ciphertexts]
        sums = [functools.reduce(lambda a, b: a + b, column) for column in zip(*rows, strict=True)]
        return (b"".join(self._bytes(total.ciphertext(be_secure=True)) for total in sums),)

    def decrypt(
        self, secret: bytes, ciphertexts: tuple[bytes, ...], size: int, summands: int
    ) -> np.ndarray:
        """Sums, (size,) int64, in slots of decrypted integers, less `limit` for each summand."""
        private = self.key(secret)
        values: list[int] = []
        for ciphertext in self._numbers(ciphertexts[0], 2):
            values += self._unpack(int(private.raw_decrypt(ciphertext)))
        return np.array(values[:size], np.int64) - summands * self.limit

    def _faults(
        self, secret: bytes, ciphertexts: tuple[bytes, ...], values: np.ndarray, summands: int
    ) -> Iterator[str]:
        """Faults in any plaintext, or a ciphertext of n^2 or more, which could carry more data."""
        if len(ciphertexts) != 1:
            yield f"there are {len(ciphertexts)} strings, and one is made"
        private = self.key(secret)
        shifted = (values + summands * self.limit).tolist()
        for row, ciphertext in enumerate(self._numbers(b"".join(ciphertexts), 2)):
            wanted = self._pack(shifted[row * self.slots : (row + 1) * self.slots])
            if ciphertext >= private.public_key.nsquare:
                yield "a ciphertext is not below the square of the modulus"
            if private.raw_decrypt(ciphertext) != wanted:
                yield "a plaintext is not that of the values"

    def nbytes(self, size: int) -> int:
        """Bytes for `size` values: 2 `key_bits` bits for each `slots` of them."""
        return -(-size // self.slots) * self.key_bits // 4

    def load(self, key: bytes) -> Any:
        """Public key object from n, or private key object from its factors."""
        numbers = self._numbers(key, 1)
        if len(numbers) == 1:
            return self.phe.PaillierPublicKey(numbers[0])
        public = self.phe.PaillierPublicKey(math.prod(numbers))
        return self.phe.PaillierPrivateKey(public, *numbers)

    def _pack(self, values: Sequence[int]) -> int:
        return sum(value << (self.SLOT * i) for i, value in enumerate(values))

    def _unpack(self, number: int) -> list[int]:
        mask = (1 << self.SLOT) - 1
        return [number >> (self.SLOT * i) & mask for i in range(self.slots)]

    def _bytes(self, ciphertext: int) -> bytes:
        return int(ciphertext).to_bytes(self.key_bits // 4, "little")

    def _numbers(self, joined: bytes, words: int) -> list[int]:
        """Integers of `words` times the modulus's length each, from joined bytes."""
        size = words * self.key_bits // 8
        return [int.from_bytes(joined[i : i + size], "little") for i in range(0, len(joined), size)]
