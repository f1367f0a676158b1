"""Attacks of a server without known rows: on spans of sums and on inner products."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.audit.attack_matrix.observed_run import ObservedRun
from securevfl.audit.attack_matrix.server_steps import visits_of
from securevfl.audit.attack_matrix.setting import AttackCase
from securevfl.audit.attacks.gram import gram_by_rank, rough_gram_by_rank
from securevfl.audit.attacks.other_rows import rows_by_others
from securevfl.audit.attacks.outcome import NoView, Outcome, Result, explained
from securevfl.audit.attacks.short_span import filled_span
from securevfl.audit.attacks.squares import (
    MISFIT,
    Span,
    View,
    columns_of_span,
    judge,
    side_by_side,
    span_of_views,
)
from securevfl.field import PrimeField
from securevfl.models.polynomial_network import expand

_PRIME = 2**61 - 1  # larger than twice any inner product
_ROWS = 1000  # on which directions are searched, at most
_SPARE = 10  # rows beyond the rank of the space


def views_of(seen: ObservedRun) -> list[View] | NoView:
    """Values seen by the server for rows under one model, one view a message.

    Single embeddings if there are any, else joint ones. If segments have separate models, each
    gives a view.
    """
    single = seen.embedding_parts()
    parts = single or ([] if seen.inputs is None else list(seen.inputs.recent))
    if not parts:
        return NoView("the server trains on no joint embedding")
    apart = seen.holders and not single
    segment = seen.segment_of_rows if apart else np.zeros(seen.protocol.data.rows, int)
    found = []
    for named, values in parts:
        rows = seen.shared_rows(named)
        for number in np.unique(segment[rows[rows >= 0]]):
            mine = (rows >= 0) & (segment[rows] == number)
            found.append(View(rows[mine], values[mine].astype(np.float64)))
    return found or NoView("no row of a message is a training row of all")


def squares(case: AttackCase) -> Result:
    """Fraction of columns found in the span of early sums, without known rows: squares lie there.

    The span is of early joint embeddings, or of single ones where they are seen. NoView if messages
    do not determine it.
    """
    seen = case.watched
    views = views_of(seen)
    if isinstance(views, NoView):
        return views
    single = bool(seen.embedding_parts())
    train = [case.data.train[case.client]] if single else case.data.train
    columns = np.concatenate(train, axis=1)
    found = find_span(views, columns.shape[1], seen.protocol.config, case.stream)
    if isinstance(found, NoView):
        return found
    span, note = found
    few = case.stream.permutation(len(span.rows))[:_ROWS]
    span = Span(span.rows[few], _orthonormal(span.basis[few]), span.views)
    # Squares of columns on a grid differ from columns of squares on it by about its distance.
    misfit = max(MISFIT, 12 * 2.0 ** -getattr(seen.protocol.config, "data_bits", 20))
    guesses = columns_of_span(span.basis, case.stream).within(misfit)
    return judge(guesses, span, columns[span.rows], case.stream, note)


def find_span(
    views: list[View], columns: int, config: Any, stream: np.random.Generator
) -> tuple[Span, str] | NoView:
    """The space spanned by all clients' columns and squares, and a note if part of it was fitted.

    Parameters
    ----------
    views : list of View
        Sums or embeddings that the server saw.
    columns : int
        Number of columns behind the embeddings; public.
    config : BaseModel
        Options with the public degree.
    stream : numpy Generator
        Source of random choices.
    """
    degree = int(getattr(config, "degree", 1))
    span = span_of_views(views)
    if span is not None and len(span.rows) > span.rank + _SPARE:
        return span, ""
    most = degree * columns
    rows, values = _common(views, most)
    width = values.shape[1]
    short = (
        f"{width} sums of {len(rows)} common rows do not determine the space, of {columns} columns "
        f"at degree {degree}"
    )
    if degree != 2 or not columns < width <= most:
        return NoView(short)
    few = stream.permutation(len(rows))[:_ROWS]
    basis = _orthonormal(values[few] - values[few].mean(axis=0))
    filled = filled_span(basis, most - width, columns, stream)
    if filled is None:
        return NoView(f"{short}, and no fit of {most - width} missing dimensions was found")
    return Span(rows[few], filled, len(views)), f"; {most - width} of its dimensions were fitted"


def _common(views: list[View], most: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows that the first views share and their values side by side, of as many views as allowed.

    More common rows than `most` and a margin must stay, and at most `most` values a row.
    """
    rows, values = side_by_side(views[:1])
    for count in range(2, len(views) + 1):
        fewer, wider = side_by_side(views[:count])
        if len(fewer) <= most + _SPARE or wider.shape[1] > most:
            break
        rows, values = fewer, wider
    return rows, values


