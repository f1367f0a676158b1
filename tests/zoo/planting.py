"""Planting tools of the zoo: a leak, a sound variant, and changes of a protocol's parties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import Outcome

# A claim that is endorsed has one of these verdicts; whatever a leak breaks must have none of them.
ENDORSED = frozenset({"PROVED", "HYPOTHESES HOLD"})
NOT_SAID = frozenset({"TESTED BUT NOT READ", "NOT TESTED", "COULD NOT BE CHECKED"})
WITHHELD = NOT_SAID | {"VIOLATED", "NO VIOLATION FOUND"}
# Of a differential claim no verdict is stronger than NO VIOLATION FOUND, so that must go as well.
ACCUSED = NOT_SAID | {"VIOLATED"}

Pairs = tuple[tuple[str, str], ...]
Plant = Callable[[Protocol, dict[int, Any]], None]
Change = Callable[[np.ndarray, int, int], np.ndarray]


@dataclass(frozen=True)
class Leak:
    """A protocol with one fault, and what a verifier may say of it.

    Attributes
    ----------
    name : str
    protocol : str
        Name of the protocol that is broken.
    cause : str
        Kind of fault; many leaks have one cause.
    says : str
        What is leaked, in one sentence.
    make : callable
        Makes the class of the broken protocol.
    breaks : tuple of (str, str)
        Adversary and asset of each claim that is false now.
    options : mapping
        With which it must be run: without some of them nothing leaks.
    expected : frozenset of str
        Verdicts of which each broken claim must have one.
    shows : callable, optional
        Finds the leak in a finished small run whose payloads were kept. It is false of the sound
        protocol.
    own : type of Protocol, optional
        The sound protocol, where it is none of the library's.
    data : str
        Data set on which it leaks.
    """

    name: str
    protocol: str
    cause: str
    says: str
    make: Callable[[], type[Protocol]]
    breaks: Pairs
    options: Mapping[str, Any] = field(default_factory=dict)
    expected: frozenset[str] = WITHHELD
    shows: Callable[[Outcome], bool] | None = None
    around: Callable[[], AbstractContextManager[None]] = nullcontext
    own: type[Protocol] | None = None
    data: str = "digits"

    @property
    def sound(self) -> str | type[Protocol]:
        """The sound protocol."""
        return self.own or self.protocol


@dataclass(frozen=True)
class Variant:
    """A protocol that was changed and still keeps its claims.

    Attributes
    ----------
    name, protocol : str
    says : str
        What was changed, in one sentence.
    make : callable
        Makes the class.
    options : mapping
    own, data
        As in `Leak`.
    """

    name: str
    protocol: str
    says: str
    make: Callable[[], type[Protocol]]
    options: Mapping[str, Any] = field(default_factory=dict)
    own: type[Protocol] | None = None
    data: str = "digits"

    @property
    def sound(self) -> str | type[Protocol]:
        """The sound protocol."""
        return self.own or self.protocol


def changed(base: str, plant: Plant, **attributes: Any) -> Callable[[], type[Protocol]]:
    """Maker of a protocol whose parties `plant` has changed; it keeps the name."""

    def make() -> type[Protocol]:
        cls = get_protocol(base)

        def parties(self: Any) -> dict[int, Any]:
            made: dict[int, Any] = cls.parties(self)
            plant(self, made)
            return made

        return type(f"Changed{cls.__name__}", (cls,), {
            "parties": parties, "__module__": __name__, "__doc__": cls.__doc__, **attributes,
        })  # fmt: skip

    return make


def begun(base: str, after: Callable[[Any], None]) -> Any:
    """`__init__` that goes on with `after`."""
    cls: Any = get_protocol(base)

    def init(self: Any, config: Any, data: Any, *, seed: int) -> None:
        cls.__init__(self, config, data, seed=seed)
        after(self)

    return init


def replaced(owner: Any, name: str, new: Callable[[Any], Any]) -> Any:
    """Maker of a context in which an attribute of the library is `new` of what it was."""

    @contextmanager
    def context() -> Iterator[None]:
        old = vars(owner)[name]
        setattr(owner, name, new(old))
        try:
            yield
        finally:
            setattr(owner, name, old)

    return context


def messages(outcome: Outcome, kind: str, round: int | None = None) -> Iterator[dict[str, Any]]:
    """Messages of a kind between different parties, with payload, size and times."""
    sent = outcome.simulation.transcript
    columns, payloads = sent.columns(), sent.payloads
    assert payloads is not None
    for row, payload in enumerate(payloads):
        if columns["kind"][row] == kind and round in (None, int(columns["round"][row])):
            yield {name: values[row] for name, values in columns.items()} | {"payload": payload}
