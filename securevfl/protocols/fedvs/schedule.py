"""Planned messages of a FedVS run, and their cost in multiply-adds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from securevfl.field import LagrangeCode, PrimeField
from securevfl.protocols.base.levels.schedule import WORD, proof_of, signed_upload
from securevfl.protocols.base.protocol import Part
from securevfl.protocols.base.schedule import Phase, Post, Stage, hollow
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.parameters import (
    FedVSConfig,
    degree_of,
    results_needed,
    upload_streams,
)


def coding_operations(elements: int, points: int) -> int:
    """Multiply-adds to evaluate or interpolate elements at n points: n log^2 n each (sec. 5.3)."""
    return round(elements * points * math.log2(points) ** 2)


def beside(share: Any, more: tuple[Any, ...]) -> Any:
    """Planned payload: the share, or with additions the tuple (share, *more)."""
    return (share, *more) if more else share


def attempts(
    config: FedVSConfig,
    widths: Sequence[int],
    segments: int,
    part: Part,
    rows: int,
    rounds: int,
    *after: Stage,
) -> Phase:
    """Phase of rounds with `rows` rows within segments, in which all clients share.

    `after` are the stages that follow the uploads. A client sends "shared" behind its shares on one
    uplink, so all shares have come before the server has received "shared" from all clients.
    """
    N, h, dtype = len(widths), config.width, PrimeField(config.prime).dtype
    upload: Any = hollow((rows, h), dtype)
    shown: tuple[Any, ...] = ()  # beside a share of a model
    if config.security != "semi-honest":
        shown = (WORD,)
    if config.security == "active":
        field, T = PrimeField(config.prime), config.privacy
        code = LagrangeCode(field, parties=N, segments=segments, privacy=T, degree=1)
        upload, shown = signed_upload(upload), (*proof_of(code), WORD)
    models = Post(
        "model",
        "peers",
        tuple(beside(hollow((w, h), dtype), shown) for w in widths),
        operations=tuple(coding_operations(w * h, N) for w in widths),
        modulus=config.prime,
    )
    sizes = segments, config.privacy, degree_of(config, segments, N)
    masking = upload_streams(N, *sizes) if config.masked else 0
    uploads = Post(
        "embedding",
        "server",
        (upload,),
        operations=(rows * h * (sum(widths) + masking),),
        modulus=config.prime,
    )
    shared = Post("shared", "server", (None,))
    attempt = Attempt(tuple(range(N)))
    stages = (
        Stage((models, shared), activity="share", count=N),
        Stage((Post("attempt", "clients", (attempt,)),)),
        Stage(
            (uploads,),
            activity="upload",
            count=results_needed(config, segments, N),
        ),
    )
    return Phase(Batch(part, hollow((rows,), np.uint32)), (*stages, *after), rounds)
