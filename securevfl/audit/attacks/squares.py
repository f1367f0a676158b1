"""Columns from the span of sums with nothing known: directions whose squares lie in it.

A polynomial embedding of degree 2 is [x | x^2 | 1] W. Sums of a batch span what all columns, their
squares and the ones span, as soon as there are at least as many sums of a row as this space has
dimensions, r. A vector of that space whose square lies in it again is a column, up to its shift,
its scale and its sign: a combination of several columns has products of them in its square, which
a random space of the same rank does not hold. Columns of two values are found at degree 1 too, for
their squares are the columns. Rank and success are read off the sums, so that the attacker knows
when it has won.

`span_of_views` finds the space. `columns_of_span` finds the directions by damped Gauss-Newton from
many starts. What to do where the sums are fewer than r is in `securevfl.audit.attacks.short_span`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.audit.attacks.outcome import Outcome

STARTS = 120
MISFIT = 1e-3  # of a direction that counts as a column, where sums are exact
_GAP = 5.0  # ratio of two singular values in a row from which on the smaller one is an error
_NULL = 1e-10  # of the largest eigenvalue: what agrees with all views
_MORE = 4  # dimensions of one view for each that all views together may have besides
_LARGEST = 2500  # rows whose views are put together: an eigenproblem of that size
_STEPS = 200
_SAME = 0.999  # correlation of two directions that count as one
_ELEMENT = 1e-3  # as far as an element may be from the truth, of the column's range


@dataclass(frozen=True)
class View:
    """Sums or embeddings of some rows by one model.

    Attributes
    ----------
    rows : ndarray of int, (B,)
        Training rows, each once.
    values : ndarray, (B, h), floating
        Sums or embeddings of these rows.
    """

    rows: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Span:
    """Space spanned by the columns behind some views, without the ones.

    Attributes
    ----------
    rows : ndarray of int, (M,)
        Numbers of training rows.
    basis : ndarray, (M, r)
        Orthonormal, of mean 0.
    views : int
        Number of views that determined it.
    """

    rows: np.ndarray
    basis: np.ndarray
    views: int

    @property
    def rank(self) -> int:
        """Dimension of the space, including the column of ones."""
        return int(self.basis.shape[1]) + 1


@dataclass(frozen=True)
class Directions:
    """Local minima of the squares' misfit, in ascending order.

    Attributes
    ----------
    values : ndarray, (M, g)
        Of mean 0 and variance 1.
    misfits : ndarray, (g,)
        Root mean square of the part of their squares outside the span.
    """

    values: np.ndarray
    misfits: np.ndarray

    def within(self, misfit: float) -> np.ndarray:
        """Directions, (M, count), whose misfit is below a bound."""
        kept: np.ndarray = self.values[:, self.misfits < misfit]
        return kept


def centred_basis(values: np.ndarray) -> np.ndarray | None:
    """Orthonormal basis, (M, r), of the centred columns; a gap in singular values gives r.

    None where there is no gap: values of so many rows do not determine the space.
    """
    centred = values - values.mean(axis=0)
    u, lengths, _ = np.linalg.svd(centred / (np.abs(centred).max() or 1.0), full_matrices=False)
    if len(lengths) < 3 or not lengths[0]:
        return None
    # Of M rows M - 1 centred directions are all: a gap behind them says nothing.
    known = lengths[: len(values) - 1]
    ratios = known[:-1] / np.maximum(known[1:], 1e-300)
    rank = int(ratios.argmax()) + 1
    return u[:, :rank] if ratios[rank - 1] > _GAP else None


def span_of_views(views: Sequence[View]) -> Span | None:
    """Space of vectors consistent with every view; None if the views do not determine it.

    Views that each determine the whole space are combined over all their rows; if the combination
    does not determine it, the view with most rows is used. If no single view determines it, the
    first views are placed side by side on the rows that they share.
    """
    seen = [(v, b) for v in views if (b := centred_basis(v.values)) is not None]
    if not seen:
        return _side_by_side(views)
    rank = max(b.shape[1] for _, b in seen)
    near = rank - rank // _MORE  # rows of a view may lack a value that is rare
    whole = _linked([(v, b) for v, b in seen if b.shape[1] >= near])
    joined = _joined([v for v, _ in whole], [b for _, b in whole])
    if joined is not None:
        return _without_lone_rows(joined)
    view, basis = max(whole, key=lambda pair: len(pair[0].rows))
    return Span(view.rows, basis, 1)


def _linked(seen: list[tuple[View, np.ndarray]]) -> list[tuple[View, np.ndarray]]:
    """The widest view, and all views connected with it by common rows."""
    seen = sorted(seen, key=lambda pair: -len(pair[0].rows))
    kept, rest, grown = seen[:1], seen[1:], True
    while grown:
        rows = np.concatenate([v.rows for v, _ in kept])
        more = [pair for pair in rest if np.isin(pair[0].rows, rows).any()]
        rest = [pair for pair in rest if not np.isin(pair[0].rows, rows).any()]
        kept, grown = kept + more, bool(more)
    return kept


def _joined(views: Sequence[View], bases: Sequence[np.ndarray]) -> Span | None:
    """Vectors that lie in each view's space on the view's rows; None if they are too many.

    Where some values are rare no batch has all of them, so that all views together may have some
    dimensions more than each of them.
    """
    rows = np.unique(np.concatenate([v.rows for v in views]))
    rank = max(b.shape[1] for b in bases) + 1
    if len(views) < 2 or not rank < len(rows) <= _LARGEST:
        return None
    outside = np.zeros((len(rows), len(rows)))
    for view, basis in zip(views, bases, strict=True):
        places = np.searchsorted(rows, view.rows)
        ones = np.full((len(places), 1), len(places) ** -0.5)
        space = np.concatenate([basis, ones], axis=1)
        outside[np.ix_(places, places)] += np.eye(len(places)) - space @ space.T
    values, vectors = np.linalg.eigh(outside)
    known = np.maximum(values[rank - 1 : rank + rank // _MORE + 1], _NULL * values[-1])
    rank += int((known[1:] / known[:-1]).argmax())
    if not values[rank - 1] < _NULL * values[-1] < values[rank]:
        return None
    inside = vectors[:, :rank]
    left, _, _ = np.linalg.svd(inside - inside.mean(axis=0), full_matrices=False)
    return Span(rows, left[:, : rank - 1], len(views))


def _without_lone_rows(span: Span) -> Span:
    """The span without rows that occupy a dimension alone.

    The vector that is 1 in such a row alone lies in the span, and so does its square: a search for
    squares would find it in place of columns.
    """
    kept = 1 - (span.basis**2).sum(axis=1) - 1 / len(span.rows) > _NULL
    if kept.all():
        return span
    left = span.basis[kept] - span.basis[kept].mean(axis=0)
    basis, lengths, _ = np.linalg.svd(left, full_matrices=False)
    return Span(span.rows[kept], basis[:, lengths > _NULL], span.views)


def _side_by_side(views: Sequence[View]) -> Span | None:
    """The space on the common rows of the first views, using as few views as show it."""
    for count in range(2, len(views) + 1):
        rows, values = side_by_side(views[:count])
        basis = centred_basis(values) if len(rows) > 3 else None
        if basis is not None:
            return Span(rows, basis, count)
    return None


def side_by_side(views: Sequence[View]) -> tuple[np.ndarray, np.ndarray]:
    """Rows common to all views, (M,), and their values, (M, sum of widths)."""
    rows = views[0].rows
    for view in views[1:]:
        rows = np.intersect1d(rows, view.rows)
    parts = []
    for view in views:
        order = np.argsort(view.rows)
        chosen = order[np.searchsorted(view.rows[order], rows)]
        parts.append(view.values[chosen].astype(np.float64))
    return np.sort(rows), np.concatenate(parts, axis=1)[np.argsort(rows)]


def columns_of_span(
    basis: np.ndarray, stream: np.random.Generator, *, starts: int = STARTS
) -> Directions:
    """Directions of a space whose squares lie nearest to it, each a local minimum.

    Parameters
    ----------
    basis : ndarray, (M, r)
        Orthonormal, of mean 0: `Span.basis`.
    stream : numpy Generator
        Generator of the starts, every second of which is orthogonal to earlier results.
    starts : int
        Number of starting points.
    """
    white = basis * np.sqrt(len(basis))
    found: list[np.ndarray] = []  # coefficients, of length 1
    misfits: list[float] = []
    for number in range(starts):
        start = stream.normal(size=white.shape[1])
        good = [x for x, f in zip(found, misfits, strict=True) if f < MISFIT]
        if number % 2 and 0 < len(good) < len(start):
            known = np.linalg.qr(np.stack(good, axis=1))[0]
            start -= known @ (known.T @ start)
        end, misfit = _descend(white, basis, start / np.linalg.norm(start))
        if all(abs(float(end @ x)) < _SAME for x in found):
            found.append(end)
            misfits.append(misfit)
    order = np.argsort(misfits, kind="stable")
    return Directions(white @ np.stack(found, axis=1)[:, order], np.array(misfits)[order])


def _descend(white: np.ndarray, basis: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, float]:
    """(end point, misfit) of damped Gauss-Newton steps from x on the unit sphere."""
    damping, identity = 1.0, np.eye(len(x))
    vector, rest, misfit = _square(white, basis, x)
    for _ in range(_STEPS):
        change = 2 * vector[:, None] * white  # d(v^2) = 2 v dv
        slope = change - basis @ (basis.T @ change) - change.mean(axis=0)
        slope -= np.outer(slope @ x, x)  # along the sphere
        normal, toward = slope.T @ slope / len(rest), slope.T @ rest / len(rest)
        while damping < 1e10:
            y = x - np.linalg.solve(normal + damping * identity, toward)
            y /= np.linalg.norm(y)
            new = _square(white, basis, y)
            if new[-1] < misfit:
                break
            damping *= 4
        else:
            break
        gained = misfit - new[-1]
        x, (vector, rest, misfit) = y, new
        damping = max(damping / 3, 1e-12)
        if gained < 1e-12:
            break
    return x, float(np.sqrt(misfit))


def _square(
    white: np.ndarray, basis: np.ndarray, x: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """(direction white x, part of its square outside the basis, (M,), mean square of that)."""
    vector = white @ x
    square = vector**2 - 1.0
    rest = square - basis @ (basis.T @ square)
    return vector, rest, float(rest @ rest) / len(rest)


# -- how much of the truth it is -----------------------------------------------------------------


def likenesses(guesses: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Largest absolute correlation of each column with a guess; 0 without guesses."""
    if not guesses.shape[1]:
        return np.zeros(columns.shape[1])
    a, b = _standard(guesses), _standard(columns.astype(np.float64))
    found: np.ndarray = np.abs(a.T @ b).max(axis=0) / len(columns)
    return found


