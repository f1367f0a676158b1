"""Whole lives of a protocol's parties: they are made, run and forgotten, and all of it is watched.

Runs are followed from step to step. What code does while parties are made, between their steps,
and after the run, such as when an object is forgotten, is in no step.
"""

from __future__ import annotations

import gc
from collections import Counter
from contextlib import suppress

from securevfl.audit.beside.process import other_generators
from securevfl.audit.following.acts import Act
from securevfl.audit.following.library import library_base
from securevfl.audit.following.lines import Lines
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import RunError
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread


def acts_of_lives(protocol: Protocol) -> list[str]:
    """Acts in the life of a protocol's parties that are more than in that of the library's.

    Of a protocol that is made of no method of the library lines do not count, for nobody knows
    which it should write.
    """
    base = library_base(protocol)
    if type(protocol) is base:
        return []
    wanted = Counter[str]() if base is None else Counter(_life(base, protocol))
    found = Counter(_life(type(protocol), protocol)) - wanted
    return [one for one in found if base is not None or " of the process: " in one]


def _life(cls: type[Protocol], like: Protocol) -> list[str]:
    """Acts of a class with the options, data and seed of a protocol."""
    acts, lines = list[Act](), Lines()
    gc.collect()
    with one_thread(), other_generators(), lines.watch(), lines.step(acts):
        _live(cls, like)
        gc.collect()
    return [one.said for one in acts]


def _live(cls: type[Protocol], like: Protocol) -> None:
    made = cls(like.config, like.data, seed=like.seed)
    parties = made.parties()
    for index in parties:  # as on a cluster, where each makes its own
        made.party(index)
    with suppress(RunError):
        Simulation(parties, seed=made.seed, secrets=made.secrets, make_party=made.party).run()
