"""`load_dataset` and the catalogue of data sets that it knows by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from securevfl.data.base.options import TableOptions
from securevfl.data.catalogue.facts import Facts
from securevfl.data.dataset import VerticalDataset
from securevfl.data.leaves import add_leaves
from securevfl.data.overlap import Rest, limit_overlap
from securevfl.data.preparation.other_files import KINDS, READ
from securevfl.errors import DataError, UnknownNameError
from securevfl.plugins import Registry

# Parameters that are no options, or are given in another way.
_POSITIONAL = {"path", "frame", "label", "test_frame", "label_frame", "id_column"}
_FILE_SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".data", ".gz", ".bz2", ".xz")


@dataclass(frozen=True)
class CatalogueEntry:
    """One row of the table that ``securevfl datasets`` prints.

    Parameters
    ----------
    name, rows, features, classes, parties, licence, origin, split, obtain, openml
        Fields of `securevfl.data.catalogue.facts.Facts`.
    files : tuple of str
        Files to find in the data folder; () if the set is bundled.
    available : bool
        Whether it can be loaded without a download.
    """

    name: str
    rows: int
    features: int
    classes: int
    parties: int
    licence: str
    origin: str
    split: str
    files: tuple[str, ...]
    obtain: str
    openml: tuple[int, ...]
    available: bool


_OF_FACTS = [f.name for f in fields(CatalogueEntry) if f.name not in ("files", "available")]


def load_dataset(
    name_or_path: str | Path | None = None,
    *,
    parties: int | None = None,
    label: str | None = None,
    seed: int = TableOptions.seed,
    data_dir: str | Path | None = None,
    test_fraction: float | None = None,
    scaling: str | None = None,
    aligned: int | None = None,
    rest: Rest = "dealt",
    local: int | None = None,
    validation: float | None = None,
    trees: int = 0,
    tree_depth: int = 3,
    tree_labels: str | None = None,
    **options: Any,
) -> VerticalDataset:
    """Load a known data set by name, or the user's own tables.

    Parameters
    ----------
    name_or_path : str or path, optional
        A name of `dataset_catalogue`, or a table in a file. With ``party_files=`` it is only the
        name of the result.
    parties : int, optional
        Number of parties; by default the data set's, and 8 for a file.
    label : str, optional
        Label column of the user's files.
    seed : int
        Seed of a random split, 0 or more.
    data_dir : path, optional
        Folder with the files of known data sets; the environment variable ``SECUREVFL_DATA``
        unless given.
    test_fraction : float, optional
        Fraction of the rows that become test rows; by default the data set's, and 0.25 for the
        user's files.
    scaling : {"minmax", "standard", "none"}, optional
        Scaling, fitted on training rows; by default min-max, clipped into [0, 1].
    aligned, rest, local : optional
        `aligned` is the number of training rows that stay aligned; the others become unaligned rows
        of single parties (arguments of `securevfl.data.overlap.limit_overlap`).
    validation : float, optional
        Fraction of the training rows that replaces the test rows: for choices that must not be made
        on test rows (`VerticalDataset.hold_back`).
    trees, tree_depth, tree_labels : optional
        Number and depth of trees of each party, whose leaves become columns; trees of the party
        named `tree_labels` are boosted on the labels (`securevfl.data.leaves.add_leaves`).
    **options
        Options of the data set: ``verify=False`` skips the checksums of its files,
        ``download=False`` forbids downloads from OpenML, ``strips=`` for images, ``split=`` for
        parkinson, ``test=`` for cifar10, ``rows=`` and ``sample_seed=`` for clicks. Or options of
        `VerticalDataset.from_csv` or `.from_files` (``party_files=``, ``id_column=``,
        ``label_file=``).

    Raises
    ------
    UnknownNameError
        For an unknown name or option.
    DataError
        For data that are missing or unusable.

    Examples
    --------
    >>> load_dataset("digits", parties=4)
    VerticalDataset('digits', 10 classes, 4 parties, 1348 + 449 rows, widths (16, 16, 16, 16))
    """
    common: dict[str, Any] = {"seed": seed}
    if scaling is not None:
        common["scaling"] = scaling
    if test_fraction is not None:
        common["test_fraction"] = test_fraction
    if aligned is None and (rest != "dealt" or local is not None):
        raise DataError("rest= and local= say what becomes of rows that are not aligned; give "
                        "aligned=, the number of rows that are.")  # fmt: skip
    whole = _load(name_or_path, parties, label, data_dir, {**common, **options})
    if validation is not None:
        whole = whole.hold_back(validation, seed=seed)
    if aligned is not None:
        whole = limit_overlap(whole, aligned, rest=rest, local=local, seed=seed)
    if trees:
        return add_leaves(whole, trees, depth=tree_depth, labels_of=tree_labels, seed=seed)
    if tree_labels is not None:
        raise DataError(f"tree_labels={tree_labels!r}: there are no trees; give trees=.")
    return whole


def _load(
    name_or_path: str | Path | None,
    parties: int | None,
    label: str | None,
    data_dir: str | Path | None,
    options: dict[str, Any],
) -> VerticalDataset:
    if "party_files" in options:
        return _load_parties(name_or_path, parties, label, options)
    if name_or_path is None:
        raise DataError("no data set was named; give a name, a CSV file, or party_files=[...].")
    known = loaders()
    name = str(name_or_path)
    DATASETS.refuse_broken(name)
    if name in known:
        if label is not None:
            raise DataError(f"label={label!r}: data set {name!r} knows its label; leave it out.")
        loader = known[name][1]
        scaling = options.get("scaling", TableOptions.scaling)
        chosen = {"parties": parties, "data_dir": data_dir, **options, "scaling": scaling}
        _check_options(loader, chosen, f"data set {name!r}")
        return loader(**chosen)
    path = Path(name_or_path)
    if not (
        path.exists()
        or path.suffix.lower() in (*_FILE_SUFFIXES, *READ, *KINDS)
        or len(path.parts) > 1
    ):
        raise UnknownNameError("data set", name, known)
    if path.is_dir():
        raise DataError(
            f"{path} is a folder; name the file of a table. In Python give images as arrays to "
            "VerticalDataset.from_numpy, or torchvision's ImageFolder to its from_torch."
        )
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; check the path.")
    chosen = {"parties": parties, **options}
    _check_options(VerticalDataset.from_csv, chosen, "a CSV file")
    return VerticalDataset.from_csv(path, label, **chosen)


def loaders() -> Mapping[str, Loadable]:
    """Facts and loader function of each data set, by name.

    Installed packages add theirs: an entry point of the group ``securevfl.datasets`` names a pair
    of `Facts` and a function. The function takes the keywords ``parties`` and ``data_dir``, which
    may be None, ``seed`` and ``scaling``, and further options of the data set; it returns the
    `VerticalDataset`. Options that its signature lacks are refused.
    """
    return DATASETS.all()


def _built_in() -> dict[str, Loadable]:
    from securevfl.data.catalogue import bundled, clicks, images, multiview, tables

    every = (
        *bundled.LOADERS,
        *images.LOADERS,
        *multiview.LOADERS,
        *tables.LOADERS,
        *clicks.LOADERS,
    )
    return {facts.name: (facts, loader) for facts, loader in every}


def _is_loadable(thing: object) -> bool:
    if not (isinstance(thing, tuple) and len(thing) == 2):
        return False
    facts, loader = thing
    return isinstance(facts, Facts) and callable(loader)


Loadable = tuple[Facts, Callable[..., VerticalDataset]]
DATASETS: Registry[Loadable] = Registry(
    "securevfl.datasets",
    "data set",
    _built_in,
    _is_loadable,
    lambda pair: pair[0].name,
    all_needed=False,
)


def dataset_catalogue(data_dir: str | Path | None = None) -> list[CatalogueEntry]:
    """List the known data sets.

    Parameters
    ----------
    data_dir : path, optional
        Folder in which their files are searched; ``SECUREVFL_DATA`` by default.

    Returns
    -------
    list of CatalogueEntry
        Sorted by name.
    """
    return [
        CatalogueEntry(
            **{name: getattr(facts, name) for name in _OF_FACTS},
            files=tuple(f"{facts.folder}/{file}" for form in facts.forms[:1] for file in form),
            available=facts.available(data_dir),
        )
        for _, (facts, _) in sorted(loaders().items())
    ]


def _load_parties(
    name: str | Path | None, parties: int | None, label: str | None, options: dict[str, Any]
) -> VerticalDataset:
    files = options["party_files"]
    if parties not in (None, len(files)):
        raise DataError(f"parties={parties} and {len(files)} party files; leave out parties=.")
    chosen = {"id_column": None, "label": label, **options}
    if name is not None:
        chosen["name"] = str(name)
    _check_options(VerticalDataset.from_files, chosen, "party files")
    return VerticalDataset.from_files(**chosen)


def _check_options(
    function: Callable[..., object], options: Mapping[str, object], what: str
) -> None:
    """Refuse options that the function does not have (UnknownNameError)."""
    known = set(inspect.signature(function).parameters)
    for name in options:
        if name not in known:
            raise UnknownNameError(f"option of {what}", name, known - _POSITIONAL)
