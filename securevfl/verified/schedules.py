"""Schedules of a traced run: which parties are late, down, or back.

A proof covers one trace, and a trace has one schedule. So a protocol is traced under each schedule
of a set, and a claim is proved if it is proved under all (`docs/proof.md`, L7).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.delays import Trace
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.network import SERVER

#: Seconds that an upload takes: in time, late but within two rounds, and longer than all wait.
IN_TIME, LATE, NEVER = 1.0, 1.5, 2 * 86400.0
#: Part of it that sharing takes where parties crash: round 1 is shared until 0.5 s and over at 1.5.
SHARING = 0.5
#: Clients up to which all sets of them are late, and not only each by itself.
MOST = 4
_ROUNDS = 64  # after so many a pattern begins anew


@dataclass(frozen=True)
class Schedule:
    """A schedule: which parties are late or down, and when.

    Attributes
    ----------
    name : str
        A sentence for readers, such as "client 2 is late in every round".
    uploads : tuple of tuple of float
        For each client, the seconds that an upload takes in rounds 1, 2, ...; repeated after the
        last. Empty for no delays.
    outages : tuple of Outage
        Times at which parties are down.
    sharing : float
        Fraction of the time of an upload that sharing takes.
    """

    name: str
    uploads: tuple[tuple[float, ...], ...] = ()
    outages: tuple[Outage, ...] = ()
    sharing: float = 0.0

    @property
    def conditions(self) -> Conditions:
        """Delays of the schedule."""
        if not self.uploads:
            return NONE
        uploads = tuple(Trace(seconds) for seconds in self.uploads)
        return Conditions(self.name, uploads=uploads, share_factor=self.sharing)

    @property
    def faults(self) -> Faults | None:
        """Outages of the schedule; None if there are none."""
        return Faults(outages=self.outages, name=self.name) if self.outages else None


UNDISTURBED = Schedule("nobody is late")


def down(name: str, some: Mapping[int, tuple[float, float]]) -> Schedule:
    """A schedule of parties that are down, each from one second to another."""
    return Schedule(name, outages=tuple(Outage(n, seconds=span) for n, span in some.items()))


def usual(parties: int, *, waits: bool, shares: bool = False) -> tuple[Schedule, ...]:
    """Schedules under which every protocol is traced.

    No party is late; a client, or the server, goes down and comes back, during uploads in round 1,
    at the beginning of round 2, and during sharing in round 2. If others continue without a party:
    each client late in every round, each down from round 2 on, and, up to N = 4, every set of
    clients silent in round 1. With more clients, each alone is silent, and all but the first, so
    that an attempt is abandoned. For any N, the last once more, with a client down in round 2.

    Parameters
    ----------
    parties : int
        Number N of parties.
    waits : bool
        Whether the protocol waits for all parties, so that lateness changes nothing.
    shares : bool
        Whether it continues without clients that share late: then each schedule with silent clients
        is followed by one in which they share nothing, either.
    """
    clients, on_time = range(parties), _uploads(parties, set(), ())
    found = [UNDISTURBED]
    if not waits:
        found += [
            Schedule(f"client {n} is late in every round", _uploads(parties, {n}, (LATE,)))
            for n in clients
        ]
        silent = (NEVER, *[IN_TIME] * (_ROUNDS - 1))
        for some in _sets(parties):
            said = f"client{'s' if len(some) > 1 else ''} {', '.join(map(str, some))}"
            does = "uploads" if len(some) == 1 else "upload"
            name = f"{said} {does} nothing in round 1"
            found.append(Schedule(name, _uploads(parties, set(some), silent)))
            if shares:
                name = f"{said} {does} and share{'s' * (len(some) == 1)} nothing in round 1"
                found.append(replace(found[-1], name=name, sharing=SHARING))
        found += [
            Schedule(
                f"client {n} is down from round 2 on", on_time, (Outage(n, rounds=(2, math.inf)),)
            )
            for n in clients
        ]
        again = Schedule(
            f"all clients but 0 upload nothing in round 1, and client {parties - 1} is down in "
            "round 2",
            _uploads(parties, set(range(1, parties)), silent),
            (Outage(parties - 1, rounds=(2, 3)),),
        )
        found.append(again)
    for party in (parties - 1, SERVER):
        who = "the server" if party == SERVER else f"client {party}"
        first, second = (0.75 * IN_TIME, 0.9 * IN_TIME), (1.75 * IN_TIME, 1.9 * IN_TIME)
        for when, outage in (
            ("within round 1", Outage(party, seconds=first)),
            ("before round 2", Outage(party, rounds=(2, 3))),
            ("within round 2", Outage(party, seconds=second)),
        ):
            name = f"{who} goes down {when}, and comes back"
            found.append(Schedule(name, on_time, (outage,), SHARING))
    return tuple(found)


def resumed(parties: int) -> Schedule:
    """A schedule in which all parties go down within round 2, and go on from what they stored."""
    on_time, span = _uploads(parties, set(), ()), (1.75 * IN_TIME, 1.9 * IN_TIME)
    outages = tuple(Outage(n, seconds=span) for n in (SERVER, *range(parties)))
    return Schedule("all parties go down within round 2, and come back", on_time, outages, SHARING)


def _sets(parties: int) -> Sequence[tuple[int, ...]]:
    if parties > MOST:
        return [*((n,) for n in range(parties)), tuple(range(1, parties))]
    sizes = range(1, parties)
    return [some for size in sizes for some in itertools.combinations(range(parties), size)]


def _uploads(
    parties: int, slow: set[int], seconds: tuple[float, ...]
) -> tuple[tuple[float, ...], ...]:
    return tuple(seconds if n in slow else (IN_TIME,) for n in range(parties))
