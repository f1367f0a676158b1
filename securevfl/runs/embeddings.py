"""Embeddings of new rows sent from their party to the server: matched by id, or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from securevfl.data.alignment.join import PartyTable, own_ids
from securevfl.data.preparation.cells import text_of
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Embeddings = Mapping[int, "np.ndarray | pd.DataFrame"]


def named(values: np.ndarray, rows: pd.DataFrame, id_column: str, party: int) -> pd.DataFrame:
    """An embedding (m, h) as a data frame, indexed by the ids of its rows.

    Its columns are ``party_0_0``, ``party_0_1``, ...: number of the party and of the column.
    DataError for missing or repeated ids.
    """
    import pandas as pd

    ids = list(own_ids(PartyTable("the rows", rows), id_column))
    index = pd.Index(ids, name=id_column, dtype=object)
    return pd.DataFrame(values, index=index, columns=_columns(party, values.shape[1]))


def _columns(party: int, width: int) -> list[str]:
    return [f"party_{party}_{place}" for place in range(width)]


def matched(
    embeddings: Embeddings, id_column: str | None
) -> tuple[dict[int, np.ndarray], pd.Index[str] | None]:
    """The embeddings (m, h), rows matched by id, and these ids; None for embeddings without ids.

    Ids are the index of a data frame, whose name is `id_column`. Rows with ids are matched by id:
    the result has the common rows, in the order of the first party. Without ids, rows are taken as
    aligned. DataError if only some embeddings have ids, if ids are repeated or none is common, if
    embeddings without ids differ in length, if widths differ, and if a frame has another index or
    the columns of another party.
    """
    import pandas as pd

    frames = {n: given for n, given in embeddings.items() if isinstance(given, pd.DataFrame)}
    values = {n: np.asarray(given) for n, given in embeddings.items()}
    if frames and id_column is not None:
        if len(frames) < len(values):
            lacking = min(set(values) - set(frames))
            raise DataError(
                f"model: the embedding of party {min(frames)} has ids and that of party {lacking} "
                "has none, so that rows cannot be matched; embed tables that all have the column "
                f"{id_column!r}"
            )
        _refuse_other_index(frames, id_column)
        _refuse_others_columns(frames)
        _refuse_other_shapes(values, rows=False)
        return _by_id(frames, id_column)
    _refuse_other_shapes(values, rows=True)
    return values, None


def _refuse_other_index(frames: Mapping[int, pd.DataFrame], id_column: str) -> None:
    for n, frame in frames.items():
        if frame.index.name != id_column:
            raise DataError(
                f"model: the embedding of party {n} is a frame whose index is "
                f"{frame.index.name!r}, and the ids are called {id_column!r}; read it with "
                f"index_col={id_column!r}, dtype={{{id_column!r}: str}}"
            )


def _refuse_others_columns(frames: Mapping[int, pd.DataFrame]) -> None:
    """Raise DataError for `named` embeddings of another party, or with columns in other order."""
    for n, frame in frames.items():
        found, wanted = [*map(str, frame.columns)], _columns(n, frame.shape[1])
        if found != wanted and any(name.startswith("party_") for name in found):
            foreign = next(one for one in zip(found, wanted, strict=True) if one[0] != one[1])
            raise DataError(
                f"model: the embedding of party {n} has the column {foreign[0]!r} where "
                f"{foreign[1]!r} belongs; give each party's embedding under that party's number, "
                "with its columns as `embed` made them"
            )


def _refuse_other_shapes(values: Mapping[int, np.ndarray], *, rows: bool) -> None:
    """Raise DataError for embeddings of another width (or, with `rows`, length) than the first."""
    first = min(values)
    wanted = values[first].shape
    for n, value in values.items():
        if value.ndim != 2 or value.shape[1] != wanted[-1]:
            raise DataError(
                f"model: the embedding of party {n} has the shape {value.shape}, and that of party "
                f"{first} {wanted}; each has one row for each row of the party's table, and as "
                "many columns as the others'"
            )
        if rows and len(value) != wanted[0]:
            raise DataError(
                f"model: the embedding of party {n} has {len(value)} rows, and that of party "
                f"{first} {wanted[0]}. Without ids all parties embed the same rows in the same "
                "order; give tables with the id column"
            )


def _by_id(
    frames: Mapping[int, pd.DataFrame], id_column: str
) -> tuple[dict[int, np.ndarray], pd.Index[str]]:
    texts = {n: frame.set_axis([*map(text_of, frame.index)]) for n, frame in frames.items()}
    for n, frame in texts.items():
        if not frame.index.is_unique:
            twice = frame.index[frame.index.duplicated()][0]
            raise DataError(
                f"model: the embedding of party {n} has the id {twice!r} more than once; an id "
                "names one row"
            )
    (first, one), *others = texts.items()
    common = one.index
    for _, frame in others:
        common = common[common.isin(frame.index)]
    if not len(common):
        raise DataError(
            f"model: no id is in the embeddings of all {len(texts)} parties; ids are compared as "
            f"texts, and party {first} has {one.index[0] if len(one) else 'none'!r}"
        )
    common.name = id_column
    return {n: frame.loc[common].to_numpy() for n, frame in texts.items()}, common
