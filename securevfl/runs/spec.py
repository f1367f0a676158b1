"""Specification of a run: everything that determines it, and its form on disk."""

from __future__ import annotations

from collections.abc import Mapping
from operator import methodcaller
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, InstanceOf

from securevfl.data.source import DataSource
from securevfl.engine.conditions import Conditions
from securevfl.engine.conditions_file import conditions_from
from securevfl.engine.faults import Faults, faults_from
from securevfl.engine.streams import SecretSeed
from securevfl.errors import CheckpointError, ConfigurationError
from securevfl.reading import NOT_PARSED
from securevfl.runs.alignment import data_source
from securevfl.runs.options import may_be_none, option, options_of
from securevfl.runs.storage import CONFIG as CONFIG

FORMAT = 1
SECRET_SEED_KNOWN = (
    "A server that knows it has all initial weights and rounding, and claims that grant decoded "
    "sums promise nothing of the columns against it"
)
RUN = "Run"
ORGANISATIONS = "organisations"  # value of `engine` in the folder of one party of a session
_VIRTUAL = "needs virtual time"


def _conditions_from_file(content: Mapping[str, Any]) -> Conditions:
    values = dict(content)
    name, parties = values.pop("name"), len(values["upload_mean"])
    return conditions_from(values, parties=parties, batch_rows=1, name=name)


def _faults_to_file(faults: Faults) -> dict[str, object]:
    return {"name": faults.name, **faults.describe()}


