"""Synthetic click-through data sets with the fields of Criteo and Avazu.

They are generated, and called synthetic wherever they are shown. They are for machines without the
real files, not for claims. ``pip install ./benchmarks/synthetic_clicks`` adds them to ``securevfl
datasets`` as ``criteo-twin`` and ``avazu-twin``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from securevfl.data.base.options import CodedKeywords, table_options
from securevfl.data.catalogue.clicks import (
    AVAZU,
    AVAZU_TEXTS,
    CRITEO,
    CRITEO_NUMBERS,
    CRITEO_TEXTS,
    LABEL,
    clicks_dataset,
    sample_stream,
)
from securevfl.data.catalogue.facts import Facts
from securevfl.data.dataset import VerticalDataset
from securevfl.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SyntheticGenerator:
    """Generator of rows with the fields of a published data set.

    Every row has a hidden vector z of `hidden` normal numbers. For each field, rows are sorted into
    groups by a projection of z with noise. Each group has its own order of the field's values,
    whose frequencies follow a power law, as for real sites and devices. Counts are Poisson with a
    rate that depends on another projection; the click has a logistic model in z.

    Parameters
    ----------
    facts : Facts
        Facts of the synthetic set.
    sizes : mapping
        Number of values of each field; 0 for a count.
    clicks : float
        Fraction of rows that are clicks.
    owners, names : tuple
        Fields of each party, and names of the parties, as in the paper.
    hidden, groups : int
        Length of z, and largest number of groups of a field.
    """

    facts: Facts
    sizes: dict[str, int]
    clicks: float
    owners: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]
    hidden: int = 12
    groups: int = 16

    def rows(self, count: int, seed: int) -> pd.DataFrame:
        """Data frame of `count` rows, fixed by the seed, with the label column."""
        import pandas as pd

        stream = sample_stream("sample_seed", seed, b"twin")
        z = stream.normal(size=(count, self.hidden))
        columns: dict[str, Any] = {LABEL: self._clicks(z, stream)}
        for name, size in self.sizes.items():
            columns[name] = self._texts(z, size, stream) if size else self._counts(z, stream)
        return pd.DataFrame(columns)

    def _clicks(self, z: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        score = z @ stream.normal(size=self.hidden) * (2.5 / np.sqrt(self.hidden))
        low, high = -20.0, 20.0
        for _ in range(60):  # the intercept for which the wanted part clicks
            middle = (low + high) / 2
            below = (1 / (1 + np.exp(-score - middle))).mean() < self.clicks
            low, high = (middle, high) if below else (low, middle)
        clicked: np.ndarray = stream.random(len(z)) < 1 / (1 + np.exp(-score - low))
        return clicked.astype(np.int64)

    def _texts(self, z: np.ndarray, size: int, stream: np.random.Generator) -> np.ndarray:
        groups = min(self.groups, size)
        pull = z @ stream.normal(size=(self.hidden, groups)) / np.sqrt(self.hidden)
        group = (3.0 * pull + stream.gumbel(size=pull.shape)).argmax(axis=1)
        orders = np.stack([stream.permutation(size) for _ in range(groups)])
        weights = 1.0 / np.arange(1, size + 1) ** 1.1
        rank = np.searchsorted(np.cumsum(weights / weights.sum()), stream.random(len(z)))
        values = orders[group, np.minimum(rank, size - 1)]
        texts: np.ndarray = np.char.mod("v%05d", values)
        return texts

    def _counts(self, z: np.ndarray, stream: np.random.Generator) -> np.ndarray:
        rate = z @ stream.normal(size=self.hidden) / np.sqrt(self.hidden) + stream.normal()
        counts: np.ndarray = stream.poisson(np.exp(1.0 + rate)).astype(np.float64)
        counts[stream.random(len(z)) < 0.15] = np.nan
        return counts

    @table_options(CodedKeywords, test_fraction=1 / 6, coding="codes")
    def load(
        self,
        *,
        parties: int | None = None,
        data_dir: str | Path | None = None,
        rows: int = 120_000,
        sample_seed: int = 0,
        **options: Unpack[CodedKeywords],
    ) -> VerticalDataset:
        """Data set of generated rows; name, origin and licence call them synthetic.

        Parties are those of the published set. By default there are 100,000 training and 20,000
        test rows, as VFLHLP has of Avazu. The seed of the rows, `sample_seed`, is independent of
        `seed`. Nothing is read, so `data_dir` is not used. DataError for fewer than 10 rows.
        """
        if rows < 10:
            raise DataError(f"rows={rows} are too few for a training and a test set; use 10 up.")
        frame = self.rows(rows, sample_seed)
        for name, size in self.sizes.items():
            if not size:
                frame[name] = np.log1p(frame[name])
        notes = [f"SYNTHETIC: generated with seed {sample_seed}, not measured anywhere"]
        return clicks_dataset(self.facts, frame, self.owners, self.names, parties, notes, options)


def _twin_facts(facts: Facts, features: int) -> Facts:
    return Facts(
        name=f"{facts.name}-twin",
        rows=120_000,
        features=features,
        classes=2,
        parties=facts.parties,
        licence="synthetic, none needed",
        origin=f"SYNTHETIC: generated with the fields of {facts.name}, not measured",
        split="5/6 and 1/6, stratified, by seed",
        bundled=True,
    )


_AVAZU_SIZES = (
    24, 7, 7, 2600, 3000, 22, 3100, 200, 28, 4000, 20000, 5000, 4, 4, 2200, 8, 9, 420, 4, 66, 160,
    60,
)  # fmt: skip
_CRITEO_SIZES = (
    1000, 500, 20000, 15000, 200, 16, 9000, 400, 3, 12000, 4500, 20000, 3000, 26, 6500, 20000, 10,
    3200, 1500, 4, 20000, 12, 15, 15000, 60, 10000,
)  # fmt: skip
AVAZU_TWIN = SyntheticGenerator(
    _twin_facts(AVAZU, 22),
    dict(zip(AVAZU_TEXTS, _AVAZU_SIZES, strict=True)),
    0.17,
    (AVAZU_TEXTS[:7], AVAZU_TEXTS[7:14], AVAZU_TEXTS[14:]),
    ("active", "passive 1", "passive 2"),
)
CRITEO_TWIN = SyntheticGenerator(
    _twin_facts(CRITEO, 39),
    {
        **dict(zip(CRITEO_TEXTS, _CRITEO_SIZES, strict=True)),
        **dict.fromkeys(CRITEO_NUMBERS, 0),
    },
    0.256,
    (CRITEO_TEXTS, CRITEO_NUMBERS),
    ("active", "passive"),
)

CRITEO_SET = (CRITEO_TWIN.facts, CRITEO_TWIN.load)
AVAZU_SET = (AVAZU_TWIN.facts, AVAZU_TWIN.load)
