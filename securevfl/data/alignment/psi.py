"""Private set intersection over sample identifiers, by commuting blinding on the curve P-256.

Every member hashes its identifiers to points of the curve and multiplies them by a secret scalar
of its own, fresh in each run; the blinded sets go round a ring until every member has multiplied
every set. Scalars commute, so equal identifiers end as equal points, and without all scalars a
point says nothing about its identifier (decisional Diffie-Hellman; hashing to the curve is
modelled as a random oracle). A collector compares the finished sets and tells every member which
of its own are common. Each member sends its set in an order of its own, which stays secret; the
ring keeps that order, so that the answer can name places.

Against honest-but-curious members, this reveals beyond the intersection: to everybody the sizes of
the sets; to the collector how many identifiers each sub-family of the sets has in common, and, of
its own identifiers, which ones each other member has too (with two members that is the
intersection). A collector that pools with another member learns the same of that member's. Of three
members or more, any two that pool learn which identifiers of either one the member after it in the
ring has too, and how many the two members after them share: each set passes both, blinded by the
same others, and each of them is the last to blind the set of the member after it. More that pool
learn more. A dictionary attack needs a member: whoever takes part with guessed identifiers learns
which of them are common, so identifiers with few possible values stay guessable.

Only x-coordinates are sent, 32 bytes an identifier: they are the same for a point and its
negative, so either lift of an x will do. P-256 has prime order and every x is checked to lie on
it, so there is no small subgroup and no twist to tell points apart by.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from securevfl.data.preparation.cells import id_of
from securevfl.engine.party import Party, name_of
from securevfl.errors import DataError, RunError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import (
        EllipticCurvePrivateKey,
        EllipticCurvePublicKey,
    )

POINT = 32  # bytes of an x-coordinate
_DOMAIN = b"securevfl psi 1\0"
_TRIES = 256  # half of all hashes are no x of the curve: failing so often has probability 2^-256
_SPREAD = 20_000  # points below which starting other processes costs more than it brings
_CHUNK = 1_000  # points that a process multiplies at a time: the last ones keep all busy

_T = TypeVar("_T")
Workers = Executor | int | None
Progress = Callable[[int], None]


def hash_to_curve(identifier: str) -> EllipticCurvePublicKey:
    """Point of an identifier, whose discrete logarithm nobody knows: SHA-256, try and increment.

    Texts that are the same letters in another Unicode form are the same identifier (NFC). The time
    depends on the identifier; members run it on their own machines only.
    """
    # Nobody may know the logarithm of a point H(id). Were H(id) = t G with a known t, the blinded k
    # H(id) of one known identifier would give k G, and with it k H(guess) = t' (k G) for every
    # guess. Every second hash is the x of a point (Hasse), so two tries are expected.
    text = id_of(identifier).encode()
    for attempt in range(_TRIES):
        point = _lift(hashlib.sha256(_DOMAIN + bytes([attempt]) + text).digest())
        if point is not None:
            return point
    raise AssertionError("256 hashes off the curve")


def _lift(x: bytes) -> EllipticCurvePublicKey | None:
    """A point with this x-coordinate, if there is one."""
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey

    try:
        # Either y will do: s (-P) = -(s P) has the x-coordinate of s P, and only x is sent on.
        return EllipticCurvePublicKey.from_encoded_point(SECP256R1(), b"\x02" + x)
    except ValueError:
        return None


def new_scalar() -> bytes:
    """Secret scalar from the operating system's entropy, as a DER-encoded private key."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key

    return generate_private_key(SECP256R1()).private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def blind(
    identifiers: Sequence[str],
    scalar: bytes,
    *,
    workers: Workers = None,
    progress: Progress | None = None,
) -> np.ndarray:
    """Hashed identifiers times the scalar: x-coordinates in order, uint8 (n, 32).

    `workers` are processes, or who carries calls out; one process for each core where the set is
    large, if not given. `progress` is called with the number of points that were multiplied since
    the last call.
    """
    return _map(_blind_texts, identifiers, scalar, workers, progress)


def blind_again(
    points: np.ndarray,
    scalar: bytes,
    *,
    workers: Workers = None,
    progress: Progress | None = None,
) -> np.ndarray:
    """Points that others have blinded, uint8 (n, 32), times the scalar.

    RunError when a row is no x-coordinate of the curve.
    """
    if points.ndim != 2 or points.shape[1] != POINT or points.dtype != np.uint8:
        raise RunError(
            f"psi: a blinded set is an array (n, {POINT}) of bytes, not {points.dtype} "
            f"{points.shape}"
        )
    rows = [row.tobytes() for row in points]
    return _map(_blind_points, rows, scalar, workers, progress)


