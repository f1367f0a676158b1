"""A run of parties that may deviate, and who noticed."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from securevfl.engine.network import SERVER, Event
from securevfl.engine.party import Party
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import SecureVFLError
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import History


def carry_out(
    parties: MutableMapping[int, Party], **how: Any
) -> tuple[Simulation, tuple[Event, ...], Exception | None]:
    """Run the parties to the end, or to the error that ends it.

    Parameters
    ----------
    parties : mutable mapping of int to Party
    **how
        Arguments of `Simulation`.
    """
    history = History()
    simulation, error = Simulation(parties, observer=history, **how), None
    with one_thread():
        try:
            simulation.run()
        except Exception as ended:  # it is what is measured
            error = ended
    return simulation, tuple(history.events), error


def who_noticed(events: Sequence[Event], error: Exception | None) -> str:
    """Parties that recorded something, or the error that ended the run; "nobody" if neither."""
    said = []
    refused = {event.party for event in events if event.name == "refused"}
    if refused - {SERVER}:
        said.append(f"{len(refused - {SERVER})} clients refuse")
    if SERVER in refused:
        said.append("server refuses")
    blamed = sorted({n for e in events if e.name == "corrected" for n in e.fields["clients"]})
    if blamed:
        said.append(f"server corrects client {', '.join(map(str, blamed))}")
    if any(event.name == "given_up" for event in events):
        said.append("server gives attempts up")
    if error is not None:
        foreign = "" if isinstance(error, SecureVFLError) else ", none of the library's"
        said.append(f"the run ends ({type(error).__name__}{foreign})")
    return ", ".join(said) or "nobody"


@dataclass(frozen=True)
class Played:
    """A run that ended, by an error or not.

    Attributes
    ----------
    server : Server
    judge : Judge
        Of the stage on which it was played; it knows what all parties hold.
    events : tuple of Event
    error : Exception or None
    """

    server: Any
    judge: Any
    events: tuple[Event, ...]
    error: Exception | None

    @property
    def found(self) -> dict[str, Any]:
        """Findings of a lying server."""
        return dict(self.server.found)

    def noticed(self) -> str:
        """Parties that noticed, as `who_noticed` names them."""
        return who_noticed(self.events, self.error)

    def count(self, name: str) -> int:
        """Number of events of a name."""
        return sum(event.name == name for event in self.events)
