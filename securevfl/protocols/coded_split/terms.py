"""Checks of a holder's received messages: steps, requests and shares."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.received import (
    check_array,
    check_element,
    check_number,
    check_rows,
    refusal,
)
from securevfl.protocols.coded_split.dealing import SEED, from_seed
from securevfl.protocols.coded_split.messages import (
    DIGEST,
    Request,
    digest_words,
    piece_of,
    pieces_of,
)
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.verified import Element, Key, Participant

Step = tuple[int, Element, Element]  # its number, the holder's share, its digest


def steps_in(
    holder: Participant, public: Parameters, kind: str, round: int, payload: Any
) -> list[Step]:
    """Steps in a "deal", "seed" or "missed" message from the server.

    ProtocolError if it is malformed, or has steps beyond the run.
    """
    what = f"{kind!r} of round {round}"
    if not (isinstance(payload, tuple) and len(payload) == 2):
        found = "ndarray" if isinstance(payload, Element) else type(payload).__name__
        raise refusal(f"coded_split: {what}", SERVER, f"a {found}", "a pair of digest and share")
    digests, shares = payload
    first, count = round, 1
    if kind == "missed":
        if not (isinstance(digests, tuple) and len(digests) == 2):
            raise refusal(f"coded_split: {what}", SERVER, "without a step", "from a first step on")
        (first, digests), count = digests, getattr(shares, "shape", (0,))[0]
    words = digest_words(public.field)
    if not isinstance(digests, Element) or digests.shape != (count * words,):
        wanted = f"with a digest of {DIGEST} bytes for each step"
        raise refusal(f"coded_split: {what}", SERVER, f"one with {digests!r:.40}", wanted)
    last = public.last_step
    check_number(f"coded_split: the first step of {what}", SERVER, first, 1, last + 1 - count)
    shape = public.batches["train"].coded, public.config.width
    if kind == "seed":
        if not isinstance(shares, Key):
            check_array(f"coded_split: {what}", SERVER, shares, (SEED,), np.uint8)
        shares = from_seed(holder, shares, shape)
    whole = (count, *shape) if kind == "missed" else shape
    check_element(f"coded_split: {what}", SERVER, shares, whole, public.field)
    every = [shares[i] for i in range(count)] if kind == "missed" else [shares]
    return [
        (first + i, share, digests[i * words : (i + 1) * words]) for i, share in enumerate(every)
    ]


def check_request(public: Parameters, request: Any) -> None:
    """Raise ProtocolError unless a request names exactly a piece of the test rows.

    The number of a piece determines its rows, so a label has one list of rows.
    """
    what = "coded_split: a request"
    if not isinstance(request, Request) or request.part != "test" or "test" not in public.batches:
        raise refusal(what, SERVER, f"{request!r:.60}", "for test rows, which are shared")
    batches = public.batches["test"]
    check_number("coded_split: a piece to upload", SERVER, request.piece, 0, pieces_of(batches) - 1)
    what = f"{what} for piece {request.piece}"
    check_rows(what, SERVER, request.rows, batches.length)
    rows = piece_of(batches, request.piece)
    if not np.array_equal(request.rows, rows):
        wanted = f"one for rows {rows[0]} to {rows[-1]} in order"
        raise refusal(what, SERVER, "one for other rows", wanted)


def check_mask(
    public: Parameters, receiver: int, sender: int, round: int, payload: Any
) -> tuple[Element, Element]:
    """(Digest, value) in a dealer's "mask" message of a round to `receiver`.

    ProtocolError if the sender is no dealer, the holder has keys, or the message is malformed.
    """
    what, masks = f"'mask' of round {round}", public.prss
    if sender not in masks.dealers or receiver not in masks.receivers:
        wanted = f"none: party {receiver} has keys, or party {sender} is no dealer"
        raise refusal(f"coded_split: {what}", sender, "one", wanted)
    if not (isinstance(payload, tuple) and len(payload) == 2 and isinstance(payload[0], Element)):
        found = "ndarray" if isinstance(payload, Element) else type(payload).__name__
        raise refusal(f"coded_split: {what}", sender, f"a {found}", "a pair of digest and value")
    shape, words = shape_of(public, round), digest_words(public.field)
    if shape is None or payload[0].shape != (words,):
        raise refusal(f"coded_split: {what}", sender, "one", "of an upload, with a digest")
    check_element(f"coded_split: {what}", sender, payload[1], shape, public.field)
    return payload


def shape_of(public: Parameters, round: int) -> tuple[int, int] | None:
    """Shape (|B|, h) of a round's upload: training batch, or piece of test rows; None if none."""
    h = public.config.width
    last = public.last_step
    if 0 < round <= last:
        return public.batches["train"].coded, h
    piece, test = round - last - 1, public.batches.get("test")
    if test is None or not 0 <= piece < pieces_of(test):
        return None
    return len(piece_of(test, piece)), h
