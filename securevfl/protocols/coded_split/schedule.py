"""Forecast of a coded split run: planned messages with their cost, results needed, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.engine.streams import keyed_stream
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.designs import blocks_of
from securevfl.field.prss import mask_streams
from securevfl.models.polynomial_network import expanded_width
from securevfl.models.split import Batches
from securevfl.protocols.base.mask_keys import key_posts
from securevfl.protocols.base.schedule import (
    Needs,
    Outline,
    Phase,
    Post,
    Shape,
    Stage,
    hollow,
)
from securevfl.protocols.base.sum_budget import unknowns_posts
from securevfl.protocols.coded_split.bounds import RangeBound
from securevfl.protocols.coded_split.dealing import SEED
from securevfl.protocols.coded_split.messages import (
    DIGEST,
    STORED_EVERY,
    Request,
    inference_step,
)
from securevfl.protocols.coded_split.options import CodedSplitConfig
from securevfl.protocols.coded_split.parameters import (
    UPLOAD,
    Parameters,
    choose_prime,
    dealt_masks,
    expected_bound,
    lowest_degree,
    make_parameters,
)


def outline_of(config: CodedSplitConfig, shape: Shape) -> Outline | None:
    """Message schedule of a run; None with timeouts or a release, which chance has a part in.

    None at the covert level, too: its proofs and stories are not in these schedules.
    """
    if config.security != "semi-honest":
        return None
    if config.result_timeout is not None or config.ask_timeout is not None or config.release:
        return None
    rows = {"train": shape.rows} | ({"test": shape.test_rows} if config.secure else {})
    layouts = {
        part: Batches(count, config.segments, config.batch, _unused) for part, count in rows.items()
    }
    public = make_parameters(config, shape.widths, layouts)
    phases = [training(public, shape.unknowns or sum(shape.widths))]
    if config.secure:
        length = layouts["test"].length
        size = inference_step(layouts["test"].coded, config.segments)
        whole, rest = divmod(length, size)
        phases += [inference(public, size, whole)] * bool(whole)
        phases += [inference(public, rest, 1)] * bool(rest)
    return Outline(
        *(setup(public), tuple(phases), layouts["train"].coded),
        end=("stop", None),
        setup_waits=False,
        leaves_out=True,
    )


def needs_of(config: CodedSplitConfig, shape: Shape) -> Needs:
    """Numbers of a configuration, whether or not there are enough holders for it."""
    K, T = config.segments, config.privacy
    threshold = UPLOAD * (K + T - 1) + 1
    field = PrimeField(choose_prime(config, shape.widths, shape.rows))
    enough = threshold + T  # holders: the plan says how many are needed, and this code has them
    code = LagrangeCode(field, parties=enough, segments=K, privacy=T, degree=UPLOAD)
    rows = {"train": shape.rows} | ({"test": shape.test_rows} if config.secure else {})
    layouts = {part: Batches(count, K, config.batch, _unused) for part, count in rows.items()}
    public = Parameters(config, code, layouts, shape.widths)
    parties, bound = len(shape.widths) + config.helpers, RangeBound.of(public)
    held, whole = memory_of(public, shape.rows, parties)
    coded = public.batches["train"].coded
    unknown = mask_streams(code, lowest_degree(config))
    dealt = dealt_masks(config, parties, unknown)
    return Needs(
        parties=parties,
        keys=(T + 1) * (T + unknown) if dealt else len(blocks_of(parties, T, unknown)),
        threshold=threshold,
        results=threshold + 2 * config.tolerate_corrupt,
        prime=public.field.modulus,
        data_bits=config.data_bits,
        model_bits=config.data_bits + config.gradient_bits,
        largest=int(bound.worst.max()),
        expected=expected_bound(config, shape.widths, shape.rows),
        limit=bound.limit,
        smallest=choose_prime(config.model_copy(update={"prime": None}), shape.widths, shape.rows),
        replay=coded * sum(public.sizes) * config.width,
        client_memory=held,
        simulation_memory=whole,
    )


def memory_of(public: Parameters, rows: int, holders: int) -> tuple[int, int]:
    """Bytes of an owner, and of all parties: shares, the server's log and its bounds by row."""
    config, size = public.config, public.field.dtype.itemsize
    d, h = sum(public.sizes), config.width
    lengths = sum(layout.length for layout in public.batches.values())
    shares = d * (lengths + 3 * h) * size
    per_row = public.code.segments * public.batches["train"].length * h * 8
    # Its holders store them at different times: two spans of steps, of 64-bit integers at worst.
    logged = min(config.rounds, 2 * STORED_EVERY)
    log = logged * public.code.segments * public.batches["train"].coded * h * 8
    working = rows * max(public.sizes) * (8 + 3 * size)
    return int(shares + working), int(holders * shares + 4 * per_row + log + working)


