"""Declaration of secure aggregation: its messages by Figure 4, their formulas, and its draws.

The keys and seeds that all clients drew, and their inputs, determine every message. The audit
computes them, and compares byte by byte. A formula uses messages that were sent.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from typing import Protocol as Interface

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.protocols.base.hidden_sums import MaskedUpload
from securevfl.protocols.base.messages import (
    SELF,
    Carries,
    Draw,
    Formula,
    Hypothesis,
    MessageKey,
    MessageSpec,
    RunSecrets,
    in_rounds,
    in_setup,
    with_formulas,
)
from securevfl.protocols.secagg_split.algorithm import Pairing, pair_masks
from securevfl.protocols.secagg_split.parameters import (
    SEED,
    Deal,
    Opening,
    Parameters,
    SecAggConfig,
)
from securevfl.protocols.secagg_split.signatures import (
    signing_key,
    survivors_statement,
    verifying_key,
)


class Method(Interface):
    """The attributes of the protocol that the declaration reads."""

    config: SecAggConfig
    public: Parameters

    def peers(self) -> range:
        """Numbers of the clients."""

    def step_messages(self, carries: Carries, dtype: str) -> tuple[MessageSpec, ...]:
        """Announcement, upload and gradient of a step of split training."""

    def announced_at(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """Payload of an announcement."""

    def embedding_at(self, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
        """H_n of a round."""

    def gradient_at(self, secrets: RunSecrets, key: MessageKey, joint: np.ndarray) -> np.ndarray:
        """dL/dH by the server's model."""

    def ideal_output(self, secrets: RunSecrets, key: MessageKey) -> Any:
        """Content of a message that its receiver may learn."""


def messages_of(protocol: Method) -> tuple[MessageSpec, ...]:
    """Figure 4, round by round, between the announcement and the gradient."""
    batch, upload, gradient = protocol.step_messages(
        "masked_result", protocol.public.field.dtype.name
    )
    p = protocol.public.field.modulus
    identity = MessageSpec("identity", "client", "client", "key", public=True, count=in_setup)
    signed = (
        MessageSpec("signature", "client", "server", "key", count=in_rounds),
        MessageSpec("signatures", "server", "client", "key", count=in_rounds),
    )
    consistency = protocol.config.consistency
    declared = (
        *[identity] * consistency,
        batch,
        MessageSpec("secret", "client", SELF, "key", count=in_rounds, source="s_u^SK, b_u"),
        MessageSpec(
            *("deal", "client", "client", "key"),
            count=in_rounds,
            source="rounds 0, 1",
            modulus=p,
        ),
        MessageSpec(
            *("shared", "client", "server", "key"),
            public=True,
            count=in_rounds,
            source="round 0: s_u^PK",
        ),
        MessageSpec(
            *("sharers", "server", "client", "control"),
            public=True,
            count=in_rounds,
            punctual=True,
            source="round 1: U2",
        ),
        replace(upload, source="round 2: y_u", modulus=p),
        MessageSpec(
            *("survivors", "server", "client", "control"),
            public=True,
            count=in_rounds,
            punctual=True,
            source="round 2: U3",
        ),
        *[replace(one, source="round 3") for one in signed] * consistency,
        MessageSpec(
            *("opening", "client", "server", "key"),
            count=in_rounds,
            source="round 4",
            modulus=p,
        ),
        gradient,
    )
    return with_formulas(declared, formulas_of(protocol))


def formulas_of(protocol: Method) -> dict[str, Formula]:
    """Formula of each kind of message, from the keys, seeds and inputs of all clients."""
    return {
        ANNOUNCE: protocol.announced_at,
        "identity": lambda secrets, key: verifying_key(secrets.state(key)["identity"]),
        "deal": functools.partial(deal_at, protocol),
        "shared": lambda secrets, key: pairing_at(protocol, secrets, key.sender, key.round).public,
        "sharers": lambda secrets, key: tuple(
            sorted(n for n, _ in secrets.sent("shared", key.round))
        ),
        "embedding": functools.partial(masked_at, protocol),
        "survivors": lambda secrets, key: tuple(
            sorted(n for _, n in secrets.sent("gradient", key.round))
        ),
        "signature": functools.partial(signature_at, protocol),
        "signatures": lambda secrets, key: {
            n: one for (n, _), one in sorted(secrets.sent("signature", key.round).items())
        },
        "opening": functools.partial(opening_at, protocol),
        "gradient": functools.partial(gradient_of_the_sum, protocol),
    }


