"""Leaks through what the library keeps prepared: tables, constants, compiled code, caches.

No message breaks its formula while these stand, for formulas are computed with the same tables.
"""

from __future__ import annotations

import ctypes
import functools
import os
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.field import LagrangeCode, prss, sampling
from securevfl.field.kernels import dispatch, scalar
from securevfl.field.sampling import Keystream
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA, CLIENTS_MODEL, UPLOADS
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.planting import (
    Leak,
    clients,
    planted,
    replaced,
    shares,
    upload_masks,
)
from securevfl.testing.runs import Outcome


def of_the_library(leak: Leak) -> Leak:
    """The leak with the library's own class, where only what is around it makes it leak."""
    if leak.around is nullcontext:
        return leak
    return replace(leak, make=functools.partial(get_protocol, leak.protocol))


def without_masks(code: LagrangeCode, basis: str, table: str, data: int) -> None:
    """Put a prepared matrix in a code's cache whose columns of masks are zero."""
    matrix = getattr(code, basis).copy()
    matrix[:, data:] = 0
    vars(code)[table] = dispatch.prepare(code.field.modulus, matrix)


def _plain_data(client: Any) -> None:
    code = client.public.code
    without_masks(code, "_basis", "_left", code.segments)


def _plain_models(client: Any) -> None:
    without_masks(client.public.code, "_constant_basis", "_constant_left", 1)


def _plain_limbs(client: Any) -> None:
    without_masks(client.public.shamir, "_basis", "_left", 1)


def _after_training(client: Any) -> None:
    """A matrix that loses its masks when the run is over: later shares are not hidden."""
    run = client.run

    async def running() -> None:
        await run()
        _plain_data(client)

    client.run = running


def _no_streams(unknown: int) -> Any:
    """Plant: the tables that streams of keys are weighted by are zero."""

    def plant(protocol: Any, parties: dict[int, Any]) -> None:
        found = clients(protocol, parties)[0].public.prss
        streams, code = found._streams, found.code
        u = prss.mask_streams(code, unknown)
        columns, powers = streams._table(found, u)
        streams._tables[u] = [np.zeros_like(one) for one in columns], powers
        for n in range(code.parties):
            rows = streams.weights(found, n, u)
            streams._weights[n, u] = {key: np.zeros_like(row) for key, row in rows.items()}

    return plant


def _last_is_zero(client: Any) -> None:
    """P(alpha) of the last client is zero in the table, so its uploads have no mask."""
    code = client.public.code
    table = code.vanishing.copy()
    table[-1] = 0
    vars(code)["vanishing"] = table


def _one_byte() -> Keystream:
    return Keystream(os.urandom(32)[:1] * 32, sampling.has_aes_unit())


@contextmanager
def short_source() -> Iterator[None]:
    """The system's source has a method of its own."""
    vars(sampling.SYSTEM)["keystream"] = _one_byte
    try:
        yield
    finally:
        del vars(sampling.SYSTEM)["keystream"]


def _few_zeros(zeros: memoryview) -> memoryview:
    """The constant that is encrypted has 64 bytes: the rest of a draw is what memory held."""
    return zeros[:64]


def _named_alike(old: Any, **other: Any) -> types.ModuleType:
    """A module that passes for another."""
    found = types.ModuleType(old.__name__, old.__doc__)
    vars(found).update(vars(old) | other)
    return found


def _other_hmac(old: Any) -> types.ModuleType:
    def digest(key: bytes, message: bytes, name: str) -> bytes:
        return bytes(old.digest(key, message[:1] if len(message) == 32 else message, name))

    return _named_alike(old, digest=digest)


def _other_os(old: Any) -> types.ModuleType:
    return _named_alike(old, urandom=lambda count: old.urandom(1) * count)


def _wrapped(fill: Any) -> Any:
    """A sampler that says it wraps the library's, and repeats its first half."""

    @functools.wraps(fill)
    def filling(p: int, out: np.ndarray, stream: Any) -> None:
        fill(p, out, stream)
        _repeat(out)

    return filling


def _repeat(out: np.ndarray) -> None:
    half = len(out) // 2
    if len(out) > 2000:
        out[half : 2 * half] = out[:half]


