"""Roster of a session: beacons received from the others, and conclusions from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from securevfl.engine.network import SERVER, name_of
from securevfl.engine.organisations.beacon import Beacon
from securevfl.errors import CheckpointError

_UNTOLD = 2  # rounds that may be lost without a word: they are begun anew


class Roster:
    """Newest beacon of each other party with its time of arrival; callers give the time.

    Parameters
    ----------
    parties : sequence of int
        All parties, in order.
    index, life : int
        Number of the party that has this roster, and of its incarnation.
    """

    def __init__(self, parties: Sequence[int], index: int, life: int) -> None:
        self.parties = tuple(parties)
        self.index = index
        self.life = life
        self.newest: dict[int, Beacon] = {}
        self._heard: dict[int, float] = {}

    @property
    def peers(self) -> tuple[int, ...]:
        """Numbers of the other parties."""
        return tuple(n for n in self.parties if n != self.index)

    def hear(self, beacon: Beacon, now: float) -> bool:
        """Store a beacon heard at `now`, in s; return whether it is another party's newest."""
        known = self.newest.get(beacon.sender)
        if beacon.sender not in self.peers:
            return False
        if known is not None and (beacon.life, beacon.number) <= (known.life, known.number):
            return False
        self.newest[beacon.sender] = beacon
        self._heard[beacon.sender] = now
        return True

    @property
    def lives(self) -> tuple[int, ...]:
        """Incarnation number of each party as far as known; -1 for unknown."""
        return tuple(
            self.life if n == self.index else self.newest[n].life if n in self.newest else -1
            for n in self.parties
        )

    def of(self, era: Sequence[int], party: int) -> int:
        """Incarnation number of a party in an era (a tuple of all parties' numbers)."""
        return era[self.parties.index(party)]

    def silent(self, now: float, seconds: float) -> list[int]:
        """Parties heard before, but not within the last `seconds`."""
        return [n for n in self.peers if n in self._heard and now - self._heard[n] > seconds]

    def absent(self, phase: int) -> list[int]:
        """Parties never heard, or still in an earlier phase."""
        return [n for n in self.peers if n not in self.newest or self.newest[n].phase < phase]

    def agreed(self, phase: int, era: tuple[int, ...]) -> bool:
        """Whether all others want to run a phase in this era."""
        return all(
            n in self.newest and self.newest[n].phase == phase and self.newest[n].era == era
            for n in self.peers
        )

    def passed(self, phase: int) -> bool:
        """Whether another party is in a later phase, so that all had ended this one."""
        return any(beacon.phase > phase for beacon in self.newest.values())

    def undone(self, phase: int) -> list[int]:
        """Other parties not known to have ended their part of a phase."""
        found = []
        for n in self.peers:
            beacon = self.newest.get(n)
            if beacon is None or beacon.phase < phase or not (beacon.phase > phase or beacon.done):
                found.append(n)
        return found

    def failed(self) -> list[int]:
        """Parties whose own code failed in their present incarnation."""
        return [n for n, beacon in sorted(self.newest.items()) if beacon.failed]

    def known_life(self) -> int:
        """Newest incarnation of this party known to another party; -1 for none."""
        return max((self.of(one.era, self.index) for one in self.newest.values()), default=-1)

    def common_round(self, own: Sequence[int], origin: tuple[int, ...]) -> int | None:
        """Newest round with a complete checkpoint at every party; None to start from the beginning.

        Rounds of an earlier beginning do not count, because their party's secrets have changed.
        CheckpointError if there is no common round, and a new beginning would lose more than two
        rounds of a party.

        Parameters
        ----------
        own, origin
            Rounds of this party, and the era in which they were begun from nothing.
        """
        told = {n: (self.newest[n].rounds, self.newest[n].origin) for n in self.peers}
        told[self.index] = tuple(own), origin
        newest = max(begun for _, begun in told.values())  # lives only rise
        rounds = {n: set(kept) if begun == newest else set() for n, (kept, begun) in told.items()}
        common = set.intersection(*rounds.values())
        if common:
            return max(common)
        _refuse_loss({n: max(kept, default=0) for n, kept in rounds.items()})
        return None


def _refuse_loss(newest: Mapping[int, int]) -> None:
    """Refuse to start from the beginning if that would delete work (CheckpointError)."""
    most = max(newest.values())
    if most <= _UNTOLD:
        return
    told = ", ".join(f"{name_of(n)} up to {kept}" for n, kept in sorted(newest.items()))
    raise CheckpointError(
        f"session: there is no round of which every party has a whole checkpoint: {told}. Put back "
        "the folders of those that lack them; to begin anew, make another manifest. Nothing was "
        "changed"
    )


def server_runs(roster: Roster, phase: int, origin: tuple[int, ...]) -> bool:
    """Whether the server runs this phase, in an era with its present incarnation."""
    beacon = roster.newest.get(SERVER)
    return (
        beacon is not None
        and beacon.phase == phase
        and beacon.begun
        and beacon.origin == origin
        and roster.of(beacon.era, SERVER) == beacon.life
    )