def elements_found(guesses: np.ndarray, columns: np.ndarray) -> float:
    """Fraction of all elements of `columns` (M, d) within 0.001 of their column's best guess.

    Each guess (M, g) and column is scaled to [0, 1] by its minimum and maximum over the rows. A
    guess may also be mirrored.
    """
    if not guesses.shape[1]:
        return 0.0
    g, x = _unit(guesses), _unit(columns.astype(np.float64))
    best = [
        max(
            float((np.abs(side - column[:, None]) < _ELEMENT).mean(axis=0).max())
            for side in (g, 1 - g)
        )
        for column in x.T
    ]
    return float(np.mean(best))


def _standard(values: np.ndarray) -> np.ndarray:
    centred = values - values.mean(axis=0)
    spread = centred.std(axis=0)
    found: np.ndarray = centred / np.where(spread > 0, spread, np.inf)
    return found


def _unit(values: np.ndarray) -> np.ndarray:
    low, high = values.min(axis=0), values.max(axis=0)
    found: np.ndarray = (values - low) / np.where(high > low, high - low, 1.0)
    return found


def judge(
    guesses: np.ndarray, span: Span, columns: np.ndarray, stream: np.random.Generator, note: str
) -> Outcome:
    """Fraction of the columns with a correlation above 0.95 to some guess, as an outcome.

    Parameters
    ----------
    guesses : ndarray, (M, g)
        Guessed columns.
    span : Span
        Space that the columns lie in.
    columns : ndarray, (M, d)
        The truth of the same rows; columns that never vary are left out.
    stream : numpy Generator
        Source of random choices.
    note : str
        Text at the end of the outcome's note.

    Returns
    -------
    Outcome
        Chance is the same number of random directions of the same space.
    """
    truth = columns[:, columns.std(axis=0) > 0]
    like = likenesses(guesses, truth)
    blind = span.basis @ stream.normal(size=(span.basis.shape[1], guesses.shape[1]))
    above = float((like > 0.95).mean())
    counts = ", ".join(f"{int((like > x).sum())} above {x}" for x in (0.999, 0.99, 0.95))
    return Outcome(
        "columns with a correlation above 0.95",
        above,
        float((likenesses(blind, truth) > 0.95).mean()),
        above,
        above,
        truth.shape[1],
        {},
        f"of {truth.shape[1]} columns {counts}; mean {like.mean():.3f}; elements within 0.001: "
        f"{elements_found(guesses, truth):.3f}; {guesses.shape[1]} guesses; rank {span.rank} by "
        f"{span.views} views of {len(span.rows)} rows{note}",
    )
