"""Clients that contribute alone to exact sums of embeddings modulo some number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from securevfl.protocols.base.coded import CodedProtocol, SharedModels

_TRIED = 1 << 16  # divisors that are looked for one by one


def steps_of_columns(made: CodedProtocol | SharedModels) -> dict[int, np.ndarray]:
    """Greatest common step of the columns that each client multiplies by weights, int64.

    All numbers of a column differ by multiples of its step; that of a constant one is 0. By client,
    (columns,).
    """
    found = {}
    for n, own in made.quantised_columns().items():
        rows = made.code.field.signed(own.reshape(-1, own.shape[-1]))
        rows = rows[rows.any(axis=1)]  # padding is zero, its ones included
        found[n] = np.gcd.reduce(np.abs(rows - rows[:1]), axis=0)
    return found


def few_in_residues(steps: Mapping[int, int], needed: int) -> str:
    """Warning that sums modulo some number involve fewer clients than needed; "" if none.

    A column of zeros and ones is a column of multiples of 2^16 with 16 bits. Its products with
    whole weights are multiples, too, so that sums modulo 2^16 have other clients' columns alone.

    Parameters
    ----------
    steps : mapping of int to int
        By client a number by multiples of which all its parts of sums differ; 0 where they are
        constant, which tells nothing.
    needed : int
        Clients that a sum must be of, T + 2.
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
