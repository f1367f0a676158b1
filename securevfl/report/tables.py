"""Tables of a report as CSV files (all digits) and as LaTeX (booktabs, four digits)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from securevfl.report import claims, figures
from securevfl.report.evaluations import Evaluation
from securevfl.report.pictures import file_name
from securevfl.report.records import Record

_CLAIM = ("who", "about", "notion", "verdict", "source")


def write_tables(records: Sequence[Record], summary: Mapping[str, str], folder: Path) -> list[Path]:
    """Write every table as CSV and as LaTeX, and return the files.

    Parameters
    ----------
    records : sequence of Record
        Runs, one a row of the first table.
    summary : mapping of str to str
        Figures of the first table: their keys in a summary, and what they are called, with units.
    folder : Path
        Existing folder.
    """
    import pandas as pd

    written = []
    for name, rows in _all(records, summary):
        table = pd.DataFrame(rows, dtype=object)  # a whole number stays one beside a gap
        table.to_csv(folder / f"{name}.csv", index=False)
        text = table.to_latex(
            index=False, escape=True, longtable=len(table) > 40, na_rep="--", float_format="%.4g"
        )
        (folder / f"{name}.tex").write_text(text, encoding="utf-8")
        written += [folder / f"{name}.csv", folder / f"{name}.tex"]
    return written


def _all(
    records: Sequence[Record], summary: Mapping[str, str]
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield "summary", _summary(records, summary)
    for record in records:
        name = file_name(record.label)
        yield f"evaluations-{name}", figures.evaluated(record)
        if made := claims.claims(record):
            yield f"claims-{name}", [{key: claim[key] for key in _CLAIM} for claim in made]
        if sums := figures.links(record):
            yield f"links-{name}", [_kind(kind) for kind in sums["kinds"]]
        if record.evaluation is not None:
            for what, rows in _evaluation(record.evaluation).items():
                yield f"{what}-{name}", rows


def _summary(records: Sequence[Record], names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Table with a row for each figure and a column for each run."""
    rows = [
        {"figure": label, **{r.label: figures.summed(r, name) for r in records}}
        for name, label in names.items()
    ]
    return [row for row in rows if any(value is not None for value in [*row.values()][1:])]


def _kind(kind: Mapping[str, Any]) -> dict[str, Any]:
    return {name: kind[name] for name in ("kind", "messages", "bytes", "late")}


def _evaluation(found: Evaluation) -> dict[str, list[dict[str, Any]]]:
    bins = found.calibration
    tables: dict[str, list[dict[str, Any]]] = {
        "confusion": [
            {"true": name, **{str(c): n for c, n in zip(found.classes, row, strict=True)}}
            for name, row in zip(found.classes, found.confusion, strict=True)
        ],
        "calibration": [
            {"rows": rows, "confidence": confidence, "accuracy": accuracy}
            for rows, confidence, accuracy in zip(
                bins.rows, bins.confidence, bins.accuracy, strict=True
            )
        ],
        "precision-recall": [
            {"class": curve.name, "recall": recall, "precision": precision}
            for curve in found.precision_recall
            for recall, precision in zip(curve.recall, curve.precision, strict=True)
        ],
    }
    return {name: rows for name, rows in tables.items() if rows}
