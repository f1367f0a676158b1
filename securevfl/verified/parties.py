"""Draws, keys and messages of parties, and the low-level parties of a `World`."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.errors import RunError
from securevfl.verified import functions
from securevfl.verified.functions import FlowError
from securevfl.verified.trace import KEY_BYTES, OPENED, SERVER, Trace, field_of, received
from securevfl.verified.values import (
    Bytes,
    Clipped,
    Element,
    Key,
    Noised,
    PublicKey,
    Sealed,
    Secret,
    bare,
    combination,
    concatenate,
    describe,
    home_of,
    mapped,
)

if TYPE_CHECKING:
    from securevfl.field.lagrange_code import LagrangeCode


class Hands:
    """Abilities of every party: random draws, keys, streams, and releases with noise.

    Attributes
    ----------
    index : int
        Number of the party.
    world : Trace or None
        The trace that is recorded, if any.
    field : PrimeField
        Field F_p of its elements.
    round : int
        Its current round.
    """

    index: int
    world: Trace | None
    field: Any
    round: int

    def uniform(self, *shape: Any, name: str = "r") -> Element:
        """Fresh uniform elements from the operating system's entropy."""
        whole = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        value = self.field.random(tuple(map(int, whole)))
        node = None if self.world is None else self._leaf("uniform", name, value)
        return Element(value, node, self.index, self.world, self.field)

    def key(self, name: str = "k") -> Key:
        """Fresh key: 32 bytes from the operating system's entropy."""
        value = os.urandom(KEY_BYTES)
        node = None
        if self.world is not None:
            limbs = limbs_of(value, self.field)
            node = self._leaf("key", name, limbs, "key")
            self.world.keys[value] = node
        return Key(value, node, self.index, self.world)

    def prf(self, key: Any, label: Any, *shape: Any, of: Sequence[Any] = ()) -> Element:
        """Uniform elements that are a function of a key and a label (a PRF).

        Parameters
        ----------
        key : Key
            Made by `key`, `agree`, `join_key` or `derived_key`.
        label : int, str, bytes or tuple of these
            Public name of this use. One label of a key gives one stream.
        *shape : int
            Shape of the result.
        of : sequence of protected values
            Protected part of the label: other values give another stream. For a proof, labels must
            also differ in their public parts.

        Raises
        ------
        FlowError
            If `key` is no such key of this party, or the label is not public; in a traced run also
            for one key and label with two shapes.
        """
        whole = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        whole = tuple(int(n) for n in whole)
        use = self._use(key, label, of)
        return self._stream(key, label, use, of, whole)

    def expand(self, seed: Any, *shape: Any) -> Element:
        """Pseudo-random elements expanded from a seed by AES-256 in counter mode.

        Parameters
        ----------
        seed : Key
            Made by `key`, `agree` or `join_key`, and used for nothing else; only a traced run
            checks this.
        *shape : int
            Shape, equal in all calls for a seed, because a shorter stream would be a prefix of a
            longer one.

        Raises
        ------
        FlowError
            In a traced run: for a seed that also has streams with labels (`prf`), or was expanded
            to another shape.
        """
        whole = shape[0] if len(shape) == 1 and isinstance(shape[0], tuple) else shape
        self._use(seed, "", ())
        return self._stream(seed, "", None, (), tuple(int(n) for n in whole))

    def _stream(
        self, key: Key, label: Any, use: bytes | None, of: Sequence[Any], shape: tuple[int, ...]
    ) -> Element:
        out = np.empty(math.prod(shape), self.field.dtype)
        asking = None if use is None else asked(use, list(map(bare, of)))
        fill(self.field.modulus, out, key._value, asking)
        value = out.reshape(shape)
        node = self._answer(key, label, use, of, "field", value)
        return Element(value, node, self.index, self.world, self.field)

    def derived_key(self, key: Any, label: Any, of: Sequence[Any] = ()) -> Key:
        """Key derived from another key, a public label and protected values; see `prf`."""
        from securevfl.field.prss import derive

        use = self._use(key, label, of)
        value = derive(key._value, asked(use, list(map(bare, of))))
        node = None
        if self.world is not None:
            node = self._answer(key, label, use, of, "key", limbs_of(value, self.field))
        return Key(value, node, self.index, self.world)

    def tag(self, key: Any, label: Any, of: Sequence[Any] = ()) -> Secret:
        """32 bytes (uint8), a function of a key, a label and protected values; see `prf`."""
        from securevfl.field.prss import derive

        use = self._use(key, label, of)
        found = derive(key._value, asked(use, list(map(bare, of))))
        value = np.frombuffer(found, np.uint8)
        node = self._answer(key, label, use, of, "real", value)
        return Secret(value, node, self.index, self.world)

    def coins(self, name: str, root: Secret, shown: Sequence[Secret] = ()) -> bytes:
        """Public coins, 32 bytes, determined by a commitment: SHA-256 of a name and the commitment.

        All parties see the commitment, so a proof must simulate it. The bytes are a function of it,
        and reveal nothing more. In a trace they depend on the name only, so that a certificate can
        be checked on another trace; the claim then holds for these coins.

        Parameters
        ----------
        name : str
            Public name, unique to the commitment. A trace refuses a second commitment under one
            name, because it would give the same bytes there, and different ones in a run.
        root : Secret
            The commitment, such as the root of a tree of `tag`s under keys that are used once.
        shown : sequence of Secret
            Values from which it is computed, if they may be revealed. A commitment to unseen values
            is simulated only if these values are.

        Raises
        ------
        FlowError
            If the name is no text or taken, or a value is not this party's.
        """
        if not isinstance(name, str):
            raise FlowError(f"coins: the name must be a public text, not {describe(name)}")
        home_of((root, *shown), self.index)
        if self.world is None:
            own = np.ascontiguousarray(root._value).tobytes()
            return hashlib.sha256(len(name).to_bytes(8, "big") + name.encode() + own).digest()
        if not np.array_equal(self.world.commitments.setdefault(name, root._value), root._value):
            error = FlowError(f"coins: two commitments under the name {name!r}; name each apart")
            self.world.faults.append(str(error))  # whether they are two may depend on values
            raise error
        for value in (root, *shown):
            self.world.sent(self.index, None, f"{OPENED}coins {name}", self.round, value)
        return hashlib.sha256(name.encode()).digest()

    def _use(self, key: Any, label: Any, of: Sequence[Any]) -> bytes:
        """Public part of a key's PRF input; FlowError for a key or label that is none."""
        if not isinstance(key, Key):
            raise FlowError(
                f"prf under {describe(key)}: a key is made by key() or agree(), and is no data, "
                "tape or sum"
            )
        if self.world is not None and key._node is None:
            raise FlowError("prf: this Key was made of bytes; a key is made by key() or agree()")
        home_of((key, *of), self.index)
        if not functions.is_public(label):
            raise FlowError(f"prf: the label must be public, and it is or holds {describe(label)}")
        if not all(type(value) in (Element, Secret) for value in of):
            raise FlowError("prf: the protected part of a label is of Elements and Secrets")
        return label if isinstance(label, bytes) else functions.digest(label).encode()

    def _answer(
        self, key: Any, label: Any, use: bytes | None, of: Sequence[Any], kind: str, value: Any
    ) -> Any:
        """Trace node of the PRF output `value` under key and label; None without a trace."""
        if self.world is None:
            return None
        assert key._node is not None
        self.world.stream(key._node, use, (kind, bool(of), *value.shape))
        text = "" if use is None else f", {label if len(repr(label)) < 60 else '...'!r}"
        said = f"PRF({key._node.name}{text})"
        args = (key._node, *(one._node for one in of))
        made = {"shape": value.shape, "kind": kind, "name": said, "value": value}
        node = self.world.node("prf", args, use, **made)
        if kind == "key":
            self.world.keys[bytes_of(value, self.field) or b""] = node
        return node

    def public_key(self, key: Any) -> PublicKey:
        """Public key (X25519) of a secret key from `key`, for `agree`; FlowError for others."""
        if not isinstance(key, Key) or (key._node is not None and key._node.op != "key"):
            raise FlowError(f"public_key of {describe(key)}: a key made by key() is needed")
        home_of((key,), self.index)
        value, node = public_half(key._value), None
        if self.world is not None:
            assert key._node is not None
            node = self.world.node(
                "public key", (key._node,), shape=(), kind="public key", value=value
            )
        return PublicKey(value, node, self.index, self.world)

    def agree(
        self, own: Any, other: Any, use: tuple[Any, ...] = (), ends: tuple[int, int] | None = None
    ) -> Key:
        """Key agreed by two parties, from one's secret key and the other's public key.

        Parameters
        ----------
        own : Key
            This party's secret key, made by `key`.
        other : PublicKey
            The other party's public key.
        use : tuple of int, str or bytes
            Public name of the key's purpose, bound into the key with both public keys and `ends`.
            Two uses give independent keys.
        ends : (int, int), optional
            Numbers of the owners of `own` and of `other`; needed with `use`.

        Raises
        ------
        FlowError
            For other keys, and for `use` without `ends`, or the reverse.
        """
        if not isinstance(own, Key) or (own._node is not None and own._node.op != "key"):
            raise FlowError(f"agree with {describe(own)}: a key made by key() is needed")
        if not isinstance(other, PublicKey):
            raise FlowError(f"agree with {describe(other)}: another's public key is needed")
        if not functions.is_public((use, ends)) or bool(use) != (ends is not None):
            raise FlowError("agree: use and ends go together, and must be public")
        home_of((own, other), self.index)
        value, node = agreed_key(own._value, other._value, *((use, ends) if use else ())), None
        if self.world is not None:
            assert own._node is not None
            assert other._node is not None
            name = f"agreed({own._node.name}, {other._node.args[0].name})"
            limbs = limbs_of(value, self.field)
            node = self.world.node(
                *("agreed", (own._node, other._node), None if ends is None else (use, ends)),
                shape=limbs.shape, kind="key", name=name, value=limbs,
            )  # fmt: skip
            self.world.keys[value] = node
        return Key(value, node, self.index, self.world)

    def verifying_key(self, key: Any) -> Bytes:
        """Public key (Ed25519) of a signing key."""
        return self._signing(verifying_half, key)

    def sign(self, key: Any, function: Callable[..., bytes], *values: Any) -> Bytes:
        """Ed25519 signature of `function(*values)`; the function is pure and a module's own."""
        return self._signing(signature, key, *values, statement=function)

    def _signing(self, made_by: Any, key: Any, *values: Any, **named: Any) -> Bytes:
        """Signature by `made_by` (in proofs its viewer has the key); FlowError for another key."""
        if not isinstance(key, Key):
            raise FlowError(f"sign with {describe(key)}: a key made by key() is needed")
        p = self.field.modulus
        found: Bytes = mapped(
            made_by, (self._limbs(key), p, *values), (), ("signature", None), **named
        )
        return found

    def _limbs(self, key: Key) -> Element:
        """A key of this party as field elements, (limbs,)."""
        home_of((key,), self.index)
        limbs = limbs_of(key._value, self.field)
        return Element(limbs, key._node, self.index, self.world, self.field)

    def share_keys(self, code: LagrangeCode, *keys: Any) -> list[tuple[Element, ...]]:
        """Shamir shares, (limbs,), of the keys: for each party a tuple, by a code with K = 1.

        One call of the code's kernel makes all shares. `code.size` shares determine a key; fewer
        are uniform. FlowError for other values than keys.
        """
        for key in keys:
            if not isinstance(key, Key):
                raise FlowError(f"share_keys of {describe(key)}: a key is needed")
        whole = concatenate([self._limbs(key) for key in keys])
        if self.world is None:
            rows = [Element(row, None, self.index, None, self.field)
                    for row in code.encode(whole._value[None])]  # fmt: skip
        else:
            tapes = [self.uniform(*whole.shape, name=f"t{t}.") for t in range(code.privacy)]
            matrix = np.concatenate([code.data_matrix, code.mask_matrix], axis=1)
            rows = [combination(zip(map(int, row), [whole, *tapes], strict=True)) for row in matrix]
        size = whole.shape[0] // len(keys)
        return [tuple(row[i : i + size] for i in range(0, whole.shape[0], size)) for row in rows]

    def split_key(self, key: Any, threshold: int, points: Sequence[int]) -> dict[int, Element]:
        """Shamir shares, (limbs,), of a key by public point; any `threshold` determine the key.

        The key is cut into limbs below p. Shares of fewer than `threshold` points are uniform.
        FlowError unless points are different and not 0 modulo p.
        """
        if not isinstance(key, Key):
            raise FlowError(f"split_key of {describe(key)}: a key is needed")
        if len({p % self.field.modulus for p in points} - {0}) < len(points):
            raise FlowError(f"split_key: points {list(points)} must be different and not 0")
        whole = self._limbs(key)
        tapes = [self.uniform(*whole.shape, name=f"a{i}") for i in range(1, threshold)]
        p = self.field.modulus
        return {
            point: combination(
                [(1, whole), *((pow(point, i, p), a) for i, a in enumerate(tapes, 1))]
            )
            for point in points
        }

    def join_key(self, shares: Mapping[int, Element], code: LagrangeCode | None = None) -> Key:
        """Key from Shamir shares by points; with `code`, from those of `share_keys` by party.

        Raises
        ------
        FlowError, RunError
            If the shares belong to different keys: FlowError in a traced run, RunError in an
            ordinary one.
        """
        home_of(list(shares.values()), self.index)
        p, points = self.field.modulus, list(shares)
        weights = []
        if code is not None:
            points = points[: code.size]
            weights = [int(c) for c in code.decode_matrix(points)[0]]
            shares = {n: shares[n] for n in points}
        for i in points if code is None else ():
            top = math.prod(-j for j in points if j != i) % p
            bottom = math.prod(i - j for j in points if j != i) % p
            weights.append(top * pow(bottom, -1, p) % p)
        limbs = combination(zip(weights, shares.values(), strict=True))
        value = bytes_of(limbs._value, self.field)
        node = None if self.world is None or value is None else self.world.keys.get(value)
        if value is not None and self.world is None:
            return Key(value, None, self.index, None)
        if self.world is None:
            raise RunError("join_key: these are not the shares of one key; one of them is wrong")
        if value is None or node is None or limbs._node is None:
            error = FlowError("join_key: these are not enough shares of one key")
            self.world.faults.append(str(error))  # that they are not may depend on values
            raise error
        self.world.equal.append((limbs._node, node, "join_key"))
        return Key(value, node, self.index, self.world)

    def encrypt(self, value: Any, holder: int) -> Sealed:
        """Ideal ciphertext of an Element (else FlowError) for party `holder`; all can add them."""
        if not isinstance(value, Element):
            raise FlowError(f"encrypt of {describe(value)}: an Element is needed")
        home_of((value,), self.index)
        inside = Element(value._value, value._node, None, value._world, value._field)
        return Sealed(inside, inside._node, self.index, self.world, _one(holder))

    def decrypt(self, cipher: Any) -> Element:
        """Plaintext of a ciphertext under the party's own key; FlowError for others."""
        if not isinstance(cipher, Sealed):
            raise FlowError(f"decrypt of {describe(cipher)}: a ciphertext is needed")
        home_of((cipher,), self.index)
        if cipher._holder != self.index:
            raise FlowError(f"decrypt of {describe(cipher)}: party {cipher._holder} has its key")
        inside = cipher._value
        return Element(inside._value, inside._node, self.index, self.world, self.field)

    def gaussian(
        self,
        value: Any,
        sigma: float,
        *,
        name: str = "release",
        rows: Any = None,
        seed: bytes | None = None,
    ) -> Any:
        """Gaussian mechanism on clipped rows: one release, counted in the privacy cost.

        Parameters
        ----------
        value : Clipped, (M, h)
            Rows with a norm bound (`Secret.clip`).
        sigma : float
            Standard deviation of the noise of each entry.
        name : str
            Public name, by which declared outputs refer to it (`World.released`).
        rows : ndarray of int, optional
            Public number of the record from which each row is computed; -1 for padding, which is
            computed from none. A record is charged for the rows of its number; by default, for
            each release.
        seed : bytes, optional
            Public seed for reproducible noise. Such noise hides nothing, so the result is an
            ordinary Secret and no release.

        Raises
        ------
        FlowError
            If the rows have no norm bound, sigma is below 1/200 of it or not finite, or `rows` is
            not public or of another length.
        """
        from securevfl.privacy.mechanisms import MOST_BOUND, noised_rows

        if not isinstance(value, Clipped):
            raise FlowError(f"gaussian on {describe(value)}: clip(bound) it first, or its "
                            "sensitivity is unknown")  # fmt: skip
        home_of((value,), self.index)
        if not (0 < sigma < math.inf and value._bound <= MOST_BOUND * sigma):
            raise FlowError(f"gaussian: sigma = {sigma} must be positive, finite and not below the "
                            f"bound {value._bound} / {MOST_BOUND}")  # fmt: skip
        if seed is not None:
            return value.map(seeded_rows, float(sigma), seed, dtype=np.float32)
        named = None
        if rows is not None:
            if not functions.is_public(rows):
                raise FlowError(f"gaussian: the records must be public, not {describe(rows)}")
            named = np.asarray(rows, np.int64)
            if named.shape != value.shape[:1]:
                raise FlowError(f"gaussian: {named.shape} records for rows of {describe(value)}")
        with self._watched("gaussian"):
            released = noised_rows(value._value, sigma=float(sigma))
        return self._released(
            name, value, released, ("gaussian", value._bound, float(sigma), named)
        )

    def randomised(
        self,
        labels: Any,
        classes: int,
        epsilon: float,
        *,
        name: str = "labels",
        seed: bytes | None = None,
    ) -> Any:
        """Labels after randomised response: one release of each, counted in the privacy cost.

        Parameters
        ----------
        labels : Secret, (M,)
            Integers in [0, classes).
        classes : int
            Number of classes, at least 2.
        epsilon : float
            Privacy cost: each release of a label is (epsilon, 0)-DP.
        name : str
            Public name, by which declared outputs refer to it.
        seed : bytes, optional
            Public seed for reproducible noise; the result is then a Secret and no release.

        Raises
        ------
        FlowError
            If `labels` is no Secret.
        """
        from securevfl.privacy.mechanisms import randomised_response

        if not isinstance(labels, Secret):
            raise FlowError(f"randomised response of {describe(labels)}: a Secret is needed")
        home_of((labels,), self.index)
        if seed is not None:
            return labels.map(seeded_labels, int(classes), float(epsilon), seed)
        with self._watched("randomised"):
            released = randomised_response(labels._value, int(classes), float(epsilon))
        return self._released(name, labels, released, ("labels", float(epsilon), int(classes)))

    def _watched(self, title: str) -> contextlib.AbstractContextManager[None]:
        """Context that records, in a trace, an error that may depend on values."""
        return contextlib.nullcontext() if self.world is None else self.world.watched(title)

    def _released(self, name: str, value: Any, released: Any, data: Any) -> Noised:
        node = None
        if self.world is not None:
            assert value._node is not None
            node = self.world.node(
                "release", (value._node,), data, shape=released.shape,
                kind="noised", name=f"{name} by {self.index}", owner=self.index, value=released,
            )  # fmt: skip
        return Noised(released, node, self.index, self.world)

    def _leaf(self, op: str, name: str, value: Any, kind: str = "field") -> Any:
        if self.world is None:
            return None
        said = f"{name}{'' if self.index == SERVER else self.index}@{self.round}"
        return self.world.node(
            op, (), shape=value.shape, kind=kind, name=said, owner=self.index, value=value
        )


