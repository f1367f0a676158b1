"""Faults of a run: two-state chains of parties and links, scripted outages, lies.

A chain has a fault rate and a rejoin rate. Each round every entity draws u from U(0, 1): alive and
u < fault, it is down from this round on; down and u < rejoin, it is up again (DVFL's fault model).
A draw is a function of (seed, entity, round) only, so all protocols of a comparison have equal
faults, independent of their other draws and of the order of calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from securevfl.engine.network import SERVER, name_of
from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError
from securevfl.reading import NOT_PARSED

__all__ = ["Chain", "Faults", "Outage", "Schedule", "faults_from", "load_faults"]

Link = tuple[int, int]
LINK = "link"


def called(entity: int | Link) -> str:
    """Name of a party or a link for errors."""
    if isinstance(entity, int):
        return name_of(entity)
    return f"the link from {name_of(entity[0])} to {name_of(entity[1])}"


@dataclass(frozen=True)
class Chain:
    """Two-state Markov chain (up, down) with rates a round.

    ConfigurationError for a rate outside [0, 1].

    Parameters
    ----------
    fault : float
        Probability per round that an entity goes down, in [0, 1].
    rejoin : float
        Probability per round that a down entity comes back, in [0, 1].
    """

    fault: float
    rejoin: float

    def __post_init__(self) -> None:
        for name, rate in (("fault", self.fault), ("rejoin", self.rejoin)):
            if not 0 <= rate <= 1:
                raise ConfigurationError(f"faults: {name} = {rate} must lie in [0, 1]")


@dataclass(frozen=True)
class Outage:
    """A scripted outage: one party or link is down for some rounds or seconds.

    ConfigurationError for a malformed entity or span.

    Parameters
    ----------
    entity : int or (int, int)
        A party (the server is -1), or the two ends of a link.
    rounds : (int, int), optional
        Span of rounds: down from the first of them on, up again at the second.
    seconds : (float, float), optional
        The same in virtual time. Exactly one of the two is given; the end may be infinite.
    one_way : bool
        Whether a link loses only messages from its first end to its second.
    """

    entity: int | Link
    rounds: tuple[float, float] | None = None
    seconds: tuple[float, float] | None = None
    one_way: bool = False

    def __post_init__(self) -> None:
        if (self.rounds is None) == (self.seconds is None):
            raise ConfigurationError("faults: an outage has either rounds or seconds")
        start, end = self.span
        if not 0 <= start < end:
            raise ConfigurationError(
                f"faults: an outage of {called(self.entity)} from {start} to {end} must start at "
                "0 or later and end after it"
            )
        if self.rounds is not None and any(x < math.inf and x != int(x) for x in self.rounds):
            raise ConfigurationError(
                f"faults: rounds = [{start}, {end}] must be whole numbers: a round is down or up "
                "as a whole. Use seconds for parts of a round"
            )
        if self.one_way and not isinstance(self.entity, tuple):
            raise ConfigurationError(
                f"faults: one_way is of a link, and {name_of(self.entity)} is no link; name "
                "link = [from, to]"
            )

    @property
    def span(self) -> tuple[float, float]:
        """Start and end, in rounds or seconds."""
        span = self.rounds if self.seconds is None else self.seconds
        assert span is not None
        return span

    @property
    def when(self) -> str:
        """Start of the outage as text."""
        return f"round {self.span[0]:g}" if self.seconds is None else f"{self.span[0]:g} s"

    def begins_after(self, round: int, seconds: float) -> bool:
        """Whether the outage begins after a round (or after a time if it is in seconds)."""
        return self.span[0] > (round if self.seconds is None else seconds)

    def covers(self, round: int, seconds: float) -> bool:
        """Whether the outage is active in a round (or at a time, if it is in seconds)."""
        start, end = self.span
        return start <= (round if self.seconds is None else seconds) < end


@dataclass(frozen=True)
class Faults:
    """Faults of a run, before they are bound to its parties.

    ConfigurationError for numbers out of range.

    Parameters
    ----------
    chains : mapping
        Chain of each role ("client", "server", or another of the protocol) and of "link".
    outages : tuple of Outage
        Scripted outages.
    tick : float
        Virtual seconds after which the chains advance by a round, while a party is down and no
        message was sent, or after a resent message was lost on a link again. Without it a run that
        waits for a party or link would wait for ever.
    name : str
        Name in summaries.
    first : int
        First round in which chains apply, at least 1; before it all entities are up. The server's
        round 1 may begin while clients still set up.
    backward : bool
        Whether chains draw twice per round, as for DVFL's baselines in its paper: for messages to
        the server, and for its answers. An embedding can then arrive and its gradient be lost.
    lies : tuple of Outage
        Periods in which a party lies: random numbers replace all that it uploads
        (`securevfl.engine.simulation.lies`).
    """

    chains: Mapping[str, Chain] = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()
    tick: float = 1.0
    name: str = "custom"
    first: int = 1
    lies: tuple[Outage, ...] = ()
    backward: bool = False

    def __post_init__(self) -> None:
        for lie in self.lies:
            if isinstance(lie.entity, tuple) or lie.entity == SERVER:
                raise ConfigurationError(
                    "faults: a lie is of a client, whose uploads it replaces, and not of a link "
                    "or of the server; name party = NUMBER"
                )
        if self.first < 1:
            raise ConfigurationError(f"faults: first = {self.first} must be a round, from 1 on")
        if not 0 < self.tick < math.inf:
            raise ConfigurationError(f"faults: tick = {self.tick} s must be positive and finite")

    def bind(
        self, roles: Mapping[str, Sequence[int]], seed: int, *, last: int | None = None
    ) -> Schedule:
        """Fault schedule for a run whose parties have these roles.

        ConfigurationError for a chain of a role, or an outage of a party, that does not exist in
        the run.

        Parameters
        ----------
        roles, seed : mapping, int
            Numbers of the parties of each role (a party may have several); seed of the chains.
        last : int, optional
            Last round in which chains apply; later only scripted outages do.
        """
        return Schedule(self, roles, seed, last)

    def describe(self) -> dict[str, object]:
        """Values for a run's configuration file; `faults_from` gives the faults back."""
        values: dict[str, object] = {"tick": self.tick}
        if self.first != 1:
            values["first"] = self.first
        if self.backward:
            values["backward"] = True
        for role, chain in self.chains.items():
            values[role] = {"fault": chain.fault, "rejoin": chain.rejoin}
        values["outage"] = [_describe(outage) for outage in self.outages]
        if self.lies:
            values["lie"] = [_describe(lie) for lie in self.lies]
        return values


