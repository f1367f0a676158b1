"""Small runs of a protocol, with everything that tests compare."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securevfl.engine import wire
from securevfl.engine.conditions import Conditions, paper, with_helpers
from securevfl.engine.faults import Faults
from securevfl.engine.network import Event, Message
from securevfl.engine.party import Party
from securevfl.engine.party_state import shares_of, snapshot
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.streams import Secrets
from securevfl.engine.transcript import Transcript
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.assembly import rules_of
from securevfl.runs.threads import one_thread

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

ProtocolLike = str | type[Protocol]

# Small, and awkward on purpose: neither rows nor columns divide evenly.
# With so few rows and columns a budget of sums would end most runs, so there is none.
TINY = {"rounds": 4, "batch": 15, "width": 6, "hidden": 6, "degree": 2, "sum_budget": 0.0} | {
    "lr_decay": "none",
    "client_lr_decay": "none",
    "paper": True,
}
LEARNING = {"rounds": 40}


class History:
    """Observer that stores the events of a run."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def record(self, event: Event) -> None:
        """Store the event."""
        self.events.append(event)

    def round_over(self, party: int, round: int, time: int, left: bool) -> None:
        """Do nothing: the end of a round is not stored."""


@dataclass(frozen=True)
class Outcome:
    """A finished run.

    Attributes
    ----------
    protocol : Protocol
        Configured protocol.
    parties : mapping of int to Party
        Parties at the end of the run.
    events : tuple of Event
        Events that the parties recorded.
    simulation : Simulation
        Simulation that was run.
    """

    protocol: Protocol
    parties: Mapping[int, Party]
    events: tuple[Event, ...]
    simulation: Simulation

    @property
    def losses(self) -> list[float]:
        """Training loss of each server step."""
        return [event.fields["loss"] for event in self.events if event.name == "round"]

    def fingerprint(self) -> bytes:
        """Bytes that must be equal in a replay: events, final stored state, transcript, clock.

        Masks are drawn from the operating system and differ between runs, so constants such as
        data shares are no part of it, and neither are payloads.
        """
        kept = {}
        for index, party in self.parties.items():
            saved = snapshot(party, waits=0, time=0)
            own = wire.decode(saved["kept"]), saved["frozen"]
            shares = shares_of(party)
            kept[index] = tuple({n: v for n, v in one.items() if n not in shares} for one in own)
        sent = self.simulation.transcript
        return wire.encode(
            (
                [tuple(event) for event in self.events],
                kept,
                sent.state()["columns"],
                sent.state()["kinds"],
                self.simulation.clock,
            )
        )


@functools.cache
def tiny_data() -> VerticalDataset:
    """Digits, 101 + 41 rows, dealt unevenly to 6 parties; read-only."""
    from securevfl.data import load_dataset

    data: VerticalDataset = load_dataset("digits", parties=8)
    return data.with_parties(6).subset(101, 41)


@functools.cache
def learning_data() -> VerticalDataset:
    """Digits, 400 training rows and all test rows, 8 parties; read-only."""
    from securevfl.data import load_dataset

    data: VerticalDataset = load_dataset("digits", parties=8)
    return data.subset(400)


def make(
    protocol: ProtocolLike,
    data: VerticalDataset | None = None,
    *,
    seed: int = 0,
    secrets: Secrets | None = None,
    defaults: Mapping[str, Any] = TINY,
    **options: Any,
) -> Protocol:
    """Configured protocol for `data`, by default `tiny_data()`.

    Options are the `defaults` that it knows, its `check_options`, and `options`; the later ones
    win. Without `secrets`, secret streams follow `seed`. Raises what `make_config` raises.
    """
    cls = class_of(protocol)
    known = {name: value for name, value in defaults.items() if name in cls.Config.model_fields}
    config = make_config(cls, known | dict(cls.check_options) | options)
    made = cls(config, tiny_data() if data is None else data, seed=seed)
    if secrets is not None:
        made.secrets = secrets
    return made