def setup(public: Parameters) -> tuple[Post, ...]:
    """Shares of data and models, and keys."""
    N, dtype = public.code.parties, public.field.dtype
    sizes = [expanded_width(d, public.config.degree) for d in public.widths]
    nothing = [0] * (N - len(sizes))

    def owners(round: int) -> Sequence[int]:
        return range(public.owners)

    def shares(kind: str, rows: Sequence[int], columns: Sequence[int]) -> Post:
        shapes = [*zip(rows, columns, strict=True), *((0, 0) for _ in nothing)]
        payloads = tuple(hollow(shape, dtype) for shape in shapes)
        return Post(kind, "peers", payloads, owners, modulus=public.field.modulus)

    posts = [
        shares(f"{part}-data", [layout.length] * len(sizes), sizes)
        for part, layout in public.batches.items()
    ]
    posts.append(shares("model", sizes, [public.config.width] * len(sizes)))
    if public.config.budget:
        posts += unknowns_posts((*public.widths, *nothing), owners)
    return (*posts, *key_posts(public.prss))


def training(public: Parameters, unknowns: int) -> Phase:
    """Rounds of an upload and a deal, as many as the budget allows for so many unknowns."""
    N, T, h = public.code.parties, public.code.privacy, public.config.width
    coded = public.batches["train"].coded
    share = hollow((coded, h), public.field.dtype)
    streams = public.streams
    decoding = public.code.segments * public.threshold / N
    seeds = Post(
        "seed",
        "clients",
        ((bytes(DIGEST), hollow((SEED,), np.uint8)),),
        operations=(int(coded * h * decoding),),
        receivers=lambda server: range(T),
    )
    deals = Post(
        "deal",
        "clients",
        ((bytes(DIGEST), share),),
        operations=(int(coded * h * (public.code.size + decoding)),),
        receivers=lambda server: range(T, N),
        modulus=public.field.modulus,
    )
    work = int(coded * h * (2 * sum(public.sizes) + streams))
    uploads = Post(
        "embedding", "server", (share,), operations=(work,), modulus=public.field.modulus
    )

    def reports(round: int) -> Sequence[int]:
        """Holders, in the round in which all of them have stored 64 steps more."""
        stored = round - 2
        return range(N) if stored > 0 and stored % STORED_EVERY == 0 else ()

    stored = Post("stored", "server", (0,), senders=reports)
    answer: Any = {"activity": "upload", "count": public.results_needed}
    stages = (
        Stage((stored, *masks(public, coded), uploads), **answer),
        Stage((seeds, deals), fastest_first=True),
    )
    return Phase(None, stages, public.steps_allowed(unknowns))


def masks(public: Parameters, rows: int) -> tuple[Post, ...]:
    """Masks that dealers deal, beside a digest of steps; none where all are of keys."""
    prss, size = public.prss, rows * public.config.width
    if not prss.by_dealers:
        return ()
    share = hollow((rows, public.config.width), public.field.dtype)
    dealt = Post(
        *("mask", "peers", ((bytes(DIGEST), share),), lambda round: prss.dealers),
        operations=(size * prss.seeded * len(prss.receivers),),
        receivers=lambda dealer: prss.receivers,
        modulus=public.field.modulus,
        waited=True,
    )
    return (dealt,)


def inference(public: Parameters, rows: int, rounds: int) -> Phase:
    """Requests for pieces of test rows, and their uploads."""
    request = Request("test", 0, hollow((rows,), np.uint32))
    share = hollow((rows, public.config.width), public.field.dtype)
    uploads = Post("embedding", "server", (share,), modulus=public.field.modulus)
    stages = (
        Stage((Post("request", "clients", (request,)),)),
        Stage((*masks(public, rows), uploads), activity="upload", count=public.results_needed),
    )
    return Phase(None, stages, rounds)


def _unused(name: str, *keys: int) -> np.random.Generator:
    """A generator for layouts of which only the sizes are asked for."""
    return keyed_stream(0, SERVER, name)
