"""Formulas of the messages of coded split learning: each from all secrets of a run.

A formula uses the sender's inputs, draws and state, and messages that were sent to it; these have
formulas of their own. The shares of the models are followed from what was dealt, so a holder that
uploads from a share without a step, or with one twice, departs from its formula.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, MutableMapping
from typing import Any
from typing import Protocol as Interface

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.models.split import Centre
from securevfl.privacy.released_equations import independent_columns
from securevfl.protocols.base.mask_keys import as_array, dealt_keys, keys_of
from securevfl.protocols.base.messages import Formula, MessageKey, RunSecrets
from securevfl.protocols.base.shared_models import Use
from securevfl.protocols.base.sum_budget import UNKNOWNS
from securevfl.protocols.coded_split.messages import NO_STEPS, Label, Request, joined, piece_of
from securevfl.protocols.coded_split.parameters import MODEL, UPLOAD, Parameters
from securevfl.protocols.coded_split.quantisation import (
    Preparation,
    first_model,
    mean_of_sums,
    wanted_step,
    whole_rows,
)


class Method(Interface):
    """The attributes of the protocol that formulas read."""

    config: Any
    public: Parameters

    def preparation(self, owner: int) -> Preparation:
        """An owner's map of its columns."""

    def first_weights(self, owner: int) -> np.ndarray:
        """W_n^0."""

    def new_server(self) -> Any:
        """A server as it is before the run."""

    def centre(self) -> Centre:
        """New server model."""

    def rounding_stream(self, step: int) -> np.random.Generator:
        """The server's draws of a step."""


def formulas_of(protocol: Method) -> dict[str, Formula]:
    """Formula of each kind of message."""
    made: dict[str, Any] = {
        "train-data": data_share,
        "test-data": data_share,
        "model": model_share,
        "key": sent_keys,
        "embedding": upload,
        "deal": deal,
        "seed": deal,
        "missed": missed,
        "request": request,
        "release": release,
        "lacks": last_step,
        "mask": dealt_mask,
        "unmasked": lacking,
        "stored": last_step,
        UNKNOWNS: own_unknowns,
        "stop": the_end,
    }
    return {kind: functools.partial(formula, protocol) for kind, formula in made.items()}


