"""Checks of undisturbed runs: learning, determinism, ownership, payloads, messages, accounting."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.engine import wire
from securevfl.engine.conditions import NONE
from securevfl.engine.party import Party
from securevfl.engine.streams import Composed
from securevfl.errors import StalledError
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.basics import require
from securevfl.testing.declarations import disagreements
from securevfl.testing.inspection import global_generators, held_arrays
from securevfl.testing.runs import (
    LEARNING,
    ProtocolLike,
    class_of,
    learning_data,
    make,
    paper_conditions,
    simulate,
    tiny_data,
)

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


def check_training(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that training learns: accuracy well above the largest class, or error below spread."""
    from securevfl.models.split import measure

    data = learning_data() if data is None else data
    outcome = simulate(protocol, data, defaults=LEARNING, **options)
    losses = outcome.losses
    require(bool(losses), protocol, 'no event "round" with a loss was recorded')
    require(all(map(math.isfinite, losses)), protocol, "a loss is not finite")
    scores = outcome.protocol.scores(outcome.parties, data.test)
    measures = measure(data.task, scores, data.test_labels)
    if data.task == "regression":
        spread = float(np.std(data.test_labels))
        require(measures["rmse"] < 0.9 * spread, protocol, f"rmse {measures}, spread {spread}")
        return
    majority = np.bincount(data.test_labels).max() / len(data.test_labels)
    wanted = majority + 0.4 * (1 - majority)
    accuracy = measures["accuracy"]
    require(accuracy > wanted, protocol, f"accuracy {accuracy:.3f} is not above {wanted:.3f}")


