"""Formulas of FedVS's messages: the content of each, computed from all secrets of a run.

The data, the networks and the draws of all parties determine every message. The audit computes them
and compares byte by byte. A formula uses the sender's inputs and state, and messages that were sent
to it; these have formulas of their own.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any
from typing import Protocol as Interface

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.field import LagrangeCode
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.models.split import Centre
from securevfl.privacy.released_equations import Odometer, independent_columns, visits_allowed
from securevfl.protocols.base.mask_keys import dealt_keys, keys_of
from securevfl.protocols.base.messages import Formula, MessageKey, RunSecrets
from securevfl.protocols.base.sum_budget import UNKNOWNS
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.parameters import Parameters, inference_step
from securevfl.protocols.fedvs.quantisation import quantised_data
from securevfl.protocols.fedvs.succession import centre_after, centre_at, head, network_at


class Method(Interface):
    """The attributes of the protocol that formulas read."""

    config: Any
    data: Any
    public: Parameters

    @property
    def code(self) -> LagrangeCode:
        """Evaluation points, K and T."""

    def network(self, index: int, *, bound: float | None = None) -> PolynomialNetwork:
        """New network of a client."""

    def centre(self) -> Centre:
        """New server model."""

    def released(self, rounds: int | None = None) -> Odometer | None:
        """Equations of sums against unknowns."""

    def secret_stream(self, index: int, name: str, *keys: int) -> np.random.Generator:
        """Secret stream of a party."""


def formulas_of(protocol: Method) -> dict[str, Formula]:
    """Formula of each kind of message, for runs in which no message is late."""
    made: dict[str, Any] = {
        "train-data": data_share,
        "test-data": data_share,
        "round": announced,
        "model": model_share,
        "key": sent_keys,
        UNKNOWNS: own_unknowns,
        "shared": uploads_since_the_last_step,
        "attempt": named_attempt,
        "embedding": upload,
        "gradient": gradient,
        "labels": all_labels,
        "head": head,
    }
    return {kind: functools.partial(formula, protocol) for kind, formula in made.items()}


def data_share(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """F_n(alpha), the share of X-bar with the masks Z (lines 2-8)."""
    part = "train" if key.kind == "train-data" else "test"

    def shares() -> np.ndarray:
        X = quantised_data(protocol.public, secrets.data(key.sender)[part], part)[0]
        Z = secrets.draw(key.sender, "Z" if part == "train" else "Z test", 0)
        encoded: np.ndarray = protocol.code.encode(X, masks=Z)
        return encoded

    share: np.ndarray = secrets.once(key, "shares", shares)[key.receiver]
    return share


def own_unknowns(protocol: Method, secrets: RunSecrets, key: MessageKey) -> int:
    """Number of independent columns of the sender's training rows."""
    unit = 2.0**-protocol.config.data_bits
    return independent_columns(secrets.data(key.sender)["train"], unit)


