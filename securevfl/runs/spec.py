"""What determines a run, and its form on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from securevfl.data.source import DataSource
from securevfl.engine.conditions import Conditions, conditions_from
from securevfl.engine.faults import Faults, faults_from
from securevfl.engine.streams import SecretSeed
from securevfl.errors import CheckpointError, ConfigurationError
from securevfl.runs.alignment import data_source

FORMAT = 1
SECRET_SEED_KNOWN = (
    "A server that knows it knows all weights and rounding, and recovers the rows where all "
    "columns together are at most the embedding's width: given the sums, nothing is hidden there"
)
CONFIG = "config.toml"


@dataclass(frozen=True)
class RunSpec:
    """Everything that determines a run.

    Attributes
    ----------
    protocol : str
    options : mapping
        All options of the protocol, defaults included.
    seed, eval_every : int
    secret_seed : int or None
        Seed of the parties' secret choices in a simulation; None for `seed`. On a cluster every
        party has entropy of its own.
    conditions : Conditions
    source : DataSource or None
        None for a data set that was passed as an object.
    fingerprint : str
        Of the data set.
    until : float or None
        Virtual second at which the run ends, if its rounds have not ended before.
    sealed : bool
        Whether links are sealed.
    run_id : str
        Random name of the run, bound into every sealed message.
    eval_seconds : float or None
        Virtual seconds between evaluations, in place of `eval_every` steps.
    faults : Faults or None
        What breaks.
    engine : {"simulation", "ray"}
    """

    protocol: str
    options: Mapping[str, Any]
    seed: int
    eval_every: int
    conditions: Conditions
    source: DataSource | None
    fingerprint: str
    until: float | None = None
    eval_seconds: float | None = None
    sealed: bool = True
    run_id: str = ""
    faults: Faults | None = None
    engine: str = "simulation"
    secret_seed: int | None = None

    @property
    def secrets(self) -> SecretSeed:
        """Secrets of all parties of a simulation.

        Of a run on a cluster they are placeholders: its parties keep their entropy to themselves.
        """
        return SecretSeed(self.seed if self.secret_seed is None else self.secret_seed)

    @property
    def secret_choices(self) -> str:
        """Where secret choices come from, and what somebody gets who knows them; one sentence."""
        if self.engine != "simulation":
            return "each party's, from its own entropy"
        own = "the run's own" if self.secret_seed is None else "its own"
        return f"derived from the secret seed {self.secrets.seed} ({own}). {SECRET_SEED_KNOWN}"

    def to_toml(self, derived: Mapping[str, Any]) -> str:
        """Text of ``config.toml``; `derived` and versions are shown in it and not read back."""
        import tomli_w

        from securevfl._version import __version__
        from securevfl.machine import versions

        content: dict[str, Any] = {
            "format": FORMAT,
            "version": __version__,
            "protocol": self.protocol,
            "seed": self.seed,
            "eval_every": self.eval_every,
            "sealed": self.sealed,
            "engine": self.engine,
            "run_id": self.run_id,
            "options": {k: v for k, v in self.options.items() if v is not None},
            "conditions": self.conditions.describe(),
            "data": {"fingerprint": self.fingerprint},
            "derived": dict(derived),
            "versions": versions(),
        }
        if self.secret_seed is not None:
            content["secret_seed"] = self.secret_seed
        if self.until is not None:
            content["until"] = self.until
        if self.eval_seconds is not None:
            content["eval_seconds"] = self.eval_seconds
        if self.faults is not None:
            content["faults"] = {"name": self.faults.name, **self.faults.describe()}
        if self.source is not None:
            given = {k: v for k, v in self.source.options.items() if v is not None}
            content["data"] |= {"name": self.source.name, "options": _plain(given)}
        return tomli_w.dumps(content)

    @classmethod
    def from_toml(cls, path: Path) -> RunSpec:
        """RunSpec of a run's ``config.toml``.

        Raises
        ------
        ConfigurationError
            When there is none.
        CheckpointError
            When it is damaged or of another format.
        """
        import tomllib

        try:
            content = tomllib.loads(path.read_text())
        except FileNotFoundError:
            raise ConfigurationError(f"resume: {path.parent} holds no {CONFIG}") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise CheckpointError(f"resume: {path} is not valid TOML: {error}") from None
        if content.get("format") != FORMAT:
            raise CheckpointError(
                f"resume: {path} has format {content.get('format')}, this version reads {FORMAT}"
            )
        try:
            return cls._from_content(content)
        except (KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"resume: {path} is damaged: {type(error).__name__}: {error}"
            ) from None

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> RunSpec:
        data, conditions = content["data"], dict(content["conditions"])
        name, parties = conditions.pop("name"), len(conditions["upload_mean"])
        faults = content.get("faults")
        return cls(
            protocol=content["protocol"],
            options=content["options"],
            seed=content["seed"],
            eval_every=content["eval_every"],
            conditions=conditions_from(conditions, parties=parties, batch_rows=1, name=name),
            source=data_source(data["name"], data["options"]) if "name" in data else None,
            fingerprint=data["fingerprint"],
            until=content.get("until"),
            sealed=content["sealed"],
            run_id=content["run_id"],
            eval_seconds=content.get("eval_seconds"),
            faults=None if faults is None else faults_from(faults),
            engine=content.get("engine", "simulation"),
            secret_seed=content.get("secret_seed"),
        )


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