class Schedule:
    """The state of every party and link in every round, for one seed.

    ConfigurationError if the faults name a party or role that the run does not have.

    Parameters
    ----------
    seed : int
        Seed of the chains.
    faults : Faults
        Chains and scripted outages.
    roles : mapping
        Numbers of the parties of each role; for a party with several roles the last one with a
        chain counts.
    last : int or None
        Last round in which chains apply; None for no limit.
    """

    def __init__(
        self,
        faults: Faults,
        roles: Mapping[str, Sequence[int]],
        seed: int,
        last: int | None = None,
    ) -> None:
        self.tick = faults.tick
        self.backward = faults.backward
        self._first = faults.first
        self._seed = seed
        self._last = math.inf if last is None else last
        self._parties = {n for members in roles.values() for n in members}
        self._chains = {
            n: faults.chains[role]
            for role, members in roles.items()
            if role in faults.chains
            for n in members
        }
        self._link_chain = faults.chains.get(LINK)
        self._outages: dict[int | Link, list[Outage]] = {}
        self._one_way: dict[Link, list[Outage]] = {}  # by sender and receiver
        self._known: dict[int | Link, tuple[int, bool]] = {}
        for role in faults.chains:
            if role != LINK and role not in roles:
                raise ConfigurationError(
                    f"faults: no party has the role {role!r}; roles: {', '.join(roles)}, and 'link'"
                )
        for outage in faults.outages:
            entity = self._checked(outage.entity)
            if outage.one_way and isinstance(outage.entity, tuple):
                self._one_way.setdefault(outage.entity, []).append(outage)
            else:
                self._outages.setdefault(entity, []).append(outage)
        self._lies: dict[int | Link, list[Outage]] = {}
        for lie in faults.lies:
            self._lies.setdefault(self._checked(lie.entity), []).append(lie)

    def _checked(self, entity: int | Link) -> int | Link:
        ends = entity if isinstance(entity, tuple) else (entity,)
        for n in ends:
            if n not in self._parties:
                raise ConfigurationError(f"faults: {name_of(n)} does not exist in this run")
        if isinstance(entity, tuple):
            if entity[0] == entity[1]:
                raise ConfigurationError(f"faults: a link from {name_of(entity[0])} to itself")
            return min(entity), max(entity)
        return entity

    @property
    def may_crash(self) -> frozenset[int]:
        """Parties that the faults can take down, which therefore need own checkpoints."""
        scripted = {entity for entity in self._outages if isinstance(entity, int)}
        return frozenset(scripted | {n for n, chain in self._chains.items() if chain.fault > 0})

    @property
    def moments(self) -> list[float]:
        """Virtual seconds at which a scripted outage of a party begins or ends, in order."""
        spans = [
            outage.seconds
            for entity, outages in self._outages.items()
            if isinstance(entity, int)
            for outage in outages
            if outage.seconds is not None
        ]
        return sorted({time for span in spans for time in span if time < math.inf})

    def alive(
        self, party: int, round: int, seconds: float, *, counted: int = 0, back: bool = False
    ) -> bool:
        """Whether a party is up in a round and at a time.

        Parameters
        ----------
        party, round, seconds : int, int, float
            Number of the party, round of the chains, and virtual time.
        counted : int
            Round number for scripted outages, if later: the server's, in protocols whose clients
            begin their own rounds.
        back : bool
            Whether to use the chain's second draw of the round, for answers (`Faults.backward`).
        """
        return self._up(party, self._chains.get(party), (round, max(round, counted)), seconds, back)

    def linked(
        self,
        sender: int,
        receiver: int,
        round: int,
        seconds: float,
        *,
        counted: int = 0,
        back: bool = False,
    ) -> bool:
        """Whether the link from sender to receiver carries messages; the rest as in `alive`."""
        rounds = round, max(round, counted)
        outages = self._one_way.get((sender, receiver), ())
        if any(outage.covers(rounds[1], seconds) for outage in outages):
            return False
        link = (min(sender, receiver), max(sender, receiver))
        return self._up(link, self._link_chain, rounds, seconds, back)

    def lies(self, party: int, round: int, seconds: float) -> bool:
        """Whether random numbers replace a party's uploads in a round, at a virtual second."""
        return any(lie.covers(round, seconds) for lie in self._lies.get(party, ()))

    def returns(self, party: int, round: int = 0, seconds: float = 0.0) -> bool:
        """Whether a party down in a round or at a (virtual) second, or later, may come back."""
        for outage in self._outages.get(party, ()):
            if outage.covers(round, seconds) and outage.span[1] == math.inf:
                return False
        chain = self._chains.get(party)
        return chain is None or chain.rejoin > 0 or self._last < math.inf

    def mends(self, sender: int, receiver: int, round: int) -> bool:
        """Whether a cut link may be restored in a later round."""
        link = (min(sender, receiver), max(sender, receiver))
        scripted = (*self._outages.get(link, ()), *self._one_way.get((sender, receiver), ()))
        if any(outage.seconds is None and outage.covers(round, 0.0) for outage in scripted):
            return True
        chain = self._link_chain
        return chain is not None and (chain.rejoin > 0 or self._last < math.inf)

    def ends_after(self, round: int) -> bool:
        """Whether the chains apply in this round but end later; False if they never end."""
        return round <= self._last < math.inf

    def _up(
        self,
        entity: int | Link,
        chain: Chain | None,
        rounds: tuple[int, int],
        seconds: float,
        back: bool,
    ) -> bool:
        """Whether a party or link is up in chain and script; rounds: (chain's, script's)."""
        round, counted = rounds
        if any(outage.covers(counted, seconds) for outage in self._outages.get(entity, ())):
            return False
        return chain is None or round > self._last or self._state(entity, chain, round, back)

    def _state(self, entity: int | Link, chain: Chain, round: int, back: bool) -> bool:
        """State of a chain in a round; parties and links are up before the first faulty round."""
        if round < self._first:
            return True
        # With two draws a round, the chain has two steps in it: 2 r - 1 forward and 2 r backward.
        first, step = self._first, round
        if self.backward:
            first, step = 2 * first - 1, 2 * round - (not back)
        before = (first - 1, True)
        # A chain is a function of seed, entity and step, since each draw is keyed by them: it can
        # be computed anew from the start, and only the newest state is remembered, as rounds mostly
        # ascend.
        at, up = self._known.get(entity, before)
        if at > step:
            at, up = before
        for number in range(at + 1, step + 1):
            draw = self._draw(entity, number)
            up = draw >= chain.fault if up else draw < chain.rejoin
        self._known[entity] = (step, up)
        return up

    def _draw(self, entity: int | Link, round: int) -> float:
        if isinstance(entity, tuple):
            low, high = entity
            return float(keyed_stream(self._seed, low, LINK, high, round).random())
        return float(keyed_stream(self._seed, entity, "fault", round).random())


