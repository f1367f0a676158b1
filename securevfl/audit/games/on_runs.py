"""A distinguishing game on real runs of a protocol: secrets, views and their ranks.

It makes its own small instance with the K, T and prime that are asked for and the fewest clients
that these allow. Features are zero with secret 0 and not with secret 1; models are zero with both,
and so are all sums.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit.games import guessing
from securevfl.audit.games.upload_residues import at_data_points, unwanted
from securevfl.audit.recorded_runs import CodedRun, RunFactory, run_factory
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.protocol import Protocol

_ROUNDS = 2
_GRID = 64  # features are multiples of 1/64, exact with 6 bits


@dataclass(frozen=True)
class Size:
    """Sizes of the instances that the game creates.

    Attributes
    ----------
    segments, privacy, prime : int
        K, T and p, as in the configuration that is verified.
    options : mapping
        Further options of the protocol, such as ``masked=False``.
    rounds : int
        Number of guesses of each game.
    """

    segments: int = 1
    privacy: int = 1
    prime: int = 2**31 - 1
    options: Mapping[str, Any] | None = None
    rounds: int = 40

    @property
    def parties(self) -> int:
        """Smallest number of clients: R to decode, and T + 2 for masks."""
        return max(2 * (self.segments + self.privacy - 1) + 1, self.privacy + 2)


def _factories(protocol: type[Protocol], size: Size) -> tuple[RunFactory, RunFactory]:
    """Factories of runs with secret 0 (zero features) and secret 1 (random ones); models are 0."""
    rows, width = 3, 2
    stream = np.random.Generator(np.random.Philox(7))
    N, shape = size.parties, (rows * size.segments, 1)
    options = {
        "segments": size.segments,
        "privacy": size.privacy,
        "prime": size.prime,
        "rounds": _ROUNDS,
        "width": width,
        **(size.options or {}),
    }
    zero = [np.zeros(shape) for _ in range(N)]
    some = [stream.integers(0, _GRID, shape) / _GRID for _ in range(N)]
    model = np.zeros((2, width), np.uint32 if size.prime < 2**32 else np.uint64)
    models = {n: dict.fromkeys(range(1, _ROUNDS + 1), model) for n in range(N)}
    return (
        run_factory(protocol, zero, models, **options),
        run_factory(protocol, some, models, **options),
    )


def uploads(recorded: CodedRun, round: int, aligned: bool = True) -> dict[int, np.ndarray]:
    """Uploads of a recorded round by client; `aligned` sorts their rows in the data's order."""
    rows, _ = recorded.attempts[round]
    order = np.argsort(rows) if aligned else np.arange(len(rows))
    view = recorded.view(Coalition(server=True))
    return {n: upload[order] for n, upload in view.one_per_sender("embedding", round, -1).items()}


def upload_blocks(recorded: CodedRun, aligned: bool = True) -> np.ndarray:
    """Each attempt's uploads without the sums, (attempts, 2 K + 2 T - 1, |B|, h).

    First the coefficients of `unwanted`, then their polynomial's values at beta_1 to beta_K.
    """
    code = recorded.code
    found = [
        unwanted(code, uploads(recorded, round, aligned)) for round in sorted(recorded.attempts)
    ]
    return np.stack([np.concatenate([c, at_data_points(code, c)]) for c in found])


def own_shares(
    recorded: CodedRun, view: Any, clients: tuple[int, ...], round: int
) -> tuple[np.ndarray, np.ndarray]:
    """The coalition's shares of the data and models in a round's sum, side by side.

    `view` is the coalition's view of the run, `clients` its c members.

    Returns
    -------
    data : ndarray, (c, |B|, all columns)
    models : ndarray, (c, all columns, h)
    """
    code = recorded.code
    rows, attempt = recorded.attempts[round]
    order = np.sort(rows)
    own = {c: recorded.secrets(c) for c in clients}
    data, models = [], []
    for c in clients:
        F = view.one_per_sender("train-data", 0, c)
        G = view.one_per_sender("model", round, c)
        for m, mine in own.items():  # a client's shares for its friends and itself, from its tape
            F[m] = code.encode(mine.data, masks=mine.data_masks)[c]
            G[m] = code.encode_constant(mine.models[round], masks=mine.model_masks[round])[c]
        data.append(np.concatenate([F[n][order] for n in attempt.sharers], axis=1))
        models.append(np.concatenate([G[n] for n in attempt.sharers]))
    return np.stack(data), np.stack(models)


def play_ranks(
    protocol: type[Protocol], size: Size, stream: np.random.Generator | None = None
) -> int:
    """Right guesses, of `size.rounds`, by the ranks of uploads of runs (`guessing.rank_game`)."""
    factories = _factories(protocol, size)
    field = factories[0].protocol.code.field

    def statistic(bit: int) -> tuple[int, ...]:
        recorded = factories[bit].run()
        # As uploaded, equal masks of two attempts cancel; in the order of the data, equal rows do.
        as_sent, aligned = (upload_blocks(recorded, order) for order in (False, True))
        return guessing.block_ranks(field, as_sent) + guessing.block_ranks(field, aligned)

    return guessing.rank_game(statistic, rounds=size.rounds, stream=stream)