def check_determinism(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that one seed gives one run, bit for bit, and another seed a different run."""
    one = simulate(protocol, data, **options)
    two, other = (simulate(protocol, data, seed=seed, **options) for seed in (0, 1))
    require(one.fingerprint() == two.fingerprint(), protocol, "a seed gives two histories")
    require(one.losses != other.losses, protocol, "two seeds give the same losses")


def check_own_entropy(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that parties made one by one from their own entropies behave as those made together.

    Numbers that several parties draw alike must be public (`Party.stream`, `Protocol.stream`).
    Numbers of one party must be secret: other entropy gives another run. AssertionError otherwise.
    """
    every = tuple(make(protocol, data, **options).parties())
    secrets = Composed.draw(*every)
    whole = simulate(protocol, data, secrets=secrets, **options)

    class Apart(class_of(protocol)):  # type: ignore[misc]
        """The protocol with parties that were made one by one."""

        def parties(self) -> dict[int, Party]:
            return {
                n: make(protocol, data, secrets=own, **options).party(n)
                for n, own in secrets.parts.items()
            }

    apart = simulate(Apart, data, secrets=secrets, **options)
    same = whole.fingerprint() == apart.fingerprint()
    require(same, protocol, "parties with entropy of their own do not draw alike what they must")
    other = simulate(protocol, data, **options)
    require(whole.losses != other.losses, protocol, "no secret choice has any effect")


def check_copying(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that parties share no array: copying payloads changes nothing."""
    plain = simulate(protocol, data, **options)
    copied = simulate(protocol, data, copying=True, **options)
    same = plain.fingerprint() == copied.fingerprint()
    require(same, protocol, "copying payloads changes the run: some array has two owners")


def check_ownership(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that a party can reach only its own columns, before and after the run.

    All that a party refers to is searched, so a reference to the protocol or to the data set counts
    as holding everybody's columns. AssertionError names the parties.
    """
    outcome = simulate(protocol, data, **options)
    made = outcome.protocol
    for parties, when in ((made.parties(), "before"), (outcome.parties, "after")):
        holders = set()
        for index, party in parties.items():
            held = held_arrays(party)
            for owner in range(made.data.parties):
                if owner != index:
                    theirs = (
                        made.data.train[owner],
                        made.data.test[owner],
                        *made.data.alone[owner : owner + 1],
                    )
                    raw = any(_holds(held, array) for array in theirs)
                    require(
                        not raw, protocol, f"party {index} holds party {owner}'s columns {when} it"
                    )
            if _holds(held, made.data.train_labels):
                holders.add(index)
        require(len(holders) <= 1, protocol, f"the labels are held by {sorted(holders)} {when} it")


def _holds(arrays: list[np.ndarray], wanted: np.ndarray) -> bool:
    return any(
        np.may_share_memory(array, wanted)
        or (array.shape == wanted.shape and np.array_equal(array, wanted))
        for array in arrays
    )


def check_payloads(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that payloads are wire-encodable, come back unchanged, and have their bytes counted."""
    outcome = simulate(protocol, data, payloads=True, **options)
    sent, moduli = outcome.simulation.transcript, _moduli(outcome.protocol)
    columns = sent.columns()
    seen: dict[int, bytes] = {}
    assert sent.payloads is not None
    for row, payload in enumerate(sent.payloads):
        kind = str(columns["kind"][row])
        if id(payload) not in seen:
            modulus = moduli.get(kind)
            data_bytes = wire.encode(payload, modulus)
            again = wire.encode(wire.decode(data_bytes, modulus), modulus)
            require(again == data_bytes, protocol, f"a {kind!r} does not come back unchanged")
            seen[id(payload)] = data_bytes
        counted = wire.envelope(kind) + len(seen[id(payload)])
        require(columns["bytes"][row] == counted, protocol, f"a {kind!r} changed after sending")


def _moduli(protocol: Protocol) -> dict[str, int | None]:
    """Modulus of the field elements of each declared kind of message; None for other payloads."""
    return {one.kind: one.modulus for one in protocol.messages}


def check_messages(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that every message of a run is declared, and matches its declaration.

    Its kind and roles must be declared; shape, dtype and count in the round must agree where the
    declaration has them; none may be sent twice. A declared message that is not sent passes. So
    does a protocol that declares no messages at all. AssertionError names the differences.
    """
    outcome = simulate(protocol, data, payloads=True, **options)
    if outcome.protocol.messages:
        found = disagreements(outcome)
        require(not found, protocol, f"{len(found)} messages depart: {'; '.join(found[:3])}")


def check_global_state(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that a protocol neither uses nor changes the global generators."""
    data = tiny_data() if data is None else data
    before = global_generators()
    simulate(protocol, data, **options)
    moved = [name for name, state in global_generators().items() if state != before[name]]
    require(not moved, protocol, f"the run moves the global generators of {moved}")


def check_end(protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any) -> None:
    """Check that a run ends without delays, with the paper's, and with slow uplinks."""
    slow = replace(paper_conditions(make(protocol, data, **options)), bandwidth=1e6)
    # None is the paper's, as in the plain run, which other checks share.
    for name, conditions in {"none": NONE, "paper": None, "slow uplinks": slow}.items():
        try:
            simulate(protocol, data, conditions=conditions, **options)
        except StalledError as error:
            require(False, protocol, f"under conditions {name!r}: {error}")


def check_accounting(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that each message has a sender, receiver and size, leaves once, and arrives."""
    outcome = simulate(protocol, data, **options)
    sent = outcome.simulation.transcript
    columns, totals = sent.columns(), sent.totals()
    parties = set(outcome.parties)
    require(sent.messages > 0, protocol, "no message was sent")
    for end in ("sender", "receiver"):
        require(set(columns[end].tolist()) <= parties, protocol, f"some {end} does not exist")
    require((columns["sender"] != columns["receiver"]).all(), protocol, "one wrote to itself")
    require((columns["arrived"] >= columns["sent"]).all(), protocol, "a message never arrived")
    require((columns["bytes"] > wire.ENVELOPE).all(), protocol, "a message without bytes")
    for name, wanted in (
        ("messages", sent.messages),
        ("bytes", sent.bytes),
        ("late", sent.late),
    ):
        require(totals[name].sum() == wanted, protocol, f"the totals of {name} do not add up")