def hypotheses_of(protocol: Method, secrets: RunSecrets) -> tuple[Hypothesis, ...]:
    """Keys and seeds of one use, and openings of only one secret of a client.

    Numbers of survivors, shares and masks are looked at by the verifier (`PairMasked`).
    """
    rounds = range(1, protocol.config.rounds + 1)
    drawn = [pair for r in rounds for pair in secrets.sent("secret", r).values()]
    values = [value for pair in drawn for value in pair]
    openings = [one for r in rounds for one in secrets.sent("opening", r).values()]
    return (
        Hypothesis(
            f"the {len(values)} keys and seeds of all clients and rounds are different",
            0 < len(set(values)) == len(values),
        ),
        Hypothesis(
            f"in {len(openings)} openings no client reveals shares of both secrets of another",
            not any(set(one.seeds) & set(one.secrets) for one in openings),
        ),
    )


def upload_parts(protocol: Method, secrets: RunSecrets, key: MessageKey) -> MaskedUpload:
    """Parts of y_u: x_u, b_u, and s_v^SK of U2 as it was told to u."""
    sent = secrets.sent("secret", key.round)
    sharers = secrets.sent("sharers", key.round)[SERVER, key.sender]
    return MaskedUpload(
        quantised_embedding(protocol, secrets, key.sender, key.round),
        sent[key.sender, key.sender][1],
        {v: sent[v, v][0] for v in sharers},
    )