def load_faults(source: str | Path | Mapping[str, object] | Faults | None) -> Faults | None:
    """Faults from a TOML file or a mapping with the file's keys; None for None or "none".

    A `Faults` is returned unchanged.

    ::

        tick = 1.0                      # default 1.0: virtual seconds that count as a round of the
                                        # chains, while a party is down and nothing is sent
        first = 2                       # first round in which chains apply; default 1
        backward = true                 # a second draw in each round, for answers; default false
        [client]                        # a role: the chain of each of its parties
        fault = 0.3
        rejoin = 0.5
        [link]                          # the chain of each link
        fault = 0.1
        rejoin = 0.5
        [[outage]]
        party = 3                       # or "server"
        rounds = [40, 60]               # down from round 40 on, back at 60; no end: for good
        [[outage]]
        link = [2, "server"]
        seconds = [12.0]
        one_way = true                  # only what 2 sends to the server is lost; default false
        [[lie]]
        party = 1                       # random numbers stand in place of all that it uploads
        rounds = [5]                    # from round 5 on, for good; or seconds

    ConfigurationError for a missing or malformed file, or values out of range.
    """
    if source is None or isinstance(source, Faults):
        return source
    if isinstance(source, Mapping):
        return faults_from(source)
    if str(source) == "none":
        return None
    import tomllib

    path = Path(source)
    try:
        values = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigurationError(
            f"faults: {path} cannot be read: {error.strerror}; name a TOML file, or 'none'"
        ) from None
    except NOT_PARSED as error:
        raise ConfigurationError(f"faults: {path} is not valid TOML: {error}") from None
    return faults_from(values, name=path.stem)


