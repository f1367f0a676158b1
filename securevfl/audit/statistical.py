"""Statistical tests of views, each with its probability of a false accusation."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.errors import ConfigurationError, needs
from securevfl.field import PrimeField

LEVEL = 1e-7  # failure probability of each test
_CELLS = 16
_PER_CELL = 20  # smallest expected count for which the chi-square tail is trusted


@dataclass(frozen=True)
class Outcome:
    """Result of one statistical test.

    Attributes
    ----------
    test : str
    p_value : float
        Probability of evidence at least as strong where nothing leaks.
    level : float
        The test accuses when `p_value` is below; its failure probability.
    detail : str
    """

    test: str
    p_value: float
    level: float
    detail: str

    @property
    def rejected(self) -> bool:
        """Whether the evidence counts as a leak."""
        return self.p_value < self.level


# -- U: uniformity -------------------------------------------------------------------------------


def uniformity(
    field: PrimeField, messages: Mapping[str, np.ndarray], *, level: float = LEVEL
) -> Outcome:
    """Chi-square test of the high and of the low bits of each message, Bonferroni over all.

    The tail is the chi-square limit, used only where every cell expects at least 20 elements.

    Parameters
    ----------
    field : PrimeField
    messages : mapping of str to ndarray
        Elements by name; each message is tested on its own, so that one sent twice counts once.

    Raises
    ------
    ConfigurationError
        When a message has fewer than 320 elements, or p is below 1000.
    """
    needs("tests of uniformity", "attacks", "scipy")
    from scipy.stats import chi2

    if field.modulus < 1000:
        raise ConfigurationError(f"uniformity: p = {field.modulus} is too small for 16 even cells")
    width = -(-field.modulus // _CELLS)
    worst, where = 1.0, "none"
    for name, message in messages.items():
        flat = message.reshape(-1)
        if flat.size < _CELLS * _PER_CELL:
            raise ConfigurationError(
                f"uniformity: message {name} has {flat.size} elements; the chi-square tail needs "
                f"at least {_CELLS * _PER_CELL}. Use more rows"
            )
        # High cells show masks that are too short, low cells those whose low bits are not even.
        for part, cells in (("high", flat // flat.dtype.type(width)), ("low", flat % _CELLS)):
            expected = _cell_sizes(field.modulus, part) * (flat.size / field.modulus)
            counts = np.bincount(cells.astype(np.int64), minlength=_CELLS)
            statistic = float(((counts - expected) ** 2 / expected).sum())
            p_value = float(chi2.sf(statistic, _CELLS - 1))
            if p_value < worst:
                worst, where = p_value, f"{part} bits of {name}"
    # Bonferroni's bound: two tests of each message.
    total = min(1.0, worst * 2 * len(messages))
    return Outcome("uniformity", total, level, f"chi-square of {len(messages)} messages: {where}")


def _cell_sizes(p: int, part: str) -> np.ndarray:
    """Number of elements of F_p in each cell of the uniformity test."""
    if part == "low":
        return np.array([len(range(i, p, _CELLS)) for i in range(_CELLS)], np.float64)
    width = -(-p // _CELLS)
    return np.array([max(0, min(p, (i + 1) * width) - i * width) for i in range(_CELLS)], float)


# -- E: equality with known plaintext ------------------------------------------------------------


def equality(
    field: PrimeField,
    pairs: Iterable[tuple[str, np.ndarray, np.ndarray]],
    *,
    level: float = LEVEL,
) -> Outcome:
    """Test whether message elements equal the plaintext at their place too often.

    A uniform element equals it with probability 1/p; P(at least k of n) <= (n/p)^k / k!.

    Parameters
    ----------
    field : PrimeField
    pairs : iterable of (name, message, plaintext)
        Of the same shape.
    """
    worst, where, tested = 1.0, "none equal", 0
    for name, message, plaintext in pairs:
        tested += 1
        same = int((message == plaintext).sum())
        if same:
            # Union bound over the sets of k places: C(n, k) p^-k <= (n / p)^k / k!.
            bound = same * math.log(message.size / field.modulus) - math.lgamma(same + 1)
            p_value = math.exp(min(0.0, bound))
            if p_value < worst:
                worst, where = p_value, f"{same} of {message.size} elements of {name}"
    total = min(1.0, worst * max(1, tested))
    return Outcome("equality", total, level, f"{tested} messages and plaintexts: {where}")


# -- two samples ---------------------------------------------------------------------------------


def two_sample(one: np.ndarray, two: np.ndarray, *, level: float = LEVEL) -> Outcome:
    """Kolmogorov-Smirnov test of each coordinate of two samples of views, Bonferroni-corrected.

    Parameters
    ----------
    one, two : ndarray, (runs, coordinates), elements
        Views of runs with two secrets that have the same ideal output.
    """
    needs("tests of uniformity", "attacks", "scipy")
    from scipy.stats import ks_2samp

    values = [
        float(ks_2samp(a.astype(np.float64), b.astype(np.float64), method="exact").pvalue)
        for a, b in zip(one.T, two.T, strict=True)
    ]
    total = min(1.0, min(values) * len(values))
    detail = f"{len(one)} and {len(two)} runs, {len(values)} coordinates"
    return Outcome("two-sample", total, level, detail)


# -- D: repeats ----------------------------------------------------------------------------------


def digest(arrays: Iterable[np.ndarray]) -> str:
    """SHA-256 of arrays, to compare masks between processes without storing them."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()


def repeats(digests: Sequence[str], elements: int, modulus: int) -> Outcome:
    """Test whether two processes drew the same masks.

    Parameters
    ----------
    digests : sequence of str
        One for each fresh process.
    elements : int
        Elements behind each; two agree by chance with probability p^-elements.
    modulus : int
    """
    again = len(digests) - len(set(digests))
    pairs = math.comb(len(digests), 2)
    chance = min(1.0, math.exp(min(0.0, math.log(max(1, pairs)) - elements * math.log(modulus))))
    detail = f"{again} of {len(digests)} fresh processes repeat the masks of another"
    return Outcome("repeats", chance if again else 1.0, LEVEL, detail)
