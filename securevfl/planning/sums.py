"""Warning of what sums of embeddings tell whoever decodes them: no claim speaks of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.shared_models import SharedModels

_TRIED = 1 << 16  # divisors that are looked for one by one


def told_by_sums(columns: int, width: int) -> str:
    """Warning where sums of a row are enough equations for its columns; empty where they are not.

    Parameters
    ----------
    columns : int
        Of all parties together.
    width : int
        h, numbers of an embedding.
    """
    if columns > width:
        return ""
    return (
        f"the sums of each row, which the server learns, are h = {width} equations in {columns} "
        "columns. A server that knows the clients' weights solves them for the rows, and with SGD "
        "it learns all inner products of rows from its own gradients. A lower width gives fewer "
        "equations; more rounds give more, and with enough of them the space that all columns span "
        "is known at any width. `securevfl compare` with --attacks measures it, SECURITY.md says "
        "more"
    )


def signed_columns(made: CodedProtocol | SharedModels) -> dict[int, np.ndarray]:
    """Numbers that each client with columns multiplies with its weights, (rows, columns) int64."""
    found = {}
    for n, own in made.quantised_columns().items():
        rows = made.code.field.signed(own.reshape(-1, own.shape[-1]))
        found[n] = rows[rows.any(axis=1)]  # padding is zero, its ones included
    return found


def few_in_residues(columns: Mapping[int, np.ndarray], needed: int) -> str:
    """Clients that alone are in exact sums modulo some number, in words; empty where they are not.

    A column of zeros and ones is a column of multiples of 2^16 with 16 bits. Its products with
    whole weights are multiples, too, so that sums modulo 2^16 have other clients' columns alone.

    Parameters
    ----------
    columns : mapping of int to ndarray of int64, (rows, columns)
        What each client multiplies with its weights. Constant columns tell nothing.
    needed : int
        Clients that a sum must be of, T + 2.
    """
    steps = {n: _step(own) for n, own in columns.items()}
    varied = [n for n, step in steps.items() if step]
    needed = min(needed, len(varied))
    for modulus in sorted({m for step in steps.values() for m in _moduli(step)}, reverse=True):
        left = [n for n in varied if steps[n] % modulus]
        if 0 < len(left) < needed:
            return (
                f"sums modulo {modulus}, which the server learns, are of clients {left} alone, and "
                f"{needed} are needed: all numbers of the others are multiples of it beside "
                "constants, as those of columns of zeros and ones are. Give such clients a column "
                "of other numbers, or deal the columns otherwise"
            )
    return ""


def _step(own: np.ndarray) -> int:
    """Largest number by multiples of which all entries of a column differ, for all columns."""
    return int(np.gcd.reduce(np.abs(own - own[:1]), axis=None)) if own.size else 0


def _moduli(step: int) -> Iterator[int]:
    """Powers of primes that divide a number, and what is left of it without small ones."""
    for prime in range(2, _TRIED):
        power = 1
        while step > 1 and step % prime == 0:
            step //= prime
            power *= prime
            yield power
        if step <= 1:
            return
    yield step
