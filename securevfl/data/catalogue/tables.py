"""Published tables: Credit Card default, Parkinson speech, Adult, Mortgage, Breast Cancer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from numpy.typing import NDArray

from securevfl.data.base.options import ScalingKeywords, SplitKeywords, TableOptions, table_options
from securevfl.data.base.partition import split_stratified
from securevfl.data.catalogue.facts import Facts
from securevfl.data.dataset import VerticalDataset
from securevfl.data.preparation.csvfile import read_csv
from securevfl.errors import DataError, needs

if TYPE_CHECKING:
    import pandas as pd

_UCI = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult"
_RDATASETS = (
    "https://raw.githubusercontent.com/vincentarelbundock/Rdatasets/"
    "1dcc2bf5f955cc1224a3e1307256e1fe86b68dae"
)
CREDIT = Facts(
    name="credit-card",
    rows=30000,
    features=23,
    classes=2,
    parties=11,
    licence="CC BY 4.0 (UCI 350)",
    origin="Yeh: Default of Credit Card Clients, UCI 350",
    split="80/20, stratified, by seed (ours; the papers state none)",
    folder="credit-card",
    forms=(("UCI_Credit_Card.csv.gz",), ("UCI_Credit_Card.csv",)),
    obtain="OpenML 42477, or UCI_Credit_Card.csv of archive.ics.uci.edu/dataset/350 or Kaggle",
    openml=(42477,),
)
PARKINSON = Facts(
    name="parkinson",
    rows=756,
    features=753,
    classes=2,
    parties=10,
    licence="CC BY 4.0 (UCI 470)",
    origin="Sakar et al. 2018: Parkinson's Disease Classification, UCI 470; 252 people, 3 "
    "recordings each",
    split="70/30 of the people, by seed",
    folder="parkinson",
    forms=(("pd_speech_features.csv.gz",), ("pd_speech_features.csv",)),
    obtain="OpenML 42176, or pd_speech_features.csv of archive.ics.uci.edu/dataset/470",
    openml=(42176,),
)
ADULT = Facts(
    name="adult",
    rows=48842,
    features=14,
    classes=2,
    parties=7,
    licence="CC BY 4.0 (UCI 2)",
    origin="Becker, Kohavi: Adult (Census Income), UCI 2",
    split="official, 32561 + 16281",
    folder="adult",
    forms=(("adult.data.gz", "adult.test.gz"), ("adult.data", "adult.test")),
    obtain="OpenML 1590, or adult.data and adult.test of archive.ics.uci.edu/dataset/2",
    openml=(1590,),
    urls={name: f"{_UCI}/{name}" for name in ("adult.data", "adult.test")},
)
MORTGAGE = Facts(
    name="mortgage",
    rows=2380,
    features=13,
    classes=2,
    parties=3,
    licence="GPL-2 or GPL-3 (R package AER)",
    origin="Munnell et al. 1996: mortgage applications in Boston (HMDA); Stock, Watson",
    split="75/25, stratified, by seed",
    folder="mortgage",
    forms=(("HMDA.csv",),),
    obtain="csv/AER/HMDA.csv of github.com/vincentarelbundock/Rdatasets",
    urls={"HMDA.csv": f"{_RDATASETS}/csv/AER/HMDA.csv"},
)
BREAST = Facts(
    name="breast-cancer",
    rows=569,
    features=30,
    classes=2,
    parties=2,
    licence="CC BY 4.0 (UCI 17)",
    origin="Wolberg et al.: Breast Cancer Wisconsin (Diagnostic), UCI 17",
    split="75/25, stratified, by seed",
    folder="breast",
    forms=(
        ("breast_hetero_guest.csv.gz", "breast_hetero_host.csv.gz"),
        ("breast_hetero_guest.csv", "breast_hetero_host.csv"),
    ),
    bundled=True,
)

_ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education-num", "marital-status", "occupation",
    "relationship", "race", "sex", "capital-gain", "capital-loss", "hours-per-week",
    "native-country", "income",
)  # fmt: skip
_ADULT_TRAINING = 32561
_ADULT_TRAINING_RICH = 7841


@table_options(SplitKeywords, test_fraction=0.2)
def load_credit_card(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    verify: bool = True,
    download: bool = True,
    **options: Unpack[SplitKeywords],
) -> VerticalDataset:
    """Load 30000 credit card clients with 23 features; 22 % default.

    Columns are divided among 11 parties, unless given, as `numpy.array_split` does. Arguments and
    errors are those of `load_dataset`.
    """
    frame, label, notes = _single_table(
        CREDIT, "default.payment.next.month", data_dir, verify, download
    )
    notes.append("codes of sex, education, marriage and payment status are kept as numbers")
    drop = [c for c in frame.columns if c.upper() == "ID"]
    return VerticalDataset.from_pandas(
        frame,
        label,
        name=CREDIT.name,
        task="binary",
        parties=CREDIT.parties if parties is None else parties,
        drop=drop,
        about=CREDIT.about([*notes, *(f"column {c!r} dropped" for c in drop)]),
        **options,
    )


@table_options(SplitKeywords, test_fraction=0.3)
def load_parkinson(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    split: str = "person",
    verify: bool = True,
    download: bool = True,
    **options: Unpack[SplitKeywords],
) -> VerticalDataset:
    """Load 756 voice recordings of 252 people with 753 features; 75 % have the disease.

    Columns are divided among 10 parties, unless given. ``split="person"`` keeps all recordings of a
    person on one side. ``"row"`` does not, so test rows leak into training, and accuracies are too
    high. DataError for another `split`; other arguments and errors are those of `load_dataset`.
    """
    if split not in ("person", "row"):
        raise DataError(f"parkinson: split={split!r} does not exist; use person or row.")
    frame, label, notes = _single_table(PARKINSON, "class", data_dir, verify, download, header=1)
    by_person = split == "person"
    if by_person and "id" not in frame.columns:
        frame = frame.assign(id=_three_in_a_row(frame, label))
        notes.append("this copy has no id: three consecutive rows are taken as one person")
    if not by_person:
        notes.append(
            "LEAKING SPLIT: recordings of one person are in the training and in the test rows, so "
            "test figures are too good; use split='person'"
        )
    data = VerticalDataset.from_pandas(
        frame,
        label,
        name=PARKINSON.name,
        task="binary",
        parties=PARKINSON.parties if parties is None else parties,
        drop=[] if by_person or "id" not in frame.columns else ["id"],
        group="id" if by_person else None,
        about=PARKINSON.about(notes),
        **options,
    )
    asked = TableOptions.of(options)
    rule = (
        f"{asked.test_fraction:.0%} of the people held out at random with all their recordings, "
        f"stratified by class, seed {asked.seed}"
        if by_person
        else f"{data.about.split}; by row, which LEAKS people into the test rows"
    )
    return replace(data, about=replace(data.about, split=rule))


@table_options(ScalingKeywords)
def load_adult(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    verify: bool = True,
    download: bool = True,
    **options: Unpack[ScalingKeywords],
) -> VerticalDataset:
    """Load 48842 people of the 1994 census with 14 features; 24 % earn over 50000 dollars.

    Columns are divided among 7 parties (our choice), unless given; the split is the official one.
    Arguments and errors are those of `load_dataset`.
    """
    files, notes = ADULT.find(data_dir, verify=verify, download=download)
    if files is None:
        train, test, split = _adult_openml(TableOptions.of(options).seed)
        notes = [f"from OpenML {ADULT.openml[0]}"]
    else:
        train, test = (_adult_file(path) for path in files.values())
        split = "official training and test files"
    data = VerticalDataset.from_pandas(
        train,
        "income",
        test_frame=test,
        name=ADULT.name,
        task="binary",
        parties=ADULT.parties if parties is None else parties,
        about=ADULT.about(notes),
        **options,
    )
    return replace(data, about=replace(data.about, split=split))


@table_options(SplitKeywords)
def load_mortgage(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    verify: bool = True,
    download: bool = True,
    **options: Unpack[SplitKeywords],
) -> VerticalDataset:
    """Load 2380 mortgage applications of 1990 with 13 features; 12 % were denied.

    Columns are divided among 3 parties (our choice), unless given. Arguments and errors are those
    of `load_dataset`.
    """
    frame, label, notes = _single_table(MORTGAGE, "deny", data_dir, verify, download)
    return VerticalDataset.from_pandas(
        frame,
        label,
        name=MORTGAGE.name,
        task="binary",
        parties=MORTGAGE.parties if parties is None else parties,
        drop=["rownames"],
        about=MORTGAGE.about(notes),
        **options,
    )


@table_options(SplitKeywords)
def load_breast_cancer(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    verify: bool = True,
    **options: Unpack[SplitKeywords],
) -> VerticalDataset:
    """Load 569 tumours with 30 features of two parties: 10 worst values, 20 means and errors.

    The parties are those of FATE's files; all columns are divided among another number. Without
    files the same features come from scikit-learn. Arguments and errors are those of
    `load_dataset`.
    """
    files, notes = BREAST.find(data_dir, verify=verify, download=True)  # or bundled
    if files is None:
        notes = ["from scikit-learn"]
        frames = _bundled_breast()
    else:
        notes.append("values standardised by the source")
        frames = [read_csv(path) for path in files.values()]
    data = VerticalDataset.from_pandas(
        frames,
        "y",
        id_column="id",
        party_names=("guest", "host"),
        name=BREAST.name,
        task="binary",
        about=BREAST.about([*notes, "class 1 is benign, class 0 malignant"]),
        **options,
    )
    return data if parties in (None, 2) else data.with_parties(parties)


def _single_table(
    facts: Facts,
    label: str,
    data_dir: str | Path | None,
    verify: bool,
    download: bool,
    header: int = 0,
) -> tuple[pd.DataFrame, str, list[str]]:
    """(table of a set that is one file, or from OpenML; name of its label column; notes)."""
    files, notes = facts.find(data_dir, verify=verify, download=download)
    if files is not None:
        return read_csv(next(iter(files.values())), header=header), label, notes
    from securevfl.data.catalogue.openml import fetch

    features, target = fetch(facts, facts.openml[0])
    label = str(target.name)
    return features.assign(**{label: target}), label, [f"from OpenML {facts.openml[0]}"]


def _three_in_a_row(frame: pd.DataFrame, label: str) -> NDArray[np.int64]:
    """Person number of each row, for three consecutive rows a person; DataError if they differ."""
    people = np.arange(len(frame)) // 3
    fixed = [c for c in (label, "gender") if c in frame.columns]
    alike = frame[fixed].astype(str).groupby(people).nunique().le(1).to_numpy().all()
    if len(frame) % 3 or not alike:
        raise DataError(
            f"parkinson: this copy of {len(frame)} rows has no id and is not three rows per "
            f"person, so it cannot be split by person; use the file of UCI 470, or split='row'."
        )
    return people


def _adult_file(path: Path) -> pd.DataFrame:
    """Table of a file without header; DataError for another number of columns."""
    frame = read_csv(path, header=None, comment="|")
    if frame.shape[1] != len(_ADULT_COLUMNS):
        raise DataError(f"{path}: {frame.shape[1]} columns and {len(_ADULT_COLUMNS)} are expected.")
    frame = frame.set_axis(list(_ADULT_COLUMNS), axis=1)
    return frame.assign(income=frame["income"].str.rstrip(". "))


def _adult_openml(seed: int) -> tuple[pd.DataFrame, pd.DataFrame, str]:
    from securevfl.data.catalogue.openml import fetch

    features, target = fetch(ADULT, ADULT.openml[0])
    frame = features.assign(income=target.astype(str).str.rstrip(". "))
    rich = frame["income"].str.contains(">50K").to_numpy()
    first = _ADULT_TRAINING
    if len(frame) == ADULT.rows and int(rich[:first].sum()) == _ADULT_TRAINING_RICH:
        return frame.iloc[:first], frame.iloc[first:], f"official: the first {first} rows"
    train, test = split_stratified(rich, 1.0 - first / ADULT.rows, seed)
    return (
        frame.iloc[train],
        frame.iloc[test],
        f"not the official split, which this copy does not show: {len(test)} of {len(frame)} rows "
        f"held out at random, stratified by class, seed {seed}",
    )


def _bundled_breast() -> list[pd.DataFrame]:
    """Breast cancer data as FATE splits it: worst values for one party, the rest for the other."""
    needs("the bundled set breast", "sklearn", "sklearn")
    from sklearn.datasets import load_breast_cancer as bundled

    frame = bundled(as_frame=True).frame
    worst = [c for c in frame.columns if c.startswith("worst")]
    rest = [c for c in frame.columns if c not in (*worst, "target")]
    ids = np.arange(len(frame))
    guest = frame[worst].assign(id=ids, y=frame["target"])
    return [guest, frame[rest].assign(id=ids)]


LOADERS: Sequence[tuple[Facts, Callable[..., VerticalDataset]]] = (
    (CREDIT, load_credit_card),
    (PARKINSON, load_parkinson),
    (ADULT, load_adult),
    (MORTGAGE, load_mortgage),
    (BREAST, load_breast_cancer),
)
