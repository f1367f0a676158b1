"""The configuration itself, run in a process beside the one that judges.

All rows and rounds take as long as everything else of a verification together, and only the last
verifiers ask for them. The process makes what `Subject` would make, in this order: the run that is
held against the declaration, its traffic with other columns and networks, and the names of what is
not as it was given. It imports the library from the same files; the judge looks at its own as well.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any, cast

from securevfl.errors import RunError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from securevfl.audit.followed_runs import Followed, Traffic
    from securevfl.data.dataset import VerticalDataset
    from securevfl.data.source import DataSource

_WAIT = 5.0  # seconds that the process has to end


@dataclass(frozen=True)
class Configuration:
    """Everything that a protocol of the library is made from, in any process.

    Attributes
    ----------
    protocol : str
    data : VerticalDataset or DataSource
    options : mapping
    seed : int
    """

    protocol: str
    data: VerticalDataset | DataSource
    options: Mapping[str, Any]
    seed: int


class WholeRun:
    """A process that runs a configuration whole; it ends with the context.

    Parameters
    ----------
    configuration : Configuration
    progress : callable
        Told what the process told, whenever its results are waited for.
    """

    def __init__(self, configuration: Configuration, progress: Callable[[str], None]) -> None:
        context = get_context("spawn")
        self._results, own = context.Pipe(duplex=False)
        self._progress = progress
        self._found: dict[str, Any] = {}
        self._process = context.Process(target=_work, args=(own, configuration), daemon=True)
        self._process.start()
        own.close()  # else its end would not be seen here

    def __enter__(self) -> WholeRun:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.join(_WAIT)
        self._results.close()

    def followed(self) -> Followed:
        """The run, held against its declaration.

        Raises
        ------
        RunError
            If the process ended in an error, as for all results.
        """
        return cast("Followed", self._result("followed"))

    def traffic(self) -> Traffic:
        """Traffic of the run with other columns and networks."""
        return cast("Traffic", self._result("traffic"))

    def changed(self) -> list[str]:
        """Names of what was not as it was given, at the end."""
        return cast("list[str]", self._result("changed"))

    def altered(self) -> list[str]:
        """Names of that process's library that were not those of its files, at the end."""
        return cast("list[str]", self._result("altered"))

    def _result(self, wanted: str) -> Any:
        while wanted not in self._found:
            try:
                name, value = self._results.recv()
            except EOFError:
                name, value = "error", "the process that made it ended by itself, most likely for "
                value += "want of memory; verify in one process"
            if name == "progress":
                self._progress(value)
            elif name == "error":
                raise RunError(f"the configuration itself: {value}")
            else:
                self._found[name] = value
        return self._found[wanted]


def _work(channel: Connection, configuration: Configuration) -> None:
    """Send all results, or the error in which one ended; the beginning of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the judge is asked to end, and ends this
    try:
        for result in _results(configuration, lambda words: channel.send(("progress", words))):
            channel.send(result)
    except BrokenPipeError:  # nobody waits any more
        return
    except BaseException as error:  # whatever it is, the judge must be told
        channel.send(("error", f"{type(error).__name__}: {error}"))


def _results(
    configuration: Configuration, progress: Callable[[str], None]
) -> Iterator[tuple[str, Any]]:
    from securevfl.audit.following.given import Given
    from securevfl.audit.subject import Subject
    from securevfl.audit.verifiers.traffic import with_other_columns
    from securevfl.data.source import DataSource
    from securevfl.models.user_code import allow_options
    from securevfl.protocols.base.registry import get_protocol, make_config

    allow_options(configuration.options)
    data, seed = configuration.data, configuration.seed
    dataset = data.load() if isinstance(data, DataSource) else data
    cls = get_protocol(configuration.protocol)
    config = make_config(cls, configuration.options)
    given = Given.of(config, dataset, seed)
    made = cls(config, dataset, seed=seed)
    subject = Subject(
        made, seed=seed, progress=progress, whole=True, given=given, settings=lambda _: ()
    )
    (found,) = subject.settings
    yield "followed", found
    yield "traffic", with_other_columns(subject, found)
    yield "changed", subject.changed()
    yield "altered", subject.altered
