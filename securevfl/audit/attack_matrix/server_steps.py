"""Server's decoded sums and steps, in the form for attacks on inner products."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.audit.attack_matrix.observed_run import ObservedRun
from securevfl.audit.attacks.gram import Visit
from securevfl.audit.attacks.outcome import NoView
from securevfl.engine.network import SERVER
from securevfl.verified import bare_of


def visits_of(seen: ObservedRun) -> list[Visit] | NoView:
    """Decoded sums of each batch, with the step that the server then sent, or the lack of a view.

    Values are integers if models are in shares, because the server dealt the steps; otherwise
    floats, as in the clients' SGD. The result is `NoView` for other optimisers, which are not
    linear in the gradient, and for more than one segment.

    Parameters
    ----------
    seen : ObservedRun
        Run that kept the joint embeddings of every round.
    """
    steps = seen.steps()
    if isinstance(steps, NoView):
        return steps
    protocol: Any = seen.protocol
    config, N = protocol.config, protocol.data.parties
    if (getattr(config, "segments", None) or 1) > 1:
        return NoView(f"K = {config.segments} segments; this is written for one")
    if seen.holders:
        server: Any = seen.parties[SERVER]
        unit = N * 2.0**protocol.public.sum_bits
        pairs = zip(steps, map(protocol.field.signed, bare_of(server.log)), strict=True)
        return [
            Visit(s.rows, np.rint(s.joint * unit), dealt[0].astype(float)) for s, dealt in pairs
        ]
    if config.optimizer != "sgd":
        return NoView(f"the clients' optimiser is {config.optimizer}: no linear step")
    rate = (config.client_lr or config.lr) / N
    return [Visit(s.rows, s.joint * float(N), -rate * s.gradient.astype(float)) for s in steps]
