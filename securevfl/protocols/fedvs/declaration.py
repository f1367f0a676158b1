"""Declaration of FedVS: one line for each kind of message.

Line numbers are those of the paper's Algorithm 1; keys of masks and announcements are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from securevfl.models.polynomial_network import expanded_width
from securevfl.protocols.base.decoding import inference_step
from securevfl.protocols.base.mask_keys import key_messages
from securevfl.protocols.base.messages import (
    Carries,
    MessageKey,
    MessageSpec,
    announcement,
    in_rounds,
    in_setup,
)
from securevfl.protocols.base.sum_budget import unknowns_messages
from securevfl.protocols.fedvs.parameters import Parameters

Rows = Callable[[int], int | None]


def messages_of(
    public: Parameters, widths: Sequence[int], *, training: bool = True
) -> tuple[MessageSpec, ...]:
    """Every message of a run, or of a coded prediction.

    Parameters
    ----------
    public : Parameters
        Parameters; the parts of the data in `batches` are shared.
    widths : sequence of int
        Number of columns of each client, d_1 to d_N.
    training : bool
        Whether the run trains; a coded prediction has no steps.
    """
    field, p, h = public.field.dtype.name, public.field.modulus, public.config.width
    sizes = [expanded_width(d, public.config.degree) for d in widths]  # d_n D + 1
    rows = rows_by_round(public, training=training)
    upload: Carries = "masked_result" if public.config.masked else "result_share"

    def data(part: str) -> MessageSpec:
        length = public.batches[part].length
        return MessageSpec(
            *(f"{part}-data", "client", "client", "data_share"),
            shape=lambda key: (length, sizes[key.sender]),
            dtype=field,
            modulus=p,
            count=in_setup,
            source="lines 2-10",
        )

    def of_rows(key: MessageKey) -> tuple[int, int] | None:
        coded = rows(key.round)
        return None if coded is None else (coded, h)

    def of_samples(key: MessageKey) -> tuple[int, int] | None:
        coded = rows(key.round)
        return None if coded is None else (public.code.segments * coded, h)

    every: tuple[MessageSpec, ...] = (
        *(data(part) for part in public.batches),
        announcement("client", source="line 12: B, and the end"),
        MessageSpec(
            *("model", "client", "client", "model_share"),
            shape=lambda key: (sizes[key.sender], h),
            dtype=field,
            modulus=p,
            count=in_rounds,
            source="lines 15-17",
        ),
        MessageSpec(
            *("shared", "client", "server", "control"),
            count=in_rounds,
            source="ours: rounds in which it may have uploaded since the last step",
        ),
        MessageSpec(
            *("attempt", "server", "client", "control"),
            public=True,
            count=in_rounds,
            source="footnote 2: S, and the server's life",
        ),
        MessageSpec(
            *("embedding", "client", "server", upload),
            shape=of_rows,
            dtype=field,
            modulus=p,
            count=in_rounds,
            row_by_row=True,
            source="line 23, equation 5",
        ),
    )
    if public.config.budget and training:
        every = (*every, *unknowns_messages())
    if public.config.masked:
        every = (*every, *key_messages(public.prss, "ours"))
    if training:
        last = last_training_round(public)
        gradient = MessageSpec(
            *("gradient", "server", "client", "gradient"),
            shape=of_samples,
            dtype="float32",
            count=lambda key: int(key.round > 0 and (last is None or key.round <= last)),
            row_by_row=True,
            source="line 31",
        )
        every = (*every, gradient)
    return every


def last_training_round(public: Parameters) -> int | None:
    """Last round of training; None if attempts may be given up, which depends on chance."""
    config = public.config
    may_fail = config.share_timeout, config.result_timeout, config.tolerate_corrupt or None
    return int(config.rounds) if may_fail == (None, None, None) else None


def rows_by_round(public: Parameters, *, training: bool = True) -> Rows:
    """Function from round to batch rows |B|; None as value if attempts may be given up."""
    last, batches = last_training_round(public), public.batches
    if last is None:
        return lambda round: None
    first = last + 1 if training else 1

    def rows(round: int) -> int | None:
        if round < first:
            return batches["train"].coded
        if "test" not in batches:
            return None
        step = inference_step(batches["test"].coded, batches["test"].segments)
        left = batches["test"].length - (round - first) * step
        return min(step, left) if left > 0 else None

    return rows