def faults_from(values: Mapping[str, Any], *, name: str = "custom") -> Faults:
    """Faults from the keys that `load_faults` describes; a key ``name`` overrides `name`.

    ConfigurationError for a value that is no fault.
    """
    chains: dict[str, Chain] = {}
    outages: list[Outage] = []
    lies: list[Outage] = []
    tick, first, backward = 1.0, 1, False
    for key, value in values.items():
        if key == "name" and isinstance(value, str):
            name = value
        elif key == "tick":
            tick = _number(key, value)
        elif key == "first" and isinstance(value, int) and not isinstance(value, bool):
            first = value
        elif key == "backward" and isinstance(value, bool):
            backward = value
        elif key == "outage" and isinstance(value, list | tuple):
            outages += [_outage(each) for each in value]
        elif key == "lie" and isinstance(value, list | tuple):
            lies += [_outage(each) for each in value]
        elif isinstance(value, Mapping) and set(value) == {"fault", "rejoin"}:
            chains[key] = Chain(**{k: _number(f"{key}.{k}", v) for k, v in value.items()})
        else:
            raise ConfigurationError(
                f"faults: {key} = {value!r} is neither a tick, a first round, an outage, a lie, "
                "nor a role's table of fault and rejoin"
            )
    return Faults(chains, tuple(outages), tick, name, first, tuple(lies), backward)


def _outage(values: Any) -> Outage:
    known = {"party", "link", "rounds", "seconds", "one_way"}
    if not isinstance(values, Mapping) or set(values) - known:
        raise ConfigurationError(
            f"faults: an outage is a table of {', '.join(sorted(known))}, not {values!r}"
        )
    if ("party" in values) == ("link" in values):
        raise ConfigurationError(f"faults: an outage is of a party or of a link, not {values!r}")
    if "party" in values:
        entity: int | Link = _party(values["party"])
    else:
        ends = values["link"]
        if not isinstance(ends, list | tuple) or len(ends) != 2:
            raise ConfigurationError(f"faults: a link has two ends, not {ends!r}")
        entity = (_party(ends[0]), _party(ends[1]))
    spans = {key: _span(key, values[key]) for key in ("rounds", "seconds") if key in values}
    one_way = values.get("one_way", False)
    if not isinstance(one_way, bool):
        raise ConfigurationError(f"faults: one_way must be true or false, it is {one_way!r}")
    return Outage(entity, **spans, one_way=one_way)


def _span(key: str, value: object) -> tuple[float, float]:
    if not isinstance(value, list | tuple) or len(value) not in (1, 2):
        raise ConfigurationError(f"faults: {key} = {value!r} must be [start] or [start, end]")
    start, end = (*(_number(key, each) for each in value), math.inf)[:2]
    return start, end


def _party(value: object) -> int:
    if value == "server":
        return SERVER
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigurationError(f"faults: a party is a number or 'server', not {value!r}")
    return value


def _number(key: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ConfigurationError(f"faults: {key} must be a number, it is {value!r}")
    return value


def _describe(outage: Outage) -> dict[str, object]:
    if isinstance(outage.entity, tuple):
        values: dict[str, object] = {"link": [_party_name(n) for n in outage.entity]}
    else:
        values = {"party": _party_name(outage.entity)}
    key = "rounds" if outage.seconds is None else "seconds"
    values[key] = [each for each in outage.span if each < math.inf]
    return values | ({"one_way": True} if outage.one_way else {})


def _party_name(party: int) -> int | str:
    return "server" if party == SERVER else party
