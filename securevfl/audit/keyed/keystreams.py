"""The pseudo-random function of a run as a tape: what it was asked, and what it shall answer.

A proof takes the function for a random one: under a key that nobody knows, what it gives for each
label is uniform and independent of everything else. So a bijection may move these values as it
moves any other draw, and here they are moved: `programmed` lets the one function of
`securevfl.field.prss` answer otherwise, and no party is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.field import prss

Place = tuple[bytes, bytes]  # key and label
Seeds = Callable[[bytes, bytes], bytes | None]


@dataclass(frozen=True)
class Asked:
    """One question.

    Attributes
    ----------
    key, label : bytes
    size, modulus : int
        Elements that were drawn, and p.
    """

    key: bytes
    label: bytes
    size: int
    modulus: int


@dataclass
class Questions:
    """All questions of a run, in order.

    Attributes
    ----------
    streams : list of Asked
        Elements that were drawn.
    derived : list of (bytes, bytes)
        Key and label of each derived key, those of streams among them.
    """

    streams: list[Asked] = field(default_factory=list)
    derived: list[Place] = field(default_factory=list)


@contextmanager
def asked() -> Iterator[Questions]:
    """Log what the function is asked; not for several threads at once."""
    made: Any = prss
    log, fill, derive = Questions(), prss.fill_stream, prss.derive

    def filled(modulus: int, out: np.ndarray, key: bytes, label: bytes) -> None:
        log.streams.append(Asked(key, label, out.size, modulus))
        fill(modulus, out, key, label)

    def derived(key: bytes, label: bytes) -> bytes:
        log.derived.append((key, label))
        return derive(key, label)

    made.fill_stream, made.derive = filled, derived
    try:
        with _each_alone():
            yield log
    finally:
        made.fill_stream, made.derive = fill, derive


@contextmanager
def _each_alone() -> Iterator[None]:
    """Let each party compute its streams, as in a process of its own; none are shared."""
    made: Any = prss
    shared = made._Streams.value
    made._Streams.value = lambda *rest: None
    try:
        yield
    finally:
        made._Streams.value = shared


@contextmanager
def programmed(streams: Mapping[Place, np.ndarray], seeds: Seeds | None = None) -> Iterator[None]:
    """Let the function answer otherwise in some places; not for several threads at once.

    Parameters
    ----------
    streams : mapping
        Elements by key and label. It may grow while it is in use.
    seeds : callable, optional
        Key and label to the key that is derived from them; None for what it is.

    Raises
    ------
    ValueError
        Where as many elements are asked for as the answer does not have: the run is not the one
        that the answers were made for.
    """
    made: Any = prss
    fill, derive = prss.fill_stream, prss.derive

    def filled(modulus: int, out: np.ndarray, key: bytes, label: bytes) -> None:
        answer = streams.get((key, label))
        if answer is None:
            fill(modulus, out, key, label)
            return
        if answer.size != out.size:
            raise ValueError(f"{out.size} elements of a stream were asked for, not {answer.size}")
        out[...] = answer.reshape(-1)

    def derived(key: bytes, label: bytes) -> bytes:
        answer = None if seeds is None else seeds(key, label)
        return derive(key, label) if answer is None else answer

    made.fill_stream, made.derive = filled, derived
    try:
        with _each_alone():
            yield
    finally:
        made.fill_stream, made.derive = fill, derive


def stream_of(modulus: int, key: bytes, label: bytes, size: int, dtype: Any) -> np.ndarray:
    """Elements that the function gives."""
    out = np.empty(size, dtype)
    prss.fill_stream(modulus, out, key, label)
    return out
