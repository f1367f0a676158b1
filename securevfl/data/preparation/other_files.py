"""File formats that are refused, and how to read each in Python."""

from __future__ import annotations

from pathlib import Path

from securevfl.errors import DataError

_FRAME, _ARRAYS = "VerticalDataset.from_pandas", "VerticalDataset.from_numpy"
# Names of files that end so: what they are, who reads them in Python, and who takes the result.
KINDS: dict[str, tuple[str, str, str]] = {
    ".xlsx": ("a spreadsheet", "pandas.read_excel", _FRAME),
    ".xls": ("a spreadsheet", "pandas.read_excel", _FRAME),
    ".ods": ("a spreadsheet", "pandas.read_excel", _FRAME),
    ".json": ("a JSON file", "pandas.read_json", _FRAME),
    ".jsonl": ("a JSON file", "pandas.read_json", _FRAME),
    ".h5": ("an HDF5 file", "pandas.read_hdf", _FRAME),
    ".db": ("a database", "pandas.read_sql", _FRAME),
    ".sqlite": ("a database", "pandas.read_sql", _FRAME),
    ".npy": ("a NumPy file", "numpy.load", _ARRAYS),
    ".npz": ("a NumPy file", "numpy.load", _ARRAYS),
    ".sav": ("an SPSS file", "pandas.read_spss", _FRAME),
    ".dta": ("a Stata file", "pandas.read_stata", _FRAME),
    ".sas7bdat": ("a SAS file", "pandas.read_sas", _FRAME),
    ".duckdb": ("a database", "duckdb.connect", _FRAME),
    ".sql": ("a query", "duckdb.sql", _FRAME),
    ".mat": ("a MATLAB file", "scipy.io.loadmat", _ARRAYS),
}
# Names of files that `securevfl.data.preparation.tables` reads, besides CSV files.
PARQUET = (".parquet", ".pq")
ARROW = (".arrow", ".feather", ".ipc")
READ = (*PARQUET, *ARROW)
# Loading one may run any code that is in it.
_CODE = (".pkl", ".pickle", ".joblib", ".pt", ".pth")
_ARCHIVES = (".zip", ".tar", ".tgz", ".7z", ".rar")
# First bytes of files whose names do not say what they are.
_BEGINNINGS = {
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"\x89HDF": ".h5",
    b"SQLite format 3": ".db",
    b"MATLAB 5.0": ".mat",
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".zip",
}


def refuse_other_kind(path: Path) -> None:
    """Raise DataError for a file in a known other format; it names the format and a way to read it.

    A missing file raises nothing.
    """
    kind = kind_of(path)
    if kind in _ARCHIVES:
        raise DataError(f"{path.name} is an archive; unpack it, and give the CSV file in it.")
    if kind in _CODE:
        raise DataError(
            f"{path.name} is a pickle: loading it may run any program that its sender put into it, "
            "so it is never read. Ask for a CSV or Parquet file, or make one where it was written."
        )
    if kind in KINDS:
        what, reader, taker = KINDS[kind]
        raise DataError(
            f"{path.name} is {what}, and tables are read from CSV, Parquet and Arrow files; "
            f"write it as one of these, or read it in Python by {reader} and give "
            f"the result to {taker}."
        )


def kind_of(path: Path) -> str:
    """Format of a file as a name's ending, such as ".xlsx", by its own ending or its first bytes.

    Empty for a possible CSV file, and for a missing file.
    """
    if not path.is_file():
        return ""
    kind = path.suffix.lower()
    if kind in (*KINDS, *READ, *_CODE, *_ARCHIVES):
        return kind
    with path.open("rb") as file:
        start = file.read(16)
    return next((k for begins, k in _BEGINNINGS.items() if start.startswith(begins)), "")
