"""Histories in TensorBoard or MLflow while they grow: the option ``track`` of a run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.runs.history import Row

if TYPE_CHECKING:
    from securevfl.runs.spec import RunSpec

Taker = Callable[[Row], None]
_One = str | Taker | None
Track = _One | Sequence[_One]
KINDS = ("tensorboard", "mlflow")
_GROUPS = {"loss": "train/loss", "accuracy": "test/accuracy", "auc": "test/auc", "f1": "test/f1"}
_GROUPS |= {
    "rmse": "test/rmse",
    "r2": "test/r2",
    "test_loss": "test/loss",
    "time": "run/virtual_seconds",
}
_UNTOLD = frozenset({"step", "round", "party"})


def scalars(row: Row) -> dict[str, float]:
    """Numbers of a row by the names that they are shown under, such as ``test/accuracy``.

    Examples
    --------
    >>> scalars({"step": 3, "loss": 0.5, "time": 2.0, "event": "round", "used": 5})
    {'train/loss': 0.5, 'run/virtual_seconds': 2.0, 'run/used': 5.0}
    """
    return {
        _GROUPS.get(name, f"run/{name}"): float(value)
        for name, value in row.items()
        if name not in _UNTOLD and isinstance(value, Real)
    }


class Tracker(ExitStack):
    """Passes rows of a history on to whoever takes them, and closes these when the run ends."""

    def __init__(self, takers: Sequence[Taker] = ()) -> None:
        super().__init__()
        self._takers = takers

    def __enter__(self) -> Self:
        for taker in self._takers:
            if isinstance(taker, AbstractContextManager):
                self.enter_context(taker)
        return super().__enter__()

    def step(self, row: Row) -> None:
        """Take in a row to which nothing is added any more."""
        for taker in self._takers:
            taker(row)


class TensorBoard(AbstractContextManager["TensorBoard"]):
    """Writes event files; the options are a text beside the curves.

    `done` steps were tracked before the run was resumed; later ones are hidden.
    """

    def __init__(self, folder: Path, options: Mapping[str, object], done: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer: Any = SummaryWriter(str(folder), purge_step=done or None)
        rows = "".join(f"| {name} | {value} |\n" for name, value in options.items())
        self._writer.add_text("run/options", f"| option | value |\n|---|---|\n{rows}")

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def __call__(self, row: Row) -> None:
        """Write the numbers of a row."""
        for name, value in scalars(row).items():
            self._writer.add_scalar(name, value, row["step"])


class MLflow(AbstractContextManager["MLflow"]):
    """Writes one MLflow run, with the options as its parameters.

    `uri` is that of the tracking server or store; that of the environment if empty.
    """

    def __init__(self, uri: str, name: str, options: Mapping[str, object]) -> None:
        from mlflow.tracking import MlflowClient

        self._client: Any = MlflowClient(tracking_uri=uri or None)
        experiment = self._client.get_experiment_by_name("securevfl")
        number = experiment.experiment_id if experiment else self._client.create_experiment(
            "securevfl"
        )  # fmt: skip
        self._run = self._client.create_run(number, run_name=name).info.run_id
        for key, value in options.items():
            self._client.log_param(self._run, key, value)

    def __exit__(self, *raised: object) -> None:
        self._client.set_terminated(self._run, "KILLED" if raised[0] else "FINISHED")

    def __call__(self, row: Row) -> None:
        """Write the numbers of a row."""
        for name, value in scalars(row).items():
            self._client.log_metric(self._run, name, value, step=row["step"])


def make_tracker(track: Track, spec: RunSpec, folder: Path | None, *, done: int = 0) -> Tracker:
    """Tracker of a run, for `track` as of `securevfl.run`.

    Event files go into the folder of the run unless another is named. `done` steps are done, of a
    run that is resumed. UnknownNameError for anything but TensorBoard and MLflow;
    ConfigurationError when the package is not installed, or the store cannot be used.
    """
    every = [track] if track is None or callable(track) or isinstance(track, str) else track
    takers = (
        one if callable(one) else _taker(one, spec, folder, done)
        for one in every
        if one is not None
    )
    return Tracker([*takers])


def _taker(track: str, spec: RunSpec, folder: Path | None, done: int) -> Taker:
    kind, _, where = track.partition(":")
    if kind not in KINDS:
        raise UnknownNameError("tracker", kind, KINDS)
    if importlib.util.find_spec(kind) is None:
        raise ConfigurationError(
            f"track = {track!r} needs the package {kind}; pip install 'securevfl[track]'"
        )
    options = {"protocol": spec.protocol, "seed": spec.seed, **spec.options}
    if kind == "tensorboard":
        chosen = Path(where) if where else (folder or Path("runs")) / "tensorboard"
        return TensorBoard(chosen, options, done)
    try:
        return MLflow(where, f"{spec.protocol}-{spec.run_id}", options)
    except Exception as error:
        raise ConfigurationError(f"track = {track!r}: MLflow says: {error}") from error
