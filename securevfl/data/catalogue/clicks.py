"""Click-through sets: Criteo and Avazu, from their files as distributed.

The full files are licensed downloads of tens of gigabytes. They are read in pieces, and only a
sample of their rows is kept in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from securevfl.data.base.options import CodedKeywords, table_options
from securevfl.data.catalogue.facts import Facts
from securevfl.data.dataset import VerticalDataset
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

LABEL = "click"
SAMPLE = 100_000  # rows of a full file, as VFLHLP takes them
_PIECE = 200_000  # rows read at once

CRITEO_NUMBERS = tuple(f"I{k}" for k in range(1, 14))
CRITEO_TEXTS = tuple(f"C{k}" for k in range(1, 27))
AVAZU_TEXTS = (
    "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain",
    "app_category", "device_id", "device_ip", "device_model", "device_type", "device_conn_type",
    *(f"C{k}" for k in range(14, 22)),
)  # fmt: skip

CRITEO = Facts(
    name="criteo",
    rows=45_840_617,
    features=39,
    classes=2,
    parties=2,
    licence="Criteo / Kaggle terms, research",
    origin="Criteo: Display Advertising Challenge, 2014",
    split="80/20, stratified, by seed (ours)",
    folder="criteo",
    forms=(("train.txt",), ("train.txt.gz",), ("criteo_first10k.txt.gz",)),
    obtain="Kaggle: criteo-display-ad-challenge (train.txt)",
)
AVAZU = Facts(
    name="avazu",
    rows=40_428_967,
    features=22,
    classes=2,
    parties=3,
    licence="Kaggle competition rules",
    origin="Avazu: Click-Through Rate Prediction, 2014",
    split="80/20, stratified, by seed (ours)",
    folder="avazu",
    forms=(
        ("train.gz",),
        ("train.csv",),
        ("avazu_random15k.csv.gz",),
        ("avazu_first9999.csv.gz",),
    ),
    obtain="Kaggle: avazu-ctr-prediction (train.gz)",
)


@table_options(CodedKeywords, test_fraction=0.2, coding="codes")
def load_criteo(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    rows: int | None = None,
    sample_seed: int = 0,
    verify: bool = True,
    **options: Unpack[CodedKeywords],
) -> VerticalDataset:
    """Load Criteo: 13 counts and 26 texts; 26 % of the whole set are clicks.

    The counts become sign(x) log(1 + |x|) (our choice), then are scaled. With two parties, as in
    VFLHLP, the active one has the texts and the passive one the counts; for another number the
    columns are divided in order, texts first. The file is ``train.txt`` as distributed
    (tab-separated, no header), or its first rows. A uniform sample of `rows` rows is kept, by
    default at most 100,000; its seed, `sample_seed`, is independent of `seed`.
    """
    names = (LABEL, *CRITEO_NUMBERS, *CRITEO_TEXTS)
    path, notes = _file(CRITEO, data_dir, verify)
    frame = _sample(path, "\t", names, rows, sample_seed, notes)
    for name in CRITEO_NUMBERS:
        numbers = frame[name].astype(float)
        frame[name] = np.sign(numbers) * np.log1p(numbers.abs())
    notes.append("counts as sign(x) log(1 + |x|)")
    owners = [CRITEO_TEXTS, CRITEO_NUMBERS]
    return clicks_dataset(CRITEO, frame, owners, ("active", "passive"), parties, notes, options)


@table_options(CodedKeywords, test_fraction=0.2, coding="codes")
def load_avazu(
    *,
    parties: int | None = None,
    data_dir: str | Path | None = None,
    rows: int | None = None,
    sample_seed: int = 0,
    verify: bool = True,
    **options: Unpack[CodedKeywords],
) -> VerticalDataset:
    """Load Avazu: 22 text columns, one of them the hour of day; 17 % of all rows are clicks.

    With three parties, as in VFLHLP, two have 7 fields each and one has the others; `id` is
    dropped. The file is ``train.gz`` or ``train.csv`` as distributed, or a part of it. A uniform
    sample of `rows` rows is kept, by default at most 100,000; `sample_seed` is its seed. DataError
    if the file is missing or has other columns.
    """
    path, notes = _file(AVAZU, data_dir, verify)
    frame = _sample(path, ",", None, rows, sample_seed, notes)
    absent = [name for name in (LABEL, *AVAZU_TEXTS) if name not in frame.columns]
    if set(absent) - {"device_ip"}:
        raise DataError(f"{path}: column {absent[0]!r} is absent; this is no file of Avazu's.")
    if absent:
        notes.append("this copy has no device_ip")
    fields = [name for name in AVAZU_TEXTS if name in frame.columns]
    frame["hour"] = frame["hour"].astype(str).str[-2:]
    owners = [fields[:7], fields[7:14], fields[14:]]
    names = ("active", "passive 1", "passive 2")
    return clicks_dataset(AVAZU, frame, owners, names, parties, notes, options)


def clicks_dataset(
    facts: Facts,
    frame: pd.DataFrame,
    owners: Sequence[Sequence[str]],
    names: Sequence[str],
    parties: int | None,
    notes: Sequence[str],
    options: CodedKeywords,
) -> VerticalDataset:
    """Data set of `frame`: columns of `owners` as in the paper, or divided if `parties` differ."""
    columns = [name for own in owners for name in own]
    texts = [name for name in columns if name not in CRITEO_NUMBERS]
    frame = frame[[LABEL, *columns]].astype(dict.fromkeys(texts, "category"))
    division: dict[str, Any] = {"owners": owners, "party_names": names}
    if parties not in (None, len(owners)):
        division = {"parties": parties}
    return VerticalDataset.from_pandas(
        frame,
        LABEL,
        name=facts.name,
        task="binary",
        about=facts.about(notes),
        **division,
        **options,
    )


def sample_stream(name: str, seed: int, purpose: bytes) -> np.random.Generator:
    """Stream of a seed, an integer >= 0, for one purpose; DataError names the option `name`."""
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)) or seed < 0:
        raise DataError(f"{name}={seed!r}; a whole number of 0 or more is needed.")
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([int(seed), *purpose])))


def _file(facts: Facts, data_dir: str | Path | None, verify: bool) -> tuple[Path, list[str]]:
    files, notes = facts.find(data_dir, verify=verify)
    assert files is not None  # there is nothing to download
    path = next(iter(files.values()))
    return path, [f"from {path.name}", *notes]


def _pieces(path: Path, separator: str, names: Sequence[str] | None) -> Iterator[pd.DataFrame]:
    """Pieces of a file, frames of texts (05db9164 also), header or `names`; or DataError."""
    import pandas as pd

    numbers = dict.fromkeys((LABEL, *CRITEO_NUMBERS), "float64") if names else {LABEL: "float64"}
    kinds = {name: numbers.get(name, "str") for name in names} if names else None
    try:
        yield from pd.read_csv(
            path,
            sep=separator,
            header=None if names else 0,
            names=list(names) if names else None,
            dtype=kinds or "str",
            chunksize=_PIECE,
        )
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path}: this is no file of the form that is expected: {error}") from error


def _sample(
    path: Path,
    separator: str,
    names: Sequence[str] | None,
    rows: int | None,
    seed: int,
    notes: list[str],
) -> pd.DataFrame:
    """Uniform sample of `rows` rows in file order; memory holds the sample and one piece.

    Each row draws a number, and those with the smallest ones are kept. DataError for too few rows.
    """
    import pandas as pd

    if rows is not None and rows < 10:
        raise DataError(f"rows={rows} are too few for a training and a test set; use 10 or more.")
    wanted = SAMPLE if rows is None else rows
    stream = sample_stream("sample_seed", seed, b"clicks")
    kept, keys, seen = pd.DataFrame(), np.empty(0), 0
    for piece in _pieces(path, separator, names):
        seen += len(piece)
        drawn = stream.random(len(piece))
        kept, keys = pd.concat([kept, piece], ignore_index=True), np.concatenate([keys, drawn])
        if len(kept) > wanted:
            chosen = np.sort(np.argpartition(keys, wanted)[:wanted])
            kept, keys = kept.iloc[chosen].reset_index(drop=True), keys[chosen]
    if rows is not None and seen < rows:
        raise DataError(f"{path}: rows={rows} are wanted and the file has {seen}.")
    if seen > wanted:
        notes.append(f"{wanted} of {seen} rows, a uniform sample with seed {seed}")
    return kept


LOADERS: Sequence[tuple[Facts, Callable[..., VerticalDataset]]] = (
    (CRITEO, load_criteo),
    (AVAZU, load_avazu),
)