class RunSpec(BaseModel):
    """Everything that determines a run; ``config.toml`` stores it.

    Each option of a run is declared here, by one call of `option`. The command line, study files,
    ``config.toml``, the report and the docstring of `securevfl.run` derive from the declarations.

    A specification has a run's final values. The arguments of `securevfl.run` may differ:
    conditions and faults also by name or file, and None for the run's choice.

    The options of the protocol include its defaults. `run_id` is a random name of the run, bound
    into every encrypted message. The source is None for a data set object, of which the fingerprint
    is stored.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    protocol: str
    options: Mapping[str, Any]
    seed: int = option(
        0, ge=0, metavar="S", panel=RUN, per_job=True, commands="plan verify",
        help="Seed of public choices, such as test rows, batches and delays. Every party knows it, "
        "and masks never depend on it.",
    )  # fmt: skip
    secret_seed: int | None = option(
        None, ge=0, metavar="S", panel=RUN, folded=True, per_job=True, default_text="the seed",
        needs="must be left out: every party of a cluster draws its secret choices from entropy of "
        "its own, and a seed that all know would give the server their rows",
        help="Seed of the parties' secret choices in a simulation, such as initial weights and "
        "rounding. Whoever knows it can reconstruct rows. On a cluster each party draws its own "
        "entropy instead.",
    )  # fmt: skip
    conditions: InstanceOf[Conditions] = option(
        None, metavar="none|paper|FILE.toml", panel=RUN, per_job=True, commands="plan", file=True,
        default_text="paper; none on a cluster", accepts="str, Path, mapping or Conditions",
        to_file=methodcaller("describe"), from_file=_conditions_from_file,
        help="Delays and bandwidth: a name, or a TOML file. In `paper` half of the clients are "
        "stragglers, whose messages come late; in `none` there is no delay.",
    )  # fmt: skip
    faults: InstanceOf[Faults] | None = option(
        None, metavar="none|FILE.toml", panel=RUN, folded=True, per_job=True, file=True,
        default_text="none",
        accepts="str, Path, mapping or Faults", needs=_VIRTUAL,
        to_file=_faults_to_file, from_file=faults_from,
        help="Parties and links that break, and when: a TOML file. A party that comes back goes "
        "on from the state that it saved last.",
    )  # fmt: skip
    until: float | None = option(
        None, gt=0, metavar="SECONDS", panel=RUN, per_job=True, needs=_VIRTUAL,
        default_text="the end of the last round",
        help="Second of virtual time, the simulation's clock, at which the run ends, even if "
        "rounds are left.",
    )  # fmt: skip
    eval_every: int = option(
        None, ge=1, per_job=True, default_text="a fiftieth of the rounds",
        help="Server steps between evaluations on the test rows.",
    )  # fmt: skip
    eval_seconds: float | None = option(
        None, gt=0, per_job=True,
        default_text="a fiftieth of `until`, if that is given and `eval_every` is not",
        help="Virtual seconds between evaluations, in place of `eval_every`.",
    )  # fmt: skip
    sealed: bool = option(
        True, flag="--sealed/--unsealed", panel=RUN, folded=True, per_job=True, commands="plan",
        needs="needs a simulation: processes talk over sealed links only",
        help="Encrypt and authenticate every message between two parties. An unsealed run is "
        "faster, and claims nothing against outsiders.",
    )  # fmt: skip
    engine: str = option(
        "simulation", metavar="simulation|ray", panel=RUN, folded=True,
        help="Where the parties run: in this process in virtual time, or as actors of a Ray "
        "cluster in real time.",
    )  # fmt: skip
    run_id: str = ""
    source: InstanceOf[DataSource] | None = None
    fingerprint: str

    @property
    def secrets(self) -> SecretSeed:
        """Secrets of all parties of a simulation.

        For a run on a cluster they are placeholders: each party keeps its own entropy.
        """
        return SecretSeed(self.seed if self.secret_seed is None else self.secret_seed)

    @property
    def secret_choices(self) -> str:
        """Sentence on the source of secret choices, and on what knowing it would reveal."""
        if self.engine != "simulation":
            return "each party's, from its own entropy"
        seed = f"the secret seed {self.seed} (the run's own)"
        if self.secret_seed is not None:  # a summary is for everybody's eyes
            seed = "a secret seed of its own, which config.toml has"
        return f"derived from {seed}. {SECRET_SEED_KNOWN}"

    def to_toml(self, derived: Mapping[str, object]) -> str:
        """Text of ``config.toml``; `derived` and versions in it are not read back."""
        import tomli_w

        from securevfl._version import __version__
        from securevfl.machine import versions

        always, optional = self._image()
        data: dict[str, object] = {"fingerprint": self.fingerprint}
        if self.source is not None:
            given = {k: v for k, v in self.source.options.items() if v is not None}
            data |= {"name": self.source.name, "options": _plain(given)}
        conditions = always.pop("conditions")
        content = {
            "format": FORMAT,
            "version": __version__,
            "protocol": self.protocol,
            **always,
            "run_id": self.run_id,
            "options": {k: v for k, v in self.options.items() if v is not None},
            "conditions": conditions,
            "data": data,
            "derived": dict(derived),
            "versions": versions(),
            **optional,
        }
        return tomli_w.dumps(content)

    def _image(self) -> tuple[dict[str, object], dict[str, object]]:
        """Options for the file: those always written, and those that may be None."""
        always: dict[str, object] = {}
        optional: dict[str, object] = {}
        for name, declared in options_of(type(self)).items():
            value = getattr(self, name)
            if value is None:
                continue
            kind = optional if may_be_none(type(self).model_fields[name]) else always
            kind[name] = value if declared.to_file is None else declared.to_file(value)
        return always, optional

    @classmethod
    def from_toml(cls, path: Path) -> RunSpec:
        """Specification of a run from its ``config.toml``.

        ConfigurationError if the file cannot be read or has values that are refused;
        CheckpointError if it is damaged or has another format.
        """
        import tomllib

        try:
            content = tomllib.loads(path.read_text())
        except FileNotFoundError:
            raise ConfigurationError(f"resume: {path.parent} holds no {CONFIG}") from None
        except OSError as error:
            raise ConfigurationError(
                f"resume: {path} cannot be read: {error.strerror}. Allow yourself to read it"
            ) from None
        except NOT_PARSED as error:
            raise CheckpointError(f"resume: {path} is not valid TOML: {error}") from None
        if content.get("format") != FORMAT:
            raise CheckpointError(
                f"resume: {path} has format {content.get('format')}, this version reads {FORMAT}"
            )
        try:
            return cls._from_content(content)
        except ConfigurationError:
            raise
        except (KeyError, TypeError, AttributeError, OverflowError, ValueError) as error:
            raise CheckpointError(
                f"resume: {path} is damaged: {type(error).__name__}: {error}"
            ) from None

    @classmethod
    def _from_content(cls, content: Mapping[str, Any]) -> RunSpec:
        data = content["data"]
        values: dict[str, Any] = {}
        for name, declared in options_of(cls).items():
            optional = may_be_none(cls.model_fields[name])
            value = content.get(name) if optional else content[name]
            if value is None:
                continue
            values[name] = value if declared.from_file is None else declared.from_file(value)
        return cls(
            protocol=content["protocol"],
            options=content["options"],
            run_id=content["run_id"],
            source=data_source(data["name"], data["options"]) if "name" in data else None,
            fingerprint=data["fingerprint"],
            **values,
        )


def reads_local_tables(source: DataSource | None, engine: str) -> bool:
    """Whether the run's parties read tables of their own: party files on a cluster."""
    return engine != "simulation" and source is not None and "party_files" in source.options


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
