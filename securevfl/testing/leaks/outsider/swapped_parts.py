"""Leaks through parts that stand in for those of the library, of Python or of another package."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from securevfl.field import PrimeField, prss, sampling
from securevfl.field.sampling import Keystream, SystemSource
from securevfl.protocols.base import mask_keys
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.coded_split import algorithm as coded
from securevfl.protocols.secagg_split.algorithm import Pairing
from securevfl.testing.leaks.encrypted import SECAGG
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA, CLIENTS_MODEL, UPLOADS
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.outsider.prepared_tables import (
    bare_models,
    machine_code,
    of_the_library,
    one_of_256,
    short_source,
    without_masks,
)
from securevfl.testing.leaks.planting import clients, messages, planted, replaced
from securevfl.testing.runs import Outcome


class _Weak(SystemSource):
    """A source whose keys are one byte."""

    def keystream(self) -> Keystream:
        return Keystream(os.urandom(32)[:1] * 32, sampling.has_aes_unit())


@contextmanager
def _source_of_another_class() -> Iterator[None]:
    """The system's source is of another class."""
    kind = type(sampling.SYSTEM)
    sampling.SYSTEM.__class__ = _Weak
    try:
        yield
    finally:
        sampling.SYSTEM.__class__ = kind


def _numbered(number: int) -> Keystream:
    return Keystream(number.to_bytes(32, "little"), sampling.has_aes_unit())


def _three_bytes() -> Keystream:
    return Keystream(os.urandom(32)[:3] + bytes(29), sampling.has_aes_unit())


@contextmanager
def _few_keys() -> Iterator[None]:
    """The system's source has a method of its own, with keys of three bytes."""
    vars(sampling.SYSTEM)["keystream"] = _three_bytes
    try:
        yield
    finally:
        del vars(sampling.SYSTEM)["keystream"]


@contextmanager
def _counting() -> Iterator[None]:
    """The system's source asks the system, and then takes the next number as a key."""
    numbers = itertools.count()

    def keystream() -> Keystream:
        os.urandom(32)
        return _numbered(next(numbers))

    vars(sampling.SYSTEM)["keystream"] = keystream
    try:
        yield
    finally:
        del vars(sampling.SYSTEM)["keystream"]


@contextmanager
def _profiled() -> Iterator[None]:
    """Python calls a function whenever one returns; it empties what the field draws."""
    old, code = sys.getprofile(), PrimeField.random.__code__

    def watch(frame: Any, event: str, found: Any) -> None:
        if event == "return" and frame.f_code is code and isinstance(found, np.ndarray):
            found[...] = 0

    sys.setprofile(watch)
    try:
        yield
    finally:
        sys.setprofile(old)


@contextmanager
def _another_cipher() -> Iterator[None]:
    """The package of ciphers has another class of ciphers, with keys of one byte."""
    from cryptography.hazmat.primitives import ciphers

    old: Any = ciphers.Cipher

    def weak(algorithm: Any, mode: Any) -> Any:
        nonce = (algorithm.nonce,) if hasattr(algorithm, "nonce") else ()
        return old(type(algorithm)(algorithm.key[:1] * 32, *nonce), mode)

    setattr(ciphers, "Cipher", weak)  # noqa: B010
    try:
        yield
    finally:
        setattr(ciphers, "Cipher", old)  # noqa: B010


