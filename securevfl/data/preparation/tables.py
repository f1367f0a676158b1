"""Tables from files and frames of any kind: CSV, Parquet, Arrow, polars."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from securevfl.data.preparation.csvfile import read_csv
from securevfl.data.preparation.other_files import ARROW, PARQUET, kind_of
from securevfl.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

_LINE = "pip install 'securevfl[tables]'"


def read_table(path: Path, separator: str | None = None) -> pd.DataFrame:
    """Read a file with a header or a schema as a table: CSV, Parquet or Arrow (Feather).

    The file's ending gives the format, or its first bytes if the ending is unknown. A CSV file
    gives texts (`read_csv`). Other formats need pyarrow and keep their types; a named index that
    pandas stored becomes a column. DataError if the file cannot be read, a column holds lists,
    records or bytes, or pyarrow is missing.
    """
    kind = kind_of(path)
    if kind not in (*PARQUET, *ARROW):
        return read_csv(path, separator)
    return _read_columns(path, kind)


def _read_columns(path: Path, kind: str) -> pd.DataFrame:
    """Data frame of a Parquet or Arrow file; DataError if unreadable, or without pyarrow."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise DataError(f"{path.name} needs the package pyarrow to be read; {_LINE}") from None
    try:
        table = pyarrow.parquet.read_table(path) if kind in PARQUET else _arrow(path)
    except (pyarrow.ArrowException, OSError) as error:
        why = str(error).splitlines()[0]
        raise DataError(f"{path.name} cannot be read as a {kind[1:]} file: {why}") from error
    for field in table.schema:
        if _is_no_cell(field.type):
            raise DataError(
                f"{path.name}: column {field.name!r} holds {field.type}, and a cell must be one "
                "number, truth value or text; divide it into columns, or leave it out"
            )
    try:
        frame: pd.DataFrame = table.to_pandas(date_as_object=False)
    except (pyarrow.ArrowException, ValueError, OverflowError) as error:
        why = str(error).splitlines()[0]
        raise DataError(f"{path.name} cannot be made a data frame: {why}") from error
    named = [name for name in frame.index.names if name is not None]
    return frame.reset_index(drop=not named)


def _is_no_cell(kind: object) -> bool:
    from pyarrow import types

    binary = types.is_binary, types.is_large_binary, types.is_fixed_size_binary
    return any(is_kind(kind) for is_kind in (types.is_nested, *binary))


def _arrow(path: Path) -> Any:
    """Arrow table from a Feather file, or from a stream of the same format."""
    import pyarrow

    with pyarrow.memory_map(str(path)) as source:
        if source.read(6) == b"ARROW1":
            return pyarrow.ipc.open_file(source).read_all()
        source.seek(0)
        return pyarrow.ipc.open_stream(source).read_all()


def as_frame(table: Any) -> Any:
    """A table of another library (polars, pyarrow, DuckDB) as a data frame; tensors as arrays.

    Columns of pandas' Arrow backend become NumPy columns; others are unchanged. DataError if the
    library cannot convert, for example without pyarrow.
    """
    import pandas as pd

    change = getattr(table, "to_pandas", None) or getattr(table, "to_df", None)
    if isinstance(table, pd.DataFrame):
        return _without_arrow(table)
    if change is None or isinstance(table, pd.Series):
        return as_array(table)
    try:
        return _without_arrow(change())
    except Exception as error:
        why = (str(error) or repr(error)).splitlines()[0]
        name = f"{type(table).__module__}.{type(table).__name__}"
        raise DataError(f"{name} cannot be made a data frame: {why}; {_LINE}") from error


def _without_arrow(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with Arrow columns converted to NumPy columns."""
    import numpy as np
    import pandas as pd

    made = frame.copy(deep=False)
    for place in range(frame.shape[1]):
        series = frame.iloc[:, place]
        kind = series.dtype.kind
        if not isinstance(series.dtype, pd.ArrowDtype) or kind in "mM":
            continue  # dates are refused later
        gaps = bool(series.isna().any())
        if kind in "iuf" and gaps:
            plain = series.to_numpy(dtype=np.float64, na_value=np.nan)
        elif kind in "biuf" and not gaps:
            plain = series.to_numpy()
        else:
            plain = series.astype(object).where(series.notna(), None).to_numpy()
        made.isetitem(place, plain)
    return made


def _without_mask(values: np.ma.MaskedArray) -> np.ndarray:
    """The array with masked values as NaN, or None in an array that is not numeric."""
    import numpy as np

    mask, data = np.ma.getmaskarray(values), np.asarray(values.data)
    if not mask.any():
        return data
    number = data.dtype.kind in "biuf"
    made = data.astype(np.result_type(data, np.float32) if number else object)
    made[mask] = np.nan if number else None
    return made


def as_array(values: object) -> object:
    """A PyTorch tensor or masked array as a plain NumPy array; other values unchanged.

    Tensors are detached and on the CPU, sparse ones dense, half precision as float32; masked values
    are missing values. DataError for a tensor without values (device meta), and for SciPy's sparse
    matrices, whose dense form may not fit in memory.
    """
    import numpy as np

    if isinstance(values, np.ma.MaskedArray):
        return _without_mask(values)
    if hasattr(values, "toarray") and hasattr(values, "nnz"):
        raise DataError(
            f"a sparse matrix of shape {getattr(values, 'shape', '')}; turn it into a dense array "
            "with .toarray()"
        )
    if not (hasattr(values, "detach") and hasattr(values, "layout")):
        return values
    import torch

    tensor = cast("torch.Tensor", values).detach()
    if tensor.is_meta:
        raise DataError(
            f"a tensor of shape {tuple(tensor.shape)} on the device meta, which has no values; "
            "give one that has"
        )
    tensor = tensor.cpu()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.is_floating_point() and tensor.dtype not in (torch.float32, torch.float64):
        tensor = tensor.float()
    return tensor.resolve_conj().resolve_neg().numpy()
