"""Leaks of noisy methods: noise that has its size and hides less, and epsilon spent unseen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.privacy.mechanisms import clip_rows, gaussian, keep_probability
from securevfl.protocols.base.messages import GaussianNoise
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import Outcome
from tests.zoo.noise import LABELS, ROWS, SECURE, _first, _released
from tests.zoo.planting import ACCUSED, Leak, begun, messages, planted


def _in_pairs(client: Any, rows: np.ndarray) -> np.ndarray:
    noise = gaussian(rows.shape)
    noise[1::2] = -noise[: 2 * (len(rows) // 2) : 2]
    noisy: np.ndarray = clip_rows(rows, client.privacy.clip) + client.privacy.sigma * noise
    return noisy


def _less_noise(protocol: Protocol, parties: dict[int, Any]) -> None:
    for n in protocol.peers():
        party = parties[n]
        party.privacy = replace(party.privacy, epsilon=8 * party.privacy.epsilon)


def _larger_epsilon(self: Any) -> GaussianNoise:
    base: Any = get_protocol("wait_dp")
    found: GaussianNoise = base.embedding_noise.fget(self)
    return replace(found, epsilon=8 * found.epsilon)


def _first_batch_again(protocol: Any) -> None:
    first = protocol.layout.draw(1)
    protocol.layout.draw = lambda round: first.copy()


def _no_limit(protocol: Protocol, parties: dict[int, Any]) -> None:
    for party in parties.values():
        party.limit = 10**6


def _one_sided(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Labels change as often as they should, but never those of the first class."""
    server = parties[SERVER]

    async def setup() -> None:
        truth, rng = server.labels, server.stream("flips")
        stay = keep_probability(server.privacy.labels, server.classes)
        others = truth != 0
        flips = others & (rng.random(len(truth)) < (1 - stay) / max(others.mean(), 1e-9))
        server.labels = np.where(flips, (truth + 1) % server.classes, truth).astype(truth.dtype)

    server.setup = setup


# -- seeing them ---------------------------------------------------------------------------------


def _pairs_exact(outcome: Outcome) -> bool:
    sent, exact, sigma = _first(outcome)
    left = sent - exact
    return float(np.abs(left[0] + left[1]).max()) < sigma / 1000


def _below_the_claim(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    sent, exact, _ = _first(outcome)
    return float((sent - exact).std()) < float(made.privacy.sigma) / 2


def _same_rows(outcome: Outcome) -> bool:
    asked = [one["payload"] for one in messages(outcome, ANNOUNCE)
             if isinstance(one["payload"], np.ndarray)]  # fmt: skip
    return len(asked) > 1 and all(np.array_equal(one, asked[0]) for one in asked)


def _first_class_stays(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    server: Any = outcome.parties[SERVER]
    truth = made.data.train_labels
    return bool((server.labels[truth == 0] == 0).all() and (server.labels != truth).any())


_CANCELS, _BITS = "noise that cancels", "low bits of noise"
_DECLARED, _AGAIN = "more epsilon than is claimed", "rows that are released too often"
_SIDED = "labels that change on one side"


def _noise(protocol: str, name: str, cause: str, says: str, plant: Any, shows: Any,
           breaks: Any = ROWS, options: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    return planted(protocol, name, cause, says, plant, breaks, shows, options or SECURE, ACCUSED,
                 **attributes)  # fmt: skip


LEAKS = (
    _noise(
        "wait_dp",
        "noise in pairs of rows",
        _CANCELS,
        "Two rows have the same noise with other signs, so that their sum is exact.",
        _released(_in_pairs),
        _pairs_exact,
    ),
    _noise(
        "wait_dp",
        "a larger epsilon in the declaration",
        _DECLARED,
        "The noise is of eight times the claimed epsilon, and its declaration says so.",
        _less_noise,
        _below_the_claim,
        embedding_noise=property(_larger_epsilon),
    ),
    _noise(
        "wait_dp",
        "the first batch in every round",
        _AGAIN,
        "All rounds release the same rows, more often than epsilon was counted for.",
        _no_limit,
        _same_rows,
        __init__=begun("wait_dp", _first_batch_again),
    ),
    _noise(
        "wait_dp",
        "labels of the first class stay",
        _SIDED,
        "As many labels change as should, but none of the first class.",
        _one_sided,
        _first_class_stays,
        LABELS,
        {**SECURE, "noise_on": "none", "label_epsilon": 1.0},
    ),
)
