"""Attacks on sums of embeddings alone, however the single embeddings are protected.

Over several rounds on the same M rows the server gets U = [X_1 | ... | X_N] [W^1 | ... | W^E], M
rows and c = E h columns, where X_n are the (expanded) columns of client n. Let d* be the rank of
[X_1 | ... | X_N]. Once M > d* and c >= d*, the columns of U span exactly what those of X span:

- a guess of one column can be checked against the span (`span_exactness`);
- with k >= d* known rows in general position, X = U A is solved for A, and all other rows follow
  (`complete`);
- a column of zeros and ones is a short integer vector of the span, which lattice reduction finds
  without knowing anything (`binary_columns`; after P. Nguyen and J. Stern, "The Hardness of the
  Hidden Subset Sum Problem and Its Cryptographic Implications", CRYPTO 1999).

The controls put a random matrix of equal rank in the place of U, and U with its rows shuffled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from securevfl.audit.attacks.outcome import Outcome, bootstrap
from securevfl.errors import ConfigurationError, needs

_ABOVE = 3.0  # times the largest singular value that can only be errors
_NEAR = 0.01  # of a column's length: as far as a column may lie from the span
_FOUND = 0.01  # as far as an entry may be from the truth
_SPARE = 12  # rows of the lattice beyond the rank, so that no other short vector fits by chance
_BITS = (36, 24, 16, 11)  # precision to which the span is put into the lattice
_SHORT = 64  # largest entry of a vector that is looked at further
_ENUMERATED = 10  # short vectors all of whose combinations are looked at
_PAIRED = 40  # short vectors that are paired
_LARGEST = 160  # rows of a lattice that is reduced: beyond, LLL takes minutes


def basis(sums: np.ndarray, most: int) -> np.ndarray:
    """Orthonormal basis, (M, r), of the span of the columns of `sums`, as far as it exceeds errors.

    Parameters
    ----------
    sums : ndarray, (M, c), floating
        float32 sums have larger rounding errors than float64 ones, and show fewer columns; sums
        may be rounded further, or noisy.
    most : int
        Largest possible rank of the clients' columns, which is public: directions beyond it are
        errors, and show how large these are.
    """
    precision = float(np.finfo(sums.dtype).eps)
    wide = sums.astype(np.float64)
    u, values, _ = np.linalg.svd(wide, full_matrices=False)
    # An entry is wrong by eps |U| or so; such errors have the norm eps |U| (sqrt M + sqrt c).
    size = math.sqrt(wide.shape[0]) + math.sqrt(wide.shape[1])
    errors = precision * float(np.abs(wide).max()) * size
    if most < len(values):
        errors = max(errors, _ABOVE * float(values[most]))
    kept: np.ndarray = u[:, values > errors]
    return kept


def distances(span: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Distance of each column from a span with orthonormal basis, over the column's length."""
    wide = columns.astype(np.float64)
    rest = wide - span @ (span.T @ wide)
    lengths = np.linalg.norm(wide, axis=0)
    found: np.ndarray = np.linalg.norm(rest, axis=0) / np.where(lengths > 0, lengths, np.inf)
    return found


def span_exactness(sums: np.ndarray, columns: np.ndarray, stream: np.random.Generator) -> Outcome:
    """Fraction of the clients' columns that lie in the span of the sums.

    Parameters
    ----------
    sums : ndarray, (M, c), floating
        Joint embeddings of the rows, from several rounds side by side.
    columns : ndarray, (M, d)
        All clients' columns; those that never vary are left out.
    stream : numpy Generator
        Source of random choices.

    Returns
    -------
    Outcome
        Chance is the same for a random matrix of the same rank. ConfigurationError if no column
        varies.
    """
    span = basis(sums, columns.shape[1] + 1)
    rank = span.shape[1]
    truth = _varying(columns)
    near = distances(span, truth) < _NEAR
    chance = distances(_random_basis(len(sums), rank, stream), truth) < _NEAR
    shuffled = span[stream.permutation(len(sums))]
    mixed = distances(shuffled, truth) < _NEAR
    low, high = bootstrap(lambda c: float(near[c].mean()), len(near), stream)
    note = f"rank {rank} of {sums.shape[1]} sums of {len(sums)} rows"
    return Outcome(
        "columns in the span",
        float(near.mean()),
        float(chance.mean()),
        low,
        high,
        len(near),
        {"shuffled rows": float(mixed.mean())},
        note,
    )


