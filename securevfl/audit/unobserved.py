"""A run of which parties cannot see that it is recorded.

Other recorded runs replace the method by which a party draws, and code of the audit calls the
simulation. A party can look for both. Here draws are taken from the sampler, below the parties, and
the simulation runs in a thread of its own, in which nothing of the audit has called it. What the
sampler made belongs to the party that sends next: it draws and shares in one step. Each party is
made by itself, by its own entropy, as on a cluster.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from securevfl.audit import randomness
from securevfl.audit.deviations import Comparison, compare
from securevfl.audit.following.slots import References
from securevfl.audit.recording.recorded_run import ForgottenError, RecordedRun
from securevfl.audit.recording.recorder import Recorder
from securevfl.audit.tapes import Tape
from securevfl.engine.network import Sending
from securevfl.engine.party import Party
from securevfl.engine.streams import Composed, OwnEntropy
from securevfl.engine.transcript import Transcript
from securevfl.protocols.base.protocol import Protocol
from securevfl.runs.threads import one_thread


def compare_unobserved(protocol: Protocol) -> Comparison:
    """Run a protocol once, unobserved, and compare its messages with its declaration.

    Each party is made as on a cluster: by `Protocol.party` of an object of its own, which has the
    entropy of that party alone. Formulas, and the library's own parties, have all entropies
    together; what follows from them is the same.
    """
    protocol = _again(protocol)
    protocol.secrets = entropies = Composed.draw(*sorted(_again(protocol).parties()))
    parties = {n: _alone(protocol, own) for n, own in entropies.parts.items()}
    run = _Run(protocol, parties, Transcript())
    run.references = References(protocol)
    drawn: list[np.ndarray] = []
    made = _Recorder(
        parties,
        drawn=drawn,
        recorded=run,
        seed=protocol.seed,
        secrets=protocol.secrets,
        transcript=run.transcript,
    )
    with one_thread(), run.watch_chance(), randomness.watch(drawn.append):
        with ThreadPoolExecutor(1, initializer=_one_thread_here) as alone:
            alone.submit(made.run).result()
        return compare(run)


def _again(protocol: Protocol) -> Protocol:
    """The protocol, made anew."""
    return type(protocol)(protocol.config, protocol.data, seed=protocol.seed)


def _alone(protocol: Protocol, own: OwnEntropy) -> Party:
    """A party as its own process makes it."""
    made = _again(protocol)
    made.secrets = own
    return made.party(own.index)


def _one_thread_here() -> None:
    import torch

    torch.set_num_threads(1)  # holds for the thread that asks


class _Run(RecordedRun):
    """A recorded run whose draws are known as far as the sampler made what is declared."""

    def draw(self, party: int, name: str, round: int) -> np.ndarray:
        """A declared draw, where the party's draws of the round are those declared.

        Draws whose shape depends on chance, and those that there are none of, have the shape None:
        there may be as many more.
        """
        wanted = [d.shape(party, round) for d in self.protocol.draws]
        known = [shape for shape in wanted if shape is not None]
        found = [one.shape for one in self.tapes.get(party, Tape()).at(round)]
        if found[: len(known)] != known or len(found) > len(wanted):
            raise ForgottenError(f"party {party} drew otherwise than declared in round {round}")
        return super().draw(party, name, round)


class _Recorder(Recorder):
    """A recorder that gives each party what the sampler made since the last message."""

    def __init__(self, parties: Any, *, drawn: list[np.ndarray], **options: Any) -> None:
        super().__init__(parties, **options)
        self._drawn = drawn

    def send(self, sending: Sending) -> None:
        """Note draws before the message."""
        index = sending.party.index
        tape = self.recorded.tapes.setdefault(index, Tape())
        tape.draws += self._drawn
        tape.rounds += [self.parties[index].round] * len(self._drawn)
        self._drawn.clear()
        super().send(sending)
