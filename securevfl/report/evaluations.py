"""Sums over a run's test rows from its summary, checked because folders are untrusted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from securevfl.errors import DataError
from securevfl.reading import first_problem

EVALUATION = "evaluation_data"
_Share = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
_Count = Annotated[int, Field(ge=0)]


class _Checked(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Calibration(_Checked):
    """Bins of confidence: number of rows of each, mean confidence and accuracy in [0, 1]."""

    rows: list[_Count]
    confidence: list[_Share]
    accuracy: list[_Share]


class PrecisionRecall(_Checked):
    """Precision and recall of one class at thresholds of its score."""

    name: str = Field(alias="class")
    share: _Share
    average_precision: _Share
    precision: list[_Share]
    recall: list[_Share]


class Evaluation(_Checked):
    """Sums over test rows, in the form of `securevfl.models.evaluation.evaluation`."""

    classes: list[str]
    confusion: list[list[_Count]]
    calibration: Calibration
    precision_recall: list[PrecisionRecall]

    @model_validator(mode="after")
    def _of_one_length(self) -> Evaluation:
        C, bins = len(self.classes), self.calibration
        if {C} != {len(self.confusion), *map(len, self.confusion)}:
            raise ValueError(f"confusion is not of {C} by {C} classes")
        curves = [(curve.precision, curve.recall) for curve in self.precision_recall]
        for first, *others in [(bins.rows, bins.confidence, bins.accuracy), *curves]:
            if any(len(other) != len(first) for other in others):
                raise ValueError("columns of one table have different lengths")
        return self


def evaluation_of(summary: Mapping[str, Any], where: str) -> Evaluation | None:
    """Confusion matrix and other sums over test rows in a run's summary; None if it has none.

    DataError, which names `where`, if they are damaged.
    """
    content = summary.get(EVALUATION)
    if not content:
        return None
    try:
        return Evaluation.model_validate(content)
    except ValidationError as error:
        raise DataError(f"report: {where}, {EVALUATION}: {first_problem(error)}") from None
