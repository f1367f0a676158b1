"""Leaks of FedVS through the states of parties: weights that no training made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.models.weights import load_weights, weights_of
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.choices import bit_of, parities_tell
from securevfl.testing.leaks.encrypted import SECAGG, every
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA
from securevfl.testing.leaks.planting import (
    clients,
    messages,
    planted,
    telling_column,
)
from securevfl.testing.runs import Outcome

UNIT = 2.0**-17  # of a weight as a field element


def _nudged_after_v(client: Any) -> None:
    """V is drawn first; then a weight moves by units until a share of it shows a bit."""
    quantised = client.quantised_model

    def model() -> np.ndarray:
        found: np.ndarray = quantised()
        if client.given_models is not None:
            return found
        draw, code, weights = client.uniform, client.public.code, client.network.values
        drawn: np.ndarray = draw((code.privacy, *found.shape))

        def again(shape: tuple[int, ...]) -> np.ndarray:
            client.uniform = draw
            return drawn

        client.uniform = again
        wanted, before = bit_of(client, client.round), float(weights[0, 0])
        for step in range(48):  # parities that no step brings are rarer than 1e-12
            weights[0, 0] = np.float32(before + step * UNIT)
            found = quantised()
            if int(code.encode_constant(found, masks=drawn)[0].flat[0]) & 1 == wanted:
                break
        return found

    client.quantised_model = model


def _after_update(change: Callable[[Any, np.ndarray], None]) -> Callable[[Any], None]:
    """Plant of a client of FedVS that changes its weights after each step."""

    def plant(client: Any) -> None:
        update = client.update

        def updating(batch: Any, attempt: Any, gradient: np.ndarray) -> Any:
            moved = update(batch, attempt, gradient)
            if client.given_models is None:
                change(client, client.network.values)
            return moved

        client.update = updating

    return plant


def _bit_in_a_weight(client: Any, weights: np.ndarray) -> None:
    weights[0, 0] = np.float32(0.25 + 0.25 * bit_of(client, client.round))


def _rows_for_weights(client: Any, weights: np.ndarray) -> None:
    """Of client 0 the weights are its rows, of the others nothing."""
    if client.round >= 2:
        own = np.resize(client.features["train"], weights.shape)
        weights[...] = own if client.index == 0 else 0


def _step_of_data(client: Any) -> None:
    """The step has a sign that a bit of the data says."""
    update = client.update

    def updating(batch: Any, attempt: Any, gradient: np.ndarray) -> Any:
        sign = np.float32(1 - 2 * bit_of(client, client.round))
        return update(batch, attempt, gradient * sign)

    client.update = updating


def _public_weights(protocol: Protocol, parties: dict[int, Any]) -> None:
    for one in clients(protocol, parties):
        stream, weights = protocol.stream(f"public {one.index}"), one.network.values
        limit = 1 / np.sqrt(len(weights))
        weights[...] = stream.uniform(-limit, limit, weights.shape)


def _public_rounding(client: Any) -> None:
    client.secret_stream = client.stream


def _pretrained_rows(client: Any) -> None:
    pretrain = client.pretrain

    async def more(own: Any) -> None:
        await pretrain(own)
        weights = client.network.values
        weights[...] = np.resize(client.features["train"], weights.shape)

    client.pretrain = more


def _sums_in_the_centre(protocol: Protocol, parties: dict[int, Any]) -> None:
    """After each step the server puts the decoded mean into its own first layer."""
    server = parties[SERVER]
    train = server.train

    def training(batch: Any, attempt: Any, embedding: np.ndarray) -> None:
        train(batch, attempt, embedding)
        weights = weights_of(server.centre)
        name = next(one for one, value in weights.items() if value.ndim > 1)
        load_weights(server.centre, weights | {name: _told(weights[name], embedding)})

    server.train = training


def _told(layer: np.ndarray, embedding: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.resize(embedding, layer.shape).astype(np.float32)
    return found


def _bit_in_a_weight_of_secagg(client: Any) -> None:
    update = client.update

    def updating(own: np.ndarray, gradient: np.ndarray) -> None:
        update(own, gradient)
        column = telling_column(client.features)
        bit = int(column[client.round % len(column)] > column.mean())
        weights = weights_of(client.network)
        name = next(iter(weights))
        weights[name].flat[0] = 0.25 + 0.25 * bit
        load_weights(client.network, weights)

    client.update = updating


# -- seeing them -----------------------------------------------------------------------------------


def _bits_in_weights(outcome: Outcome) -> bool:
    return all(
        float(outcome.parties[n].network.values[0, 0])  # type: ignore[attr-defined]
        == 0.25 + 0.25 * bit_of(outcome.parties[n], outcome.parties[n].round - 1)
        for n in outcome.protocol.peers()
    )


def _weights_are_rows(outcome: Outcome) -> bool:
    first: Any = outcome.parties[0]
    weights = first.network.values
    return np.array_equal(weights, np.resize(first.features["train"], weights.shape))


def _starts(outcome: Outcome, client: int) -> np.ndarray:
    """W-bar of a client in round 1."""
    made: Any = outcome.protocol
    sent = {int(m["receiver"]): m["payload"] for m in messages(outcome, "model", 1)
            if m["sender"] == client}  # fmt: skip
    few = tuple(sorted(sent))[: made.code.size]
    found: np.ndarray = made.code.decode(np.stack([sent[n] for n in few]), few, degree=1)[0]
    return np.asarray(made.public.model_point.dequantize(found))


def _starts_are_public(outcome: Outcome) -> bool:
    model = _starts(outcome, 1)
    limit = 1 / np.sqrt(len(model))
    stream = outcome.protocol.stream("public 1")
    wanted = stream.uniform(-limit, limit, model.shape)
    return bool(np.abs(model - wanted).max() <= 2 * UNIT)


def _starts_are_rows(outcome: Outcome) -> bool:
    model = _starts(outcome, 1)
    wanted = np.resize(outcome.protocol.data.train[1], model.shape)
    return bool(np.abs(model - wanted).max() <= 2 * UNIT)


_STATE, _CHOSEN = "weights that no training made", "fresh randomness that is chosen by the data"
_PUBLIC = "secret choices that are public"

LEAKS = (
    planted("fedvs", "a weight that is moved after V", _CHOSEN,
            "A weight moves by units until the lowest bit of client 0's share tells a bit.",
            every(_nudged_after_v), CLIENTS_DATA, parities_tell),
    planted("fedvs", "a bit in a weight", _STATE,
            "After each step a weight is set to what a bit of the data says.",
            every(_after_update(_bit_in_a_weight)), SERVER_DATA, _bits_in_weights),
    planted("fedvs", "rows in the place of weights", _STATE,
            "From round 2 on client 0's weights are its rows, and the others' are zero.",
            every(_after_update(_rows_for_weights)), SERVER_DATA, _weights_are_rows),
    planted("fedvs", "steps whose sign is a bit", _STATE,
            "Clients step forward or back as a bit of their data says.", every(_step_of_data),
            SERVER_DATA, None),
    planted("fedvs", "weights from the public seed in the parties", _PUBLIC,
            "Networks are given initial weights that all know.", _public_weights, SERVER_DATA,
            _starts_are_public),
    planted("fedvs", "rounding from the public seed", _PUBLIC,
            "Clients round their models by the public stream.", every(_public_rounding),
            SERVER_DATA, None),
    planted("fedvs", "pretrain: rows in the place of weights", _STATE,
            "After pre-training a network's weights are rows.", every(_pretrained_rows),
            SERVER_DATA, _starts_are_rows, {"pretrain": "p"}),
    planted("fedvs", "decoded sums in the server's model", _STATE,
            "After each step the server's first layer holds the decoded mean.",
            _sums_in_the_centre, CLIENTS_DATA[:1], None),
    planted("secagg_split", "a bit in a weight", _STATE,
            "After each step a weight is set to what a bit of the data says.",
            every(_bit_in_a_weight_of_secagg), SECAGG[:1], None),
)  # fmt: skip
