"""Changes of what a file holds, one at a time, as a stranger or a defect of a disk would make."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

ODD = (None, -1, 0, 3, 1.5, float("nan"), "x", "", [], {}, [1], True, {"x": 1}, 1e300, 2**70)


def changed(content: Any) -> Iterator[tuple[str, Any]]:
    """Copies of JSON content, in each of which one entry is absent or something else."""
    for place in _places(content):
        for new in (..., *ODD):
            made = copy.deepcopy(content)
            *before, last = place
            inner = made
            for key in before:
                inner = inner[key]
            if new is ...:
                del inner[last]
            elif type(new) is type(inner[last]) and new == inner[last]:
                continue
            else:
                inner[last] = new
            yield f"{place} = {new!r}", made


def _places(content: Any) -> Iterator[tuple[Any, ...]]:
    """Keys of each entry; of lists the first and last one only, since the others are alike."""
    if isinstance(content, dict):
        keys: list[Any] = [*content]
    else:
        keys = sorted({0, len(content) - 1}) if isinstance(content, list) and content else []
    for key in keys:
        yield (key,)
        yield from ((key, *inner) for inner in _places(content[key]))
