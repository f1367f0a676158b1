"""The attacks on shares and uploads, run on the views of recorded runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from securevfl.audit.attacks import recovery, shares
from securevfl.audit.attacks.recovery import Recovered, Round
from securevfl.audit.attacks.shares import Power, coalition_power
from securevfl.audit.games.on_runs import own_shares, uploads
from securevfl.audit.recorded_runs import CodedRun, Secrets
from securevfl.field import LagrangeCode
from securevfl.privacy.coalition import Coalition


@dataclass(frozen=True)
class Recovery:
    """Result of an attack on shares.

    Attributes
    ----------
    has_solution : bool
        Whether its equations had a solution at all.
    data, models : float
        Fractions of honest clients' field elements of data and models that it found exactly.
    elements : int
        Elements of both.
    """

    has_solution: bool
    data: float
    models: float
    elements: int


def recover_by_server(recorded: CodedRun, clients: tuple[int, ...]) -> Recovery:
    """Success of server and T clients in solving for data and models; all batches must be full."""
    found = recovery.recover(recorded.code, clients, *_equations(recorded, clients))
    data, models = _truth(recorded, clients)
    elements = data.size + sum(model.size for model in models)
    if found is None:
        return Recovery(False, 0.0, 0.0, elements)
    return Recovery(True, *_fractions(found, data, models), elements)


def _equations(recorded: CodedRun, clients: tuple[int, ...]) -> tuple[np.ndarray, list[Round]]:
    """Data shares in a coalition's view, and each round's model shares and uploads."""
    code = recorded.code
    view = recorded.view(Coalition(server=True, clients=clients))
    secrets = {c: recorded.secrets(c) for c in clients}
    rounds, data = [], None
    for round, (rows, attempt) in sorted(recorded.attempts.items()):
        # What the coalition's own data and models add to each upload is known to it, from its
        # tapes.
        own = psi(code, secrets, round, np.sort(rows))
        seen = {
            n: code.field.subtract(upload, own[n]) for n, upload in uploads(recorded, round).items()
        }
        F, G = own_shares(recorded, view, clients, round)
        widths = [recorded.data[n].shape[2] for n in attempt.sharers]
        honest = np.repeat([n not in clients for n in attempt.sharers], widths)
        rounds.append(Round(seen, G[:, honest]))
        data = F[:, :, honest]
    assert data is not None
    return data, rounds


def psi(
    code: LagrangeCode, sharers: Mapping[int, Secrets], round: int, rows: np.ndarray
) -> np.ndarray:
    """Unmasked results psi at all points: sum over S of F^(B)(alpha) G(alpha), (N, |B|, h)."""
    field = code.field
    total: np.ndarray | None = None
    for one in sharers.values():
        F = code.encode(one.data, masks=one.data_masks)[:, rows]
        G = code.encode_constant(one.models[round], masks=one.model_masks[round])
        part = field.matmul(F, G)
        total = part if total is None else field.add(total, part)
    assert total is not None
    return total


def _truth(recorded: CodedRun, clients: tuple[int, ...]) -> tuple[np.ndarray, list[np.ndarray]]:
    honest = [n for n in recorded.data if n not in clients]
    rows = np.sort(next(iter(recorded.attempts.values()))[0])
    data = np.concatenate([recorded.data[n][:, rows] for n in honest], axis=2)
    models = [
        np.concatenate([recorded.models[n][round] for n in honest])
        for round in sorted(recorded.attempts)
    ]
    return data, models


def _fractions(found: Recovered, data: np.ndarray, models: list[np.ndarray]) -> tuple[float, float]:
    right = [float((a == b).mean()) for a, b in zip(found.models, models, strict=True)]
    return float((found.data == data).mean()), float(np.mean(right))


@dataclass(frozen=True)
class Pooled:
    """Values of one client that a coalition of clients decoded from its shares.

    Attributes
    ----------
    power : Power
        Prediction of the theory.
    combinations : int
        Combinations of segments that were decoded, all of them equal to the truth.
    data, model : bool
        Whether all segments, and the model, were decoded exactly.
    exact : bool
        Whether all decoded values are right, and as many as the theory predicts.
    """

    power: Power
    combinations: int
    data: bool
    model: bool
    exact: bool


def pool_shares(recorded: CodedRun, clients: tuple[int, ...], victim: int) -> Pooled:
    """Decode what colluding `clients` know of the data and first model of client `victim`."""
    code, power = recorded.code, coalition_power(recorded.code, clients)
    view = recorded.view(Coalition(clients=clients))
    F = {c: view.one_per_sender("train-data", 0, c)[victim] for c in clients}
    first = min(recorded.models[victim])
    G = {c: view.one_per_sender("model", first, c)[victim] for c in clients}
    # c shares of T + K unknowns leave c - T combinations of segments in which no mask is left.
    known = shares.known_combinations(code, F)
    truth = recorded.data[victim]
    expected = code.field.matmul(known.matrix, truth.reshape(code.segments, -1))
    right = np.array_equal(known.values, expected.reshape(known.values.shape))
    data, model = shares.recover_data(code, F), shares.recover_model(code, G)
    whole = data is not None and np.array_equal(data, truth)
    learnt = model is not None and np.array_equal(model, recorded.models[victim][first])
    exact = (
        right
        and len(known.matrix) == power.combinations
        and whole == (power.combinations == code.segments)
        and learnt == power.model
        and (data is None or whole)
        and (model is None or learnt)
    )
    return Pooled(power, len(known.matrix), whole, learnt, exact)


def coalitions(recorded: CodedRun) -> Iterator[tuple[int, ...]]:
    """One coalition of each size from T to K + T: the first clients, never the last client."""
    code = recorded.code
    for size in range(code.privacy, min(code.size, code.parties - 1) + 1):
        yield tuple(range(size))
