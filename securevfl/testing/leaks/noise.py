"""Leaks of wait_dp and multivfl: noise that is too small, known, or not there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.field.sampling import SYSTEM, SeededSource
from securevfl.privacy.mechanisms import clip_rows, gaussian, release_gradient, release_rows
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.planting import ACCUSED, Leak, changed, messages
from securevfl.testing.runs import Outcome

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


def _one_value(client: Any, rows: np.ndarray) -> np.ndarray:
    noise = gaussian((len(rows), 1))
    noisy: np.ndarray = clip_rows(rows, client.privacy.clip) + client.privacy.sigma * noise
    return noisy


def _first_row_exact(client: Any, rows: np.ndarray) -> np.ndarray:
    noisy = release_rows(rows, bound=client.privacy.clip, sigma=client.privacy.sigma)
    noisy[0] = rows[0]
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


def _exact_gradients(protocol: Protocol, parties: dict[int, Any]) -> None:
    parties[SERVER].release = lambda gradient, samples: gradient


def _small_gradient_noise(protocol: Protocol, parties: dict[int, Any]) -> None:
    server = parties[SERVER]
    privacy = server.privacy
    server.release = lambda gradient, samples: release_gradient(
        gradient,
        samples,
        bound=privacy.gradient_clip,
        sigma=privacy.gradient_sigma / 8,
        source=SYSTEM,
    )


def _exact_labels(protocol: Protocol, parties: dict[int, Any]) -> None:
    async def nothing() -> None:
        pass

    parties[SERVER].setup = nothing


def _label_order(protocol: Protocol, parties: dict[int, Any]) -> None:
    server, truth = parties[SERVER], parties[SERVER].labels.copy()
    send = server.send

    def sending(to: int, kind: str, payload: Any, **more: Any) -> None:
        late = float(truth[0]) if kind == "gradient" else 0.0
        send(to, kind, payload, **{"after": late, **more})

    server.send = sending


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


def _noisy(client: Any, rows: np.ndarray, **changes: Any) -> np.ndarray:
    given = {"bound": client.privacy.clip, "sigma": client.privacy.sigma} | changes
    return release_rows(rows, **given)


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


def _constant(outcome: Outcome) -> bool:
    sent, exact, sigma = _first(outcome)
    return float((sent - exact).std(axis=1).max()) < sigma / 100


def _known(outcome: Outcome) -> bool:
    sent, exact, sigma = _first(outcome)
    noise = gaussian(exact.shape, SeededSource(1001))
    return float(np.abs(sent - exact - sigma * noise).max()) < sigma / 100


def _exact_row(outcome: Outcome) -> bool:
    party: Any = outcome.parties[1]
    made: Any = outcome.protocol
    sent, _, _ = _first(outcome)
    rows = made.client_network(1).forward(party.rows_of(party.batches.draw(1)))
    return np.array_equal(sent[0], rows[0])


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


def _quiet_gradients(outcome: Outcome) -> bool:
    """Whether gradients vary less than the noise on the mean over rows and clients must."""
    party: Any = outcome.parties[SERVER]
    found = [one["payload"] for one in messages(outcome, "gradient")]
    least = party.privacy.gradient_sigma / len(outcome.protocol.peers()) / 2
    return all(float(one.std()) * len(one) < least for one in found)


def _quiet(outcome: Outcome) -> bool:
    """Whether the first activations of each data owner vary less than their noise must."""
    party: Any = outcome.parties[0]
    first = [one["payload"][1] for one in messages(outcome, "embedding", 1)]
    return all(float(one.std()) < 0.7 * party.privacy.sigma for one in first)


def _common_noise(outcome: Outcome) -> bool:
    party: Any = outcome.parties[0]
    sent = [one["payload"][1] for one in messages(outcome, "embedding", 1)]
    alike = [one for one in sent if one.shape == sent[0].shape]
    return bool((alike[0] - alike[-1]).std() < 0.7 * party.privacy.sigma)


_SIZE, _SOURCE, _MISSING = "noise too small", "noise that is known", "noise left out"
_GRADIENTS = SECURE | {"noise_on": "gradients"}
_RANDOM = SECURE | {"noise_on": "none", "label_epsilon": 1.0}


def _leak(protocol: str, name: str, cause: str, says: str, plant: Any, breaks: Any,
          options: Any, shows: Any = None) -> Leak:  # fmt: skip
    made = changed(protocol, plant)
    return Leak(f"{protocol}: {name}", protocol, cause, says, made, breaks, options, ACCUSED, shows)


LEAKS = (
    _leak("wait_dp", "an eighth of sigma", _SIZE, "The noise has an eighth of its sigma.",
          _released(_small), ROWS, SECURE, _spread),
    _leak("wait_dp", "one value a row", _SIZE, "All entries of a row get the same noise.",
          _released(_one_value), ROWS, SECURE, _constant),
    _leak("wait_dp", "noise of the round", _SOURCE, "The noise follows from round and client.",
          _released(_seeded), ROWS, SECURE, _known),
    _leak("wait_dp", "noise reused", _SOURCE, "All rounds have the noise of the first.",
          _released(_reused), ROWS, SECURE),
    _leak("wait_dp", "not clipped", _SIZE, "Rows are noised and not clipped.",
          _released(_unclipped), ROWS, SECURE | {"clip": 0.01}, _long_rows),
    _leak("wait_dp", "the first row exact", _MISSING, "The first row of a batch has no noise.",
          _released(_first_row_exact), ROWS, SECURE, _exact_row),
    _leak("wait_dp", "a second release", _MISSING,
          "Each round has a second release, which no budget counts.",
          _second_release, ROWS, SECURE, _again),
    _leak("wait_dp", "gradients exact", _MISSING, "Gradients are not noised.",
          _exact_gradients, LABELS, _GRADIENTS, _quiet_gradients),
    _leak("wait_dp", "an eighth of the gradients' sigma", _SIZE,
          "The noise on gradients has an eighth of its sigma.",
          _small_gradient_noise, LABELS, _GRADIENTS, _quiet_gradients),
    _leak("wait_dp", "labels exact", _MISSING, "The labels are not randomised.",
          _exact_labels, LABELS, _RANDOM, _labels_are_true),
    _leak("wait_dp", "a label in departure times", "values in what surrounds a payload",
          "Gradients depart as many seconds later as the first label says.",
          _label_order, LABELS, _RANDOM),
    _leak("multivfl", "an eighth of sigma", _SIZE, "The noise has an eighth of its sigma.",
          _owner_noise(lambda c, rows, n: _noisy(c, rows, sigma=c.privacy.sigma / 8)),
          OWNERS, SECURE, _quiet),
    _leak("multivfl", "no noise", _MISSING, "Activations are clipped and not noised.",
          _owner_noise(lambda c, rows, n: clip_rows(rows, c.privacy.clip)), OWNERS, SECURE,
          _quiet),
    _leak("multivfl", "noise of the request", _SOURCE, "The noise follows from the request.",
          _owner_noise(lambda c, rows, n: _noisy(c, rows, source=SeededSource(n))), OWNERS, SECURE,
          _common_noise),
    _leak("multivfl", "noise from request 4 on only", _MISSING,
          "The first three batches have no noise.",
          _owner_noise(lambda c, rows, n: _noisy(c, rows) if n > 3 else rows), OWNERS, SECURE,
          _quiet),
)  # fmt: skip
