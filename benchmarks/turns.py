"""Paired timing: methods are called in turns, so that a neighbour's load falls on all of them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping

Methods = Mapping[str, Callable[[], object]]
Turns = dict[str, list[float]]

# Seconds: shorter calls are repeated within a turn. Longer ones are not, since what follows itself
# finds its data in the caches.
_SHORTEST = 0.001


def turns(methods: Methods, repeats: int) -> Turns:
    """Return the seconds of thread CPU time per call of each method, one number a turn.

    Parameters
    ----------
    methods : mapping of str to callable
        What is timed, by name.
    repeats : int
        Turns of each method.
    """
    rounds: dict[str, int] = {}
    for name, call in methods.items():
        call()
        start = time.thread_time()
        call()
        rounds[name] = max(1, int(_SHORTEST / max(1e-9, time.thread_time() - start)))
    seconds: Turns = {name: [] for name in methods}
    for _ in range(repeats):
        for name, call in methods.items():
            start = time.thread_time()
            for _again in range(rounds[name]):
                call()
            seconds[name].append((time.thread_time() - start) / rounds[name])
    return seconds


def interleaved(methods: Methods, repeats: int) -> dict[str, float]:
    """Return the median seconds of thread CPU time of each method; they take turns."""
    return {n: statistics.median(s) for n, s in turns(methods, repeats).items()}


class Clock:
    """Times methods in turns and keeps the seconds of every turn.

    Parameters
    ----------
    repeats : int
        Turns of each method.

    Attributes
    ----------
    turns : dict
        By case and method, the seconds of thread CPU time per call, one number a turn.
    """

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats
        self.turns: dict[str, Turns] = {}

    def time(self, case: str, methods: Methods, repeats: int | None = None) -> dict[str, float]:
        """Return the median seconds of each method."""
        seconds = turns(methods, self.repeats if repeats is None else repeats)
        self.turns.setdefault(case, {}).update(seconds)
        return {name: statistics.median(values) for name, values in seconds.items()}