def dealt(
    protocol: Method, secrets: RunSecrets, client: int, round: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Limbs of s_u^SK and b_u, and all shares of them; None where a client dealt none."""
    sent, own = secrets.sent("deal", round), secrets.sent("secret", round).get((client, client))
    deals = [sent.get((client, n)) for n in protocol.peers()]
    if own is None or None in deals:
        return None
    limbs = [limb for one in own for limb in protocol.public.split(one)]
    shares = np.stack([np.concatenate([one.secret, one.seed]) for one in deals if one])
    return protocol.public.field.elements(limbs), shares


def pairing_at(protocol: Method, secrets: RunSecrets, client: int, round: int) -> Pairing:
    """Key agreement of a client in a round, with the key that it drew."""
    return Pairing(client, round, secrets.sent("secret", round)[client, client][0])


def deal_at(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Deal:
    """s_u^PK, and the receiver's shares of s_u^SK and b_u.

    Their polynomials have degree t - 1 and these constants, so t - 1 shares of other clients
    fix the share of this one.
    """
    shamir, sent = protocol.public.shamir, secrets.sent("deal", key.round)
    secret, seed = secrets.sent("secret", key.round)[key.sender, key.sender]
    others = [n for n in protocol.peers() if n != key.receiver][: shamir.privacy]

    def rows() -> tuple[np.ndarray, bytes]:
        """Shares of every receiver, by those of `others`, and s_u^PK."""
        limbs = [*protocol.public.split(secret), *protocol.public.split(seed)]
        constants = protocol.public.field.elements([limbs])
        deals = [sent[key.sender, n] for n in others]
        shares = np.stack([np.concatenate([one.secret, one.seed]) for one in deals])
        field = protocol.public.field
        # shares = D c + M m, with the constants c and the t - 1 mask coefficients m; M is square
        # and regular, as its points differ: m = M^-1 (shares - D c).
        known = field.matmul(shamir.data_matrix[others], constants)
        masks = field.matmul(field.inv(shamir.mask_matrix[others]), field.subtract(shares, known))
        own = pairing_at(protocol, secrets, key.sender, key.round).public
        return shamir.encode(constants, masks=masks), own

    shares, own = secrets.once(key, f"shares, by those of {others}", rows)
    row = shares[key.receiver]
    half = len(row) // 2
    return Deal(own, row[:half], row[half:])


def masked_at(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """y_u = x_u + PRG(b_u) + sum over U2 of +-PRG(s_{u,v})."""
    x = quantised_embedding(protocol, secrets, key.sender, key.round)
    sharers = secrets.sent("sharers", key.round)[SERVER, key.sender]
    deals = secrets.sent("deal", key.round)
    keys = {v: deals[v, key.sender].key for v in sharers}
    seed = secrets.sent("secret", key.round)[key.sender, key.sender][1]
    pairing = pairing_at(protocol, secrets, key.sender, key.round)
    own = protocol.public.field.add(x, protocol.public.stream(seed, x.shape))
    masked: np.ndarray = protocol.public.field.add(
        own, pair_masks(protocol.public, pairing, keys, x.shape)
    )
    return masked


def signature_at(protocol: Method, secrets: RunSecrets, key: MessageKey) -> bytes:
    """Ed25519 signature of U2 and U3, in this run and incarnation."""
    sharers = secrets.sent("sharers", key.round)[SERVER, key.sender]
    survivors = secrets.sent("survivors", key.round)[SERVER, key.sender]
    state, own = secrets.state(key), (key.sender, key.sender)
    pairing = secrets.sent("deal", key.round)[own].key
    named = survivors_statement(state["verifiers"], key.round, sharers, survivors, pairing)
    signature: bytes = signing_key(state["identity"]).sign(named)
    return signature


def opening_at(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Opening:
    """Shares of b_v for v in U3, of s_v^SK for v in U2 but not in U3."""
    survivors = secrets.sent("survivors", key.round)[SERVER, key.sender]
    deals = secrets.sent("deal", key.round)
    own = {v: deals[v, key.sender]
           for v in secrets.sent("sharers", key.round)[SERVER, key.sender]}  # fmt: skip
    return Opening(
        seeds={v: deal.seed for v, deal in own.items() if v in survivors},
        secrets={v: deal.secret for v, deal in own.items() if v not in survivors},
    )


def gradient_of_the_sum(protocol: Method, secrets: RunSecrets, key: MessageKey) -> np.ndarray:
    """dL/dH of the mean over U3, whose sum the server must have found exactly."""
    survivors = secrets.sent("survivors", key.round)[SERVER, key.receiver]
    total = protocol.ideal_output(secrets, MessageKey("opening", *key[1:]))
    return protocol.gradient_at(
        secrets, key, protocol.public.point.dequantize(total) / len(survivors)
    )


def draws_of(protocol: Method) -> tuple[Draw, ...]:
    """Signing key, s_u^SK, b_u, and the polynomials that share the last two.

    They are 32 bytes each, and field elements. s_{u,v} follows from s_u^SK and s_v^PK, and
    both kinds of pairwise mask from s_{u,v} and b_u: they are computed, not drawn.
    """
    later = ("deal", "embedding", "opening")
    limbs = 2 * len(protocol.public.split(bytes(SEED)))
    polynomials = (protocol.public.threshold - 1, limbs)
    identity = Draw("identity", "client", _in_setup(SEED), ("identity", "signature"), "uint8")
    return (
        *[identity] * protocol.config.consistency,
        Draw("s_u^SK", "client", _in_rounds(SEED), ("shared", *later), "uint8"),
        Draw("b_u", "client", _in_rounds(SEED), later, "uint8"),
        Draw("shares", "client", _in_rounds(*polynomials), ("deal", "opening")),
    )


def sum_of_survivors(protocol: Method, secrets: RunSecrets, key: MessageKey) -> Any:
    """Sum of x_u over U3, which uploads and openings reveal to the server; else None."""
    if key.kind not in ("embedding", "opening"):
        return None
    named = secrets.sent("survivors", key.round)
    survivors = next(iter(named.values()), ())
    inputs = [quantised_embedding(protocol, secrets, u, key.round) for u in survivors]
    return functools.reduce(protocol.public.field.add, inputs) if inputs else None


def quantised_embedding(
    protocol: Method, secrets: RunSecrets, client: int, round: int
) -> np.ndarray:
    """x_u of a round, from a client's rows and its network in that round."""
    key = MessageKey("embedding", round, client, SERVER)
    return protocol.public.point.quantize(protocol.embedding_at(secrets, key))


def _in_setup(*shape: int) -> Callable[[int, int], tuple[int, ...] | None]:
    """Shape of a draw that is made once."""
    return lambda party, round: None if round else shape


def _in_rounds(*shape: int) -> Callable[[int, int], tuple[int, ...] | None]:
    """Shape of a draw that is made anew in each round."""
    return lambda party, round: shape if round else None
