"""What users of comparable tools reported, done with this library: it works, or says why not.

Each report is named by its repository and number on GitHub. Beside these, tried in the same way
and held by tests elsewhere or by none: FATE#189 (two files with the label column), #1328 (another
match rate each time), #1792 (no label column), #4045 and #925 (new rows by their ids), #4216 (ids
of other types), #4732 (rows of one party alone); secretflow#282 (ids in another column), #365,
#873 (repeated ids), #1556 (Chinese names), #1592 (dates, decimal commas); NVFlare#3336 (NAN as a
text); FedTree#42 (columns divided by hand), #66 (three labels); PySyft#3707 (a last, smaller
batch), #5459 (other numbers of rows), #5934 (two rows); CrypTen#367, #400 (too many bits), tf-
encrypted#824 (large numbers); scikit-learn#12018 (a text or gap first met in new rows), #16987,
#19801 (targets of no classes).
"""

import numpy as np
import pandas as pd
import pytest

from securevfl.data.dataset import VerticalDataset
from securevfl.errors import DataError

ROWS = [(f"c{k}", 0.25 * (k % 7), k % 5 - 1.5, k % 2) for k in range(24)]


def write(path, *names, rows=ROWS, mark=","):
    lines = [mark.join(names)] * bool(names) + [mark.join(map(str, row)) for row in rows]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    ("names", "rows", "told"),
    [
        # ersilia-os/zaira-chem#2: the first row of a file without names was taken for names.
        ((), ROWS, "first line has '0.0' where the name"),
        ((), [(3, 1, 2, 0), *[(k, k % 4, 2, 1) for k in range(9)]], "first line has '3' where"),
        # elastic/kibana#7822, FATE#2320: a name too few, a row with a cell too few.
        (("id", "a", "y"), ROWS, "line 2: 4 fields where 3 are expected; correct the header"),
        (("id", "a", "b", "y"), [*ROWS, ("c", 1, 0)], "line 26: 3 fields where 4 are expected"),
    ],
)
def test_a_file_whose_names_and_cells_do_not_go_together_is_refused(names, rows, told, tmp_path):
    path = write(tmp_path / "own.csv", *names, rows=rows)
    with pytest.raises(DataError, match=told):
        VerticalDataset.from_csv(path, "y", parties=2)


@pytest.mark.parametrize(
    "names",
    [("0", "1", "2"), ("2021", "2020", "2019"), ("400.5", "401.0", "401.5"), ("7", "a", "b")],
)
def test_years_places_and_wavelengths_are_names(names, tmp_path):
    rows = [(k % 3, k % 7, k % 5, k % 2) for k in range(24)]
    data = VerticalDataset.from_csv(
        write(tmp_path / "own.csv", *names, "y", rows=rows), "y", parties=3
    )
    assert data.columns == tuple((name,) for name in names)


def test_blanks_after_commas_and_ids_in_any_column_are_read(tmp_path):
    """waffles#3 and FATE#4580."""
    one = write(tmp_path / "a.csv", "id", "a", "b", "y", mark=", ")
    turned = [(row[3], row[0], row[1]) for row in reversed(ROWS)]
    other = write(tmp_path / "b.csv", "c", "id", "d", rows=turned)
    data = VerticalDataset.from_files([one, other], id_column="id", label="y")
    assert data.columns == (("a", "b"), ("c", "d"))
    assert len(data.train[0]) + len(data.test[0]) == len(ROWS)


def test_numbers_of_rows_that_both_files_kept_are_no_columns(tmp_path):
    """secretflow#500: pandas' "Unnamed: 0" was a column of both parties."""
    frame = pd.DataFrame(ROWS, columns=["id", "a", "b", "y"])
    frame[["id", "a", "y"]].to_csv(tmp_path / "a.csv")
    frame[["id", "b"]].to_csv(tmp_path / "b.csv")
    files = [tmp_path / "a.csv", tmp_path / "b.csv"]
    data = VerticalDataset.from_files(files, id_column="id", label="y")
    assert data.columns == (("a",), ("b",))


def test_several_columns_as_a_key_are_refused_with_what_to_do():
    """secretflow#154."""
    frame = pd.DataFrame(ROWS, columns=["id", "a", "b", "y"]).assign(day=np.arange(len(ROWS)))
    with pytest.raises(DataError, match=r"id_column=\['id', 'day'\].* make one of several"):
        VerticalDataset.from_pandas([frame, frame[["id", "day"]]], "y", id_column=["id", "day"])
