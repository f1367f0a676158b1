"""Forecast of a coded split run: planned messages with cost, results needed, memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from securevfl.active.statements import SIGNATURE
from securevfl.engine.party import SERVER
from securevfl.engine.streams import keyed_stream
from securevfl.field import LagrangeCode, PrimeField
from securevfl.field.designs import blocks_of
from securevfl.field.prss import mask_streams
from securevfl.models.polynomial_network import expanded_width
from securevfl.models.split import Batches
from securevfl.protocols.base.decoding import inference_step
from securevfl.protocols.base.levels.schedule import (
    identity_posts,
    proof_of,
    signed_upload,
    told_posts,
)
from securevfl.protocols.base.mask_keys import key_posts
from securevfl.protocols.base.options import spare
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
from securevfl.protocols.coded_split.covert import is_compared
from securevfl.protocols.coded_split.dealing import SEED
from securevfl.protocols.coded_split.messages import DIGEST, STORED_EVERY, Request
from securevfl.protocols.coded_split.options import CodedSplitConfig
from securevfl.protocols.coded_split.parameters import (
    Parameters,
    choose_prime,
    dealt_masks,
    expected_bound,
    lowest_degree,
    make_parameters,
    upload_degree,
)


def outline_of(config: CodedSplitConfig, shape: Shape) -> Outline | None:
    """Message schedule of a run; None with timeouts or a release, when it depends on chance.

    The schedule includes proofs and statements of the levels above semi-honest. There set-up waits
    more often than planned, so its time is an estimate.
    """
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
        setup_waits=public.covert,
        leaves_out=True,
    )


def needs_of(config: CodedSplitConfig, shape: Shape) -> Needs:
    """Numbers of a configuration (R, keys, p, memory), valid even with too few parties."""
    K, T = config.segments, config.privacy
    parties = len(shape.widths) + config.helpers
    degree = upload_degree(config, parties)
    threshold = degree * (K + T - 1) + 1
    field = PrimeField(choose_prime(config, shape.widths, shape.rows))
    enough = threshold + T  # holders: the plan says how many are needed, and this code has them
    code = LagrangeCode(field, parties=enough, segments=K, privacy=T, degree=degree)
    rows = {"train": shape.rows} | ({"test": shape.test_rows} if config.secure else {})
    layouts = {part: Batches(count, K, config.batch, _unused) for part, count in rows.items()}
    public = Parameters(config, code, layouts, shape.widths)
    bound = RangeBound.of(public)
    held, whole = memory_of(public, shape.rows, parties)
    coded = public.batches["train"].coded
    unknown = mask_streams(code, lowest_degree(config, degree))
    dealt = dealt_masks(config, parties, unknown)
    return Needs(
        parties=parties,
        keys=(T + 1) * (T + unknown) if dealt else len(blocks_of(parties, T, unknown)),
        threshold=threshold,
        results=threshold + spare(config, parties, threshold),
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
    """Bytes of an owner, and of all parties: shares, the server's log, bounds by row."""
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
    """Planned messages of set-up: shares of data and models, keys and, if any, proofs."""
    N, dtype = public.code.parties, public.field.dtype
    sizes = [expanded_width(d, public.config.degree) for d in public.widths]
    nothing = [0] * (N - len(sizes))

    def owners(round: int) -> Sequence[int]:
        return range(public.owners)

    def shares(kind: str, rows: Sequence[int], columns: Sequence[int]) -> Post:
        shapes = [*zip(rows, columns, strict=True), *((0, 0) for _ in nothing)]
        payloads: tuple[Any, ...] = tuple(hollow(shape, dtype) for shape in shapes)
        if public.covert:
            payloads = tuple((share, *proof_of(public.code)) for share in payloads)
        return Post(kind, "peers", payloads, owners, modulus=public.field.modulus)

    posts = [
        shares(f"{part}-data", [layout.length] * len(sizes), sizes)
        for part, layout in public.batches.items()
    ]
    posts.append(shares("model", sizes, [public.config.width] * len(sizes)))
    if public.config.budget:
        posts += unknowns_posts((*public.widths, *nothing), owners)
    posts += key_posts(public.prss)
    if not public.covert:
        return tuple(posts)
    N, prss = public.code.parties, public.prss if public.active else None
    return (*identity_posts(N, to_server=public.active), *posts, *told_posts(N, prss))


_STORY = hollow((6, DIGEST), np.uint8), bytes(SIGNATURE)


def training(public: Parameters, unknowns: int) -> Phase:
    """Rounds of uploads and dealt steps, as many as the budget permits for a row's unknowns."""
    N, T, h = public.code.parties, public.code.privacy, public.config.width
    coded = public.batches["train"].coded
    share = hollow((coded, h), public.field.dtype)
    streams = public.streams
    decoding = public.code.segments * public.threshold / N

    def dealt(own: Any) -> Any:
        """Payload of `own`, a share of a step or its seed, with a proof (covert) or a digest."""
        return (own, *proof_of(public.code)) if public.covert else (bytes(DIGEST), own)

    seeds = Post(
        "seed",
        "clients",
        (dealt(hollow((SEED,), np.uint8)),),
        operations=(int(coded * h * decoding),),
        receivers=lambda server: range(T),
    )
    deals = Post(
        "deal",
        "clients",
        (dealt(share),),
        operations=(int(coded * h * (public.code.size + decoding)),),
        receivers=lambda server: range(T, N),
        modulus=public.field.modulus,
    )
    work = int(coded * h * (2 * sum(public.sizes) + streams))
    uploads = upload(public, share, work)
    last = public.steps_allowed(unknowns)

    def compare(round: int) -> Sequence[int]:
        """Holders that compare statements on the step before a round."""
        return range(N) if round > 1 and is_compared(round - 1, last) else ()

    def end(round: int) -> Sequence[int]:
        """Holders that receive the last step, which belongs to no round."""
        return range(N) if round == last else ()

    stories = [Post("story", "peers", ((0, *_STORY),), senders=some) for some in (compare, end)]

    def reports(round: int) -> Sequence[int]:
        """Holders that report in a round: all, when 64 more steps are stored."""
        stored = round - 2
        return range(N) if stored > 0 and stored % STORED_EVERY == 0 else ()

    stored = Post("stored", "server", (0,), senders=reports)
    answer: Any = {"activity": "upload", "count": public.results_needed}
    stages = (
        Stage((*stories * public.covert, stored, *masks(public, coded), uploads), **answer),
        Stage((seeds, deals), fastest_first=True),
    )
    return Phase(None, stages, last)


def upload(public: Parameters, share: Any, work: int = 0) -> Post:
    """Planned upload of `work` multiply-adds; at level active with set-up name and signature."""
    payload = signed_upload(share) if public.active else share
    about: Any = {"operations": (work,), "modulus": public.field.modulus}
    return Post("embedding", "server", (payload,), **about)


def masks(public: Parameters, rows: int) -> tuple[Post, ...]:
    """Planned masks of dealers, each with a digest of steps; none if masks come from keys."""
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
    """Planned `rounds` of requests for pieces of `rows` test rows, and uploads in answer."""
    request = Request("test", 0, hollow((rows,), np.uint32))
    share = hollow((rows, public.config.width), public.field.dtype)
    uploads = upload(public, share)
    stages = (
        Stage((Post("request", "clients", (request,)),)),
        Stage((*masks(public, rows), uploads), activity="upload", count=public.results_needed),
    )
    return Phase(None, stages, rounds)


def _unused(name: str, *keys: int) -> np.random.Generator:
    """Random generator for layouts of which only the sizes matter."""
    return keyed_stream(0, SERVER, name)
