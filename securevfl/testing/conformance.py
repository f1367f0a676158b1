"""Checks that every protocol must pass, published for authors of protocols.

Each check is a function of a protocol, a data set and options, and raises `AssertionError` with the
protocol's name and what is wrong. Use them from pytest::

    import pytest
    from securevfl.testing.conformance import CHECKS

    @pytest.mark.parametrize("check", CHECKS.values(), ids=CHECKS)
    def test_conformance(check):
        check(MyProtocol, segments=2)

or all at once by ``check_protocol(MyProtocol)``. Without a data set the bundled digits are used:
few rows dealt unevenly to six parties, or 400 rows and eight parties where it must learn.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from securevfl.engine import wire
from securevfl.engine.conditions import NONE, Conditions, Delay
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.party import Party
from securevfl.engine.streams import Composed
from securevfl.errors import ConfigurationError, RunError, StalledError
from securevfl.privacy.claims import Claim, Notion
from securevfl.protocols.base.card import Absence
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import make_config
from securevfl.testing.declarations import disagreements, forged_messages
from securevfl.testing.inspection import forbidden_code, global_generators, held_arrays
from securevfl.testing.runs import (
    LEARNING,
    ProtocolLike,
    class_of,
    learning_data,
    make,
    paper_conditions,
    resume_from,
    simulate,
    states_at,
    tiny_data,
)

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

Check = Callable[..., None]

SUBJECTS = ("features", "model", "labels")
_FAR = 1000.0  # seconds; far beyond what any other delay of `check_absence` adds up to


def _require(met: Any, protocol: ProtocolLike, why: str) -> None:
    if not met:
        raise AssertionError(f"{class_of(protocol).name}: {why}")


def check_card(protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any) -> None:
    """The card is complete and every claim is well-formed."""
    cls = class_of(protocol)
    card = cls.card
    _require(bool(re.fullmatch("[a-z][a-z0-9_]*", cls.name)), cls, "name: use a-z, 0-9 and _")
    _require(bool(cls.__doc__ and cls.__doc__.strip()), cls, "the class has no docstring")
    for field in ("title", "paper", "roles", "sees"):
        _require(bool(getattr(card, field)), cls, f"card: {field} is empty")
    for role, words in {**card.roles, **card.sees}.items():
        _require(bool(role.strip() and words.strip()), cls, f"card: nothing is said of {role!r}")
    _require(set(card.roles) <= set(card.sees), cls, "card: what some role sees is not said")
    _require(card.absence in get_args(Absence), cls, f"card: absence {card.absence!r}")
    claims = make(cls, data, **options).claims
    for claim in claims:
        _check_claim(cls, claim)
    _require(bool(claims), cls, 'no claims: state "none" where nothing is claimed')
    pairs = [(claim.who, claim.about) for claim in claims]
    _require(len(set(pairs)) == len(pairs), cls, "two claims are about the same")


def _check_claim(cls: type[Protocol], claim: Claim) -> None:
    _require(isinstance(claim, Claim), cls, f"{claim!r} is no Claim")
    _require(claim.notion in get_args(Notion), cls, f"{claim}: unknown notion")
    _require(claim.about in SUBJECTS, cls, f"{claim}: about must be one of {SUBJECTS}")
    _require(bool(claim.who.strip() and claim.source.strip()), cls, f"{claim}: who or source")


def check_config(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """The default options work; nonsense is refused before a run, as a ConfigurationError."""
    cls = class_of(protocol)
    make(cls, data, defaults={}, **options).parties()
    _require("rounds" in cls.Config.model_fields, cls, "options: rounds is missing")
    _refuses(cls, {"rounds": 0})
    _refuses(cls, {"rounds": -1})
    _refuses(cls, {"no_such_option": 1})
    for name, field in cls.Config.model_fields.items():
        _require(bool(field.description), cls, f"option {name} has no description")
        kinds = {field.annotation, *get_args(field.annotation)}
        if kinds & {int, float}:
            for nonsense in ("nonsense", math.nan, math.inf, -math.inf, [1]):
                _refuses(cls, {name: nonsense})
        elif str not in kinds and bool not in kinds:
            _refuses(cls, {name: "nonsense"})


def _refuses(cls: type[Protocol], options: dict[str, Any]) -> None:
    try:
        make_config(cls, options)
    except ConfigurationError:
        return
    _require(False, cls, f"the options {options} are accepted")


def check_training(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """It learns: test accuracy well above the largest class, or error well below the spread."""
    from securevfl.models.split import measure

    data = learning_data() if data is None else data
    outcome = simulate(protocol, data, defaults=LEARNING, **options)
    losses = outcome.losses
    _require(bool(losses), protocol, 'no event "round" with a loss was recorded')
    _require(all(map(math.isfinite, losses)), protocol, "a loss is not finite")
    scores = outcome.protocol.scores(outcome.parties, data.test)
    measures = measure(data.task, scores, data.test_labels)
    if data.task == "regression":
        spread = float(np.std(data.test_labels))
        _require(measures["rmse"] < 0.9 * spread, protocol, f"rmse {measures}, spread {spread}")
        return
    majority = np.bincount(data.test_labels).max() / len(data.test_labels)
    wanted = majority + 0.4 * (1 - majority)
    accuracy = measures["accuracy"]
    _require(accuracy > wanted, protocol, f"accuracy {accuracy:.3f} is not above {wanted:.3f}")


def check_determinism(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """The same seed gives the same run, bit for bit; another seed gives another one."""
    one, two, other = (simulate(protocol, data, seed=s, **options) for s in (7, 7, 8))
    _require(one.fingerprint() == two.fingerprint(), protocol, "a seed gives two histories")
    _require(one.losses != other.losses, protocol, "two seeds give the same losses")


def check_own_entropy(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Each party, made by itself from its own entropy, runs as where all were made together.

    What several parties must draw alike has to be public (`Party.stream`, `Protocol.stream`). What
    only one needs has to be secret: other entropy gives another run.
    """
    every = tuple(make(protocol, data, **options).parties())
    secrets, others = Composed.draw(*every), Composed.draw(*every)
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
    _require(same, protocol, "parties with entropy of their own do not draw alike what they must")
    other = simulate(protocol, data, secrets=others, **options)
    _require(whole.losses != other.losses, protocol, "no secret choice has any effect")