def _orthonormal(values: np.ndarray) -> np.ndarray:
    centred = values - values.mean(axis=0)
    found: np.ndarray = np.linalg.svd(centred, full_matrices=False)[0]
    return found


def other_rows(case: AttackCase) -> Result:
    """Find all rows from inner products, all labels, and other rows (the test split)."""
    if case.data.task == "regression":
        return NoView("labels of a regression are no classes")
    gram = _gram(case.whole)
    if isinstance(gram, NoView):
        return gram
    seen = case.whole
    data, degree = seen.protocol.data, int(getattr(seen.protocol.config, "degree", 1))
    drawn = case.stream.permutation(len(data.test_labels))[: case.settings.auxiliary]
    others = [x[drawn].astype(np.float64) for x in data.test]
    labels, other_labels = data.train_labels, data.test_labels[drawn]
    expanded = np.concatenate([expand(x, degree) for x in others], axis=1)
    found = rows_by_others(gram, labels, expanded, other_labels, case.stream)
    guess = found[:, _first(others, degree)]
    truth, known = np.concatenate(data.train, axis=1), np.concatenate(others, axis=1)
    mean = known.mean(axis=0)
    classes = {c: known[other_labels == c].mean(axis=0) for c in np.unique(other_labels)}
    told = np.stack([classes.get(c, mean) for c in labels])
    success, low, high = explained(guess, truth, mean, case.stream)
    chance, _, _ = explained(told, truth, mean, case.stream)
    note = f"{len(drawn)} other rows and their labels; {len(truth)} rows, degree {degree}"
    return Outcome("part explained", success, chance, low, high, len(truth), {}, note)


def _first(others: list[np.ndarray], degree: int) -> np.ndarray:
    """Positions of the original columns among all clients' expanded columns."""
    widths = [x.shape[1] for x in others]
    starts = np.cumsum([0, *(w * degree + 1 for w in widths)])
    return np.concatenate([s + np.arange(w) for s, w in zip(starts, widths, strict=False)])


def _gram(seen: ObservedRun) -> np.ndarray | NoView:
    """Inner products of expanded rows, from whole batches and the server's own steps."""
    visits = visits_of(seen)
    if isinstance(visits, NoView):
        return visits
    config: Any = seen.protocol.config
    if not seen.holders:
        rank = min(
            sum(_widths(seen)), len(visits[0].rows) - 1, (len(visits) - 1) * visits[0].sums.shape[1]
        )
        return rough_gram_by_rank(visits, rank)
    exact = gram_by_rank(visits, PrimeField(_PRIME))
    norms = np.zeros(1) if exact is None else np.diag(exact) * 4.0**-config.data_bits
    if exact is None or norms.min() < 0 or norms.max() > 4.0 * sum(_widths(seen)):
        return NoView(f"{len(visits)} visits of all rows do not give all inner products")
    scaled: np.ndarray = exact * 4.0**-config.data_bits
    return scaled


def _widths(seen: ObservedRun) -> list[int]:
    """Widths of the clients' expanded rows, each with its column of ones."""
    config: Any = seen.protocol.config
    return [x.shape[1] * int(config.degree) + 1 for x in seen.protocol.data.train]