def complete(span: np.ndarray, known: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Columns of all rows, from columns of known rows, through the span of the sums.

    Parameters
    ----------
    span : ndarray, (M, r)
        Orthonormal basis of the span of the sums (`basis`).
    known : ndarray
        Numbers of the rows that are known.
    columns : ndarray, (M, d)
        Only its known rows are looked at.

    Returns
    -------
    ndarray, (M, d)
        The solution of least norm where the known rows do not settle it.
    """
    solved = np.linalg.lstsq(span[known], columns[known].astype(np.float64), rcond=1e-9)[0]
    completed: np.ndarray = span @ solved
    return completed


def completion(
    sums: np.ndarray,
    known: np.ndarray,
    columns: np.ndarray,
    stream: np.random.Generator,
) -> Outcome:
    """Fraction of the unknown rows' nonzero entries that follow from the known rows.

    Parameters
    ----------
    sums : ndarray, (M, c), floating
        Joint embeddings of the rows, from several rounds side by side.
    known, columns : ndarray, (any,) int and (M, d)
        Numbers of the known rows, and true columns. From d* known rows on everything follows.
    stream : numpy Generator
        Source of random choices.

    Returns
    -------
    Outcome
        Chance is guessing the commonest known value of each column.
    """
    left = np.setdiff1d(np.arange(len(sums)), known)
    truth = columns[left].astype(np.float64)
    counted = truth != 0
    span = basis(sums, columns.shape[1] + 1)
    right = _within(complete(span, known, columns)[left], truth) & counted
    guess = np.array([commonest(column) for column in columns[known].T])
    chance = _within(guess, truth)[counted].mean()
    blind = _random_basis(len(sums), span.shape[1], stream)
    mixed = span[stream.permutation(len(sums))]
    controls = {
        name: float(_within(complete(u, known, columns)[left], truth)[counted].mean())
        for name, u in (("random of equal rank", blind), ("shuffled rows", mixed))
    }
    found, all_ = right.sum(axis=1), counted.sum(axis=1)
    low, high = bootstrap(
        lambda rows: float(found[rows].sum() / max(int(all_[rows].sum()), 1)), len(left), stream
    )
    return Outcome(
        "non-zero entries found",
        float(found.sum() / max(int(all_.sum()), 1)),
        float(chance),
        low,
        high,
        len(left),
        controls,
        f"{len(known)} of {len(sums)} rows known, rank {span.shape[1]}",
    )


def binary_columns(span: np.ndarray) -> np.ndarray:
    """All columns of zeros and ones that lattice reduction finds in the span of the sums.

    On d* + 12 rows it reduces the lattice of integer vectors v, each joined to a large multiple of
    v's part outside the span. Short vectors, their sums and differences, and their complements are
    extended to all rows through the span, and kept if they are binary there too.

    Parameters
    ----------
    span : ndarray, (M, r)
        Orthonormal basis of the span of the sums (`basis`).

    Returns
    -------
    ndarray, (M, found), int8
        Of a column and its complement, the one with fewer ones; constant columns are left out.

    Raises
    ------
    ConfigurationError
        When the rows are too few for a test, the lattice would be too large, or python-flint is
        not installed.
    """
    needs("attacks", "attacks", "scipy")
    from scipy.linalg import qr

    rows, rank = span.shape
    size = rank + _SPARE
    if size >= rows or size > _LARGEST:
        raise ConfigurationError(
            f"binary columns: a span of rank {rank} needs a lattice of {size} rows; there must be "
            f"more than {size} rows (they are {rows}), and {_LARGEST} are reduced at most"
        )
    # Rows that carry the span well: pivots of a QR decomposition with column pivoting.
    _, _, order = qr(span.T, pivoting=True, mode="economic")
    chosen = order[:size]
    back = np.linalg.pinv(span[chosen])
    found: dict[bytes, np.ndarray] = {}
    for bits in _BITS:  # the errors of the sums are not known so well
        for vector in _combinations(_short_vectors(span[chosen], bits)):
            column = span @ (back @ vector)
            binary = np.rint(column)
            if np.abs(column - binary).max() > 0.2 or not np.isin(binary, (0, 1)).all():
                continue
            binary = binary if binary.mean() <= 0.5 else 1 - binary
            if binary.any() and distances(span, binary[:, None])[0] < _NEAR:
                found.setdefault(binary.astype(np.int8).tobytes(), binary.astype(np.int8))
    return np.stack(list(found.values()), axis=1) if found else np.zeros((rows, 0), np.int8)


def binary_recovery(
    sums: np.ndarray, columns: np.ndarray, stream: np.random.Generator
) -> Outcome | None:
    """Fraction of the clients' two-valued columns that `binary_columns` finds.

    Chance is the same for `sums` with shuffled rows. ConfigurationError if the sums have too large
    a rank for their rows, or without python-flint. Vectors that are no client's column (sums of
    some, rounding accidents) are counted in the note. None where no client has such a column.
    """
    truth = {bits.tobytes() for bits in map(_bits, columns.T) if bits is not None}
    if not truth:
        return None
    span = basis(sums, columns.shape[1] + 1)
    found = {column.tobytes() for column in binary_columns(span).T.copy()}
    mixed = binary_columns(span[stream.permutation(len(sums))])
    chance = {column.tobytes() for column in mixed.T.copy()}
    success = len(found & truth) / len(truth)
    return Outcome(
        "binary columns found",
        success,
        len(chance & truth) / len(truth),
        success,
        success,
        len(truth),
        note=f"{len(found - truth)} other binary vectors of the span besides",
    )


def _short_vectors(span: np.ndarray, bits: int) -> np.ndarray:
    """Reduced basis of integer vectors in the span, (r, size), shortest first.

    A vector v of the lattice is (v, 2^bits times what of v is outside the span).
    """
    needs("binary columns: lattice reduction", "attacks", "flint")
    import flint

    size, rank = span.shape
    # Columns of q beyond the rank are an orthonormal basis of what is outside the span: v lies in
    # the span exactly if v times them is 0, and is short in the lattice only then.
    q, _ = np.linalg.qr(np.concatenate([span, np.eye(size)], axis=1))
    outside = q[:, rank:size]
    scaled = np.rint(outside * 2.0**bits).astype(np.int64)
    lattice = np.concatenate([np.eye(size, dtype=np.int64), scaled], axis=1)
    reduced = flint.fmpz_mat([[int(x) for x in row] for row in lattice]).lll()
    rows = np.array([[int(x) for x in row] for row in reduced.tolist()], dtype=object)
    vectors = rows[:, :size]
    fits = [i for i, v in enumerate(vectors) if max(abs(int(x)) for x in v) <= _SHORT]
    kept = vectors[fits].astype(np.int64)
    inside = np.linalg.norm(kept @ outside, axis=1) < _NEAR * np.linalg.norm(kept, axis=1)
    kept = kept[inside]
    result: np.ndarray = kept[np.argsort((kept**2).sum(axis=1), kind="stable")]
    return result


def _combinations(short: np.ndarray) -> Iterator[np.ndarray]:
    """Binary vectors among combinations of short vectors with coefficients -1, 0 and 1.

    All combinations of the ten shortest, and all of two or three of the others. A bias's column of
    ones is a short vector as good as any other, so complements are met too.
    """
    small = short[np.abs(short).max(axis=1) <= 2] if len(short) else short
    few = small[:_ENUMERATED]
    weights = np.array(list(itertools.product((-1, 0, 1), repeat=len(few))), np.int64)
    if weights.size:
        combined = weights.reshape(-1, len(few)) @ few
        yield from combined[_is_binary(combined)]
    signed = np.concatenate([small, -small])[: 2 * _PAIRED]
    for i, one in enumerate(signed):
        pairs = signed[i + 1 :] + one
        yield from pairs[_is_binary(pairs)]
        for two in pairs if len(small) > _ENUMERATED else ():
            triples = signed + two
            yield from triples[_is_binary(triples)]


def _is_binary(vectors: np.ndarray) -> np.ndarray:
    binary: np.ndarray = ((vectors == 0) | (vectors == 1)).all(axis=1)
    return binary & vectors.any(axis=1)


def _bits(column: np.ndarray) -> np.ndarray | None:
    """A two-valued column as 0 and 1, with fewer ones; None for another number of values."""
    values = np.unique(column)
    if len(values) != 2:
        return None
    larger = column == values[1]
    bits: np.ndarray = np.where(larger.mean() <= 0.5, larger, ~larger).astype(np.int8)
    return bits


def _varying(columns: np.ndarray) -> np.ndarray:
    varying: np.ndarray = columns[:, columns.std(axis=0) > 0]
    if not varying.shape[1]:
        raise ConfigurationError("span of sums: no column varies over these rows")
    return varying


def _random_basis(rows: int, rank: int, stream: np.random.Generator) -> np.ndarray:
    q: np.ndarray = np.linalg.qr(stream.normal(size=(rows, rank)))[0]
    return q


def _within(guess: np.ndarray, truth: np.ndarray) -> np.ndarray:
    within: np.ndarray = np.abs(guess - truth) < _FOUND
    return within


def commonest(column: np.ndarray) -> float:
    """The most frequent value of a column; the smallest of several."""
    values, counts = np.unique(column, return_counts=True)
    return float(values[counts.argmax()])
