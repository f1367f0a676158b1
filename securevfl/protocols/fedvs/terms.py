"""Rules that a client checks before it uploads: label, sharers and rows of a sum."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.errors import ProtocolError
from securevfl.field.cohorts import TOLD_APART
from securevfl.protocols.base.received import check_array, check_element
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.parameters import Parameters
from securevfl.protocols.fedvs.sums import Sum
from securevfl.verified import Element


def check_attempt(public: Parameters, attempt: Attempt) -> None:
    """Raise ProtocolError for an attempt whose sum could single out a client, or a bad label.

    A repeated client, or a number that is no client's, could reduce a sum to one client's value. So
    could a row with two numbers, which `check_rows` excludes at the announcement.
    """
    N = public.code.parties
    sharers = set(attempt.sharers) & set(range(N))
    if type(attempt.life) is not int:
        raise ProtocolError(
            f"fedvs: the server announced its incarnation {attempt.life!r}, which must be an "
            "integer. Nothing was uploaded"
        )
    if len(sharers) < len(attempt.sharers):
        raise ProtocolError(
            f"fedvs: the server announced the sharers {list(attempt.sharers)}, which must be "
            f"clients from 0 to {N - 1}, each once. Nothing was uploaded"
        )
    if not public.enough(attempt.sharers):
        raise ProtocolError(
            f"fedvs: the server announced the sharers {list(attempt.sharers)}, which are "
            f"{len(sharers)}; masks with T = {public.code.privacy} need at least T+2. Nothing was "
            "uploaded"
        )
    if cut := public.cohorts.cut(sharers):
        raise ProtocolError(
            f"fedvs: the server announced the sharers {list(attempt.sharers)}, which cut the "
            f"cohort {list(cut[0])}; a sum is over whole cohorts, lest the difference of two tells "
            "of single clients. Nothing was uploaded"
        )


def check_rows(public: Parameters, batch: Batch) -> None:
    """Raise ProtocolError unless a batch's rows are unsigned row numbers of a shared part.

    A client remembers the rows of its uploads by their numbers. A NumPy index may also be negative,
    or a boolean mask; a row could then be summed under another number.
    """
    if batch.part not in public.batches:
        raise ProtocolError(
            f"fedvs: the server named rows of the part {batch.part!r}, and shared are "
            f"{list(public.batches)}. Nothing was uploaded"
        )
    rows, length = batch.rows, public.batches[batch.part].length
    if not isinstance(rows, np.ndarray) or rows.dtype.kind != "u" or rows.ndim != 1:
        shape = f"{getattr(rows, 'dtype', type(rows).__name__)} {getattr(rows, 'shape', '')}"
        raise ProtocolError(
            f"fedvs: the server named its rows as {shape.strip()}; they must be a row of unsigned "
            f"numbers below {length}. Nothing was uploaded"
        )
    if rows.size and int(rows.max()) >= length:
        raise ProtocolError(
            f"fedvs: the server named row {int(rows.max())}, and rows are numbered from 0 to "
            f"{length - 1}. Nothing was uploaded"
        )


def check_data(public: Parameters, part: str, sender: int, share: Any) -> None:
    """Raise ProtocolError unless a value is a share of the rows of a segment of a part.

    The number of columns is not checked: a client does not know how many another one has.
    """
    columns = share.shape[-1:] if isinstance(share, Element | np.ndarray) else ()
    shape = (public.batches[part].length, *columns)
    check_element(f"fedvs: '{part}-data'", sender, share, shape, public.field)


def check_models(
    public: Parameters, round: int, shares: Mapping[int, Any], columns: Mapping[int, int]
) -> None:
    """Raise ProtocolError if one of `shares`, by sender, is no model share of its columns.

    The message names the first such sender.
    """
    what, h, field = f"fedvs: 'model' of round {round}", public.config.width, public.field
    for n, share in shares.items():
        if type(share) is not Element or share.shape != (columns[n], h):
            check_element(what, n, share, (columns[n], h), field)


def check_gradient(public: Parameters, round: int, rows: int, gradient: Any) -> None:
    """Raise ProtocolError unless a value has the form of dL/dH: K segments of `rows` rows."""
    shape = (public.code.segments * rows, public.config.width)
    check_array(f"fedvs: 'gradient' of round {round}", SERVER, gradient, shape, np.float32)


def why_not_announced(
    public: Parameters, before: Sum | None, attempt: Attempt, shared: Collection[int]
) -> str | None:
    """Reason for giving up an attempt before any upload; None if it was announced.

    Parameters
    ----------
    public, attempt : Parameters, Attempt
        Public parameters, and the attempt.
    before : Sum or None
        Announced sum of the same rows, whose models the attempt must repeat.
    shared : collection of int
        Clients that shared their model in time.
    """
    within = f"within share_timeout = {public.config.share_timeout} s"
    if before is not None and not attempt.sharers:
        return (
            f"the rows were to be summed over clients {list(before.attempt.sharers)} before, and "
            f"not all of these shared again {within}"
        )
    if not public.enough(attempt.sharers):
        if cut := public.cohorts.cut(shared):
            late = sorted({n for group in cut for n in group}.difference(shared))
            return (
                f"no cohort shared whole {within}: clients {late} were late. Fewer clients in a "
                f"cohort, or cohorts = 0, would go on without them; {TOLD_APART}"
            )
        least = public.code.privacy + 2 if public.config.masked else 1
        return f"{len(shared)} clients shared {within}, and a sum needs {least}"
    return None
