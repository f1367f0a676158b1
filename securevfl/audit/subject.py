"""What is verified: a configured protocol, with recorded runs that all verifiers share."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from securevfl.audit import randomness
from securevfl.audit.deviations import Comparison, compare
from securevfl.audit.recording import RecordedRun, record
from securevfl.audit.statistical import LEVEL
from securevfl.engine.streams import Secrets
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import make_config

ROWS, TEST_ROWS = 200, 24  # of small instances
SMALL = {"rounds": 8, "batch": 15}

_T = TypeVar("_T")


class Subject:
    """A protocol under verification.

    Parameters
    ----------
    protocol : Protocol
        In the configuration that the verdicts are about.
    seed : int
        Of what is not secret in the runs.
    level : float
        Failure probability of each test.
    tests : sequence of str
        Names of the statistical games that are played.
    progress : callable, optional
        Told what is being done.

    Attributes
    ----------
    ran : list of str
        The configurations that were run.
    """

    def __init__(
        self,
        protocol: Protocol,
        *,
        seed: int = 0,
        level: float = LEVEL,
        tests: Sequence[str] = (),
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.protocol = protocol
        self.seed = seed
        self.level = level
        self.tests = tuple(tests)
        self.ran: list[str] = []
        self._progress = progress
        self._shared: dict[str, Any] = {}

    def progress(self, what: str) -> None:
        """Say what is being done."""
        if self._progress is not None:
            self._progress(what)

    def note(self, ran: str) -> None:
        """Note a configuration that was run."""
        if ran not in self.ran:
            self.ran.append(ran)

    def shared(self, name: str, make: Callable[[], _T]) -> _T:
        """What `make` returns, made once for all verifiers that ask for the name.

        An error is kept, too, and raised for each of them.
        """
        if name not in self._shared:
            try:
                self._shared[name] = (make(), None)
            except Exception as error:  # each verifier that needs it must fail
                self._shared[name] = (None, error)
        value: _T
        value, failure = self._shared[name]
        if failure is not None:
            raise failure
        return value

    def instance(
        self,
        *,
        labels: np.ndarray | None = None,
        columns: Mapping[int, np.ndarray] | None = None,
        reseeded: int | None = None,
    ) -> Protocol:
        """A small instance with the protocol's own options, on some rows of its data.

        Parameters
        ----------
        labels : ndarray, optional
            Training labels in the place of the data set's.
        columns : mapping of int to ndarray, optional
            Training columns of some parties, likewise.
        reseeded : int, optional
            Party whose secret choices are others.
        """
        cls, data = type(self.protocol), self.protocol.data
        small = data.subset(min(ROWS, data.rows), min(TEST_ROWS, data.test_rows))
        if labels is not None or columns:
            small = copy.copy(small)
            train = tuple((columns or {}).get(n, own) for n, own in enumerate(small.train))
            object.__setattr__(small, "train", train)
            if labels is not None:
                object.__setattr__(small, "train_labels", labels)
        given = self.protocol.config.model_dump(exclude_unset=True)
        made = cls(make_config(cls, given | self._reduced), small, seed=self.protocol.seed)
        if reseeded is not None:
            made.secrets = Reseeded(made.secrets, reseeded)
        return made

    @property
    def _reduced(self) -> dict[str, Any]:
        """Options that make a run short, where the protocol has them."""
        config = self.protocol.config
        wanted = SMALL | dict(self.protocol.small_options)
        return {n: min(v, getattr(config, n)) for n, v in wanted.items() if hasattr(config, n)}

    @property
    def description(self) -> str:
        """The small instance in words."""
        given = self.protocol.config.model_dump(exclude_unset=True)
        own = ", ".join(f"{name} = {value}" for name, value in sorted(given.items()))
        made = ", ".join(f"{name} = {value}" for name, value in self._reduced.items())
        data = self.protocol.data
        return (
            f"{self.protocol.name}, {data.parties} parties, options {own or 'by default'}; made "
            f"small: {min(ROWS, data.rows)} rows, {made}; nobody late or absent, no resume"
        )

    @functools.cached_property
    def _recorded(self) -> tuple[RecordedRun, randomness.Log]:
        self.progress("a recorded run")
        made = self.instance()
        with randomness.watch() as log:
            run = record(made)
        self.note(self.description)
        return run, log

    @property
    def run(self) -> RecordedRun:
        """One recorded run of the small instance."""
        return self.shared("run", lambda: self._recorded)[0]

    @property
    def log(self) -> randomness.Log:
        """Every call of the sampler, and every key from the operating system, of that run."""
        return self.shared("run", lambda: self._recorded)[1]

    @property
    def comparison(self) -> Comparison:
        """That run against the protocol's declaration."""
        return self.shared("comparison", lambda: compare(self.run))


@dataclass(frozen=True)
class Reseeded:
    """Secret streams in which one party has others than before.

    Attributes
    ----------
    secrets : Secrets
    party : int
    """

    secrets: Secrets
    party: int

    def stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """The party's streams have another name; those of others are as they were."""
        other = index == self.party
        return self.secrets.stream(index, f"{name}, reseeded" if other else name, *keys)
