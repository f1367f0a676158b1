"""Leaks of wait_dp and multivfl: noise that is too small, known, or not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.field.sampling import SeededSource
from securevfl.privacy.mechanisms import clip_rows, gaussian, release_rows
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.runs import Outcome
from tests.zoo.encrypted import every
from tests.zoo.planting import ACCUSED, Leak, changed, messages

SECURE = {"noise": "secure", "epsilon": 5.0}
ROWS, LABELS = (("server", "features"),), (("client", "labels"),)
OWNERS = (("label owner", "features"),)


def _released(new: Callable[[Any, np.ndarray], np.ndarray]) -> Any:
    def plant(client: Any) -> None:
        client.release = lambda embedding: new(client, embedding).astype(np.float32)

    return every(plant)


def _small(client: Any, rows: np.ndarray) -> np.ndarray:
    privacy = client.privacy
    return release_rows(rows, bound=privacy.clip, sigma=privacy.sigma / 8)


def _seeded(client: Any, rows: np.ndarray) -> np.ndarray:
    privacy, source = client.privacy, SeededSource(client.round * 1000 + client.index)
    return release_rows(rows, bound=privacy.clip, sigma=privacy.sigma, source=source)


def _unclipped(client: Any, rows: np.ndarray) -> np.ndarray:
    noisy: np.ndarray = rows + client.privacy.sigma * gaussian(rows.shape)
    return noisy


def _reused(client: Any, rows: np.ndarray) -> np.ndarray:
    noise = client.__dict__.setdefault("_noise", gaussian(rows.shape))
    noisy: np.ndarray = clip_rows(rows, client.privacy.clip) + client.privacy.sigma * noise
    return noisy


def _second_release(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        send = client.send

        def sending(to: int, kind: str, payload: Any, **more: Any) -> None:
            send(to, kind, payload, **more)
            if kind == "embedding":
                own = client.features[: len(payload)]
                again = client.release(client.embed(own))
                send(to, kind, again, round=client.round + 1000)

        client.send = sending

    every(plant)(protocol, parties)


def _exact_labels(protocol: Protocol, parties: dict[int, Any]) -> None:
    async def nothing() -> None:
        pass

    parties[SERVER].setup = nothing


def _owner_noise(new: Callable[[Any, np.ndarray, int], np.ndarray]) -> Any:
    """Plant that replaces what a data owner of multivfl answers."""

    def plant(client: Any) -> None:
        def answer(owner: int, number: int, places: np.ndarray) -> None:
            own = client.features[client.rows[str(owner)][places]]
            rows = new(client, client.copies.networks[owner].forward(own), number)
            client.send(owner, "embedding", ((owner, places), rows.astype(np.float32)),
                        round=number)  # fmt: skip

        client.answer = answer

    return every(plant)


# -- seeing them ---------------------------------------------------------------------------------


def _first(outcome: Outcome) -> tuple[np.ndarray, np.ndarray, float]:
    """Message of client 1 in round 1, the values that it should have noised, and sigma."""
    made: Any = outcome.protocol
    network = made.client_network(1)
    party: Any = outcome.parties[1]
    batch = party.batches.draw(1)
    sent = next(one["payload"] for one in messages(outcome, "embedding", 1) if one["sender"] == 1)
    exact = clip_rows(network.forward(party.rows_of(batch)), party.privacy.clip)
    return sent, exact, party.privacy.sigma


def _spread(outcome: Outcome) -> bool:
    sent, exact, sigma = _first(outcome)
    return float((sent - exact).std()) < sigma / 2


def _known(outcome: Outcome) -> bool:
    sent, exact, sigma = _first(outcome)
    noise = gaussian(exact.shape, SeededSource(1001))
    return float(np.abs(sent - exact - sigma * noise).max()) < sigma / 100


def _labels_are_true(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    server: Any = outcome.parties[SERVER]
    return np.array_equal(server.labels, made.data.train_labels)


def _again(outcome: Outcome) -> bool:
    return any(one["round"] > 1000 for one in messages(outcome, "embedding"))


def _long_rows(outcome: Outcome) -> bool:
    sent, _, sigma = _first(outcome)
    party: Any = outcome.parties[1]
    norms = np.sqrt((sent * sent).sum(axis=1))
    return bool(np.median(norms) > 2 * (party.privacy.clip + sigma * sent.shape[1] ** 0.5))


def _quiet(outcome: Outcome) -> bool:
    """Whether the first activations of each data owner vary less than their noise must."""
    party: Any = outcome.parties[0]
    first = [one["payload"][1] for one in messages(outcome, "embedding", 1)]
    return all(float(one.std()) < 0.7 * party.privacy.sigma for one in first)


_SIZE, _SOURCE, _MISSING = "noise too small", "noise that is known", "noise left out"
_RANDOM = SECURE | {"noise_on": "none", "label_epsilon": 1.0}


def _leak(protocol: str, name: str, cause: str, says: str, plant: Any, breaks: Any,
          options: Any, shows: Any = None) -> Leak:  # fmt: skip
    made = changed(protocol, plant)
    return Leak(f"{protocol}: {name}", protocol, cause, says, made, breaks, options, ACCUSED, shows)


LEAKS = (
    _leak(
        "wait_dp",
        "an eighth of sigma",
        _SIZE,
        "The noise has an eighth of its sigma.",
        _released(_small),
        ROWS,
        SECURE,
        _spread,
    ),
    _leak(
        "wait_dp",
        "noise of the round",
        _SOURCE,
        "The noise follows from round and client.",
        _released(_seeded),
        ROWS,
        SECURE,
        _known,
    ),
    _leak(
        "wait_dp",
        "noise reused",
        _SOURCE,
        "All rounds have the noise of the first.",
        _released(_reused),
        ROWS,
        SECURE,
    ),
    _leak(
        "wait_dp",
        "not clipped",
        _SIZE,
        "Rows are noised and not clipped.",
        _released(_unclipped),
        ROWS,
        SECURE | {"clip": 0.01},
        _long_rows,
    ),
    _leak(
        "wait_dp",
        "a second release",
        _MISSING,
        "Each round has a second release, which no budget counts.",
        _second_release,
        ROWS,
        SECURE,
        _again,
    ),
    _leak(
        "wait_dp",
        "labels exact",
        _MISSING,
        "The labels are not randomised.",
        _exact_labels,
        LABELS,
        _RANDOM,
        _labels_are_true,
    ),
    _leak(
        "multivfl",
        "no noise",
        _MISSING,
        "Activations are clipped and not noised.",
        _owner_noise(lambda c, rows, n: clip_rows(rows, c.privacy.clip)),
        OWNERS,
        SECURE,
        _quiet,
    ),
)
