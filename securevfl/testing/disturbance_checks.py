"""Checks of disturbed runs: forged messages, resumption, late clients, clients that go down."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.engine.conditions import Conditions, Delay
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.party import SERVER
from securevfl.errors import RunError, StalledError
from securevfl.testing.basics import require
from securevfl.testing.declarations import forged_messages
from securevfl.testing.runs import (
    ProtocolLike,
    class_of,
    make,
    resume_from,
    simulate,
    states_at,
    tiny_data,
)

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset

_FAR = 1000.0  # seconds; far beyond what any other delay of `check_absence` adds up to


def check_senders(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that messages from parties not allowed to send them are ignored, the sender named.

    Every party that may not send a declared kind sends it to every other party, with the payload of
    a later true message. The run must equal the run without them, bit for bit; AssertionError if
    not. A protocol that declares no messages passes.
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
    require(named == wanted, protocol, f"refused are {named}, and forged were {wanted}")
    rest = replace(disturbed, events=tuple(e for e in disturbed.events if e not in refused))
    same = rest.fingerprint() == plain.fingerprint()
    require(same, protocol, "messages of parties that may not send them change the run")


def check_resume(
    protocol: ProtocolLike,
    data: VerticalDataset | None = None,
    *,
    cuts: int = 6,
    **options: Any,
) -> None:
    """Check that a run, cut anywhere and resumed from bytes, ends bit for bit as unbroken.

    Parameters
    ----------
    protocol : str or Protocol class
        Name of an installed protocol, or a class.
    data : VerticalDataset, optional
        Data set; `tiny_data` if not given.
    cuts : int
        Number of random instants of virtual time at which a checkpoint is requested.
    **options
        Options of the protocol.

    Raises
    ------
    AssertionError
        If a resumed run ends differently.
    """
    whole = simulate(protocol, data, **options)
    data = tiny_data() if data is None else data
    instants = len(np.unique(whole.simulation.transcript.columns()["arrived"]))
    draw = np.random.Generator(np.random.Philox(1))
    chosen = draw.choice(instants, min(cuts, instants), replace=False).tolist()
    wanted = whole.fingerprint()
    for cut, (saved, events) in states_at(protocol, data, chosen, **options).items():
        resumed = resume_from(protocol, data, saved, events, **options)
        same = resumed.fingerprint() == wanted
        require(same, protocol, f"cut at instant {cut} of {instants}, the run ends differently")


def check_absence(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that training waits for late uploads of one client if and only if the card says so.

    The protocol's card (`Card.absence`) then says "waits". If it says "skips", training may also
    end with an error that names the client. AssertionError otherwise.
    """
    made = make(protocol, data, **options)
    N = made.data.parties
    slow = Conditions(name="one is slow", uploads=(Delay(),) * (N - 1) + (Delay(shift=_FAR),))
    says = made.card.absence
    try:
        outcome = simulate(protocol, data, conditions=slow, **options)
    except RunError as error:
        given_up = says == "skips" and not isinstance(error, StalledError)
        require(given_up, protocol, f'the card says "{says}", and it ended: {error}')
        require(f"party {N - 1}" in str(error), protocol, f"the error names nobody: {error}")
        return
    last = max(event.time for event in outcome.events if event.name == "round") / 1e9
    waited = last >= _FAR
    require(
        waited == (says == "waits"),
        protocol,
        f'the card says "{says}" and the last step came after {last:.0f} s',
    )


def check_faults(
    protocol: ProtocolLike, data: VerticalDataset | None = None, **options: Any
) -> None:
    """Check that a client's crash ends training, with a named error, iff the card says "waits".

    AssertionError if not. The last client is down from round 2 on: once for ever, and once for two
    rounds, or 2 N if the server counts each arrival as a round. `Protocol.fault_options` are set
    unless `options` does.
    """
    cls = class_of(protocol)
    options = dict(cls.fault_options) | options
    made = make(protocol, data, **options)
    last, waits = made.data.parties - 1, made.card.absence == "waits"
    counts = made.party(SERVER).counts_rounds
    for end in (math.inf, 2 + (2 * made.data.parties if counts else 2)):
        faults = Faults(outages=(Outage(last, rounds=(2, end)),))
        try:
            outcome = simulate(protocol, data, faults=faults, **options)
        except RunError as error:
            message = str(error)
            require(
                waits, protocol, f'the card says "{made.card.absence}", and it ended: {message}'
            )
            named = f"party {last}" in message and "round" in message
            require(named, protocol, f"the error names no party {last} and no round: {message}")
            continue
        require(not waits, protocol, 'the card says "waits", and it went on')
        names = [event.name for event in outcome.events]
        require("down" in names, protocol, f"party {last} came through round 2 unharmed")
        finite = all(map(math.isfinite, outcome.losses))
        require(outcome.losses and finite, protocol, "a loss is not finite")