@contextmanager
def machine_code() -> Iterator[None]:
    """The machine code of the sampler's pass is another function, for 32 and 64 bits."""
    kernel: Any = scalar.keep_below
    old = kernel._compiled
    for dtype in (np.uint32, np.uint64):
        scalar.keep_below(np.zeros(2, dtype), dtype(1), dtype(1))

    def other(code: Any) -> Any:
        def call(words: int, *numbers: Any) -> Any:
            found = code(words, *numbers)
            _repeat(ctypes.cast(words, ctypes.py_object).value)
            return found

        return call

    kernel._compiled = {kinds: other(code) for kinds, code in old.items()}
    try:
        yield
    finally:
        kernel._compiled = old


def _cached(owner: Any, name: str, new: Callable[[Any], Any]) -> Any:
    """Context in which a cached property of a class computes something else."""

    @contextmanager
    def context() -> Iterator[None]:
        prop = vars(owner)[name]
        old = prop.func
        prop.func = new(old)
        try:
            yield
        finally:
            prop.func = old

    return context


def _prepared_without_masks(old: Any) -> Any:
    @functools.wraps(old)
    def left(code: LagrangeCode) -> Any:
        matrix = code._constant_basis.copy()
        matrix[:, 1:] = 0
        return dispatch.prepare(code.field.modulus, matrix)

    return left


# -- seeing them -----------------------------------------------------------------------------------


def _only_scaled(outcome: Outcome, kind: str, round: int) -> bool:
    """Whether shares of a model are multiples of it, by factors that everybody knows."""
    code: Any = outcome.protocol.code  # type: ignore[attr-defined]
    factors = code.field.matmul(code.data_matrix, np.ones(code.segments, code.field.dtype))
    return _multiples(code.field, factors, shares(outcome, kind, 0, round))


def _multiples(field: Any, factors: np.ndarray, sent: dict[int, np.ndarray]) -> bool:
    p = field.modulus
    inverses = field.elements([pow(int(one), -1, p) for one in factors])
    found = [field.multiply(one, inverses[n]) for n, one in sent.items()]
    return all(np.array_equal(found[0], one) for one in found[1:])


def bare_models(outcome: Outcome) -> bool:
    """Whether shares of FedVS's models of round 1 have no masks."""
    return _only_scaled(outcome, "model", 1)


def bare_first_models(outcome: Outcome) -> bool:
    """Whether shares of the models of setup have no masks."""
    return _only_scaled(outcome, "model", 0)


def _bare_data(outcome: Outcome) -> bool:
    """Whether the masks of the data that follow from its shares are none."""
    code: Any = outcome.protocol.code  # type: ignore[attr-defined]
    found = shares(outcome, "train-data", 0)
    names = sorted(found)[: code.segments + 1]
    check = code.data_matrix[names]
    stack = np.stack([found[n] for n in names])
    known = code.field.matmul(code.field.inv(check[:-1]), stack[:-1].reshape(code.segments, -1))
    last = code.field.matmul(check[-1:], known)
    return np.array_equal(last.reshape(stack[-1].shape), stack[-1])


def uploads_bare(outcome: Outcome) -> bool:
    """Whether the last client's upload of round 2 has no mask."""
    found = upload_masks(outcome, 2)
    return not found[max(found)].any()


def _bare_limbs(outcome: Outcome) -> bool:
    """Whether the shares of a key are multiples of it."""
    code = outcome.protocol.public.shamir  # type: ignore[attr-defined]
    deals: dict[int, Any] = {**shares(outcome, "deal", 0, 1)}
    sent = {n: one.secret for n, one in deals.items()}
    return _multiples(code.field, code.data_matrix[:, 0], sent)


def one_of_256(outcome: Outcome) -> bool:
    """Whether the first key that client 0 drew is among 256 that anybody can list."""
    party: Any = outcome.parties[0]
    first = party.keys[outcome.protocol.prss.dealt(0)[0]]  # type: ignore[attr-defined]
    out = np.empty(len(first), np.uint8)
    for byte in range(256):
        Keystream(bytes([byte]) * 32, sampling.has_aes_unit()).fill(out)
        if out.tobytes() == first:
            return True
    return False


def _first_bytes_do(outcome: Outcome) -> bool:
    """Whether the first byte of a key makes the masks that the key makes."""
    party: Any = outcome.parties[0]
    one = next(iter(party.keys.values()))
    return prss.derive(one, b"label") == prss.derive(one[:1] + bytes(31), b"label")


def _bare_afterwards(outcome: Outcome) -> bool:
    """Whether the code of the run shares zero by zeros, whatever the masks are."""
    code: Any = outcome.protocol.code  # type: ignore[attr-defined]
    zeros = np.zeros((code.segments, 5), code.field.dtype)
    return not code.encode(zeros).any()


