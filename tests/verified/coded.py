"""Coded protocols on protected values: Lagrange shares and masks, without messages.

The codes, keys and streams are those of `securevfl.field`: for the same keys and labels an upload
has the same bits as with `securevfl.field.prss.Prss.mask`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from securevfl.verified.functions import FlowError
from securevfl.verified.values import Element, Key, combination, concatenate

if TYPE_CHECKING:
    from securevfl.field.lagrange_code import LagrangeCode
    from securevfl.field.prss import Prss


class Draws(Protocol):
    """Random draws of a party, as in `securevfl.verified.parties.Hands`."""

    index: int

    def uniform(self, *shape: Any, name: str = ...) -> Element:
        """Fresh uniform elements."""
        ...

    def prf(self, key: Any, label: Any, *shape: Any) -> Element:
        """Pseudo-random elements from a key and a label."""
        ...


def encode(party: Draws, code: LagrangeCode, segments: Sequence[Element]) -> list[Element]:
    """Shares of K segments of one shape for all N parties, with T fresh masks.

    F(z) has the segments at beta_1..beta_K and the tapes at the other betas; share j is F(alpha_j).
    FlowError unless there are K segments of one shape.
    """
    shapes = [one.shape for one in segments]
    if len(shapes) != code.segments or len(set(shapes)) > 1:
        raise FlowError(
            f"encode: segments of shapes {shapes}, and the code needs K = {code.segments} of one"
        )
    shape = shapes[0]
    tapes = [party.uniform(shape, name=f"t{t}.") for t in range(code.privacy)]
    values = [*segments, *tapes]
    matrix = np.concatenate([code.data_matrix, code.mask_matrix], axis=1)
    every = np.stack([one._value for one in values]).reshape(len(values), -1)
    shares = code.field.matmul(matrix, every).reshape(-1, *shape)
    return [
        combination(zip(map(int, row), values, strict=True), share)
        for row, share in zip(matrix, shares, strict=True)
    ]


def decode(code: LagrangeCode, results: Mapping[int, Element]) -> Element:
    """Segments of a degree-2 result, stacked, from R parties' results; FlowError for fewer."""
    parties = sorted(results)
    if len(parties) < code.recovery_threshold(2):
        raise FlowError(
            f"decode: {len(parties)} results, and R = {code.recovery_threshold(2)} are needed"
        )
    parties = parties[: code.recovery_threshold(2)]
    matrix = code.decode_matrix(parties)
    segments = [
        combination((int(c), results[n]) for c, n in zip(row, parties, strict=True))
        for row in matrix
    ]
    return concatenate(segments)


def hidden(
    party: Draws,
    prss: Prss,
    keys: Mapping[int, Key],
    result: Element,
    label: bytes,
    degree: int = 2,
) -> Element:
    """Masked result: result + P(alpha) rho(alpha), keys by their places in `Prss.blocks`.

    `degree` is that of the result in the shares. Use a label for one result only. Values equal
    those of `Prss.mask`.
    """
    from securevfl.field.prss import mask_streams

    unknown = mask_streams(prss.code, degree)
    held = prss.held(party.index)
    factor, p = int(prss.code.vanishing[party.index]), prss.code.field.modulus
    terms: list[tuple[int, Element]] = [(1, result)]
    for key, weights in zip(held, prss.weights(party.index, unknown), strict=True):
        if not len(weights):
            continue
        streams = party.prf(keys[key], label, len(weights), *result.shape)
        for e, weight in enumerate(weights):
            terms.append((int(weight) * factor % p, streams[e]))
    return combination(terms)
