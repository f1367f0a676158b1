"""Terms of a session: everything that all parties sign beside the list of participants.

The terms fix version, options and data, and the latest start. Data are the parties' own tables,
described by public facts (names of the id and label columns, split and scaling), or a set that
every party loads by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, field_validator

from securevfl._version import __version__
from securevfl.data.local_tables import Tables
from securevfl.data.source import DataSource
from securevfl.engine.names import PartyNames
from securevfl.engine.network import SERVER
from securevfl.engine.security.identity import Manifest
from securevfl.errors import ConfigurationError
from securevfl.planning.forecast import sums_to_come
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.protocols.base.schedule import HELPERS_COUNT
from securevfl.reading import Stored

_TABLES = "tables"  # key of the tables' options; a named set has "name" and "options"
_LONGEST = 40  # characters of a party's name


class _Stored(Stored):
    """Terms as stored in a manifest; `Terms` explains the fields."""

    version: str
    begin_by: str
    seed: Annotated[int, Field(ge=0)]
    options: dict[str, Any]
    data: dict[str, Any]
    padded: bool = False  # older manifests have no such line
    names: list[str] = Field(default=[])

    @field_validator("begin_by")
    @classmethod
    def _with_its_zone(cls, text: str) -> str:
        if datetime.fromisoformat(text).tzinfo is None:
            raise ValueError(f"{text} has no time zone")
        return text

    @field_validator("data")
    @classmethod
    def _of_one_kind(cls, data: dict[str, Any]) -> dict[str, Any]:
        for name, kind in {_TABLES: dict, "options": dict, "name": str}.items():
            if not isinstance(data.get(name, kind()), kind):
                raise ValueError(f"{name} is no {'table' if kind is dict else 'text'}")
        return data


@dataclass(frozen=True)
class Terms:
    """The terms of a session.

    Every party must have the same version of this library. All parties must join by `begin_by`; the
    session itself may last longer. Missing options of the protocol have their defaults. `data` is
    ``{"tables": {...}}`` with options of `securevfl.data.local_tables`, or ``{"name": ...,
    "options": {...}}`` for a data set by name. With `padded` all parties pad datagrams to powers of
    two, so that a relay sees only these sizes. `names` are display names of parties 0, 1, ...;
    empty if there are none.
    """

    version: str
    begin_by: datetime
    seed: int
    options: Mapping[str, Any]
    data: Mapping[str, Any]
    padded: bool = False
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        wrong = [name for name in self.names if not _is_name(name)]
        if wrong:  # a manifest of others is printed before anybody signs it
            raise ConfigurationError(
                f"session: a party cannot be called {wrong[0]!r}; a name has 1 to {_LONGEST} "
                "characters that can be printed, and is not server, a number or party N"
            )

    @classmethod
    def make(
        cls,
        protocol: str,
        parties: int,
        *,
        options: Mapping[str, object],
        data: Mapping[str, object],
        seed: int = 0,
        days: float = 7.0,
        padded: bool = False,
        names: Sequence[str] = (),
    ) -> Terms:
        """New terms of a session, whose parties must join within `days` days; fields of `Terms`.

        ConfigurationError for unknown options, for options impossible with this number of parties,
        and for data that the protocol cannot use.
        """
        config = make_config(get_protocol(protocol), options)
        values = {k: v for k, v in config.model_dump().items() if v is not None}
        by = datetime.now(UTC) + timedelta(days=days)
        by = by.replace(microsecond=0)
        made = cls(__version__, by, seed, values, dict(data), padded, tuple(names))
        made.check(protocol, parties)
        return made

    @classmethod
    def of(cls, manifest: Manifest) -> Terms:
        """The terms of a manifest; ConfigurationError if this version finds none in it."""
        terms = manifest.terms
        try:
            _Stored.check(terms)
            return cls(
                version=terms["version"],
                begin_by=datetime.fromisoformat(terms["begin_by"]),
                seed=terms["seed"],
                options=dict(terms["options"]),
                data=dict(terms["data"]),
                padded=terms.get("padded", False),
                names=tuple(terms.get("names", ())),
            )
        except ValueError as error:
            if isinstance(error, ConfigurationError):
                raise
            raise ConfigurationError(
                f"manifest {manifest.session!r}: it has no terms that this version reads "
                f"({error}). `securevfl keys manifest --data` or `--label` writes them"
            ) from None

    def plain(self) -> dict[str, object]:
        """Terms in plain types, for a manifest."""
        return {
            "version": self.version,
            "begin_by": self.begin_by.isoformat(),
            "seed": self.seed,
            "padded": self.padded,
            **({"names": list(self.names)} if self.names else {}),
            "options": dict(self.options),
            "data": dict(self.data),
        }

    def lines(self, protocol: str) -> dict[str, str]:
        """Terms in words, for the signers: options that differ from defaults, and data."""
        fields = get_protocol(protocol).Config.model_fields
        own = [
            f"{name} = {value}"
            for name, value in self.options.items()
            if name not in fields or fields[name].default != value
        ]
        given = self.data[_TABLES] if self.own_tables else self.data.get("options", {})
        data = [f"{name} = {value}" for name, value in given.items()]
        what = (
            "each party's own table; the server's has the labels"
            if self.own_tables
            else f"the set {self.data.get('name')!r}, which each party loads by its name"
        )
        called = {"parties": self.called.listed()} if self.names else {}
        if last := self.helpers:
            who = ", ".join(self.names[-last:]) or f"the last {last} of the parties"
            more = "more than T holders together, owners or helpers, may compute all tables"
            called["helpers"] = (
                f"{who}: no table, and shares of all tables. {HELPERS_COUNT}; {more}"
            )
        sizes = "; sizes are padded" if self.padded else ""
        sums = self.sums(protocol)
        return called | {
            "options": ", ".join([*own, f"else the defaults of {protocol}"]),
            "data": "; ".join([what, *filter(None, [", ".join(data)])]),
            "begin by": f"{self.begin_by:%Y-%m-%d %H:%M %Z}",
            "version": f"{self.version}, public seed {self.seed}{sizes}",
            "who sees what": f"`securevfl protocols {protocol}` says what is hidden from whom",
            **({"sums": sums} if sums else {}),
        }

    def sums(self, protocol: str) -> str:
        """Sentences on what decoded sums will reveal; empty if nobody decodes sums."""
        cls = get_protocol(protocol)
        return sums_to_come(cls, make_config(cls, self.options))

    def check(self, protocol: str, parties: int) -> None:
        """Raise ConfigurationError for another version, or terms that the protocol cannot meet."""
        if self.version != __version__:
            raise ConfigurationError(
                f"session: its manifest is of version {self.version} of securevfl, and this is "
                f"{__version__}. All parties install the same one"
            )
        self._check_names(parties)
        cls = get_protocol(protocol)
        cls.check_parties(make_config(cls, self.options), parties - self.helpers)
        if self.own_tables:
            if not cls.apart:
                raise ConfigurationError(
                    f"session: {protocol} with tables of the parties' own: a client of it needs "
                    "labels or more than its own columns. Choose a set that all have by its name, "
                    "or another protocol"
                )
            self.tables(SERVER, None, parties)
        elif "name" not in self.data:
            raise ConfigurationError(
                "session: its data are neither tables nor a set by name; give --label, or --data"
            )

    def _check_names(self, parties: int) -> None:
        """Raise ConfigurationError for party names that repeat or are not one each."""
        if self.names and len(set(self.names)) != parties:
            raise ConfigurationError(
                f"session: {parties} parties have {len(set(self.names))} different names, "
                f"{', '.join(self.names)}; give each one of its own, or none any"
            )

    @property
    def called(self) -> PartyNames:
        """Names of the parties, for people."""
        return PartyNames(self.names)

    @property
    def helpers(self) -> int:
        """Number of helpers: parties without columns, numbered last."""
        found = self.options.get("helpers", 0)
        return found if type(found) is int and found > 0 else 0

    @property
    def own_tables(self) -> bool:
        """Whether each party reads a table of its own."""
        return _TABLES in self.data

    def tables(self, index: int, file: Path | None, parties: int) -> Tables:
        """The parties' tables; this party knows only the path of its own file."""
        own = str(file) if file is not None else "own"
        owners = range(parties - self.helpers)
        files = [own if n == index else f"table of party {n}" for n in owners]
        given = {"name": "own tables", "seed": self.seed} | dict(self.data[_TABLES])
        return Tables.of(given | {"party_files": files, "label_file": own})

    def source(self, parties: int) -> DataSource:
        """Source of the public data set, which every party loads by name."""
        given = {"seed": self.seed, "parties": parties - self.helpers}
        given |= dict(self.data.get("options", {}))
        return DataSource(str(self.data["name"]), given)

    def seconds_left(self) -> float:
        """Seconds left until the latest permitted start of the session."""
        return (self.begin_by - datetime.now(UTC)).total_seconds()


def _is_name(text: str) -> bool:
    said = text.strip() == text and text.isprintable() and 0 < len(text) <= _LONGEST
    return said and PartyNames().number(text) is None
