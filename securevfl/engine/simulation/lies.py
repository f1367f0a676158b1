"""Lies: random numbers in place of a party's uploaded values, in the same form."""

from __future__ import annotations

from typing import Any

import numpy as np

_SCALE = 10.0  # times the root mean square of the true values: an outlier in every entry


def replaced(payload: object, stream: np.random.Generator, modulus: int | None) -> Any:
    """The payload with random numbers for its values; identifiers and form stay.

    Elements of a field become uniform ones. Floats become normal ones, ten times as large as the
    true ones in root mean square. Other values, such as row numbers or ciphertexts, are unchanged.

    Parameters
    ----------
    payload : payload of `securevfl.engine.wire`
        Arrays, and tuples and lists of them.
    stream : Generator
        Source of the numbers.
    modulus : int or None
        p, if unsigned arrays hold elements of F_p.
    """
    if isinstance(payload, tuple | list):
        return type(payload)(replaced(each, stream, modulus) for each in payload)
    if not isinstance(payload, np.ndarray):
        return payload
    if payload.dtype.kind == "f":
        size = _SCALE * float(np.sqrt(np.mean(np.square(payload, dtype=np.float64)) or 1.0))
        return np.asarray(size * stream.standard_normal(payload.shape), payload.dtype)
    if payload.dtype.kind == "u" and modulus is not None:
        return stream.integers(modulus, size=payload.shape, dtype=np.uint64).astype(payload.dtype)
    return payload