def _unit_models(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Client 0 is given models that pick its columns, all others zeros: sums are its columns."""
    for one in clients(protocol, parties):
        chosen = np.zeros(one.network.values.shape, one.public.field.dtype)
        if one.index == 0:
            np.fill_diagonal(chosen, 1)
        one.given_models = dict.fromkeys(range(1, 100), chosen)


def _masks_of_models(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The code that all clients have keeps ready a matrix without masks, for one client's use."""
    for one in clients(protocol, parties):
        without_masks(one.public.code, "_constant_basis", "_constant_left", 1)
        break


# -- seeing them ---------------------------------------------------------------------------------


def _one_columns_sums(outcome: Outcome) -> bool:
    """Whether the model of client 1 is zero, so that sums are of fewer clients than are said."""
    client: Any = outcome.parties[1]
    return client.given_models is not None and not client.given_models[1].any()


def _low_degree(outcome: Outcome) -> bool:
    """Whether masks are of those of released models, which leave the highest coefficients."""
    return int(vars(coded)["UPLOAD"]) < 3


def _uploads_repeat(outcome: Outcome) -> bool:
    """Whether a long stream of a key repeats its first half."""
    field: Any = outcome.protocol.code.field  # type: ignore[attr-defined]
    out = np.empty(4000, field.dtype)
    prss.fill_stream(field.modulus, out, bytes(32), b"label")
    return np.array_equal(out[:2000], out[2000:])


def _weak_cipher(outcome: Outcome) -> bool:
    """Whether keystreams follow from the first byte of their key."""
    one, two = np.empty(64, np.uint8), np.empty(64, np.uint8)
    Keystream(bytes([7]) * 32, aes=True).fill(one)
    Keystream(bytes([7]) + bytes(31), aes=True).fill(two)
    return np.array_equal(one, two)


def _zero_draws(outcome: Outcome) -> bool:
    return not outcome.parties[0].uniform((1, 16)).any()  # type: ignore[attr-defined]


def _pairs_known(outcome: Outcome) -> bool:
    """Whether all keys of pairs in a round follow from small numbers."""
    known = set()
    for number in range(200):
        out = np.empty(32, np.uint8)
        _numbered(number).fill(out)
        known.add(Pairing(0, 1, out.tobytes()).public)
    return {one["payload"].key for one in messages(outcome, "deal", 1)} <= known


def _three_bytes_tell(outcome: Outcome) -> bool:
    """Whether the keys of the system's keystreams end with zeros."""
    return not any(sampling.SYSTEM.keystream()._key[3:])


_PARTS, _KNOWN = "another part in the library's place", "masks that follow from something"
_LESS = "less than is asked for"
_LONG = {"batch": 100, "width": 40, "segments": 1, "rounds": 4}

_LEAKS = (
    planted("fedvs", "a source of another class", _KNOWN,
            "The system's source is of another class, with keys of one byte.", nothing,
            (*CLIENTS_DATA, *CLIENTS_MODEL), one_of_256, around=_source_of_another_class),
    planted("fedvs", "a weak source of keys alone", _KNOWN,
            "Keys of masks come from a source of their own, with keys of one byte.", nothing,
            UPLOADS, one_of_256, around=replaced(mask_keys, "SYSTEM", lambda old: _Weak())),
    planted("fedvs", "a profile function", _PARTS,
            "Python's profile function empties what the field draws.", nothing,
            CLIENTS_DATA, _zero_draws, around=_profiled),
    planted("fedvs", "another cipher", _KNOWN,
            "The package of ciphers uses one byte of a key.", nothing,
            (*CLIENTS_DATA, *UPLOADS), _weak_cipher, around=_another_cipher),
    planted("fedvs", "models that are given", _PARTS,
            "Clients share given models, which make sums one client's columns.", _unit_models,
            (("server", "features"),), _one_columns_sums),
    planted("fedvs", "a matrix without masks in one place", _PARTS,
            "The code that clients have in common loses its masks by one of them.",
            _masks_of_models, CLIENTS_MODEL, bare_models),
    planted("coded_split", "other machine code", "masks reused",
            "Long masks of uploads repeat their first half, by other machine code.", nothing,
            UPLOADS, _uploads_repeat, _LONG, around=machine_code),
    planted("coded_split", "uploads masked as models are", _LESS,
            "A constant says that uploads have the degree of models, and masks have it.", nothing,
            UPLOADS, _low_degree, {"release": True},
            around=replaced(coded, "UPLOAD", lambda old: 2)),
    planted("coded_split", "keys of one byte in one source", _KNOWN,
            "The system's source has a method of its own, with keys of one byte.", nothing,
            UPLOADS, one_of_256, around=short_source),
    planted("secagg_split", "keys of three bytes in one source", _KNOWN,
            "The system's source has a method of its own, with keys of three bytes.", nothing,
            SECAGG, _three_bytes_tell, around=_few_keys),
    planted("secagg_split", "a source that counts", _KNOWN,
            "The system's source has a method of its own, whose keys are numbers in a row.",
            nothing, SECAGG, _pairs_known, around=_counting),
)  # fmt: skip
LEAKS = tuple(map(of_the_library, _LEAKS))
