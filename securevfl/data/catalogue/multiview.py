"""Multi-view sets, one view per party: Handwritten (UCI Multiple Features) and Caltech101-7."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import numpy as np

from securevfl.data.base.class_values import Classes
from securevfl.data.base.labels import RawLabels, encode_labels, read_labels
from securevfl.data.base.options import SplitKeywords, TableOptions, table_options
from securevfl.data.builders.arrays import draw_test_rows, from_matrix
from securevfl.data.catalogue.facts import Facts
from securevfl.data.dataset import VerticalDataset
from securevfl.data.preparation.cells import TEXT_CELLS
from securevfl.data.preparation.csvfile import read_csv
from securevfl.errors import DataError, needs

_VIEWS = ("fac", "fou", "kar", "mor", "pix", "zer")

HANDWRITTEN = Facts(
    name="handwritten",
    rows=2000,
    features=649,
    classes=10,
    parties=6,
    licence="CC BY 4.0 (UCI 72)",
    origin="Duin: Multiple Features, UCI 72; six views fac, fou, kar, mor, pix, zer",
    split="60/40, stratified, by seed",
    folder="handwritten",
    forms=(tuple(f"mfeat-{v}.csv.gz" for v in _VIEWS), tuple(f"mfeat-{v}" for v in _VIEWS)),
    obtain="OpenML 12, 14, 16, 18, 20 and 22, or archive.ics.uci.edu/dataset/72",
    openml=(12, 14, 16, 18, 20, 22),
)
CALTECH = Facts(
    name="caltech-7",
    rows=1474,
    features=3766,
    classes=7,
    parties=6,
    licence="CC BY 4.0 (CaltechDATA)",
    origin="Caltech101-7: six views of the images of seven classes of Caltech 101",
    split="80/20, stratified, by seed",
    folder="caltech101-7",
    forms=(("Caltech101-7.mat",), ("Caltech101-7_reextracted.mat",)),
    obtain="the MATLAB file Caltech101-7.mat (X, Y) of the multi-view learning literature",
)
_CALTECH_CLASSES = (
    "Faces", "Motorbikes", "Dollar-Bill", "Garfield", "Snoopy", "Stop-Sign", "Windsor-Chair",
)  # fmt: skip
_CALTECH_VIEWS = ("gabor", "wm", "centrist", "hog", "gist", "lbp")


@dataclass(frozen=True)
class _Views:
    """Views as read, row for row, and one label per row."""

    names: tuple[str, ...]
    arrays: tuple[np.ndarray, ...]
    labels: RawLabels
    notes: tuple[str, ...] = ()


@table_options(SplitKeywords, test_fraction=0.4)
def load_handwritten(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    verify: bool = True,
    download: bool = True,
    **options: Unpack[SplitKeywords],
) -> VerticalDataset:
    """Load 2000 handwritten digits in six views of 216, 76, 64, 6, 240 and 47 features.

    Six parties have one view each; all columns are divided among another number. Arguments and
    errors are those of `load_dataset`.
    """
    files, notes = HANDWRITTEN.find(data_dir, verify=verify, download=download)
    views = _handwritten_openml() if files is None else _handwritten_files(files, tuple(notes))
    return _load(HANDWRITTEN, views, (), parties, options)


@table_options(SplitKeywords, test_fraction=0.2)
def load_caltech(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    verify: bool = True,
    **options: Unpack[SplitKeywords],
) -> VerticalDataset:
    """Load 1474 images of seven classes in six views of 48, 40, 254, 1984, 512 and 928 features.

    Six parties have one view each; all columns are divided among another number. Arguments and
    errors are those of `load_dataset`.
    """
    files, notes = CALTECH.find(data_dir, verify=verify)
    assert files is not None  # there is nothing to download
    views = _matlab_views(next(iter(files.values())), tuple(notes))
    return _load(CALTECH, views, _CALTECH_CLASSES, parties, options)


def _load(
    facts: Facts,
    views: _Views,
    class_names: tuple[str, ...],
    parties: int | None,
    options: SplitKeywords,
) -> VerticalDataset:
    """Data set of the views, by default one a party; DataError if their numbers of rows differ."""
    labels = views.labels
    sizes = {len(labels), *map(len, views.arrays)}
    if len(sizes) > 1:
        raise DataError(f"{facts.name}: the views and labels have {sorted(sizes)} rows.")
    names = views.names if parties in (None, len(views.arrays)) else None
    asked = TableOptions.of(
        options, name=facts.name, party_names=names, about=facts.about(views.notes)
    )
    train, test, split = draw_test_rows(labels, asked)
    encoded = encode_labels(labels.take(train), labels.take(test), "multiclass")
    if encoded.classes is not None and len(class_names) == len(encoded.classes.names):
        encoded = encoded._replace(classes=Classes(np.array(class_names, object), class_names))
    whole = np.concatenate(views.arrays, axis=1)
    return from_matrix(
        VerticalDataset,
        asked,
        train=whole[train],
        test=whole[test],
        labels=encoded,
        names=[
            f"{view} {k}"
            for view, array in zip(views.names, views.arrays, strict=True)
            for k in range(array.shape[1])
        ],
        views=[array.shape[1] for array in views.arrays],
        parties=parties,
        split=split,
    )


def _handwritten_files(files: dict[str, Path], notes: tuple[str, ...]) -> _Views:
    """Views of CSV files with labels, or of original files; DataError for an improper table."""
    arrays, held = [], []
    for path in files.values():
        if path.suffix == ".gz":
            frame = read_csv(path)
            if "label" not in frame.columns:
                raise DataError(f"{path}: there is no column 'label'; fetch the file again.")
            held.append(read_labels(frame["label"], "label"))
            cells = frame.drop(columns="label").to_numpy()
        else:
            cells = np.array([line.split() for line in path.read_text("ascii").splitlines()])
            blocks = np.repeat(np.arange(10), -(-len(cells) // 10))[: len(cells)]
            held.append(read_labels(blocks, "label"))
        try:
            arrays.append(cells.astype(np.float64))
        except ValueError as error:
            raise DataError(f"{path}: a value is no number: {error}.") from error
    return _same_labels(arrays, held, notes)


def _handwritten_openml() -> _Views:
    from securevfl.data.catalogue.openml import fetch

    arrays, held = [], []
    for data_id in HANDWRITTEN.openml:
        frame, target = fetch(HANDWRITTEN, data_id)
        arrays.append(frame.to_numpy(dtype=np.float64))
        texts = target.astype(str)
        texts.attrs[TEXT_CELLS] = True
        held.append(read_labels(texts, "label"))
    numbers = ", ".join(map(str, HANDWRITTEN.openml))
    return _same_labels(arrays, held, (f"from OpenML {numbers}",))


def _same_labels(
    arrays: Sequence[np.ndarray], held: Sequence[RawLabels], notes: tuple[str, ...]
) -> _Views:
    """Views (M, d) with their common labels; DataError if a view's labels `held` are others."""
    for view, labels in zip(_VIEWS, held, strict=True):
        if not np.array_equal(labels.values, held[0].values):
            raise DataError(
                f"handwritten: the labels of view {view!r} differ from those of {_VIEWS[0]!r}; "
                f"all six files must be of one edition, in the same order of rows."
            )
    return _Views(_VIEWS, tuple(arrays), held[0], notes)


