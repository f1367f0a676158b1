"""Planned messages of a run of masked sums in which nobody is lost, and its numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.active.statements import DIGEST, SIGNATURE
from securevfl.engine.party import SERVER
from securevfl.engine.streams import keyed_stream
from securevfl.field import PrimeField
from securevfl.models.polynomial_network import expanded_width
from securevfl.models.split import Batches
from securevfl.protocols.base.levels.schedule import WORD, identity_posts, signed_gradient
from securevfl.protocols.base.schedule import Needs, Outline, Phase, Post, Shape, Stage, hollow
from securevfl.protocols.secagg_split.covert import Summed
from securevfl.protocols.secagg_split.parameters import (
    Deal,
    Opening,
    SecAggConfig,
    cohorts_for,
    thresholds,
)
from securevfl.verified.parties import limb_bits
from securevfl.verified.trace import KEY_BYTES


def outline_of(config: SecAggConfig, shape: Shape) -> Outline | None:
    """Message schedule of a run; None with a timeout, because the sharing clients are then random.

    It assumes that all clients share and that the cohorts that upload first survive. If cohorts
    differ in size, the bytes are those of the likeliest number of survivors. Multiply-adds are
    declared for polynomial networks only.
    """
    N = len(shape.widths)
    t, quorum = thresholds(config, N)
    timed = config.share_timeout is not None or config.result_timeout is not None
    if timed or config.client != "pn" or config.own_client:
        return None
    cohorts = cohorts_for(config, N, quorum)
    S = cohorts.likeliest(quorum)
    covert, every, some = config.security == "covert", tuple(range(N)), tuple(range(S))
    first = None if S == N else S
    coded = _batches(config, shape).coded
    samples, h, p = coded * config.segments, config.width, config.prime
    key, signature = bytes(KEY_BYTES), bytes(SIGNATURE)
    part = hollow((-(-8 * KEY_BYTES // limb_bits(p)),), PrimeField(p).dtype)  # a share of a secret
    deal: Any = Deal(key, part, part)
    work = [samples * h * (expanded_width(d, config.degree) + N) for d in shape.widths]
    setup: list[Post] = []
    if covert:
        setup = identity_posts(N, to_server=False)
    elif config.signs:
        setup = [Post("identity", "peers", (bytes(DIGEST),))]
    gradient = Post(
        "gradient",
        "clients",
        (signed_gradient(hollow((samples, h), np.float32), config),),
        operations=(samples * h * quorum * (2 + N - quorum),),
        first=None if covert else first,
    )
    summed = Post("summed", "clients", (Summed(every, some, 0),))
    signed = (
        Stage((Post("signature", "server", (signature,), first=first),), count=S),
        Stage((Post("signatures", "clients", (dict.fromkeys(some, signature),), first=first),)),
    )
    opening: Any = Opening(dict.fromkeys(some, part), dict.fromkeys(every[S:], part))
    upload = Post(
        "embedding",
        "server",
        (hollow((samples, h), PrimeField(p).dtype),),
        operations=tuple(work),
        modulus=p,
    )
    stages = (
        Stage(
            (
                Post("deal", "peers", ((deal, WORD) if covert else deal,), modulus=p),
                Post("shared", "server", (key,)),
            ),
            activity="share",
            count=N,
        ),
        Stage((Post("sharers", "clients", (every,)),)),
        Stage((upload,), activity="upload", count=quorum, groups=cohorts.groups),
        Stage((Post("survivors", "clients", (some,), first=first),)),
        *signed * config.signs,
        Stage((Post("opening", "server", (opening,), modulus=p, first=first),), count=t),
        Stage((*[summed] * covert, gradient)),
    )
    phase = Phase(hollow((coded,), np.uint32), stages, config.rounds)
    return Outline(tuple(setup), (phase,), coded)


def needs_of(config: SecAggConfig, shape: Shape) -> Needs:
    """Numbers for the planner; every pair agrees on a key in each round."""
    N, p = len(shape.widths), config.prime
    t, quorum = thresholds(config, N)
    coded = _batches(config, shape).coded * config.segments
    size = PrimeField(p).dtype.itemsize
    held = 4 * shape.rows * max(shape.widths) + 3 * coded * config.width * size
    return Needs(
        parties=N,
        keys=N * (N - 1) // 2,
        threshold=t,
        results=N - cohorts_for(config, N, quorum).spare(quorum),
        prime=p,
        data_bits=config.bits,
        model_bits=0,
        largest=N * ((p - 1) // (2 * N)),
        expected=0,
        limit=(p - 1) // 2,
        smallest=p,
        replay=0,
        client_memory=held,
        simulation_memory=N * held,
    )


def _batches(config: SecAggConfig, shape: Shape) -> Batches:
    """A layout of which only the sizes are asked for."""
    stream = lambda name, *keys: keyed_stream(0, SERVER, name)  # noqa: E731
    return Batches(shape.rows, config.segments, config.batch, stream)