def nothing_masked(outcome: Outcome) -> bool:
    """Whether the keys of a party make no mask."""
    party: Any = outcome.parties[0]
    found = outcome.protocol.prss  # type: ignore[attr-defined]
    unknown = prss.mask_streams(found.code, 3 if outcome.protocol.name == "coded_split" else 2)
    return not found.value(0, party.keys, b"label", (4,), unknown).any()


def _repeats(outcome: Outcome) -> bool:
    flat = upload_masks(outcome, 1)[0].reshape(-1)
    return len(flat) > 2000 and np.array_equal(flat[: len(flat) // 2], flat[len(flat) // 2 :])


_NONE, _SMALL = "masks that are not there", "masks of a smaller range"
_KNOWN, _REUSED = "masks that follow from something", "masks reused"
_WIDE = {"batch": 120, "width": 40, "segments": 1, "rounds": 4}

_LEAKS = (
    planted("fedvs", "a prepared matrix without masks of data", _NONE,
            "The matrix that encodes data is kept ready, with zeros for masks.",
            every(_plain_data), CLIENTS_DATA, _bare_data),
    planted("fedvs", "a prepared matrix without masks of models", _NONE,
            "The matrix that encodes models is kept ready, with zeros for masks.",
            every(_plain_models), CLIENTS_MODEL, bare_models),
    planted("fedvs", "streams weighted by zero", _NONE,
            "The tables by which streams of keys are weighted are zero, and so is rho.",
            _no_streams(2), UPLOADS, uploads_bare),
    planted("fedvs", "a last client whose P is zero", _NONE,
            "In the table of P(alpha) that of the last client is zero.",
            every(_last_is_zero), (("server", "features"),), uploads_bare),
    planted("fedvs", "no masks once the run is over", _NONE,
            "After training the matrix that encodes data, for predictions, has no masks.",
            every(_after_training), CLIENTS_DATA, _bare_afterwards),
    planted("fedvs", "keys of one byte in one source", _KNOWN,
            "The system's source has a method of its own, with keys of one byte.", nothing,
            (*CLIENTS_DATA, *CLIENTS_MODEL), one_of_256, around=short_source),
    planted("fedvs", "too few zeros to encrypt", _KNOWN,
            "Of each draw but 64 bytes are random, the others are what the memory held.", nothing,
            UPLOADS, None, _WIDE, around=replaced(sampling, "_ZEROS", _few_zeros)),
    planted("fedvs", "another hmac", _KNOWN,
            "The masks' module has another module as hmac, which forgets most of a key.", nothing,
            UPLOADS, _first_bytes_do, around=replaced(prss, "hmac", _other_hmac)),
    planted("fedvs", "another os", _KNOWN,
            "The sampler's module has another module as os, whose entropy has one byte.", nothing,
            CLIENTS_DATA, one_of_256, around=replaced(sampling, "os", _other_os)),
    planted("fedvs", "a sampler that wraps the sampler", _REUSED,
            "Long draws repeat their first half, by a function that passes for its original.",
            nothing, UPLOADS, _repeats, _WIDE, around=replaced(prss, "fill_uniform", _wrapped)),
    planted("fedvs", "other machine code", _REUSED,
            "Long draws repeat their first half, by other machine code of the sampler.",
            nothing, UPLOADS, _repeats, _WIDE, around=machine_code),
    planted("fedvs", "a cached property that computes otherwise", _NONE,
            "The matrix that encodes models is computed with zeros for masks.", nothing,
            CLIENTS_MODEL, bare_models,
            around=_cached(LagrangeCode, "_constant_left", _prepared_without_masks)),
    planted("secagg_split", "a prepared matrix without masks of limbs", _NONE,
            "The matrix that shares keys and seeds is kept ready, with zeros for masks.",
            every(_plain_limbs), (("server + T clients", "features"),), _bare_limbs),
    planted("coded_split", "a prepared matrix without masks of models", _NONE,
            "The matrix that encodes models is kept ready, with zeros for masks.",
            every(_plain_models), (("T clients", "model"),), bare_first_models),
    planted("coded_split", "streams weighted by zero", _NONE,
            "The tables by which streams of keys are weighted are zero, and so is rho.",
            _no_streams(3), SERVER_DATA, nothing_masked),
)  # fmt: skip
LEAKS = tuple(map(of_the_library, _LEAKS))
