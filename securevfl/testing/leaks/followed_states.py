"""Leaks through states and draws: what is told is in a value from which an honest message is made.

They came with the check that finds them, which steps the library's own parties beside the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.models.weights import load_weights, weights_of
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.split_parties import SplitClient
from securevfl.protocols.secagg_split.algorithm import Pairing
from securevfl.testing.leaks.declared_contents import DECLARED
from securevfl.testing.leaks.encrypted import HE, SECAGG, every
from securevfl.testing.leaks.noise import ROWS, SECURE
from securevfl.testing.leaks.planting import (
    ACCUSED,
    messages,
    planted,
    replaced,
    telling_column,
)
from securevfl.testing.runs import Outcome

_STATE, _DRAWS = "a state that no training made", "draws that are made again until one pleases"
_LIBRARY = "a function of the library that is replaced"


def _bit(client: Any, round: int) -> int:
    """1 where a value of a client, another in each round, is above its column's mean, else 0."""
    column = telling_column(client.features)
    return int(column[round % len(column)] > column.mean())


def _after_steps(change: Callable[[Any], None]) -> Any:
    """Plant of clients that change their state after each step."""

    def plant(client: Any) -> None:
        update = client.update

        def updating(own: np.ndarray, gradient: np.ndarray) -> None:
            update(own, gradient)
            change(client)

        client.update = updating

    return every(plant)


def _tell_in_a_weight(client: Any) -> None:
    weights = weights_of(client.network)
    name = next(iter(weights))
    told = weights[name].copy()
    told.flat[0] = 0.25 + 0.25 * _bit(client, client.round)
    load_weights(client.network, weights | {name: told})


def _tell_in_the_optimizer(client: Any) -> None:
    """The mean of past gradients of one weight says a bit: the next step then moves it so."""
    for moments in client.network.optimizer.state.values():
        moments["exp_avg"].view(-1)[0] = 2.0 * _bit(client, client.round) - 1.0


def _gradients_in_place(client: Any) -> None:
    """The gradient that came is turned round where it lies, if a bit is one."""
    update = client.update

    def updating(own: np.ndarray, gradient: np.ndarray) -> None:
        if _bit(client, client.round):
            np.negative(gradient, out=gradient)
        update(own, gradient)

    client.update = updating


def _keys_until_a_bit(client: Any) -> None:
    """The first key of a round is drawn again until its public key has the parity of a bit."""
    draw, asked = client.random_bytes, [0]

    def drawing() -> bytes:
        asked[0] += 1
        while True:
            drawn: bytes = draw()
            if asked[0] % 2 == 0:
                return drawn
            public = Pairing(client.index, client.round, drawn).public
            if public[0] & 1 == _bit(client, client.round):
                return drawn

    client.random_bytes = drawing


def _ciphertexts_until_a_bit(client: Any) -> None:
    """A plaintext is encrypted again until a byte of the ciphertext has the parity of a bit."""
    scheme = client.public.scheme
    encrypt = scheme.encrypt

    def encrypting(key: bytes, values: np.ndarray) -> tuple[bytes, ...]:
        while True:
            made: tuple[bytes, ...] = encrypt(key, values)
            if made[0][1000] & 1 == _bit(client, client.round):
                return made

    scheme.encrypt = encrypting


def _evil_update(old: Callable[..., None]) -> Callable[..., None]:
    def update(self: Any, own: np.ndarray, gradient: np.ndarray) -> None:
        old(self, own, gradient)
        _tell_in_a_weight(self)

    return update


def _labels_in_the_centre(protocol: Protocol, parties: dict[int, Any]) -> None:
    """After each step a weight of the server's model says the label of a row."""
    server = parties[SERVER]
    answer = server.answer

    def answering(batch: np.ndarray, step: Any) -> None:
        answer(batch, step)
        weights = weights_of(server.centre)
        name = next(one for one, value in weights.items() if value.ndim > 1)
        told = weights[name].copy()
        told.flat[0] = float(server.labels[server.steps % len(server.labels)])
        load_weights(server.centre, weights | {name: told})

    server.answer = answering