def _matlab_views(path: Path, notes: tuple[str, ...]) -> _Views:
    """Views of a MATLAB file: cell X of matrices (rows, features), labels Y; else DataError."""
    needs("MATLAB's files", "sklearn", "scipy")
    from scipy.io import loadmat

    try:
        stored = loadmat(path)
        cells, labels = stored["X"].ravel(), np.asarray(stored["Y"]).ravel()
        arrays = tuple(np.asarray(c.todense() if hasattr(c, "todense") else c) for c in cells)
    except (KeyError, ValueError, TypeError, NotImplementedError, OSError) as error:
        raise DataError(
            f"{path} is no MATLAB file (up to version 7) with a cell X of views and labels Y: "
            f"{error}."
        ) from error
    if any(view.ndim != 2 or view.dtype.kind not in "biuf" for view in arrays):
        raise DataError(f"{path}: X must be a cell of numeric matrices, one per view.")
    names: tuple[str, ...] = _CALTECH_VIEWS
    if "view_names" in stored:
        names = tuple(str(np.asarray(name).ravel()[0]) for name in stored["view_names"].ravel())
    if len(names) != len(arrays):
        names = tuple(f"view {k}" for k in range(len(arrays)))
    if "reextracted" in path.name:
        notes = (
            *notes,
            "re-extracted features: same images, views and sizes as Caltech101-7.mat, but the "
            "numbers were computed anew and are not those of that file",
        )
    return _Views(names, arrays, read_labels(labels, "Y"), notes)


LOADERS: Sequence[tuple[Facts, Callable[..., VerticalDataset]]] = (
    (HANDWRITTEN, load_handwritten),
    (CALTECH, load_caltech),
)