def data_share(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """F_n(alpha_j), from the rows and Z (line 1)."""
    public, part = protocol.public, key.kind.removesuffix("-data")

    def shares() -> np.ndarray:
        prepared = protocol.preparation(key.sender).apply(secrets.data(key.sender)[part])
        whole = whole_rows(public, key.sender, prepared)
        X = public.batches[part].lay_out(public.field.reduce(whole))
        Z = secrets.draw(key.sender, "Z" if part == "train" else "Z test", 0)
        return public.code.encode(X, masks=Z)

    share: np.ndarray = secrets.once(key, "shares", shares)[key.receiver]
    return share


def own_unknowns(protocol: Method, secrets: RunSecrets, key: MessageKey) -> int:
    """Number of independent columns of an owner's prepared training rows."""
    prepared = protocol.preparation(key.sender).apply(secrets.data(key.sender)["train"])
    return independent_columns(prepared, 2.0**-protocol.config.data_bits)


def model_share(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """G_n(alpha_j), from W_n^0 and V (line 2)."""

    def shares() -> np.ndarray:
        W = first_model(protocol.public, protocol.first_weights(key.sender))
        V = secrets.draw(key.sender, "V", 0)
        return protocol.public.code.encode_constant(W, masks=V)

    share: np.ndarray = secrets.once(key, "shares", shares)[key.receiver]
    return share


def sent_keys(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """The keys of sets without the receiver, of those that the sender drew (line 3)."""
    return dealt_keys(protocol.public.prss, secrets, key)


def upload(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """Y_j, from shares that were sent to j and the keys (line 5)."""
    public, use = protocol.public, use_of(protocol.public, key.round)
    data = received(secrets, f"{use.part}-data", 0, key.sender)
    X = np.concatenate([data[n][use.rows] for n in range(public.owners)], axis=1)
    model, digest = model_at(protocol, secrets, key.sender, use.steps)
    psi, prss = public.field.matmul(X, model), public.prss
    if key.sender in prss.receivers:
        every = (masks_of(protocol, secrets, key.round, i, digest) for i in prss.dealers)
        rho = functools.reduce(public.field.add, (one[key.sender] for one in every))
        return prss.add(key.sender, psi, rho)
    keys = keys_of(prss, secrets, key.sender)
    return prss.mask(key.sender, keys, use.label(digest), psi, UPLOAD)


def dealt_mask(protocol: Method, secrets: RunSecrets, key: MessageKey) -> tuple[bytes, np.ndarray]:
    """The digest of the steps in the dealer's share, and rho_i(alpha_j) of the receiver."""
    steps = use_of(protocol.public, key.round).steps
    digest = model_at(protocol, secrets, key.sender, steps)[1]
    found = masks_of(protocol, secrets, key.round, key.sender, digest)
    return digest, found[key.receiver]


def masks_of(
    protocol: Method, secrets: RunSecrets, round: int, dealer: int, digest: bytes
) -> dict[int, np.ndarray]:
    """rho_i(alpha_j) of a dealer and a label, by holder j without keys."""
    public, use = protocol.public, use_of(protocol.public, round)

    def made() -> dict[int, np.ndarray]:
        keys = keys_of(public.prss, secrets, dealer)
        shape = len(use.rows), public.config.width
        values = public.prss.values(dealer, keys, use.label(digest), shape)
        return dict(zip(public.prss.receivers, values, strict=True))

    found: dict[int, np.ndarray]
    found = secrets.once(MessageKey("mask", round, dealer, 0), f"masks {digest.hex()}", made)
    return found


def lacking(protocol: Method, secrets: RunSecrets, key: MessageKey) -> int:
    """The round of the upload that is due."""
    state = secrets.state(key)
    asked = state.get("asked")
    due: int = state["model"][1] + 1
    return due if asked is None else protocol.public.last_step + 1 + asked.piece


def use_of(public: Parameters, round: int) -> Use:
    """The request that an upload of a round answers: a training batch, or later a test piece."""
    last = public.last_step
    if round <= last:
        label, rows = Label("train", round), public.batches["train"].draw(round)
        return Use(functools.partial(label.told, rows), "train", rows, round - 1)
    label = Label("test", last, round - last - 1)
    rows = piece_of(public.batches["test"], label.piece)
    return Use(functools.partial(label.told, rows), "test", rows, last)


def exact_sums(protocol: Method, secrets: RunSecrets, round: int) -> np.ndarray:
    """U_1 to U_K of a round, (K, |B|, h) whole numbers: what the server is to learn.

    From all owners' columns and first models, and from the steps that the server dealt; no share,
    mask or upload has a part in it.
    """
    use = use_of(protocol.public, round)
    X = whole_data(protocol, secrets, use.part)[:, use.rows]
    return np.stack(
        [x @ w for x, w in zip(X, exact_models(protocol, secrets, use.steps), strict=True)]
    )


def exact_models(protocol: Method, secrets: RunSecrets, steps: int) -> np.ndarray:
    """W_1 to W_K of all owners after some steps, (K, d, h) whole numbers."""
    public = protocol.public
    first = [public.field.signed(first_model(public, protocol.first_weights(n)))
             for n in range(public.owners)]  # fmt: skip
    W = np.stack([np.concatenate(first).astype(np.int64)] * public.code.segments)
    if not steps:
        return W
    X = whole_data(protocol, secrets, "train")
    for t in range(1, steps + 1):
        rows, step = public.batches["train"].draw(t), dealt_step(protocol, secrets, t)
        W += np.stack([x[rows].T @ g.astype(np.int64) for x, g in zip(X, step, strict=True)])
    return W


def dealt_step(protocol: Method, secrets: RunSecrets, t: int) -> np.ndarray:
    """Gbar of a step, (K, |B|, h), before the server forgets it."""
    state = when_dealt(protocol, secrets, t)
    step: np.ndarray = state["log"][t - state.get("forgotten", 0) - 1]
    return step


def when_dealt(protocol: Method, secrets: RunSecrets, t: int) -> Mapping[str, Any]:
    """State of the server when it dealt a step to the first holder."""
    kind = "seed" if protocol.public.code.privacy else "deal"
    return secrets.state(MessageKey(kind, t, SERVER, 0))


def whole_data(protocol: Method, secrets: RunSecrets, part: str) -> np.ndarray:
    """X-bar of all owners, (K, length, d) whole numbers."""
    public = protocol.public
    rows = [
        whole_rows(public, n, protocol.preparation(n).apply(secrets.data(n)[part]))
        for n in range(public.owners)
    ]
    laid: np.ndarray = public.batches[part].lay_out(np.concatenate(rows, axis=1))
    return laid


def release(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """A masked share of an owner's models (line 13)."""
    public, last, n = protocol.public, protocol.config.rounds, key.receiver
    start = sum(public.sizes[:n])
    model, digest = model_at(protocol, secrets, key.sender, last)
    share = model[start : start + public.sizes[n]]
    told = Label("release", last, n).told(np.empty(0, np.uint32), digest)
    keys = keys_of(public.prss, secrets, key.sender)
    return public.prss.mask(key.sender, keys, told, share, MODEL)


def model_at(
    protocol: Method, secrets: RunSecrets, holder: int, step: int
) -> tuple[np.ndarray, bytes]:
    """W(alpha_j) with exactly the steps 1 to `step`, each once, and the digest of these."""
    public = protocol.public
    if not public.trains:  # a prediction, by the share that the holder has from the run
        had = MessageKey("own-keys", 0, holder, holder)
        values, *_, digest = secrets.state(had)["model"]
        return values, digest
    first = MessageKey("model", 0, 0, holder)
    memory: MutableMapping[int, tuple[np.ndarray, bytes]]
    memory = secrets.once(first, f"shares of {holder}", dict)
    if not memory:
        sent = received(secrets, "model", 0, holder)
        memory[0] = np.concatenate([sent[n] for n in range(public.owners)]), NO_STEPS
    known = max(t for t in memory if t <= step)
    values, digest = memory[known]
    for t in range(known + 1, step + 1):
        rows = public.batches["train"].draw(t)
        data = received(secrets, "train-data", 0, holder)
        X = np.concatenate([data[n][rows] for n in range(public.owners)], axis=1)
        own, share = dealt_share(protocol, secrets, holder, t)
        values = public.field.add(values, public.field.matmul(X.T, share))
        memory[t] = values, (digest := joined((digest, own)))
    for t in sorted(memory)[1:-3]:  # late uploads may ask for the step before
        del memory[t]
    return values, digest


def dealt_share(
    protocol: Method, secrets: RunSecrets, holder: int, step: int
) -> tuple[bytes, np.ndarray]:
    """Digest of a step and Gamma(alpha_j), as they were sent to j, or as its seed makes it."""
    public = protocol.public
    kind = "deal" if holder >= public.code.privacy else "seed"
    digest, share = secrets.sent(kind, step)[SERVER, holder]
    if kind == "seed":
        shape = (public.batches["train"].coded, public.config.width)
        share = protocol.new_server().dealing.from_seed(share.tobytes(), shape)
    return digest, share


def deal(protocol: Method, secrets: RunSecrets, key: MessageKey) -> tuple[bytes, np.ndarray]:
    """Gamma(alpha_j), or its seed, from the step that the decoded sums and the labels make."""

    def shares() -> tuple[bytes, list[bytes], list[np.ndarray]]:
        server = protocol.new_server()
        secret = secrets.state(key)["secret"]
        step = next_step(protocol, secrets, key, server)
        asked = secret, key.round, step
        dealing = server.dealing
        return dealing.digest(*asked), dealing.seeds(*asked), dealing.shares(*asked)

    digest, seeds, every = secrets.once(key, f"step {key.round}", shares)
    own = as_array([seeds[key.receiver]])[0] if key.kind == "seed" else every[key.receiver]
    return digest, own


def next_step(protocol: Method, secrets: RunSecrets, key: MessageKey, server: Any) -> np.ndarray:
    """Gbar of a step (lines 6 to 8), by the server as it was when it dealt the step before."""
    public, t = protocol.public, key.round
    if t > 1:
        before = when_dealt(protocol, secrets, t - 1)
        server.centre.load_state_dict(before["centre"])
        server.residual = np.array(before["residual"])
        server.bound_state = tuple(np.array(one) for one in before["bound_state"])
    uploads = {j: one for (j, _), one in secrets.sent("embedding", t).items()}
    used = sorted(uploads)[: public.threshold]  # any R decode alike
    rows = public.batches["train"].draw(t)
    decoded = public.code.decode(np.stack([uploads[j] for j in used]), used, degree=UPLOAD)
    sums = public.field.signed(decoded)
    server.bound.decoded(rows, sums)
    H = mean_of_sums(public, sums, t - 1).reshape(-1, public.config.width)
    samples = public.batches["train"].samples(rows)
    _, G, _ = server.centre.gradients(H, samples, secrets.data(SERVER)["train"])
    wanted = wanted_step(public, t, G, server.residual[:, rows])
    if protocol.config.rounding == "stochastic":
        rounded = np.floor(wanted + protocol.rounding_stream(t).random(wanted.shape))
    else:
        rounded = np.rint(wanted)
    step: np.ndarray = server.bound.admit(rounded)[0]
    return step


def missed(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Any:
    """The steps that a holder asked for, with the shares that it was dealt."""
    server = protocol.new_server()
    state = secrets.state(key)
    first: int = secrets.sent("missed", key.round)[SERVER, key.receiver][0][0]
    begin = state.get("forgotten", 0) + 1
    steps = [(t, state["log"][t - begin]) for t in range(first, state["steps"] + 1)]
    return server.dealing.again(state["secret"], steps, key.receiver)


def request(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Request:
    """B of a piece of test rows."""
    piece = key.round - protocol.public.last_step - 1
    return Request("test", piece, piece_of(protocol.public.batches["test"], piece))


def last_step(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Any:
    """The number of steps that a holder has without a hole."""
    return secrets.state(key)["model"][1]


def the_end(protocol: Method, secrets: RunSecrets, key: MessageKey) -> None:
    """Nothing."""


def received(secrets: RunSecrets, kind: str, round: int, receiver: int) -> Mapping[int, np.ndarray]:
    """Arrays of a kind that one holder was sent in a round, by sender."""
    sent = secrets.sent(kind, round).items()
    return {sender: payload for (sender, to), payload in sent if to == receiver}
