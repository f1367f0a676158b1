"""More harmless changes: other structure, other order, another equal formula, other options."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from securevfl.protocols.secagg_split.algorithm import Pairing
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.planting import Variant, changed, tap

_LOG = logging.getLogger("securevfl.example")


def _log_lines(client: Any) -> None:
    """A line of the log says which kind of message leaves, and in which round."""

    def change(one: dict[str, Any]) -> None:
        _LOG.debug("client %s sends %s in round %s", client.index, one["kind"], client.round)

    tap(client, change)


def _one_by_one(client: Any) -> None:
    """Shares leave by one call each."""

    def sharing(kind: str, shares: Any) -> None:
        for n, one in enumerate(shares):
            client.send(n, kind, one)

    client.share = sharing


def _masks_first(client: Any) -> None:
    """V is drawn before the model is rounded."""
    quantised = client.quantised_model

    def model() -> np.ndarray:
        if client.given_models is not None:
            found: np.ndarray = quantised()
            return found
        draw = client.uniform
        drawn: np.ndarray = draw((client.public.code.privacy, *client.network.values.shape))

        def again(shape: tuple[int, ...]) -> np.ndarray:
            client.uniform = draw
            return drawn

        client.uniform = again
        rounded: np.ndarray = quantised()
        return rounded

    client.quantised_model = model


def _half_by_half(client: Any) -> None:
    """Uploads are products of the left and the right half of the columns of the models."""
    evaluate = client.evaluate

    def products(batch: Any, attempt: Any, shares: Any) -> np.ndarray:
        middle = client.public.config.width // 2
        parts = [{n: np.ascontiguousarray(w[:, some]) for n, w in shares.items()}
                 for some in (slice(None, middle), slice(middle, None))]  # fmt: skip
        return np.concatenate([evaluate(batch, attempt, part) for part in parts], axis=1)

    client.evaluate = products


def _counting_network(client: Any) -> None:
    """A network has a class of its own, which counts its steps."""
    network = client.network
    kind = type(network)

    def update(self: Any, features: np.ndarray, gradient: np.ndarray) -> Any:
        self.count = getattr(self, "count", 0) + 1
        return kind.update(self, features, gradient)

    network.__class__ = type("Counting", (kind,), {"update": update, "__module__": __name__})


def _pairs_backwards(client: Any) -> None:
    """The masks of pairs are added from the last client to the first."""
    public, field = client.public, client.public.field

    def masked(x: np.ndarray, pairing: Pairing, seed: bytes, deals: Any) -> np.ndarray:
        total = field.add(x, public.stream(seed, x.shape))
        for v in sorted(deals, reverse=True):
            if v != pairing.index:
                mask = public.stream(pairing.agree(v, deals[v].key), x.shape)
                sign = field.add if v < pairing.index else field.subtract
                total = sign(total, mask)
        whole: np.ndarray = total
        return whole

    client.masked = masked


def _all_later(client: Any) -> None:
    """Uploads leave half a second later."""

    def change(one: dict[str, Any]) -> None:
        one["after"] += 0.5 * (one["kind"] == "embedding")

    tap(client, change)


def _variant(protocol: str, name: str, says: str, plant: Any = nothing,
             **options: Any) -> Variant:  # fmt: skip
    return Variant(f"{protocol}: {name}", protocol, says, changed(protocol, plant), options)


VARIANTS = (
    _variant("fedvs", "log lines", "Kinds of messages are logged.", every(_log_lines)),
    _variant("fedvs", "shares one by one", "Shares leave by one call each.", every(_one_by_one)),
    _variant("fedvs", "masks first", "V is drawn before the model is rounded.",
             every(_masks_first)),
    _variant("fedvs", "half by half", "Uploads are computed in two halves.",
             every(_half_by_half)),
    _variant("fedvs", "a counting network", "Networks have a class of their own.",
             every(_counting_network)),
    _variant("fedvs", "twelve rounds of SGD", "Twelve rounds, by SGD.", rounds=12,
             optimizer="sgd", lr=0.05),
    _variant("fedvs", "wrong uploads are corrected", "One wrong upload is corrected.",
             tolerate_corrupt=1, segments=1),
    _variant("fedvs", "pre-trained clients", "Networks are pre-trained alone.", pretrain="p"),
    _variant("secagg_split", "log lines", "Kinds of messages are logged.", every(_log_lines)),
    _variant("secagg_split", "pairs backwards", "Masks of pairs are added from the last one on.",
             every(_pairs_backwards)),
    _variant("coded_split", "as it is", "A subclass that changes nothing."),
    _variant("coded_split", "log lines", "Kinds of messages are logged.", every(_log_lines)),
    _variant("coded_split", "uploads half a second later", "Uploads leave later.",
             every(_all_later)),
    _variant("coded_split", "two helpers and segments", "K = 2, with two helpers.", segments=2,
             helpers=2),
    _variant("coded_split", "T = 2", "Two holders may pool.", privacy=2, helpers=2),
    _variant("coded_split", "coded inference", "The test set is inferred from shares.",
             secure=True),
    _variant("wait_dp", "log lines", "Kinds of messages are logged.", every(_log_lines),
             noise="secure", epsilon=5.0),
    _variant("dvfl", "log lines", "Kinds of messages are logged.", every(_log_lines)),
)  # fmt: skip
