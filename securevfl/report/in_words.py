"""Figures of runs in words: names, rounded numbers and sentences shared by all displays."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

#: A summary or a part of it.
Facts = Mapping[str, Any]

#: Names of the figures of a summary; measures on test rows come first.
NAMES = {
    "test_accuracy": "test accuracy",
    "test_auc": "test AUC",
    "test_f1": "test F1",
    "test_rmse": "test RMSE",
    "test_r2": "test R squared",
    "majority_accuracy": "most frequent class",
    "mean_rmse": "RMSE of the mean",
    "test_balanced_accuracy": "balanced accuracy",
    "test_average_precision": "average precision",
    "test_brier": "Brier score",
    "test_calibration_error": "calibration error",
    "rounds": "rounds",
    "virtual_seconds": "virtual time",
    "wall_seconds": "real time",
    "bytes": "sent",
    "messages": "messages",
    "late": "late messages",
    "lost": "lost messages",
    "crashes": "crashes",
    "given_up": "attempts given up",
    "skipped": "skipped rounds",
    "filled": "imputed for absent clients",
    "clipped": "clipped weights",
}
_FRACTIONS = ("accuracy", "f1", "balanced_accuracy")
_PEOPLE = {"server": "the server", "client": "a client", "outsider": "an outsider"}
# What equations about a row of decoded sums mean, by the state of an odometer.
_SUMS = {
    "below": "too few to determine it for a server that has nothing else",
    "beyond": "enough that its columns may be determined",
    "spanned": "enough to compute most of its columns",
}


def percent(fraction: float | None, places: int = 2) -> str:
    """Fraction as a percentage, or a dash.

    Examples
    --------
    >>> percent(0.9042316), percent(None)
    ('90.42 %', '-')
    """
    if fraction is None or not math.isfinite(fraction):
        return "-"
    return f"{100 * fraction:.{places}f} %"


def clock(seconds: float) -> str:
    """Duration as h:mm:ss, or in seconds if short.

    Examples
    --------
    >>> clock(1391.2), clock(0.5)
    ('0:23:11', '0.50 s')
    """
    if seconds < 60:
        return f"{seconds:.2f} s"
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


def size(nbytes: float) -> str:
    """Bytes in decimal units.

    Examples
    --------
    >>> size(1_234_567)
    '1.23 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} B" if unit == "B" else f"{nbytes:.2f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} TB"


def is_fraction(name: str) -> bool:
    """Whether a measure is shown in per cent."""
    return name.removeprefix("test_").removeprefix("majority_") in _FRACTIONS


def number_text(value: float) -> str:
    """Text of a number: four places, none if it is large, four digits if tiny or huge.

    Examples
    --------
    >>> number_text(0.97136), number_text(123456.7), number_text(1e-5)
    ('0.9714', '123,457', '1e-05')
    """
    if value == 0 or 1e-3 <= abs(value) < 1e3:
        return f"{value:.4f}"
    return f"{value:,.0f}" if 1e3 <= abs(value) < 1e9 else f"{value:.4g}"


def measured(value: float | None, name: str) -> str:
    """A measure by its name: fractions in per cent, other numbers with four places.

    Examples
    --------
    >>> measured(0.9042316, "test_accuracy"), measured(0.97136, "test_auc"), measured(None, "f1")
    ('90.42 %', '0.9714', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    return percent(value) if is_fraction(name) else number_text(value)


def beside_baseline(summary: Facts) -> list[tuple[str, str]]:
    """Test measures with their names, the first beside its baseline without a model.

    Examples
    --------
    >>> beside_baseline({"test_accuracy": 0.9, "majority_accuracy": 0.6, "test_auc": 0.95})
    [('test accuracy', '90.00 % (most frequent class: 60.00 %)'), ('test AUC', '0.9500')]
    """
    found = []
    for name in ("test_accuracy", "test_rmse", "test_r2", "test_auc"):
        usual = {"test_accuracy": "majority_accuracy", "test_rmse": "mean_rmse"}.get(name, "")
        if summary.get(name) is not None:
            text = measured(summary[name], name)
            if summary.get(usual) is not None:
                text += f" ({NAMES[usual]}: {measured(summary[usual], usual)})"
            found.append((NAMES[name], text))
    return found


def in_short(claims: Sequence[Facts], released: Facts | None) -> str:
    """Sentence on what a run reveals: decoded sums, and claims marked as not protected.

    Parameters
    ----------
    claims : sequence of mapping
        Claims in the form of a summary.
    released : mapping or None
        Counts of equations from decoded sums; None if the protocol decodes no sums.

    Examples
    --------
    >>> in_short([{"who": "server", "about": "features", "notion": "none"}], None)
    'Not protected: features from the server'
    """
    lacking: dict[str, list[str]] = {}
    for claim in claims:
        if claim["notion"] == "none":
            lacking.setdefault(claim["about"], []).append(claim["who"])
    alike: dict[tuple[str, ...], list[str]] = {}
    for about, whose in lacking.items():
        # Who includes somebody that is listed sees what that one sees.
        single = [who for who in whose if not ("+" in who and set(whose) & set(who.split(" + ")))]
        alike.setdefault(tuple(_PEOPLE.get(who, who) for who in single), []).append(about)
    parts = [f"{' and '.join(what)} from {' and '.join(who)}" for who, what in alike.items()]
    told = f"Not protected: {'; '.join(parts)}" if parts else ""
    if released is None:
        return told or "No claim is one of no protection; the report has their conditions"
    most = "at most " * bool(released.get("at_most"))
    sums = (
        f"Decoded sums gave {released['equations']} equations about {most}{released['unknowns']} "
        f"unknowns of a row: {_SUMS[released['state']]}"
    )
    return f"{sums}. {told}" if told else sums
