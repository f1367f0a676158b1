"""Succession of models: each state follows from the one before by a step all can compute.

A formula that takes a model as it stands in a party's state believes the party. So formulas follow
the model from its first weights on: what it is when a message leaves must be what it was when the
last such message left, or that after the step of that round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from securevfl.engine import wire

HELD = 4  # rounds of which a party that comes back may have the state

Step = Callable[[int, Any], Any]


def successor(
    memory: dict[int, bytes],
    round: int,
    found: Any,
    first: Callable[[], Any],
    step: Step,
    *,
    punctual: bool,
) -> Any:
    """The state that was found, where it follows from those before; else the one that does.

    Parameters
    ----------
    memory : dict of int to bytes
        States, encoded, by the round of their messages; changed in place. An optimiser that loads a
        state goes on with its arrays, so none is kept.
    round : int
        Of the message.
    found : state
        As `wire` encodes it.
    first : callable
        Makes the state before the first round.
    step : callable
        Round and state to the state after the step of that round; the same state where the party
        does not step.
    punctual : bool
        Whether nobody is late, absent or back from a crash: then a step that was asked for was
        taken. Else it may have been missed, or a checkpoint of an earlier round taken up.
    """
    before = sorted((r for r in memory if r < round), reverse=True)[:HELD]
    encoded, wanted = wire.encode(found), b""
    for state in _candidates(memory, before, round, first, step, punctual=punctual):
        wanted = wanted or state
        if state == encoded:
            wanted = encoded
            break
    memory[round] = encoded
    for old in sorted(memory)[:-HELD]:
        del memory[old]
    return wire.decode(wanted)


def _candidates(
    memory: dict[int, bytes],
    before: list[int],
    round: int,
    first: Callable[[], Any],
    step: Step,
    *,
    punctual: bool,
) -> Iterator[bytes]:
    """States that may follow, encoded, the one of a punctual party first."""
    if round in memory:  # the same message again, after a resume
        yield memory[round]
    if not before:
        yield wire.encode(first())
    for known in before[:1] if punctual else before:
        yield wire.encode(step(known, wire.decode(memory[known])))
        if not punctual:
            yield memory[known]
