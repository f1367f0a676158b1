"""The bijection of the proof, run: two runs of the real parties with equal views.

docs/masking.md proves that for two secrets with equal sums there are tapes with which a coalition
sees the same. `securevfl.audit.proof.coupling` computes these tapes, and here both runs are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from securevfl.audit.proof import coupling
from securevfl.audit.proof.coupling import Secrets
from securevfl.audit.recorded_runs import CodedRun, Models, RunFactory
from securevfl.audit.tapes import Tape
from securevfl.privacy.coalition import Coalition


@dataclass(frozen=True)
class Coupled:
    """Two runs with different secrets, and how their views differ.

    Attributes
    ----------
    coalition : Coalition
    differences : tuple of str
        Empty where the views are identical.
    messages, elements : int
        Messages of the view, and field elements in them.
    moved : int
        Elements of tapes, and coefficients of rho, that the two runs do not share.
    """

    coalition: Coalition
    differences: tuple[str, ...]
    messages: int
    elements: int
    moved: int = field(default=0)


def couple(
    first: RunFactory, second: RunFactory, coalition: Coalition, one: CodedRun | None = None
) -> Coupled:
    """Run the second factory on the tapes with which its view must be that of the first.

    Parameters
    ----------
    first, second : RunFactory
        Same configuration, and secrets with equal sums over the clients outside the coalition.
    coalition : Coalition
        At most T clients, with or without the server.
    one : CodedRun, optional
        Run of the first, if there is one already.
    """
    before = first.run() if one is None else one
    tapes, streams = moved_draws(before, second, coalition)
    A = coupling.enlarged(before.code, coalition.clients)
    shifts = {r: coupling.mask_shift(before.code, A, s) for r, s in streams.items()}
    after = second.run(tapes, before.keys, shifts)
    views_of = before.view(coalition), after.view(coalition)
    elements = sum(m.payload.size for m in views_of[0].messages if hasattr(m.payload, "size"))
    moved = sum(
        int((d != e).sum())
        for n in tapes
        for d, e in zip(before.tapes[n].draws, tapes[n].draws, strict=True)
    )
    moved += sum(int((s != 0).sum()) for s in streams.values())
    differences = tuple(views_of[0].differences(views_of[1]))
    return Coupled(coalition, differences, len(views_of[0].messages), elements, moved)


def moved_draws(
    before: CodedRun, second: RunFactory, coalition: Coalition
) -> tuple[dict[int, Tape], dict[int, np.ndarray]]:
    """Draws of the bijection: Z' and V' of the honest clients, and what moves rho.

    Streams of keys move it that no member of a set A of T clients holds, with the coalition in A.
    """
    code = before.code
    models = _models_of(before, second)
    moved, tapes = {}, {}
    for n in before.data:
        moved[n] = own = before.secrets(n)
        if n not in coalition.clients:
            moved[n] = coupling.move(code, coalition.clients, own, second.data[n], models[n])
        tapes[n] = _rewritten(before.tapes[n], moved[n])
    streams: dict[int, np.ndarray] = {}
    if not (coalition.server and before.protocol.masked):
        return tapes, streams  # without the server no sums are seen, so they need not be equal
    for round, (rows, attempt) in before.attempts.items():
        psi = coupling.psi(code, {n: before.secrets(n) for n in attempt.sharers}, round, rows)
        other = coupling.psi(code, {n: moved[n] for n in attempt.sharers}, round, rows)
        streams[round] = coupling.correction(code, coalition.clients, psi, other)
    return tapes, streams


def _models_of(before: CodedRun, second: RunFactory) -> Models:
    """W-bar' of the second factory: chosen ones, or those of the clients that it exchanges."""
    if second.models is not None:
        return second.models
    return {n: before.models[second.exchanged.get(n, n)] for n in before.models}


def _rewritten(tape: Tape, secrets: Secrets) -> Tape:
    draws, before = list(tape.draws), 0
    draws[0] = secrets.data_masks
    for place, round in enumerate(tape.rounds):
        if round > before:  # the first draw of a round is V
            draws[place] = secrets.model_masks[round]
        before = max(before, round)
    return Tape(draws, list(tape.rounds))