def check_copying(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Nothing changes when payloads are copied, as between processes: parties share no array."""
    plain = simulate(protocol, data, **options)
    copied = simulate(protocol, data, copying=True, **options)
    same = plain.fingerprint() == copied.fingerprint()
    _require(same, protocol, "copying payloads changes the run: some array has two owners")


def check_ownership(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """A party can reach its own columns only, before the run and after it.

    All that a party refers to is searched, so a reference to the protocol or to the data set
    counts as holding everybody's columns.
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
                    _require(
                        not raw, protocol, f"party {index} holds party {owner}'s columns {when} it"
                    )
            if _holds(held, made.data.train_labels):
                holders.add(index)
        _require(len(holders) <= 1, protocol, f"the labels are held by {sorted(holders)} {when} it")


def _holds(arrays: list[np.ndarray], wanted: np.ndarray) -> bool:
    return any(
        np.may_share_memory(array, wanted)
        or (array.shape == wanted.shape and np.array_equal(array, wanted))
        for array in arrays
    )


def check_payloads(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Every payload is wire-encodable, comes back unchanged, and was counted with its bytes."""
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
            _require(again == data_bytes, protocol, f"a {kind!r} does not come back unchanged")
            seen[id(payload)] = data_bytes
        counted = wire.envelope(kind) + len(seen[id(payload)])
        _require(columns["bytes"][row] == counted, protocol, f"a {kind!r} changed after sending")


def _moduli(protocol: Protocol) -> dict[str, int | None]:
    """Modulus of the field elements of each declared kind."""
    return {one.kind: one.modulus for one in protocol.messages}


def check_messages(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Every message is declared: kind and roles, and where it says so shape, dtype and count.

    A protocol that declares no messages passes; nothing that verifiers say covers it.
    """
    outcome = simulate(protocol, data, payloads=True, **options)
    if outcome.protocol.messages:
        found = disagreements(outcome)
        _require(not found, protocol, f"{len(found)} messages depart: {'; '.join(found[:3])}")


def check_senders(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """No message counts that comes from a party which may not send it, and its sender is named.

    Every declared kind is sent by every wrong party to every other one, with the payload of a true
    message that comes later. The run must be that without these, bit for bit. A protocol that
    declares no messages passes.
    """
    plain = simulate(protocol, data, payloads=True, **options)
    if not plain.protocol.messages:
        return
    forged = forged_messages(plain)
    try:
        disturbed = simulate(protocol, data, payloads=True, forged=forged, **options)
    except RunError as error:
        name = plain.protocol.name
        raise AssertionError(f"{name}: a forged message ends the run: {error}") from error
    refused = [e for e in disturbed.events if e.name == "refused" and "sender" in e.fields]
    named = Counter((e.fields["kind"], e.fields["sender"], e.party) for e in refused)
    wanted = Counter((m.kind, m.sender, m.receiver) for _, m in forged)
    _require(named == wanted, protocol, f"refused are {named}, and forged were {wanted}")
    rest = replace(disturbed, events=tuple(e for e in disturbed.events if e not in refused))
    same = rest.fingerprint() == plain.fingerprint()
    _require(same, protocol, "messages of parties that may not send them change the run")


def check_resume(
    protocol: ProtocolLike,
    data: VerticalDataset | None = None,
    *,
    cuts: int = 6,
    **options: Any,
) -> None:
    """Cut anywhere and resumed from bytes, the run ends as the unbroken one, bit for bit.

    Parameters
    ----------
    protocol : str or Protocol class
    data : VerticalDataset, optional
    cuts : int
        Instants of virtual time, drawn at random, at which a checkpoint is asked for.
    **options
        The protocol's own.
    """
    data = tiny_data() if data is None else data
    whole = simulate(protocol, data, **options)
    instants = len(np.unique(whole.simulation.transcript.columns()["arrived"]))
    draw = np.random.Generator(np.random.Philox(1))
    chosen = draw.choice(instants, min(cuts, instants), replace=False).tolist()
    wanted = whole.fingerprint()
    for cut, (saved, events) in states_at(protocol, data, chosen, **options).items():
        resumed = resume_from(protocol, data, saved, events, **options)
        same = resumed.fingerprint() == wanted
        _require(same, protocol, f"cut at instant {cut} of {instants}, the run ends differently")


def check_global_state(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """The global generators of Python, NumPy and torch are neither moved nor obeyed."""
    data = tiny_data() if data is None else data
    before = global_generators()
    simulate(protocol, data, **options)
    moved = [name for name, state in global_generators().items() if state != before[name]]
    _require(not moved, protocol, f"the run moves the global generators of {moved}")


def check_source(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """The module imports no clock, event loop, global randomness, engine inside, or sibling."""
    cls = class_of(protocol)
    found = forbidden_code(cls)
    _require(not found, cls, f"the module uses {found}; a party file may use none of them")


def check_absence(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """One client whose uploads take very long holds the training up iff the card says so.

    Where it says "skips", training may also be given up, in an error that names the client.
    """
    made = make(protocol, data, **options)
    N = made.data.parties
    slow = Conditions(name="one is slow", uploads=(Delay(),) * (N - 1) + (Delay(shift=_FAR),))
    says = made.card.absence
    try:
        outcome = simulate(protocol, data, conditions=slow, **options)
    except RunError as error:
        given_up = says == "skips" and not isinstance(error, StalledError)
        _require(given_up, protocol, f'the card says "{says}", and it ended: {error}')
        _require(f"party {N - 1}" in str(error), protocol, f"the error names nobody: {error}")
        return
    last = max(event.time for event in outcome.events if event.name == "round") / 1e9
    waited = last >= _FAR
    _require(
        waited == (says == "waits"),
        protocol,
        f'the card says "{says}" and the last step came after {last:.0f} s',
    )


def check_faults(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """One client that goes down ends the training, in an error that names it, iff the card waits.

    It goes down in round 2, for good and for two rounds. Protocols that do not wait are given
    `Protocol.fault_options`, unless the options say otherwise.
    """
    cls = class_of(protocol)
    options = dict(cls.fault_options) | options
    made = make(protocol, data, **options)
    last, waits = made.data.parties - 1, made.card.absence == "waits"
    for end in (math.inf, 4):
        faults = Faults(outages=(Outage(last, rounds=(2, end)),))
        try:
            outcome = simulate(protocol, data, faults=faults, **options)
        except RunError as error:
            message = str(error)
            _require(
                waits, protocol, f'the card says "{made.card.absence}", and it ended: {message}'
            )
            named = f"party {last}" in message and "round" in message
            _require(named, protocol, f"the error names no party {last} and no round: {message}")
            continue
        _require(not waits, protocol, 'the card says "waits", and it went on')
        names = [event.name for event in outcome.events]
        _require("down" in names, protocol, f"party {last} came through round 2 unharmed")
        finite = all(map(math.isfinite, outcome.losses))
        _require(outcome.losses and finite, protocol, "a loss is not finite")


def check_end(protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any) -> None:
    """It ends under no delays, under the paper's, and where stragglers' uplinks are slow too."""
    made = make(protocol, data, **options)
    slow = replace(paper_conditions(made), bandwidth=1e6)
    for conditions in (NONE, paper_conditions(made), slow):
        try:
            simulate(protocol, data, conditions=conditions, **options)
        except StalledError as error:
            _require(False, protocol, f"under conditions {conditions.name!r}: {error}")


def check_accounting(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Every message has a sender, a receiver and a size, leaves once, and arrives."""
    outcome = simulate(protocol, data, **options)
    sent = outcome.simulation.transcript
    columns, totals = sent.columns(), sent.totals()
    parties = set(outcome.parties)
    _require(sent.messages > 0, protocol, "no message was sent")
    for end in ("sender", "receiver"):
        _require(set(columns[end].tolist()) <= parties, protocol, f"some {end} does not exist")
    _require((columns["sender"] != columns["receiver"]).all(), protocol, "one wrote to itself")
    _require((columns["arrived"] >= columns["sent"]).all(), protocol, "a message never arrived")
    _require((columns["bytes"] > wire.ENVELOPE).all(), protocol, "a message without bytes")
    for name, wanted in (
        ("messages", sent.messages),
        ("bytes", sent.bytes),
        ("late", sent.late),
    ):
        _require(totals[name].sum() == wanted, protocol, f"the totals of {name} do not add up")


def check_memory(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """The prediction of memory is a number, and there is advice for those who have less."""
    made = make(protocol, data, **options)
    needed = made.memory()
    _require(isinstance(needed, int) and needed >= 0, protocol, f"memory() is {needed!r}")
    _require(bool(made.advice(needed // 2).strip()), protocol, "advice() says nothing")


CHECKS: dict[str, Check] = {
    "card": check_card,
    "config": check_config,
    "source": check_source,
    "memory": check_memory,
    "training": check_training,
    "determinism": check_determinism,
    "own entropy": check_own_entropy,
    "copying": check_copying,
    "ownership": check_ownership,
    "payloads": check_payloads,
    "messages": check_messages,
    "senders": check_senders,
    "resume": check_resume,
    "global state": check_global_state,
    "absence": check_absence,
    "faults": check_faults,
    "end": check_end,
    "accounting": check_accounting,
}


def check_protocol(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Run all checks.

    Parameters
    ----------
    protocol : str or Protocol class
        Name of an installed protocol, or a class.
    data : VerticalDataset, optional
        Bundled digits if not given.
    **options
        Options of the protocol that all checks use.

    Raises
    ------
    AssertionError
        With the names of the checks that failed, and why.
    """
    failures = []
    for name, check in CHECKS.items():
        try:
            check(protocol, data, **options)
        except AssertionError as error:
            failures.append(f"[{name}] {error}")
    if failures:
        raise AssertionError("\n".join(failures))