def seeded_rows(clipped: Any, sigma: float, seed: bytes) -> Any:
    """Clipped rows with Gaussian noise of a public seed, which hides nothing."""
    from securevfl.field.sampling import SeededSource
    from securevfl.privacy.mechanisms import noised_rows

    return noised_rows(clipped, sigma=sigma, source=SeededSource(seed))


def seeded_labels(labels: Any, classes: int, epsilon: float, seed: bytes) -> Any:
    """Labels under randomised response with a public seed, which hides nothing."""
    from securevfl.field.sampling import SeededSource
    from securevfl.privacy.mechanisms import randomised_response

    return randomised_response(labels, classes, epsilon, SeededSource(seed))


class World(Trace):
    """A traced run written as a program: parties compute, and messages arrive at once."""

    def party(self, index: int) -> Party:
        """Party by number; the server is -1."""
        return Party(index, self)


class Party(Hands):
    """A party of a `World`: it computes, and its messages arrive at once.

    Parameters
    ----------
    index : int
        Number from 0; `SERVER` for the server.
    world : World
        The trace to which the party belongs.
    """

    def __init__(self, index: int, world: World) -> None:
        self.index, self.world, self.field = _one(index), world, world.field
        world.members.add(self.index)

    @property
    def round(self) -> int:  # type: ignore[override]
        """Present round of the world."""
        assert self.world is not None
        return self.world.round

    def send(self, to: int, kind: str, payload: Any) -> Any:
        """Send a payload; return it as received. FlowError unless `kind` is a public text."""
        assert self.world is not None
        if not isinstance(kind, str):
            raise FlowError(f"send: the kind must be a public text, not {describe(kind)}")
        self.world.sent(self.index, _one(to), kind, self.world.round, payload)
        return received(payload, _one(to))

    def record(self, event: str, payload: Any) -> None:
        """Record an event in the history, which is public."""
        assert self.world is not None
        self.world.sent(self.index, None, f"event {event}", self.world.round, payload)