def simulate(
    protocol: ProtocolLike,
    data: VerticalDataset | None = None,
    *,
    seed: int = 0,
    secrets: Secrets | None = None,
    conditions: Conditions | None = None,
    copying: bool = False,
    payloads: bool = False,
    faults: Faults | None = None,
    forged: Iterable[tuple[float, Message]] = (),
    defaults: Mapping[str, Any] = TINY,
    **options: Any,
) -> Outcome:
    """Run a protocol to its end in virtual time.

    Parameters
    ----------
    protocol : str or Protocol class
        Name of an installed protocol, or a class.
    data : VerticalDataset, optional
        Data set; `tiny_data` if not given.
    seed : int
        Seed of public choices and delays.
    secrets : Secrets, optional
        Secret streams of the parties, such as `securevfl.engine.streams.Composed`; by default
        derived from `seed`.
    conditions : Conditions, optional
        Delays and bandwidth; the paper's delays if not given.
    copying : bool
        Whether to encode every payload to bytes and decode it.
    payloads : bool
        Whether the transcript keeps the payloads.
    faults : Faults, optional
        Crashes and lost messages; none if not given.
    forged : iterable of (float, Message)
        Messages of deviating parties, each with the virtual second of its arrival.
    defaults : mapping
        Options for a protocol that has them, unless `options` sets them.
    **options
        The protocol's own.

    Raises
    ------
    ConfigurationError, RunError
        If the protocol refuses options or data, or its run ends in an error.
    """
    made = make(protocol, data, seed=seed, secrets=secrets, defaults=defaults, **options)
    parties, history = made.parties(), History()
    simulation = Simulation(
        parties,
        seed=seed,
        secrets=made.secrets,
        conditions=paper_conditions(made) if conditions is None else conditions,
        transcript=Transcript(payloads=payloads),
        observer=history,
        copying=copying,
        faults=None if faults is None else faults.bind(made.roles(), seed, last=made.last_fault),
        make_party=made.party,
        rules=rules_of(made),
    )
    for at, message in forged:
        simulation.inject(message, at)
    with one_thread():
        simulation.run()
    return Outcome(made, parties, tuple(history.events), simulation)


def class_of(protocol: ProtocolLike) -> type[Protocol]:
    """Protocol class from its name or the class itself."""
    return get_protocol(protocol) if isinstance(protocol, str) else protocol


def paper_conditions(protocol: Protocol) -> Conditions:
    """Conditions "paper" (delays of the FedVS paper) for a protocol's parties and batch size."""
    return with_helpers(
        paper(protocol.data.parties, batch_rows=protocol.batch_rows), len(protocol.peers())
    )


def state_at(
    protocol: ProtocolLike, data: VerticalDataset, instant: int, **options: Any
) -> tuple[bytes, list[Event]]:
    """(bytes of a run's state at an instant in virtual nanoseconds, the events up to it)."""
    return states_at(protocol, data, [instant], **options)[instant]


def states_at(
    protocol: ProtocolLike, data: VerticalDataset, instants: Iterable[int], **options: Any
) -> dict[int, tuple[bytes, list[Event]]]:
    """Bytes of the state, and the events up to it, for each instant in virtual nanoseconds.

    One run gives several; it is repeated for instants that pass before the last state is complete.
    """
    found: dict[int, tuple[bytes, list[Event]]] = {}
    left = set(instants)
    while left:
        found |= _states_of_one_run(make(protocol, data, **options), left)
        left -= found.keys()
    return found


def _states_of_one_run(made: Protocol, wanted: Set[int]) -> dict[int, tuple[bytes, list[Event]]]:
    history, found = History(), dict[int, tuple[bytes, list[Event]]]()
    simulation = Simulation(
        made.parties(),
        conditions=paper_conditions(made),
        observer=history,
        rules=rules_of(made),
    )
    passed, asked = -1, -1

    def keep(state: dict[str, Any]) -> None:
        found[asked] = wire.encode(state), list(history.events)

    def pause() -> bool:
        nonlocal passed, asked
        passed += 1
        complete = asked in found or asked < 0
        if complete and passed in wanted:
            asked = passed
            simulation.request_state(keep)  # more may happen in the instant in which it is taken
        return passed >= max(wanted) and asked in found

    with one_thread():
        simulation.run(pause)
    if asked not in found:
        raise AssertionError("some party never comes to a safe point or to its end")
    return found


def resume_from(
    protocol: ProtocolLike,
    data: VerticalDataset,
    saved: bytes,
    events: list[Event],
    **options: Any,
) -> Outcome:
    """Outcome of a run resumed by new parties from `saved` (`state_at`), after earlier events."""
    made, history = make(protocol, data, **options), History()
    history.events = list(events)
    parties = made.parties()
    with one_thread():  # from_state computes: it replays what parties did since their safe points
        simulation = Simulation.from_state(
            parties,
            wire.decode(saved),
            conditions=paper_conditions(made),
            observer=history,
            rules=rules_of(made),
        )
        simulation.run()
    return Outcome(made, parties, tuple(history.events), simulation)
