"""The option of class weights: all alike, balanced, or a number for each class."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator

EQUAL, BALANCED = "none", "balanced"


def written(value: Any) -> str:
    """Option as text: "none", "balanced", or a number for each class, such as "1,2.5".

    Parameters
    ----------
    value : str, or sequence of float
        Numbers in the order of the classes.

    Raises
    ------
    ValueError
        For another word, for fewer than two numbers, and for one that is not finite and above 0 as
        float32.

    Examples
    --------
    >>> written((1, 2.5)), written("1, 2.50"), written("balanced")
    ('1,2.5', '1,2.5', 'balanced')
    """
    if isinstance(value, str) and value in (EQUAL, BALANCED):
        return value
    given = value.split(",") if isinstance(value, str) else value
    try:  # sets and mappings have no order of classes
        numbers = [*map(float, given)] if isinstance(given, (list, tuple, np.ndarray)) else []
    except (TypeError, ValueError):
        numbers = []
    if len(numbers) < 2:
        raise ValueError(
            "write none, balanced, or a number for each class, in the order of the classes, such "
            "as 1,5"
        )
    with np.errstate(over="ignore"):
        kept = np.array(numbers, np.float64).astype(np.float32)
    for number, weight in zip(numbers, kept.tolist(), strict=True):
        if not 0 < weight < np.inf:
            raise ValueError(f"{number:g} is no weight of a class; give finite numbers above 0")
    return ",".join(repr(number).removesuffix(".0") for number in numbers)


#: Type of the option; its value is the text that `written` gives, in files as in terms.
ClassWeights = Annotated[str, BeforeValidator(written)]


def read(option: str) -> str | tuple[float, ...]:
    """Weights that an option says: "none", "balanced", or a number for each class.

    Examples
    --------
    >>> read("1,2.5"), read("balanced")
    ((1.0, 2.5), 'balanced')
    """
    if option in (EQUAL, BALANCED):
        return option
    return tuple(float(word) for word in option.split(","))