def _one(party: Any) -> int:
    if isinstance(party, bool) or not isinstance(party, int | np.integer):
        raise FlowError(
            f"the number of one party is needed, not {describe(party)}; send to each receiver"
        )
    return int(party)


def asked(use: bytes, of: Sequence[Any]) -> bytes:
    """Complete PRF input: a public label, and the values of its protected part.

    The label is prefixed by its length, so that different labels give different inputs.
    """
    parts = [np.ascontiguousarray(value).tobytes() for value in of]
    return b"".join((len(use).to_bytes(8, "big"), use, *parts)) if of else use


def limb_bits(p: int) -> int:
    """Bits of a limb: whole bytes that always fit into an element, or fewer for a small p."""
    bits = p.bit_length() - 1
    return bits // 8 * 8 or max(1, bits)


def limbs_of(key: bytes, field: Any) -> Any:
    """A key as field elements: limbs of its little-endian number, below p, lowest first."""
    bits = limb_bits(field.modulus)
    number, limbs = int.from_bytes(key, "little"), []
    for _ in range(-(-8 * KEY_BYTES // bits)):
        limbs.append(number & ((1 << bits) - 1))
        number >>= bits
    return np.array(limbs, dtype=object).astype(field.dtype)


def bytes_of(limbs: Any, field: Any) -> bytes | None:
    """Key bytes from limbs (inverse of `limbs_of`); None if they are no key."""
    bits, number = limb_bits(field.modulus), 0
    for limb in reversed(limbs.tolist()):
        if limb >> bits:
            return None
        number = number << bits | limb
    return None if number >> (8 * KEY_BYTES) else number.to_bytes(KEY_BYTES, "little")


def public_half(key: bytes) -> bytes:
    """Public key (X25519) of a secret key."""
    from cryptography.hazmat.primitives.asymmetric import x25519

    return x25519.X25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()


def agreed_key(
    own: bytes, public: bytes, use: tuple[Any, ...] = (), ends: tuple[int, int] = (0, 0)
) -> bytes:
    """Shared key: HKDF-SHA256 of the X25519 secret, bound to a use and both ends if given."""
    from cryptography.hazmat.primitives.asymmetric import x25519

    from securevfl.engine import wire
    from securevfl.field.prss import derive

    secret = x25519.X25519PrivateKey.from_private_bytes(own)
    shared = secret.exchange(x25519.X25519PublicKey.from_public_bytes(public))
    if not use:
        return derive(shared, b"agree")
    keys = secret.public_key().public_bytes_raw(), public
    context = wire.encode((*use, sorted(zip(ends, keys, strict=True))))
    extracted = hmac.digest(bytes(32), shared, "sha256")
    return hmac.digest(extracted, context + b"\x01", "sha256")


def fill(p: int, out: Any, key: bytes, use: bytes | None) -> None:
    """Fill `out` with elements of `key`'s stream for label `use`; None: a seed's only stream."""
    from securevfl.field.prss import fill_stream
    from securevfl.field.sampling import Keystream, fill_uniform

    if use is None:
        fill_uniform(p, out, Keystream(key, aes=True))
    else:
        fill_stream(p, out, key, use)


def verifying_half(limbs: Any, p: int) -> bytes:
    """The public key (Ed25519) of a key in limbs."""
    return _signer(limbs, p).public_key().public_bytes_raw()  # type: ignore[no-any-return]


def signature(limbs: Any, p: int, *values: Any, statement: Callable[..., bytes]) -> bytes:
    """The Ed25519 signature of a statement, under a key in limbs."""
    return _signer(limbs, p).sign(statement(*values))  # type: ignore[no-any-return]


def _signer(limbs: Any, p: int) -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    secret = bytes_of(limbs, field_of(p))
    assert secret is not None
    return Ed25519PrivateKey.from_private_bytes(secret)
