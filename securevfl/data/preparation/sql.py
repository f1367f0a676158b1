"""Tables from queries over files, by DuckDB."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

# One thread, so that the same files give the rows in the same order, by which a seed splits them.
# Nothing is fetched or installed for a query, and it cannot allow itself more.
_SETTINGS: dict[str, Any] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
}


def read_query(path: Path) -> pd.DataFrame:
    """Result of the one SELECT in a file.

    Parameters
    ----------
    path : Path
        SQL of DuckDB, such as ``SELECT * FROM 'patients.parquet' WHERE age > 17``. Files that it
        names lie in the folder of `path`, or are whole paths.

    Raises
    ------
    DataError
        Without duckdb; for anything but one SELECT; for what DuckDB refuses; for a column of lists,
        records or bytes.
    """
    try:
        import duckdb
    except ModuleNotFoundError:
        line = "pip install 'securevfl[tables]'"
        raise DataError(f"{path.name} needs the package duckdb to be read; {line}") from None
    try:
        text = path.read_text(encoding="utf-8")
        settings = _SETTINGS | {"file_search_path": str(path.resolve().parent)}
        with duckdb.connect(":memory:", config=settings) as connection:
            connection.execute("SET lock_configuration = true")
            statements = connection.extract_statements(text)
            if [one.type for one in statements] != [duckdb.StatementType.SELECT]:
                kinds = ", ".join(_kind(one) for one in statements) or "nothing"
                raise DataError(
                    f"{path.name} holds {kinds}, and a table is the result of one SELECT; leave "
                    "out the rest, and do what changes data before"
                )
            result = connection.execute(statements[0])
            _check_columns(path, result.description)
            frame: pd.DataFrame = result.df()
    except (duckdb.Error, UnicodeDecodeError) as error:
        why = str(error).splitlines()[0].rstrip(".")
        raise DataError(f"{path.name}: the query was refused: {why}") from error
    return frame


def _kind(statement: Any) -> str:
    return str(statement.type.name)


def _check_columns(path: Path, described: Any) -> None:
    names = [str(name) for name, *_ in described]
    for name, kind, *_ in described:
        what = str(kind)
        if "BLOB" in what or any(sign in what for sign in ("[", "STRUCT", "MAP", "UNION")):
            raise DataError(
                f"{path.name}: column {name!r} holds {what}, and a cell must be one number, truth "
                "value or text; divide it into columns, or leave it out"
            )
    if twice := [name for place, name in enumerate(names) if name in names[:place]]:
        raise DataError(f"{path.name}: two columns are called {twice[0]!r}; name one by AS")
