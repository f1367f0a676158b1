"""The bijections of the proof on recorded runs: other secrets, moved draws, and the same view.

The proof is that of docs/coded-split-proof.md. A coalition C of at most T holders is enlarged to a
set A of T. With M_A the mask columns of the Lagrange matrix at A's points, A_A its data columns and
L_A their row sums, the draws that give other secrets (X', W', Gbar') the same view are

    Z' = Z + M_A^-1 A_A (X - X')          V' = V + M_A^-1 L_A (W - W')
    U': those with which A's shares of Gbar' are those of Gbar         where the server is honest
    digests of steps: those of the first run                           where it is, too
    streams for a label of keys that nobody in A holds: + x            where it is not

with s = (psi - psi') / (P prod_{a in A} (z - alpha_a)), psi being the results without masks, and x
a solution of sum_B prod_{b in B, not in A} (z - alpha_b) x_B(z) = s over the blocks B that contain
A. Labels
are free where the server is honest. Where it is in the coalition, the sums must be equal: here all
honest owners' columns are exchanged among them, with the weights that belong to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from securevfl.audit.keyed.moved_draws import MovedDeals, moved_elements, moved_streams
from securevfl.audit.keyed.other_secrets import Remake, exchanged, replaced
from securevfl.audit.keyed.runs import Change, Draws, KeyedRun, Seen, known_to, record_keyed
from securevfl.errors import ConfigurationError
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.shared_models import Integers, SharedModels


@dataclass(frozen=True)
class Coupled:
    """Two runs with other secrets, and how a coalition's views of them differ.

    Attributes
    ----------
    coalition : Coalition
    difference : str
        The first difference; empty where the views are identical.
    control : str
        The first difference where the draws are not moved, so that the comparison is seen to be
        able to fail.
    messages, nbytes : int
        Messages of the view, and bytes in them.
    steps_differ : bool
        Whether the server dealt other steps.
    """

    coalition: Coalition
    difference: str
    control: str
    messages: int
    nbytes: int
    steps_differ: bool


def enlarged(protocol: SharedModels, clients: Sequence[int]) -> tuple[int, ...]:
    """A: the coalition's holders, and the lowest others up to T."""
    others = [n for n in range(protocol.code.parties) if n not in clients]
    return tuple(sorted([*clients, *others][: protocol.code.privacy]))


def couple(
    before: KeyedRun,
    coalition: Coalition,
    *,
    seed: int = 0,
    restarted: Sequence[int] = (),
    control: bool = True,
    remake: Remake | None = None,
) -> Coupled:
    """Run a protocol with other secrets of honest parties, and compare the coalition's views.

    With the server every honest owner's columns and weights are exchanged, so that the sums are
    equal ("exchange"). Without it every honest owner has other columns and weights, and the server
    other labels ("labels").

    Parameters
    ----------
    before : KeyedRun
        The first run.
    coalition : Coalition
        At most T holders, with or without the server.
    seed : int
        Of the other secrets.
    restarted : sequence of int
        Holders that were restarted in the first run.
    control : bool
        Whether the second run is also made with draws that are not moved.
    remake : callable, optional
        Makes the protocol on other training columns of some owners and other training labels. So
        what a class does with the data before parties begin is moved as well.
    """
    protocol, clients = before.protocol, coalition.clients
    A = enlarged(protocol, clients)
    honest = [n for n in range(protocol.owners) if n not in clients]
    other = (exchanged if coalition.server else replaced)(protocol, honest, seed)
    parties = protocol.parties()
    other(parties)
    after = {n: protocol.integers(parties[n]) for n in range(protocol.owners)}
    same = [n for n in honest if _equal(before.integers[n], after[n])]
    if same:
        raise ConfigurationError(f"coupling: owners {same} have the same secrets in both runs")
    tapes = moved_elements(before, after, A)
    change: Change = other
    if coalition.server:
        streams = moved_streams(before, after, tapes, A)
        moved = Draws(tapes, before.secrets, streams)
        unmoved = Draws(tapes, before.secrets)
    else:
        deals = MovedDeals(before, A)
        moved = Draws(tapes, before.secrets, deals.streams, deals.seeds)
        unmoved, change = Draws(before.run.tapes, before.secrets), deals.watching(other)
    again = protocol if remake is None else other.remade(remake)
    second = record_keyed(again, change=change, draws=moved, restarted=restarted)
    seen = before.view(coalition.members)
    differs = first_difference(seen, second.view(coalition.members))
    for n in coalition.members if not differs else ():
        if known_to(before.run.parties[n]) != known_to(second.run.parties[n]):
            differs = f"what party {n} holds at the end, though its messages are the same,"
    other_view = "not looked at"
    if control:
        third = record_keyed(again, change=other, draws=unmoved, restarted=restarted)
        other_view = first_difference(seen, third.view(coalition.members))
    first, other_steps = before.steps, second.steps
    return Coupled(
        coalition,
        differs,
        other_view,
        len(seen),
        sum(len(one[2]) for one in seen),
        any(
            not np.array_equal(one, other_steps[t]) for t, one in first.items() if t in other_steps
        ),
    )


def _equal(one: Integers, two: Integers) -> bool:
    """Whether an owner has the same columns or the same weights."""
    data = all(np.array_equal(x, two.data[part]) for part, x in one.data.items())
    return data or np.array_equal(one.model, two.model)


def first_difference(one: Sequence[Seen], other: Sequence[Seen]) -> str:
    """First difference of two views, in words; empty where they are equal to the last bit."""
    for ours, theirs in zip(one, other, strict=False):
        if ours[:2] != theirs[:2]:
            return f"message {_named(ours)} is followed or timed otherwise: {_named(theirs)}"
        if ours[2] != theirs[2]:
            return f"the content of {_named(ours)}"
    if len(one) != len(other):
        return f"{len(one)} and {len(other)} messages"
    return ""


def _named(seen: Seen) -> str:
    kind, round, sender, receiver = seen[0]
    return f"{kind!r} of round {round} from {sender} to {receiver}"
