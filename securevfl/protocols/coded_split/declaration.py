"""Declaration of coded split learning: one line for each kind of message and each secret draw.

Line numbers are those of the algorithm in docs/coded-split.md.
"""

from __future__ import annotations

import functools
from typing import Any

from securevfl.protocols.base.mask_keys import key_messages
from securevfl.protocols.base.messages import MessageKey, MessageSpec, in_setup, last_word
from securevfl.protocols.base.sum_budget import unknowns_messages
from securevfl.protocols.coded_split.dealing import SEED
from securevfl.protocols.coded_split.messages import STORED_EVERY
from securevfl.protocols.coded_split.parameters import Parameters
from securevfl.protocols.coded_split.terms import shape_of

AGAIN = 1000  # how often a message may be sent again, byte by byte, after a crash or a loss


def again(key: MessageKey) -> int:
    """Count for a message that may be sent again: at most `AGAIN` times in any round."""
    return AGAIN


def messages_of(public: Parameters, *, training: bool = True) -> tuple[MessageSpec, ...]:
    """Every message of a run, or of a coded prediction.

    Parameters
    ----------
    public : Parameters
        Parameters; the parts of the data in `batches` are shared.
    training : bool
        Whether the run trains; a coded prediction has no steps.
    """
    pieces = MessageSpec(
        *("embedding", "client", "server", "masked_result"),
        shape=functools.partial(upload_shape, public),
        **elements(public),
        count=lambda key: AGAIN * (upload_shape(public, key) is not None),
        row_by_row=True,
        source="line 5",
    )
    every = (
        *(data_spec(public, part) for part in public.batches),
        *key_messages(public.prss, "line 3"),
        pieces,
        last_word(),
    )
    if "test" in public.batches:
        request = MessageSpec(
            *("request", "server", "client", "control"),
            public=True,
            count=lambda key: AGAIN * (upload_shape(public, key) is not None),
            source="line 5: B of a piece of test rows",
        )
        every = (*every, request)
    # A holder of a prediction lacks nothing; it may ask all the same.
    lacks = MessageSpec(
        *("lacks", "client", "server", "control"),
        count=again,
        source="section 6: the last step that it has",
    )
    every = (*every, lacks, *(mask_messages(public) if public.prss.by_dealers else ()))
    return (*every, *(training_messages(public) if training else ()))


def mask_messages(public: Parameters) -> tuple[MessageSpec, ...]:
    """Message declarations of masks that dealers send, and of requests for them."""
    prss = public.prss

    def between(key: MessageKey, senders: range, receivers: range) -> int:
        return AGAIN * (key.sender in senders and key.receiver in receivers)

    def dealt(key: MessageKey) -> int:
        known = upload_shape(public, key) is not None
        return known and between(key, prss.dealers, prss.receivers)

    return (
        MessageSpec(
            *("mask", "client", "client", "mask"),
            shape=functools.partial(upload_shape, public),
            **elements(public),
            count=dealt,
            source="section 5: of the first T + 1 holders, to those without keys",
        ),
        MessageSpec(
            *("unmasked", "client", "client", "control"),
            count=lambda key: between(key, prss.receivers, prss.dealers),
            source="section 6: the round whose masks a holder lacks",
        ),
    )


def training_messages(public: Parameters) -> tuple[MessageSpec, ...]:
    """Declared messages of models and steps."""
    rounds, h, T = public.config.rounds, public.config.width, public.code.privacy
    coded = public.batches["train"].coded

    def dealt(key: MessageKey, *, seeded: bool) -> int:
        return AGAIN * (0 < key.round <= rounds and (key.receiver < T) == seeded)

    made: tuple[MessageSpec, ...] = (
        MessageSpec(
            *("model", "owner", "client", "model_share"),
            shape=lambda key: (public.sizes[key.sender], h),
            **elements(public),
            count=in_setup,
            source="line 2",
        ),
        MessageSpec(
            *("deal", "server", "client", "result_share"),
            shape=lambda key: (coded, h),
            **elements(public),
            count=functools.partial(dealt, seeded=False),
            row_by_row=True,
            source="line 9",
        ),
        MessageSpec(
            *("seed", "server", "client", "key"),
            shape=lambda key: (SEED,),
            dtype="uint8",
            count=functools.partial(dealt, seeded=True),
            source="line 9: of the first T holders, whose share follows from it",
        ),
        MessageSpec(
            *("missed", "server", "client", "result_share"),
            **elements(public),
            count=lambda key: AGAIN,
            source="section 6: shares of the steps that a holder lacks",
        ),
    )
    if public.config.budget:
        made = (*made, *unknowns_messages("owner"))
    if rounds >= STORED_EVERY + 2:
        stored = MessageSpec(
            *("stored", "client", "server", "control"),
            count=lambda key: AGAIN * (STORED_EVERY + 2 <= key.round <= rounds),
            source="section 6: the step up to which it has stored its shares",
        )
        made = (*made, stored)
    if public.config.release:
        release = MessageSpec(
            *("release", "client", "owner", "masked_result"),
            shape=lambda key: (public.sizes[key.receiver], h),
            **elements(public),
            count=lambda key: AGAIN * (key.round == rounds),
            source="line 13",
        )
        return (*made, release)
    return made


def elements(public: Parameters) -> dict[str, Any]:
    """Dtype and modulus of an array of field elements, in declaration form."""
    return {"dtype": public.field.dtype.name, "modulus": public.field.modulus}


def data_spec(public: Parameters, part: str) -> MessageSpec:
    """Message declaration for shares of a part of the data."""
    length = public.batches[part].length
    return MessageSpec(
        *(f"{part}-data", "owner", "client", "data_share"),
        shape=lambda key: (length, public.sizes[key.sender]),
        **elements(public),
        count=in_setup,
        source="line 1",
    )


def upload_shape(public: Parameters, key: MessageKey) -> tuple[int, int] | None:
    """Shape (|B|, h) of an upload by its round; None for a round that has none."""
    if key.kind == "request" and key.round <= public.last_step:
        return None
    return shape_of(public, key.round)
