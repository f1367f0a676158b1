"""The subject of a verification: a configured protocol, with recorded runs that are shared."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from securevfl.audit.deviations import Comparison, compare
from securevfl.audit.followed_runs import Followed, Predicting, follow
from securevfl.audit.recording.recorded_run import RecordedRun
from securevfl.audit.recording.recorder import record
from securevfl.audit.settings import MANY_ROWS, ROWS, hides_columns, settings_of
from securevfl.audit.statistical import LEVEL
from securevfl.audit.traffic.setting import ITSELF, Setting
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.streams import Reseeded, Secrets
from securevfl.errors import RunError, SecureVFLError
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import make_config
from securevfl.runs.threads import one_thread

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

TEST_ROWS = 24  # of small instances
SMALL = {"rounds": 8, "batch": 15}
BEYOND = 1 << 30  # bytes of a run beyond the small one that are held

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
    progress : callable, optional
        Told what is being done.
    whole : bool
        Whether the configuration itself is run, on all rows and for all rounds.
    settings : callable
        Settings that it is run in besides; a verdict is about these.

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
        progress: Callable[[str], None] | None = None,
        whole: bool = False,
        settings: Callable[[Protocol], Iterable[Setting]] = settings_of,
    ) -> None:
        self.protocol = protocol
        self.seed = seed
        self.level = level
        self.whole = whole
        self.ran: list[str] = []
        self._progress = progress
        self._settings_of = settings
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
        """Result of `make`, which is called once for all verifiers that ask for the name.

        An error of any kind is kept, too, and raised for each of them.
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

    def instance(
        self,
        *,
        labels: np.ndarray | None = None,
        columns: Mapping[int, np.ndarray] | None = None,
        all_rows: bool = False,
        reseeded: int | None = None,
        secrets: Secrets | None = None,
        options: Mapping[str, Any] | None = None,
        whole: bool = False,
        many: bool = False,
        rows: int = ROWS,
        multiple: int = 1,
    ) -> Protocol:
        """An instance with the protocol's own options; a small one, on some rows of its data.

        Parameters
        ----------
        labels : ndarray, optional
            Training labels in the place of the data set's.
        columns : mapping of int to ndarray, optional
            Training columns of some parties, likewise.
        all_rows : bool
            Whether test rows, and rows that a party has alone, are made of these labels and columns
            as well.
        reseeded : int, optional
            Party whose secret choices are others.
        secrets : Secrets, optional
            Secret choices of all parties.
        options : mapping, optional
            Options that differ from the protocol's own.
        whole : bool
            On all rows and for all rounds.
        many : bool
            On many rows, for few rounds.
        rows : int
            How many they are else, at most.
        multiple : int
            Number of which its rows are a multiple.
        """
        cls, data = type(self.protocol), self.protocol.data
        most = (MANY_ROWS if many else rows, TEST_ROWS)
        most = (data.rows, data.test_rows) if whole else most
        count = min(most[0], data.rows)
        small = data.subset(count - count % multiple, min(most[1], data.test_rows))
        if labels is not None or columns:
            small = _with(small, columns or {}, labels, all_rows=all_rows)
        given = self.protocol.config.model_dump(exclude_unset=True)
        given |= ({} if whole else self._reduced) | dict(options or {})
        config, seed = make_config(cls, given), self.protocol.seed
        made = cls(config, small, seed=seed)
        if secrets is not None:
            made.secrets = secrets
        if reseeded is not None:
            made.secrets = Reseeded(made.secrets, reseeded)
        return made

    @property
    def _reduced(self) -> dict[str, Any]:
        """Options that make a run short, where the protocol has them."""
        config = self.protocol.config
        wanted = SMALL | dict(self.protocol.small_options)
        return {n: min(v, getattr(config, n)) for n, v in wanted.items() if hasattr(config, n)}

    def describe(
        self,
        *,
        whole: bool = False,
        many: bool = False,
        options: Mapping[str, Any] | None = None,
        rows: int = ROWS,
    ) -> str:
        """An instance in words; a small one, or one on all rows and for all rounds."""
        given = self.protocol.config.model_dump(exclude_unset=True) | dict(options or {})
        own = ", ".join(f"{name} = {value}" for name, value in sorted(given.items()))
        data = self.protocol.data
        reduced = {n: v for n, v in self._reduced.items() if n not in (options or {})}
        made = ", ".join(f"{name} = {value}" for name, value in reduced.items())
        some = min(MANY_ROWS if many else rows, data.rows)
        words = (
            f"all {data.rows} rows"
            if whole
            else ", ".join([f"{some} rows", *([made] * bool(made))])
        )
        return (
            f"{self.protocol.name}, {data.parties} parties, options {own or 'by default'}; {words}"
        )

    @property
    def beyond(self) -> list[dict[str, Any]]:
        """Arguments of `instance` for runs beyond the small one, each in one of its limits.

        What is done in late rounds alone, or in whole batches or of later rows alone, is seen in
        these. There are none where the configuration itself is not run. They are held whole, so
        they end before the last round where all would be more than a gibibyte.
        """
        config = self.protocol.config
        if not self.whole:
            return []
        found = []
        for name, value in self._reduced.items():
            own = getattr(config, name)
            if name != "batch" and own > value:
                own = min(own, int(value * BEYOND / max(1, self.run.nbytes)))
            if own > value:
                rows = max(MANY_ROWS, 2 * own) if name == "batch" else ROWS
                found.append({"options": {name: own}, "rows": rows})
        return found

    @property
    def many(self) -> bool:
        """Whether settings have many rows: where columns are hidden, more rows may be less so."""
        return hides_columns(self.protocol)

    @property
    def settings(self) -> tuple[Followed, ...]:
        """Runs of the configuration itself, where it is to be run whole, and in other settings."""
        return self.shared("settings", self._every_run)

    def _every_run(self) -> tuple[Followed, ...]:
        return (*self._configured(), *self._in_settings())

    def _configured(self) -> Iterator[Followed]:
        """The run of the configuration itself, where it is to be made."""
        if self.whole:
            self.progress("the configuration itself, all rounds")
            found = follow(self.instance(whole=True), ITSELF, self.progress)
            self.note(f"{self.describe(whole=True)}, {found.rounds} rounds{_end(found)}")
            yield found

    def _in_settings(self) -> Iterator[Followed]:
        for setting in self._settings_of(self.protocol):
            described = self.describe(many=self.many, options=setting.options)
            words = f"setting {setting.name!r}: {described}"
            self.progress(f"setting: {setting.name}")
            try:
                if setting.predicts:
                    found = self.predict(setting)
                else:
                    made = self.instance(
                        options=setting.options, many=self.many, multiple=setting.multiple
                    )
                    found = follow(made, setting)
            except SecureVFLError as error:
                self.note(f"not run, {words}: {error}")
                continue
            self.note(f"{words}, {found.rounds} rounds{_end(found)}")
            yield found

    def predict(self, setting: Setting, **changed: Any) -> Followed:
        """Train a small instance, predict rows twice, the second time in a setting; follow that.

        What a first prediction has drawn is fresh no more: the second one must not use it again.

        Parameters
        ----------
        setting : Setting
            With `predicts`.
        **changed
            As for `instance`: other columns or secrets.

        Raises
        ------
        SecureVFLError
            Where such rows cannot be predicted, such as where their sums could wrap.
        """
        made = self.instance(options=setting.options, **changed)
        trained = made.parties()
        with one_thread():
            Simulation(trained, seed=made.seed, secrets=made.secrets).run()
        features = [np.resize(one, (setting.predicts, one.shape[1])) for one in made.data.train]
        with one_thread(), suppress(RunError):
            Simulation(
                made.predictors(trained, features), seed=made.seed, secrets=made.secrets
            ).run()
        parties = made.predictors(trained, features)
        predicting, data = made.predicting(setting.predicts), copy.copy(made.data)
        object.__setattr__(data, "test", tuple(features))
        predicting.data = data
        return follow(predicting, setting, predicting=Predicting(made, parties))

    @property
    def run(self) -> RecordedRun:
        """One recorded run of the small instance."""
        return self.shared("run", self._recorded)

    def _recorded(self) -> RecordedRun:
        self.progress("a recorded run")
        run = record(self.instance())
        self.note(f"{self.describe()}; nobody late or absent")
        return run

    @property
    def again(self) -> RecordedRun:
        """A second run of the small instance, with the same seeds."""
        return self.shared("run again", lambda: record(self.instance()))

    @property
    def runs(self) -> tuple[RecordedRun, ...]:
        """That run and those beyond it."""
        return self.shared("runs beyond", lambda: (self.run, *self._beyond()))

    def _beyond(self) -> Iterator[RecordedRun]:
        for changed in self.beyond:
            described = self.describe(**changed)
            self.progress(f"a recorded run: {described}")
            run = record(self.instance(**changed))
            self.note(f"{described}; nobody late or absent")
            yield run

    @property
    def comparison(self) -> Comparison:
        """That run against the protocol's declaration."""
        return self.shared("comparison", lambda: compare(self.run))


def _end(found: Followed) -> str:
    return f", ended by: {found.ended}" if found.ended else ""


def _with(
    data: VerticalDataset,
    columns: Mapping[int, np.ndarray],
    labels: np.ndarray | None,
    *,
    all_rows: bool,
) -> VerticalDataset:
    """A data set with other columns of some parties, and other labels."""
    made = copy.copy(data)
    for name in ("train", *(("test", "alone") if all_rows else ())):
        own = enumerate(getattr(data, name))
        others = (np.resize(columns[n], one.shape) if n in columns else one for n, one in own)
        object.__setattr__(made, name, tuple(others))
    for name in ("train_labels", *(("test_labels", "alone_labels") if all_rows else ())):
        before = getattr(data, name)
        if labels is not None and before is not None:
            object.__setattr__(made, name, np.resize(labels, before.shape))
    return made
