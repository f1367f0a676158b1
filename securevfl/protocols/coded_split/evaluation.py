"""Experimenter's view of a run: decoded models and scores, which no party can compute.

The experimenter has all parties' states. It updates enough holders' shares to the server's last
step, by the server's log, and decodes; so the result does not depend on late holders.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.errors import CheckpointError, NotEnoughResultsError
from securevfl.models.split import Batches
from securevfl.protocols.coded_split import covert
from securevfl.protocols.coded_split.algorithm import Holder, Model
from securevfl.protocols.coded_split.decoding import signed_models
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.protocols.coded_split.quantisation import first_model, mean_of_sums, whole_rows
from securevfl.protocols.coded_split.server import Server
from securevfl.verified import bare_of
from securevfl.verified.trace import received


def caught_up(server: Server, holder: Holder) -> Model:
    """`Holder.model` after the server's last step: share, steps in it, and their digest.

    Both are computed together from the holder's state and the missing steps: so a share with other
    steps has another digest, and its masks do not fit the others'.
    """
    model = holder.model
    for t in range(model[1] + 1, server.steps + 1):
        if t not in model[2]:
            made = server.dealt(t)
            dealt = received((made.shares[holder.index], made.digest), holder.index)
            model = holder.with_step(model, t, *dealt)
    if server.public.covert:
        return *model[:3], covert.caught_up(server, holder)
    return model


def whole_models(public: Parameters, parties: Mapping[int, Party]) -> np.ndarray:
    """Models of all owners after the server's last step, (K, d, h) signed integers.

    NotEnoughResultsError if fewer than 2(K+T-1)+1 holders have a share with all steps.
    """
    server: Any = parties[SERVER]
    holders: list[Any] = [parties[j] for j in range(public.code.parties)]
    ready = [j for j in holders if can_catch_up(server, j)]
    chosen = sorted(ready, key=lambda holder: -holder.model[1])[: public.models_needed]
    if len(chosen) < public.models_needed and server.steps:
        raise NotEnoughResultsError(
            f"coded_split: models exist as shares, 2(K+T-1)+1 = {public.models_needed} of which "
            f"are needed, and {len(chosen)} holders have one with all {server.steps} steps: "
            f"{', '.join(f'party {j.index}' for j in chosen) or 'none'}"
        )
    if len(chosen) < public.models_needed:  # nothing was shared yet
        weights = [bare_of(holders[n].weights) for n in range(public.owners)]
        own = [first_model(one, public.model_point) for one in weights]
        first = public.field.signed(np.concatenate(own))
        return np.broadcast_to(first, (public.code.segments, *first.shape))
    chosen.sort(key=lambda holder: holder.index)
    shares = {j.index: bare_of(caught_up(server, j)[0]) for j in chosen}
    return signed_models(public, shares)


def settle(server: Server, holders: Iterable[Holder]) -> None:
    """Give holders that lack steps at the end of a run these steps, if the server can.

    Otherwise the files of a run, which have shares of the models only, could not complete them.
    """
    for holder in holders:
        if holder.model[1] < server.steps and can_catch_up(server, holder):
            holder.model = caught_up(server, holder)


def check_same_steps(models: Mapping[int, Model]) -> None:
    """Raise CheckpointError if digests show that model shares have different steps.

    The message names the holders of each digest.

    Parameters
    ----------
    models : mapping of int to tuple
        `Holder.model` by holder.
    """
    alike: dict[bytes, list[int]] = {}
    for j, model in models.items():
        alike.setdefault(bare_of(model[3]).tobytes(), []).append(j)
    if len(alike) > 1:
        groups = "; ".join(f"parties {', '.join(map(str, one))}" for one in alike.values())
        raise CheckpointError(
            "coded_split: a coded prediction needs shares of one model, and the holders' shares "
            f"have {len(alike)} different sets of steps: {groups}. Bring back the states of one "
            "run, at one time of it, or train again"
        )


def can_catch_up(server: Server, holder: Holder) -> bool:
    """Whether a holder has, or can be given, a share of the models after the last step.

    The files of a finished run have only the shares of the models, which cannot be updated.
    """
    values, done, ahead, *_ = holder.model
    if not values.shape[0] or max((done, *ahead)) > server.steps:
        return False
    logged = server.forgotten + len(server.log) == server.steps and done >= server.forgotten
    return done == server.steps or (logged and bool(holder.data_shares))


def joint_embedding(
    public: Parameters,
    layout: Batches,
    models: np.ndarray,
    prepared: Sequence[np.ndarray],
    steps: int,
) -> np.ndarray:
    """Joint embedding H, (rows, h) float64; each row by its segment's replica of the models.

    Sums below 2^53 are exact, and equal to those of a coded inference.

    Parameters
    ----------
    public, layout : Parameters, Batches
        Public parameters, and the layout of the rows in segments.
    models : ndarray, (K, d, h) signed integers
        Replicas of all owners' models, one a segment.
    prepared : sequence of ndarray, (rows, d_n)
        Expanded and rounded rows of each owner.
    steps : int
        Steps in the models.
    """
    whole = [whole_rows(public, n, rows) for n, rows in enumerate(prepared)]
    X = np.concatenate(whole, axis=1).astype(np.float64)
    order = layout.samples(np.arange(layout.length)).reshape(layout.segments, layout.length)
    sums = np.zeros((len(X), models.shape[-1]))
    for samples, model in zip(order, models, strict=True):
        rows = samples[samples >= 0]
        sums[rows] = X[rows] @ model.astype(np.float64)
    return mean_of_sums(public, sums, steps)