def _telling_pace(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The pace of an active party, which says whether it is slow, is a bit of its labels."""
    for one in parties.values():
        if hasattr(one, "labelled_rows"):
            one.__class__ = type("Telling", (type(one),), {
                "pace": property(_pace, lambda self, value: None),
                "__module__": type(one).__module__,
            })  # fmt: skip


def _pace(party: Any) -> float:
    return float(party.labels[party.round % len(party.labels)] & 1)


# -- seeing them -----------------------------------------------------------------------------------


def _weights_tell(outcome: Outcome) -> bool:
    parties: list[Any] = [outcome.parties[n] for n in outcome.protocol.peers()]
    found = [next(iter(weights_of(one.network).values())).flat[0] for one in parties]
    return any(value in (0.25, 0.5) for value in found)


def _public_keys_tell(outcome: Outcome) -> bool:
    return all(
        one["payload"][0] & 1 == _bit(outcome.parties[int(one["sender"])], int(one["round"]))
        for one in messages(outcome, "shared")
    )


def _ciphertexts_tell(outcome: Outcome) -> bool:
    return all(
        one["payload"][0][1000] & 1 == _bit(outcome.parties[int(one["sender"])], int(one["round"]))
        for one in messages(outcome, "embedding")
    )


def _a_weight_is_a_label(outcome: Outcome) -> bool:
    server: Any = outcome.parties[SERVER]
    layer = next(value for value in weights_of(server.centre).values() if value.ndim > 1)
    return bool(layer.flat[0] == float(server.labels[server.steps % len(server.labels)]))


def _paces_are_labels(outcome: Outcome) -> bool:
    return any(type(one).__name__ == "Telling" for one in outcome.parties.values())


LEAKS = (
    planted("he_split", "a bit in a weight", _STATE,
            "After each step a weight is set to what a bit of the data says.",
            _after_steps(_tell_in_a_weight), HE[:1], _weights_tell),
    planted("wait_dp", "a bit in a weight", _STATE,
            "After each step a weight is set to what a bit of the data says.",
            _after_steps(_tell_in_a_weight), ROWS, _weights_tell, SECURE, ACCUSED),
    planted("secagg_split", "a bit in the optimiser", _STATE,
            "After each step a moment of the optimiser is set to what a bit of the data says.",
            _after_steps(_tell_in_the_optimizer), SECAGG[:1], None),
    planted("secagg_split", "gradients turned round in place", _STATE,
            "The gradient that came is turned round before the step, if a bit of the data is one.",
            every(_gradients_in_place), SECAGG[:1], None),
    planted("secagg_split", "keys drawn until a bit shows", _DRAWS,
            "A key is drawn anew until its public key shows a bit.", every(_keys_until_a_bit),
            SECAGG[:1], _public_keys_tell),
    planted("he_split", "ciphertexts made until a bit shows", _DRAWS,
            "Plaintexts are encrypted anew until a ciphertext shows a bit.",
            every(_ciphertexts_until_a_bit), HE[:1], _ciphertexts_tell),
    planted("secagg_split", "the library's step is replaced", _LIBRARY,
            "The step of all clients of the library sets a weight to what a bit says.",
            lambda protocol, parties: None, SECAGG[:1], _weights_tell,
            around=replaced(SplitClient, "update", _evil_update)),
    planted("split", "labels in the server's model", _STATE,
            "After each step a weight of the server's model is set to a label.",
            _labels_in_the_centre, DECLARED, _a_weight_is_a_label, None, ACCUSED),
    planted("cvfl", "a pace that tells a label", _STATE,
            "Whether an active party is slow, as it tells the others, is a bit of a label.",
            _telling_pace, DECLARED, _paces_are_labels, None, ACCUSED),
)  # fmt: skip
