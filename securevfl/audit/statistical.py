"""Statistical tests of views, each with the probability that it accuses a run that leaks nothing.

The tests of difference are games. A test draws a secret bit, is shown the view of a run with the
secrets that belong to the bit, and guesses. Where the two distributions of views are equal, every
guess is right with probability 1/2 whatever the rule, so the binomial tail of the number of right
guesses is an exact failure probability; only the power depends on the rule. The secrets of a game
have the same ideal output, because a sum that both know is no leak.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.audit.proof.linear_algebra import rank, solve_left
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.lagrange import interpolation_matrix

LEVEL = 1e-7  # failure probability of each test
_CELLS = 16
_PER_CELL = 20  # smallest expected count for which the chi-square tail is trusted


@dataclass(frozen=True)
class Outcome:
    """Result of one test.

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
    """Chi-square of the high and of the low bits of each message, Bonferroni over all of them.

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
    """Number of elements of F_p in each cell."""
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
    """Count the elements of messages that equal the plaintext at their place.

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
    """Kolmogorov-Smirnov of every coordinate of two samples of views, Bonferroni over them.

    Parameters
    ----------
    one, two : ndarray, (runs, coordinates), elements
        Views of runs with two secrets that have the same ideal output.
    """
    from scipy.stats import ks_2samp

    values = [
        float(ks_2samp(a.astype(np.float64), b.astype(np.float64), method="exact").pvalue)
        for a, b in zip(one.T, two.T, strict=True)
    ]
    total = min(1.0, min(values) * len(values))
    detail = f"{len(one)} and {len(two)} runs, {len(values)} coordinates"
    return Outcome("two-sample", total, level, detail)


# -- games ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """A finished game.

    Attributes
    ----------
    name : str
    right, rounds : int
        Right guesses.
    trained : int
        Runs that the rule was fitted to before.
    """

    name: str
    right: int
    rounds: int
    trained: int

    @property
    def p_value(self) -> float:
        """P(at least so many right guesses by chance), exact."""
        return guessing_tail(self.right, self.rounds)

    def outcome(self, level: float = LEVEL) -> Outcome:
        """Result as a test of that level."""
        detail = f"{self.name} told two secrets with the same output apart in {self.right} of "
        detail += f"{self.rounds} runs"
        return Outcome(self.name, self.p_value, level, detail)


def guessing_tail(right: int, rounds: int) -> float:
    """P(at least `right` of `rounds` fair coins fall heads).

    Examples
    --------
    >>> guessing_tail(3, 3), guessing_tail(0, 5)
    (0.125, 1.0)
    """
    ways = sum(math.comb(rounds, k) for k in range(right, rounds + 1))
    return float(ways / 2**rounds)


def coin(stream: np.random.Generator | None) -> int:
    """One bit, of the operating system's entropy where no stream is given."""
    import secrets

    return secrets.randbits(1) if stream is None else int(stream.integers(2))


Sample = Callable[[int], np.ndarray]


def span_game(
    field: PrimeField,
    sample: Sample,
    *,
    rounds: int = 40,
    slack: int = 4,
    stream: np.random.Generator | None = None,
) -> Played:
    """Play with the affine span of views (A: the rank of view differences over runs).

    Views with secret 0 are collected until `slack` of them in a row lie in the affine span of
    those before. A view in that span is guessed to be of secret 0. Masks that are too few, equal,
    shared or reused confine the views to a span that depends on the secret.

    Parameters
    ----------
    field : PrimeField
    sample : callable
        Bit to the view of a fresh run, (coordinates,) elements.
    rounds : int
    slack : int
    stream : Generator, optional
        For the bits; the operating system's entropy if not given.
    """
    span, trained = Span(field, sample(0)), 1
    # A view outside raises the rank, so this ends. If views fill a larger space evenly, `slack` of
    # them in a row lie in a proper subspace by chance with probability at most p^-slack.
    inside = 0
    while inside < slack:
        inside = 0 if span.add(sample(0)) else inside + 1
        trained += 1
    right = 0
    for _ in range(rounds):
        bit = coin(stream)
        right += (not span.contains(sample(bit))) == bool(bit)
    name = f"span of views (rank {span.rank} of {span.origin.size})"
    return Played(name, right, rounds, trained)


class Span:
    """Affine span of points over F_p, kept as an echelon basis of their differences."""

    def __init__(self, field: PrimeField, origin: np.ndarray) -> None:
        self.field, self.origin = field, origin
        self._rows: list[tuple[int, np.ndarray]] = []

    @property
    def rank(self) -> int:
        """Dimension of the span."""
        return len(self._rows)

    def _reduced(self, point: np.ndarray) -> np.ndarray:
        field, rest = self.field, self.field.subtract(point, self.origin)
        # Each row has a 1 at its pivot and 0 at the pivots of the rows before it, so that one pass
        # in this order clears all pivots.
        for pivot, row in self._rows:
            if rest[pivot]:
                rest = field.subtract(rest, field.multiply(rest[pivot], row))
        return rest

    def contains(self, point: np.ndarray) -> bool:
        """Whether a point lies in the span."""
        return self.rank == self.origin.size or not self._reduced(point).any()

    def add(self, point: np.ndarray) -> bool:
        """Extend the span by a point; whether it lay outside."""
        rest = self._reduced(point)
        places = np.flatnonzero(rest)
        if not places.size:
            return False
        pivot = int(places[0])
        inverse = self.field.reciprocal(rest[pivot])
        self._rows.append((pivot, self.field.multiply(rest, inverse)))
        return True


