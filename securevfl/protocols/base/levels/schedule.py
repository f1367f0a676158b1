"""Planned messages that the levels covert and active add."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.active.dealing import repetitions
from securevfl.active.statements import DIGEST, SIGNATURE
from securevfl.active.tree import depth_of
from securevfl.engine.party import SERVER
from securevfl.field.lagrange_code import LagrangeCode
from securevfl.field.prss import Prss
from securevfl.protocols.base.schedule import Post, hollow

WORD = hollow((DIGEST,), np.uint8)


def proof_of(code: LagrangeCode) -> tuple[Any, ...]:
    """Payload parts of the proof beside a share (`securevfl.active.dealt.PARTS`)."""
    m, dtype = repetitions(code), code.field.dtype
    values = hollow((m,), dtype), hollow((code.size, m), dtype)
    path = hollow((depth_of(code.parties), DIGEST), np.uint8)
    return (*values, WORD, path, WORD, WORD, WORD, bytes(SIGNATURE))


def signed_upload(share: Any) -> tuple[Any, ...]:
    """Planned payload of an upload: the word in the signed label, the share, the signature."""
    return WORD, share, bytes(SIGNATURE)


def signed_gradient(gradient: Any, config: Any) -> Any:
    """Planned payload with dL/dH; above level "semi-honest" (gradient, word, signature)."""
    signed = WORD, bytes(SIGNATURE)
    return gradient if config.security == "semi-honest" else (gradient, *signed)


def identity_posts(parties: int, *, to_server: bool) -> list[Post]:
    """Planned messages with verifying keys, to all parties that check statements."""
    key = (bytes(DIGEST),)
    of_server: Any = {"senders": lambda round: [SERVER]}
    of_server |= {"receivers": lambda server: range(parties)}
    return [
        Post("identity", "peers", key),
        *[Post("identity", "server", key)] * to_server,
        Post("identity", "clients", key, **of_server),
    ]


def told_posts(parties: int, prss: Prss | None) -> list[Post]:
    """Planned messages with digests of the set-up and, if `prss` is given, tags of keys.

    Parameters
    ----------
    parties : int
        Number N of clients.
    prss : Prss, optional
        Keys of masks, at level active; None if no keys are tagged.
    """
    drawn = [0 if prss is None else len(prss.dealt(i)) for i in range(parties)]
    dealers = [i for i, number in enumerate(drawn) if number]
    tags = [(hollow((number, DIGEST), np.uint8), WORD, bytes(SIGNATURE)) for number in drawn]
    made = [Post("key-tags", "peers", tuple(tags), lambda round: dealers)] if dealers else []
    return [*made, Post("echo", "peers", (WORD,))]
