"""Clients that contribute alone to exact sums of embeddings modulo some number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from securevfl.protocols.base.coded import CodedProtocol, SharedModels

_TRIED = 1 << 16  # divisors that are looked for one by one


def steps_of_columns(made: CodedProtocol | SharedModels) -> dict[int, np.ndarray]:
    """Greatest common step of each column that a client multiplies by weights, by client.

    Arrays are int64 (columns,). All numbers of a column differ by multiples of its step; a constant
    column has step 0.
    """
    found = {}
    for n, own in made.quantised_columns().items():
        rows = made.code.field.signed(own.reshape(-1, own.shape[-1]))
        rows = rows[rows.any(axis=1)]  # padding is zero, its ones included
        found[n] = np.gcd.reduce(np.abs(rows - rows[:1]), axis=0)
    return found


def few_in_residues(steps: Mapping[int, int], needed: int) -> str:
    """Warning that sums modulo some number involve fewer clients than needed; "" if none.

    With 16 fractional bits, a column of zeros and ones has multiples of 2^16. Its products with
    integer weights are multiples, too, so sums modulo 2^16 contain only other clients' columns.

    Parameters
    ----------
    steps : mapping of int to int
        For each client, a number of which all differences of its summands are multiples; 0 if its
        summands are constant, which reveals nothing.
    needed : int
        Smallest number of clients in a sum, T + 2.
    """
    varied = [n for n, step in steps.items() if step]
    needed = min(needed, len(varied))
    for modulus in sorted({m for n in varied for m in _moduli(steps[n])}, reverse=True):
        left = [n for n in varied if steps[n] % modulus]
        if 0 < len(left) < needed:
            return (
                f"sums modulo {modulus}, which the server learns, are of clients {left} alone, and "
                f"{needed} are needed: all numbers of the others are multiples of it beside "
                "constants, as those of columns of zeros and ones are. Give such clients a column "
                "of other numbers, or deal the columns otherwise"
            )
    return ""


def _moduli(step: int) -> Iterator[int]:
    """Prime-power divisors of a number, and its remaining factor without small primes."""
    for prime in range(2, _TRIED):
        power = 1
        while step > 1 and step % prime == 0:
            step //= prime
            power *= prime
            yield power
        if step <= 1:
            return
    yield step
