"""Leaks of FedVS that are there only with an option, a shape, or an event; and those of models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.runs import Outcome
from tests.zoo.fedvs_masks import (
    CLIENTS_MODEL,
    UPLOADS,
    each_rho,
    model_mask,
    when,
)
from tests.zoo.planting import (
    Leak,
    changed,
    clients,
    masks,
    messages,
    upload_masks,
)


def with_option(asked: Callable[[Any], bool], plant: Any) -> Any:
    """Plant only where the options ask for it."""

    def planting(protocol: Protocol, parties: dict[int, Any]) -> None:
        if asked(protocol.config):
            plant(protocol, parties)

    return planting


def _unmasked_late(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        masked = client.masked
        client.masked = lambda upload, told: upload if client.round >= 4 else masked(upload, told)

    for one in clients(protocol, parties):
        plant(one)


def _raw_models(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        def raw() -> np.ndarray:
            if client.given_models is not None:
                found: np.ndarray = client.given_models[client.round]
                return found
            like = client.network.values
            own = np.resize(client.features["train"], like.shape)
            point = client.public.model_point
            made: np.ndarray = point.quantize(own if client.index == 0 else np.zeros_like(like))
            return made

        client.quantised_model = raw

    for one in clients(protocol, parties):
        plant(one)


def _alone_in_the_sum(protocol: Protocol, parties: dict[int, Any]) -> None:
    def plant(client: Any) -> None:
        quantised = client.quantised_model

        def silent() -> np.ndarray:
            made: np.ndarray = quantised()
            return made if client.index == 0 or client.given_models else np.zeros_like(made)

        client.quantised_model = silent

    for one in clients(protocol, parties):
        plant(one)


# -- seeing them ---------------------------------------------------------------------------------


def _unmasked_from(round: int) -> Callable[[Outcome], bool]:
    """Test whether uploads of a round are the plain products of what their senders got."""

    def shows(outcome: Outcome) -> bool:
        made: Any = outcome.protocol
        field, batch = made.code.field, outcome.parties[0].public.batches["train"].draw(round)  # type: ignore[attr-defined]
        seen = {}
        for one in messages(outcome, "embedding", round):
            n = int(one["sender"])
            party: Any = outcome.parties[n]
            shares = {int(m["sender"]): m["payload"] for m in messages(outcome, "model", round)
                      if m["receiver"] == n}  # fmt: skip
            held = party.data_shares["train"]
            total = None
            for m, share in shares.items():
                product = field.matmul(held[m][batch], share)
                total = product if total is None else field.add(total, product)
            seen[n] = (one["payload"], total)
        # The own share is not among the messages: what is left must be its product, which has the
        # rank of its columns, and not that of a mask. With equal columns the test is exact.
        return bool(seen) and all(
            _own_product(outcome, n, field.subtract(sent, total), batch, round)
            for n, (sent, total) in seen.items()
        )

    return shows


def _own_product(outcome: Outcome, n: int, left: np.ndarray, batch: np.ndarray, round: int) -> bool:
    party: Any = outcome.parties[n]
    code = outcome.protocol.code  # type: ignore[attr-defined]
    sent = {int(m["receiver"]): m["payload"] for m in messages(outcome, "model", round)
            if m["sender"] == n}  # fmt: skip
    names = sorted(sent)[: code.privacy + 1]
    stack = np.stack([sent[m] for m in names])
    matrix = code.data_matrix[names].sum(axis=1, keepdims=True) % code.field.modulus
    known = np.concatenate([matrix, code.mask_matrix[names]], axis=1).astype(stack.dtype)
    inverse = code.field.inv(code.field.elements(known.tolist()))
    parts = code.field.matmul(inverse, stack.reshape(len(names), -1)).reshape(stack.shape)
    share = code.encode_constant(parts[0], masks=parts[1:])[n]
    held = party.data_shares["train"][n][batch]
    return np.array_equal(code.field.matmul(held, share), left)


def _rho_zero(outcome: Outcome) -> bool:
    return not any(one.any() for one in upload_masks(outcome, 1).values())


def _others_silent(outcome: Outcome) -> bool:
    code = outcome.protocol.code  # type: ignore[attr-defined]
    for n in outcome.protocol.peers()[1:]:
        v = masks(outcome, "model", n, 1)
        alone = code.encode_constant(np.zeros_like(v[0]), masks=v)
        sent = {int(m["receiver"]): m["payload"] for m in messages(outcome, "model", 1)
                if m["sender"] == n}  # fmt: skip
        if not all(np.array_equal(alone[m], share) for m, share in sent.items()):
            return False
    return True


_ONLY, _MODELS = "only with an option", "models that are chosen"
_EVENT, _SHAPE = "only after an event", "only with a shape"
_ZERO_RHO = each_rho(lambda client: lambda told, values: np.zeros_like(values))


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          **options: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, options, shows=shows)


LEAKS = (
    _leak(
        "result_timeout: rho zero",
        _ONLY,
        "With a result_timeout all masks are zero.",
        with_option(lambda c: c.result_timeout, _ZERO_RHO),
        UPLOADS,
        _rho_zero,
        result_timeout=60.0,
    ),
    _leak(
        "unmasked from round 4",
        _EVENT,
        "From round 4 on uploads have no masks.",
        _unmasked_late,
        UPLOADS,
        _unmasked_from(4),
        rounds=8,
    ),
    _leak(
        "after a resume",
        _EVENT,
        "A client that came back shares its models without masks.",
        when(lambda c, r, p: model_mask(c, r, p) and c.returned, np.zeros_like),
        CLIENTS_MODEL,
        None,
    ),
    _leak(
        "models are raw data",
        _MODELS,
        "Client 0's model is its data, and all others are zero, so that the sum tells them.",
        _raw_models,
        (("server", "features"), ("server + T clients", "features")),
        _others_silent,
    ),
    _leak(
        "one client alone in the sum",
        _MODELS,
        "All models but client 0's are zero, so that each sum is client 0's embedding.",
        _alone_in_the_sum,
        (("server", "features"), ("server", "model")),
        _others_silent,
    ),
)