def rank_game(
    statistic: Callable[[int], Hashable],
    *,
    rounds: int = 40,
    training: int = 4,
    stream: np.random.Generator | None = None,
) -> Played:
    """Play with the ranks of blocks of a view (B).

    The rule guesses the secret under which the same ranks were seen more often in training, and
    secret 0 where that does not decide.

    Parameters
    ----------
    statistic : callable
        Bit to the ranks of the view of a fresh run; see `block_ranks`.
    rounds, training : int
        Guesses, and runs with each secret before.
    stream : Generator, optional
    """
    seen = [Counter(statistic(bit) for _ in range(training)) for bit in (0, 1)]
    right = 0
    for _ in range(rounds):
        bit = coin(stream)
        ranks = statistic(bit)
        right += (seen[1][ranks] > seen[0][ranks]) == bool(bit)
    return Played("ranks of blocks", right, rounds, 2 * training)


def block_ranks(field: PrimeField, blocks: np.ndarray) -> tuple[int, ...]:
    """Ranks that masks of full degree leave full.

    Parameters
    ----------
    blocks : ndarray, (attempts, m, |B|, h)
        Unwanted blocks of each attempt on the same rows, in the same order.

    Returns
    -------
    tuple of int
        Rank of every block, of every block's difference to the first attempt's, and of all blocks
        side by side.
    """
    ranks = [rank(field, block) for attempt in blocks for block in attempt]
    for attempt in blocks[1:]:
        ranks += [
            rank(field, field.subtract(a, b)) for a, b in zip(attempt, blocks[0], strict=True)
        ]
    side_by_side = np.concatenate([block for attempt in blocks for block in attempt], axis=1)
    return (*ranks, rank(field, side_by_side))


# -- what uploads contain besides the sums -------------------------------------------------------


def unwanted(code: LagrangeCode, uploads: Mapping[int, np.ndarray]) -> np.ndarray:
    """Coefficients of (Y - w) / P, (K + 2T - 1, |B|, h): all that uploads contain but the sums.

    Y is the polynomial through the uploads, w the polynomial of degree K - 1 through the sums.
    """
    field = code.field
    parties = sorted(uploads)
    values = np.stack([uploads[n] for n in parties])
    # Y - w vanishes at the K data points, so P divides it; the quotient has degree 2(K+T-1) - K.
    sums = code.decode(values, parties, degree=2)
    return divided(code, parties, field.subtract(values, spread(code, sums, parties)), ())


def at_data_points(code: LagrangeCode, coefficients: np.ndarray) -> np.ndarray:
    """Values of a matrix polynomial at beta_1 .. beta_K, where no data mask is mixed in."""
    field = code.field
    betas = field.elements(list(code.betas[: code.segments]))
    powers = field.power(betas[:, None], np.arange(len(coefficients)))
    values = field.matmul(powers, coefficients.reshape(len(coefficients), -1))
    return values.reshape(-1, *coefficients.shape[1:])


def spread(code: LagrangeCode, sums: np.ndarray, parties: Sequence[int]) -> np.ndarray:
    """Values at parties of the polynomial of degree K - 1 through the sums."""
    points = [code.alphas[n] for n in parties]
    onto = interpolation_matrix(code.field, code.betas[: code.segments], points)
    flat = code.field.matmul(onto, sums.reshape(code.segments, -1))
    return flat.reshape(len(points), *sums.shape[1:])


def divided(
    code: LagrangeCode, parties: Sequence[int], values: np.ndarray, roots: Sequence[int]
) -> np.ndarray:
    """Coefficients of a polynomial, given by values at parties, divided by P and (z - alpha_c).

    Parameters
    ----------
    values : ndarray, (R', |B|, h)
        Of a polynomial of degree 2(K+T-1) that vanishes on the data points and on `roots`.
    roots : sequence of int
        Clients c.

    Returns
    -------
    ndarray, (K + 2T - 1 - len(roots), |B|, h)
    """
    field, p = code.field, code.field.modulus
    count = code.segments + 2 * code.privacy - 1 - len(roots)
    divisors = [
        int(code.vanishing[n]) * math.prod(code.alphas[n] - code.alphas[c] for c in roots) % p
        for n in parties
    ]
    # Where the divisor is 0 the value of the quotient is not determined by that party's value.
    kept = [i for i, divisor in enumerate(divisors) if divisor][:count]
    inverse = field.reciprocal(field.elements([divisors[i] for i in kept]))
    quotients = field.multiply(inverse[:, None], values[kept].reshape(len(kept), -1))
    alphas = field.elements([code.alphas[parties[i]] for i in kept])
    powers = field.power(alphas[:, None], np.arange(count))
    solved = solve_left(field, powers, quotients)
    if solved is None:
        raise ConfigurationError(f"divided: {len(kept)} uploads do not determine {count} blocks")
    return solved.reshape(count, *values.shape[1:])


# -- D: repeats ----------------------------------------------------------------------------------


def digest(arrays: Iterable[np.ndarray]) -> str:
    """SHA-256 of arrays, to compare masks between processes without keeping them."""
    whole = hashlib.sha256()
    for array in arrays:
        whole.update(np.ascontiguousarray(array).tobytes())
    return whole.hexdigest()


def repeats(digests: Sequence[str], elements: int, modulus: int) -> Outcome:
    """Masks that two processes drew alike.

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
