"""Results of chance in a step of a recorded party, to be given once more.

A party's state and messages follow from its data, from what it was sent, and from chance: bytes of
the operating system, and results of other packages that draw for themselves. Whoever repeats the
step with the same results of chance gets the same.
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from securevfl.audit import randomness
from securevfl.audit.following.stand_ins import in_place_of
from securevfl.data.alignment import psi
from securevfl.engine import wire
from securevfl.models.homomorphic import Ckks, Paillier

_SYSTEM = "bytes of the operating system"

#: Functions whose results depend on chance, with a name of each.
_DRAWING: tuple[tuple[Any, str, str], ...] = (
    (os, "urandom", _SYSTEM),
    (psi, "draw_blinding", "blindings"),
    *((scheme, "generate", "keys of encryption") for scheme in (Ckks, Paillier)),
    *((scheme, "encrypt", "ciphertexts") for scheme in (Ckks, Paillier)),
    (Paillier, "add", "sums of ciphertexts"),
)

_SENT = ("ciphertexts", "sums of ciphertexts")


class _Result(NamedTuple):
    arguments: bytes
    value: Any


class Chance:
    """Results of chance of one step of a party, and how a repetition made use of them.

    Attributes
    ----------
    unlike : dict of str to int
        Results that were asked for otherwise in the repetition, by the name of their function: with
        other arguments, more often, or less often.
    """

    def __init__(self) -> None:
        self.unlike: dict[str, int] = {}
        self._drawn: dict[tuple[str, bytes], deque[_Result]] = {}
        self._kept = self._again = False

    @property
    def in_states(self) -> tuple[str, ...]:
        """Names of such results that a party may keep: not ciphertexts, which it sends."""
        return tuple(name for name in self.unlike if name not in _SENT)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Stand between parties and chance meanwhile; not for several threads at once."""
        with in_place_of(
            *((owner, name, self._watched(title, vars(owner)[name]))
              for owner, name, title in _DRAWING)
        ):  # fmt: skip
            yield

    def begin(self) -> None:
        """Keep results from now on: the step of a party begins."""
        self._drawn.clear()
        self._kept = True

    def end(self) -> None:
        """Keep no more results."""
        self._kept = False

    @contextmanager
    def again(self) -> Iterator[None]:
        """Give the results of the step once more, in their order."""
        self.unlike = {}
        self._again = True
        try:
            with randomness.unwatched():
                yield
        finally:
            self._again = False
            for (title, _), left in self._drawn.items():
                self._note(title, len(left))
            self._drawn.clear()

    def _watched(self, title: str, function: Callable[..., Any]) -> Callable[..., Any]:
        # Results are told apart by their size alone where that is all that is asked for: who draws
        # two bytes for something else does not move the masks of a step.
        system = title == _SYSTEM

        @functools.wraps(function)
        def asked(*arguments: Any) -> Any:
            if not (self._kept or self._again):
                return function(*arguments)
            said = wire.encode(arguments if system else arguments[-1] if arguments[1:] else None)
            key = title, said if system else b""
            if self._again:
                return self._given(key, said, functools.partial(function, *arguments))
            self._kept = False  # what the function itself draws is part of its result
            try:
                value = function(*arguments)
            finally:
                self._kept = True
            self._drawn.setdefault(key, deque()).append(_Result(said, value))
            return value

        return asked

    def _given(self, key: tuple[str, bytes], said: bytes, fresh: Callable[[], Any]) -> Any:
        left = self._drawn.get(key)
        if not left:
            self._note(key[0], 1)
            return fresh()
        found = left.popleft()
        self._note(key[0], found.arguments != said)
        return found.value

    def _note(self, title: str, times: int) -> None:
        if times:
            self.unlike[title] = self.unlike.get(title, 0) + times
