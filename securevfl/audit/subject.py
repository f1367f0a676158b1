"""Subject of a verification: a configured protocol, with shared recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from securevfl.audit.recording import RecordedRun, record
from securevfl.audit.statistical import LEVEL
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import make_config

ROWS, TEST_ROWS = 200, 24  # of small instances
SMALL = {"rounds": 8, "batch": 15}

_T = TypeVar("_T")


class Subject:
    """Subject of a verification: a protocol with its small instance and runs.

    Parameters
    ----------
    protocol : Protocol
        Protocol in the verified configuration.
    seed : int
        Seed of the public choices in the runs.
    level : float
        Probability with which each test may accuse a claim that holds.
    progress : callable, optional
        Called with a text on the current activity.
    """

    def __init__(
        self,
        protocol: Protocol,
        *,
        seed: int = 0,
        level: float = LEVEL,
        progress: Callable[[str], None] | None = None,
    ) -> None:
        self.protocol = protocol
        self.seed = seed
        self.level = level
        self.progress = progress or (lambda what: None)
        self._shared: dict[str, Any] = {}

    def shared(self, name: str, make: Callable[[], _T]) -> _T:
        """Result of `make`, called once for each name and shared by all verifiers.

        An error of any kind is stored as well, and raised for each of them.
        """
        if name not in self._shared:
            try:
                self._shared[name] = (make(), None)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # each verifier that needs it must fail
                self._shared[name] = (None, error)
        value: _T
        value, failure = self._shared[name]
        if failure is not None:
            raise failure
        return value

    def instance(self, options: Mapping[str, Any] | None = None) -> Protocol:
        """A small instance with the protocol's own options, few rows and rounds.

        Parameters
        ----------
        options : mapping, optional
            Options that differ from the protocol's own.
        """
        cls, data, config = type(self.protocol), self.protocol.data, self.protocol.config
        small = data.subset(min(ROWS, data.rows), min(TEST_ROWS, data.test_rows))
        wanted = SMALL | dict(self.protocol.small_options)
        reduced = {n: min(v, getattr(config, n)) for n, v in wanted.items() if hasattr(config, n)}
        given = config.model_dump(exclude_unset=True) | reduced | dict(options or {})
        return cls(make_config(cls, given), small, seed=self.protocol.seed)

    @property
    def run(self) -> RecordedRun:
        """Recorded run of the small instance, no party late or absent."""
        return self.shared("run", self._recorded)

    def _recorded(self) -> RecordedRun:
        self.progress("a recorded run")
        return record(self.instance())
