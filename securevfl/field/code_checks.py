"""Input validation of LagrangeCode: sizes, points and results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from securevfl.errors import ConfigurationError, FieldError, NotEnoughResultsError, PrivacyError

if TYPE_CHECKING:
    from securevfl.field.prime_field import PrimeField

Array = NDArray[Any]


def count(name: str, value: int) -> int:
    """The value if it is a positive integer; else ConfigurationError."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ConfigurationError(f"LagrangeCode: {name} must be a positive integer, got {value!r}.")
    return int(value)


def privacy(T: int, N: int) -> int:
    """The privacy T if 1 <= T < N; else PrivacyError."""
    if isinstance(T, bool) or not isinstance(T, int | np.integer) or T < 1:
        raise PrivacyError(
            f"LagrangeCode: privacy T must be at least 1, got {T!r}: without a mask every share "
            f"is a plain combination of the data."
        )
    if T >= N:
        raise PrivacyError(
            f"LagrangeCode: T={T} colluders among N={N} parties would be all of them, and all "
            f"shares together determine the data. Lower T below N."
        )
    return int(T)


def check_sizes(field: PrimeField, N: int, K: int, T: int, degree: int) -> None:
    """Raise ConfigurationError if R > N, and FieldError for fewer than N + K + T elements."""
    R = degree * (K + T - 1) + 1
    if R > N:
        raise ConfigurationError(
            f"LagrangeCode: {N} parties cannot decode with K={K}, T={T}: a degree-{degree} "
            f"computation needs {degree}(K+T-1)+1 = {R} results. Lower K or T, or add parties."
        )
    if field.modulus < N + K + T:
        raise FieldError(
            f"LagrangeCode: N + K + T = {N + K + T} distinct points are needed, but the field "
            f"has {field.modulus} elements. Use a larger prime."
        )


def points(
    field: PrimeField, name: str, given: Sequence[int] | None, default: range, last: int
) -> tuple[int, ...]:
    """Evaluation points: `given`, or else `default`; `last` is the largest default point of all.

    FieldError, which calls them `name`, unless they are as many distinct elements as in `default`.
    """
    if given is None:
        if last >= field.modulus:
            raise FieldError(
                f"LagrangeCode: the default points 1..N+K+T = {last} do not fit the field of "
                f"{field.modulus}. Use a larger prime, or give betas and alphas."
            )
        return tuple(default)
    chosen = tuple(int(v) for v in field.elements(list(given), f"LagrangeCode {name}"))
    if len(chosen) != len(default):
        raise FieldError(f"LagrangeCode: {len(default)} {name} are needed, got {len(chosen)}.")
    if len(set(chosen)) < len(chosen):
        raise FieldError(f"LagrangeCode: the {name} must be distinct, got {list(chosen)}.")
    return chosen


def check_points(alphas: Sequence[int], betas: Sequence[int]) -> None:
    """Raise PrivacyError if an alpha is a beta (raw data), and FieldError if an alpha is 0."""
    shared = set(alphas) & set(betas)
    if shared:
        raise PrivacyError(
            f"LagrangeCode: the points {sorted(shared)} are both an alpha and a beta; such a "
            f"party would be handed a raw segment or mask. Choose disjoint points."
        )
    if 0 in alphas:
        raise FieldError(
            "LagrangeCode: alpha = 0 is refused, because the locator of wrong results has the "
            "inverses of the alphas as its roots. Choose non-zero alphas."
        )


def party_numbers(parties: Sequence[int], N: int, name: str) -> tuple[int, ...]:
    """Party numbers if they are distinct and from 0 to N - 1; else ConfigurationError."""
    if isinstance(parties, int | np.integer) or any(
        isinstance(n, bool) or not isinstance(n, int | np.integer) for n in parties
    ):
        raise ConfigurationError(f"{name}: parties must be integers from 0, got {parties!r}.")
    numbers = tuple(int(n) for n in parties)
    strangers = sorted({n for n in numbers if not 0 <= n < N})
    if strangers:
        raise ConfigurationError(
            f"{name}: parties {strangers} do not exist; numbers run from 0 to {N - 1}."
        )
    if len(set(numbers)) < len(numbers):
        twice = sorted(n for n in set(numbers) if numbers.count(n) > 1)
        raise ConfigurationError(
            f"{name}: parties {twice} are named more than once. Give one result per party."
        )
    return numbers


def check_rows(results: Array, received: int, name: str) -> None:
    """Refuse results that are not one row for each named party (FieldError)."""
    if results.ndim == 0 or results.shape[0] != received:
        raise FieldError(
            f"{name}: {received} parties are named, so results must have shape ({received}, ...), "
            f"got {results.shape}."
        )


def enough(received: int, degree: int, K: int, T: int, name: str) -> int:
    """Recovery threshold R; NotEnoughResultsError if there are fewer results."""
    R = count("degree", degree) * (K + T - 1) + 1
    if received < R:
        raise NotEnoughResultsError(
            f"{name}: decoding a degree-{degree} computation with K={K}, T={T} needs "
            f"{degree}(K+T-1)+1 = {R} results, got {received}. Wait for more parties, or lower K "
            f"or T."
        )
    return R