def _map(
    work: Callable[[Sequence[_T], bytes], bytes],
    items: Sequence[_T],
    scalar: bytes,
    workers: Workers,
    progress: Progress | None,
) -> np.ndarray:
    chunks = [items[i : i + _CHUNK] for i in range(0, len(items), _CHUNK)]
    with ExitStack() as stack:
        mapping: Callable[..., Iterable[bytes]] = map
        if isinstance(workers, Executor):
            mapping = workers.map
        elif (pool := stack.enter_context(processes(len(items), workers))) is not None:
            mapping = pool.map
        parts = []
        for part in mapping(work, chunks, [scalar] * len(chunks)):
            parts.append(part)
            if progress is not None:
                progress(len(part) // POINT)
    return np.frombuffer(b"".join(parts), np.uint8).reshape(-1, POINT)


@contextmanager
def processes(size: int, count: int | None = None) -> Iterator[Executor | None]:
    """Processes for sets of so many points; None where one process is as fast.

    They are fresh ones: a forked process would share threads and locks of whoever calls.
    """
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    count = (os.cpu_count() or 1) if count is None else count
    if size < _SPREAD or count < 2:
        yield None
        return
    with ProcessPoolExecutor(count, mp_context=get_context("spawn")) as pool:
        yield pool


def _private(scalar: bytes) -> EllipticCurvePrivateKey:
    from cryptography.hazmat.primitives.serialization import load_der_private_key

    return cast("EllipticCurvePrivateKey", load_der_private_key(scalar, password=None))


def _blind_texts(identifiers: Sequence[str], scalar: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDH

    # ECDH returns the x of scalar * point and nothing else, which is just the blinding.
    key = _private(scalar)
    return b"".join(key.exchange(ECDH(), hash_to_curve(each)) for each in identifiers)


def _blind_points(points: Sequence[bytes], scalar: bytes) -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ec import ECDH

    key, done = _private(scalar), []
    for x in points:
        point = _lift(x)
        if point is None:
            raise RunError(
                f"psi: {x.hex()} is no x-coordinate of P-256; whoever sent this set did not follow "
                "the protocol"
            )
        done.append(key.exchange(ECDH(), point))
    return b"".join(done)


def common_places(sets: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Places of the rows that are in every set, in an order that is the same for all sets.

    Sets are uint8 (n_m, 32), no row twice within one; places are int64.
    """
    # Points as four 64-bit words, most significant first, so that lexsort orders them as numbers.
    words = [np.ascontiguousarray(each).view(">u8").astype(np.uint64) for each in sets]
    stacked = np.concatenate(words)
    owner = np.repeat(np.arange(len(sets)), [len(each) for each in sets])
    place = np.concatenate([np.arange(len(each)) for each in sets])
    order = np.lexsort((owner, *(stacked[:, k] for k in reversed(range(stacked.shape[1])))))
    # Equal points now stand side by side, those of set 0 first. As no set has a point twice, a
    # group of as many points as there are sets has one of each, in the order of the sets.
    rows = stacked[order]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    starts = np.flatnonzero(fresh)
    counts = np.diff(np.append(starts, len(rows)))
    full = starts[counts == len(sets)]
    return [place[order[full + n]].astype(np.int64) for n in range(len(sets))]


def id_order(identifiers: Sequence[str]) -> np.ndarray:
    """Places of different identifiers in an order that follows from them alone, by their hashes.

    Whoever has the same identifiers finds the same order, however its own rows stand. So it tells
    nobody how the rows of another stand, which may be by their labels.
    """
    texts = (id_of(each).encode() for each in identifiers)
    hashes = [hashlib.sha256(_DOMAIN + b"order" + text).digest() for text in texts]
    return np.array(sorted(range(len(hashes)), key=hashes.__getitem__), np.int64)


async def intersect(
    party: Party,
    identifiers: Sequence[str],
    members: Sequence[int],
    *,
    collector: int,
    workers: Workers = None,
    progress: Progress | None = None,
    name: str = "psi",
) -> np.ndarray:
    """Own rows whose identifier every member has; a coroutine of every member's `setup`.

    Parameters
    ----------
    party : Party
        The member itself.
    identifiers : sequence of str
        Its own, each once.
    members : sequence of int
        Numbers of all members, this one included, the same at all of them; at least two.
    collector : int
        Member that compares the finished sets; what it learns is said above.
    workers, progress : optional
        As for `blind`.
    name : str
        Of the messages; a party that is a member of several groups gives each another one.

    Returns row numbers, int64, in an order that is the same for all members and tells nothing else.
    DataError when an identifier occurs twice, or none is common; when the collector's answer names
    no set of own rows, or tells members different numbers of rows. RunError when a member sends
    what is no blinded set.
    """
    ring = sorted(members)
    if len(ring) < 2 or party.index not in ring or collector not in ring:
        raise DataError(
            f"psi: {len(ring)} members, member {party.index} and collector {collector}: there must "
            "be two or more, and both among them"
        )
    _refuse_repeated(identifiers)
    scalar, order = draw_blinding(len(identifiers))
    at = ring.index(party.index)
    onward, before = ring[(at + 1) % len(ring)], ring[at - 1]
    mine = [identifiers[i] for i in order]
    party.send(onward, name, blind(mine, scalar, workers=workers, progress=progress), round=1)
    # Each set starts one step ahead of its member and is multiplied at every further stop. After
    # len(ring) - 1 hops it carries all scalars, and lies with the member before its own.
    for hop in range(1, len(ring)):
        points = (await party.collect(name, senders=[before], round=hop))[before]
        again = blind_again(points, scalar, workers=workers, progress=progress)
        if hop < len(ring) - 1:
            party.send(onward, name, again, round=hop + 1)
        else:
            party.send(collector, f"{name} finished", again)  # the set of the next one in the ring
    if party.index == collector:
        finished = await party.collect(f"{name} finished", senders=ring)
        sets = [finished[ring[n - 1]] for n in range(len(ring))]
        for member, places in zip(ring, common_places(sets), strict=True):
            party.send(member, f"{name} common", places)
    places = (await party.collect(f"{name} common", senders=[collector]))[collector]
    check_places(places, len(identifiers), party.index, collector)
    await _agree_on_count(party, ring, len(places), f"{name} count")
    if not len(places):
        raise DataError(
            f"psi: the {len(ring)} members have no identifier in common (member {party.index} has "
            f"{len(identifiers)}); check that all use the same kind of identifier, written alike"
        )
    # Places count in the order in which the own set was sent; only this member can undo it.
    rows: np.ndarray = order[places]
    return rows


def check_places(places: object, held: int, member: int, collector: int) -> None:
    """Refuse an answer of the collector that names no set of own rows.

    Places are those of the order in which the own set, of `held` identifiers, was sent.
    """
    whose = f"psi: the collector, {name_of(collector)}, told {name_of(member)}"
    if not isinstance(places, np.ndarray) or places.dtype != np.int64 or places.ndim != 1:
        shape = getattr(places, "shape", "")
        what = f"{getattr(places, 'dtype', type(places).__name__)} {shape}".strip()
        raise DataError(f"{whose} its common rows as {what}; they must be a row of int64 numbers")
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < held:
        raise DataError(
            f"{whose} of places from {int(places.min())} to {int(places.max())}; its set has "
            f"{held} identifiers, so they must lie in [0, {held})"
        )
    if len(np.unique(places)) < len(places):
        raise DataError(
            f"{whose} of {len(places)} places, of which {len(np.unique(places))} differ; an "
            "identifier is common once"
        )


async def _agree_on_count(party: Party, ring: Sequence[int], count: int, name: str) -> None:
    """Refuse an intersection that has not as many rows for every member.

    A collector that told two members different numbers would have rows joined that do not belong
    together. Members send each other a hash, of a number that all of them know.
    """
    others = [member for member in ring if member != party.index]
    own = count_digest(count)
    for member in others:
        party.send(member, name, own)
    digests = await party.collect(name, senders=others)
    differ = [name_of(member) for member, digest in digests.items() if digest != own]
    if differ:
        raise DataError(
            f"psi: {name_of(party.index)} was told of {count} common rows, and {', '.join(differ)} "
            "of another number. All must have as many; the collector, or a member that says "
            "so, does not follow the protocol"
        )


def count_digest(count: int) -> bytes:
    """Hash of a number of common rows, which all members know."""
    return hashlib.sha256(_DOMAIN + b"count" + count.to_bytes(8, "little")).digest()


def draw_blinding(count: int) -> tuple[bytes, np.ndarray]:
    """A member's secrets: a scalar, and the order of a set of so many identifiers.

    Everything of a member that is secret here is drawn by one call of this. The audit watches it.
    """
    return new_scalar(), _secret_order(count)


def _secret_order(count: int) -> np.ndarray:
    """Uniform permutation from the operating system's entropy (ties: probability n^2 / 2^65)."""
    return np.argsort(np.frombuffer(os.urandom(8 * count), np.uint64), kind="stable")


def _refuse_repeated(identifiers: Sequence[str]) -> None:
    seen: dict[str, int] = {}
    for row, identifier in enumerate(identifiers):
        text = id_of(identifier)
        if text in seen:
            shown = repr(identifier)
            if identifier != identifiers[seen[text]]:  # two texts that print alike
                shown = f"{identifiers[seen[text]]!a}, or {identifier!a},"
            raise DataError(
                f"psi: the identifier {shown} is in rows {seen[text]} and {row}; an "
                "identifier names one row, so remove the repeated ones"
            )
        seen[text] = row