def announced(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Any:
    """The round's batch, which is public, or the end."""
    server, parts = secrets.state(key), protocol.public.batches
    trains = "train" in parts and server["steps"] < protocol.config.rounds
    if trains and within_budget(protocol, key.round):
        return Batch("train", parts["train"].draw(key.round))
    if "test" in parts:
        batches = parts["test"]
        step = inference_step(batches.coded, batches.segments)
        done = len(server["test_scores" if "train" in parts else "embeddings"]) * step
        if done < batches.length:
            return Batch("test", np.arange(done, min(done + step, batches.length), dtype=np.uint32))
    return "stop"


def within_budget(protocol: Method, round: int) -> bool:
    """Whether the budget of sums allows the batch of a round, after all those before it."""
    if not protocol.config.budget:
        return True
    odometer = protocol.released()
    assert odometer is not None
    if round <= odometer.full_after:
        return True
    batches = protocol.public.batches["train"]
    before = np.concatenate([batches.draw(t) for t in range(1, round)])
    visits = np.bincount(before, minlength=batches.length)[batches.draw(round)]
    allowed = visits_allowed(odometer.unknowns, odometer.width, odometer.budget)
    return bool(visits.max() < allowed)


def model_share(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """G_n(alpha), the share of W-bar with the masks V (lines 15-17)."""

    def shares() -> np.ndarray:
        if "train" in protocol.public.batches:
            network = network_at(protocol, secrets, key)
            stream = protocol.secret_stream(key.sender, "rounding", key.round)
            W = protocol.public.model_point.quantize(network.values, rng=stream)
        else:  # a prediction, by the model that the client has
            network = protocol.network(key.sender, bound=protocol.config.weight_bound)
            network.load_state_dict(secrets.state(key)["network"])
            W = protocol.public.model_point.quantize(network.values)
        V = secrets.draw(key.sender, "V", key.round)
        encoded: np.ndarray = protocol.code.encode_constant(W, masks=V)
        return encoded

    share: np.ndarray = secrets.once(key, "shares", shares)[key.receiver]
    return share


def sent_keys(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """The keys of sets without the receiver, of those that the sender drew."""
    return dealt_keys(protocol.public.prss, secrets, key)


def uploads_since_the_last_step(
    protocol: Method, secrets: RunSecrets, key: MessageKey
) -> tuple[int, ...] | None:
    """Rounds since the last gradient to which the client uploaded; None for none."""
    batch = secrets.sent("round", key.round)[SERVER, key.sender]
    if batch.part != "train":
        return None
    since = []
    for round in range(key.round - 1, 0, -1):
        if (SERVER, key.sender) in secrets.sent("gradient", round):
            break
        if (key.sender, SERVER) in secrets.sent("embedding", round):
            since.append(round)
    return tuple(reversed(since)) or None


def named_attempt(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Attempt:
    """S, all that shared, and the server's life."""
    sharers = tuple(sorted(sender for sender, _ in secrets.sent("shared", key.round)))
    stepped = next(
        (r for r in range(key.round - 1, 0, -1) if secrets.sent("gradient", r)),
        0,
    )
    return Attempt(sharers, secrets.life(key), stepped=stepped)


def upload(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """psi(alpha) + P(alpha) rho(alpha), from the client's shares and keys (equation 5)."""
    public, n = protocol.public, key.sender
    batch = secrets.sent("round", key.round)[SERVER, n]
    attempt = secrets.sent("attempt", key.round)[SERVER, n]
    data = _received(secrets, f"{batch.part}-data", 0, n)
    shared = _received(secrets, "model", key.round, n)
    models = {m: shared[m] for m in attempt.sharers}
    field = public.field
    held = np.concatenate([data[m][batch.rows] for m in models], axis=1)
    psi: np.ndarray = field.matmul(held, np.concatenate(list(models.values())))
    if not protocol.config.masked:
        return psi
    keys = keys_of(public.prss, secrets, n)
    return public.prss.mask(n, keys, attempt.told(key.round, batch), psi, degree=2)


def decoded_mean(protocol: Method, secrets: RunSecrets, round: int) -> np.ndarray:
    """H: the mean of the clients' embeddings, from the sums that the uploads decode to."""
    public = protocol.public
    uploads = {sender: one for (sender, _), one in secrets.sent("embedding", round).items()}
    used = sorted(uploads)[: public.threshold]
    sums = public.code.decode(np.stack([uploads[n] for n in used]), tuple(used), degree=2)
    attempt = next(iter(secrets.sent("attempt", round).values()))
    bits = public.config.data_bits + public.config.model_bits
    total = public.model_point.dequantize(sums.reshape(-1, sums.shape[-1]), bits=bits)
    mean: np.ndarray = total / len(attempt.sharers)
    return mean


def gradient(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """dL/dH, a step of the server's model on the decoded mean and the labels (line 31)."""
    opened = MessageKey("round", key.round, SERVER, key.receiver)

    def step() -> np.ndarray:
        centre = protocol.centre()
        centre.load_state_dict(centre_at(protocol, secrets, opened))
        batch = secrets.sent("round", key.round)[SERVER, key.receiver]
        samples = protocol.public.batches["train"].samples(batch.rows)
        mean = decoded_mean(protocol, secrets, key.round)
        found = centre.step(mean, samples, secrets.data(SERVER)["train"])[1]
        centre_after(secrets, key.round, centre)
        return found

    return secrets.once(key, "gradient", step)


def all_labels(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """Labels of client 0's pre-training; it is one organisation with the server."""
    more = [] if protocol.data.alone_labels is None else [protocol.data.alone_labels]
    return np.concatenate([secrets.data(SERVER)["train"], *more])


def _received(
    secrets: RunSecrets, kind: str, round: int, receiver: int
) -> Mapping[int, np.ndarray]:
    sent = secrets.sent(kind, round).items()
    return {sender: payload for (sender, to), payload in sent if to == receiver}
