"""Lagrange shares and masks of protected values, by kernels for whole batches.

In an ordinary run each function is one call of `securevfl.field`. In a traced run it also records
the linear combinations, with which each result's numbers are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from mmap import mmap
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from securevfl.field.prss import mask_streams
from securevfl.field.side_by_side import SideBySide
from securevfl.verified.parties import asked
from securevfl.verified.values import Element, Key, bare, combination, concatenate, home_of, stack

if TYPE_CHECKING:
    from securevfl.field.lagrange_code import LagrangeCode
    from securevfl.field.prss import Prss
    from securevfl.verified.parties import Hands

Array = np.ndarray[Any, Any]
Shares: TypeAlias = Element | list[Element]  # by receiver, for `Participant.share`
_LARGE = 2**20  # bytes


def mixed(
    matrix: Any, parts: Sequence[Element], value: Sequence[Array] | Array | None = None
) -> list[Element]:
    """Rows of a public matrix times a stack of parts, which have one shape.

    Parameters
    ----------
    matrix : array_like, (results, parts)
        Public integers.
    parts : sequence of Element
        Values of one party.
    value : ndarray, optional
        The result, if a kernel has computed it.
    """
    home, first = home_of(parts), parts[0]
    if value is None:
        through = np.stack([part._value for part in parts]).reshape(len(parts), -1)
        value = first._field.matmul(matrix, through).reshape(-1, *first.shape)
    if first._world is None:
        return [Element(row, None, home, None, first._field) for row in value]
    made = []
    for row, weights in zip(value, np.asarray(matrix).tolist(), strict=True):
        pairs = [(int(c), part) for c, part in zip(weights, parts, strict=True) if c]
        made.append(combination(pairs or [(0, first)], row))
    return made


def encoded(party: Hands, code: LagrangeCode, segments: Element, *, apart: bool = False) -> Shares:
    """Lagrange shares F(alpha_1) .. F(alpha_N) of K segments, (K, ...), with T masks of `party`.

    An Element (N, ...), or with `apart` a list of N, each with memory of its own, which is freed
    once its receiver has taken it.
    """
    Z = party.uniform(code.privacy, *segments.shape[1:], name="Z")
    shares: Any = code.encode(segments._value, masks=Z._value)
    if apart:
        shares = [_apart(one) for one in shares]
    if segments._world is None:
        if not apart:
            return Element(shares, None, party.index, None, party.field)
        return [Element(one, None, party.index, None, party.field) for one in shares]
    matrix = np.concatenate([code.data_matrix, code.mask_matrix], axis=1)
    parts = [
        *map(segments.__getitem__, range(code.segments)),
        *(Z[t] for t in range(len(Z._value))),
    ]
    return mixed(matrix, parts, shares)


def encoded_constant(party: Hands, code: LagrangeCode, value: Element) -> Shares:
    """Shares of the polynomial with one value at all K data points and T fresh masks."""
    V = party.uniform(code.privacy, *value.shape, name="V")
    shares = code.encode_constant(value._value, masks=V._value)
    if value._world is None:
        return Element(shares, None, party.index, None, party.field)
    p = code.field.modulus
    matrix = [
        [sum(map(int, a)) % p, *map(int, b)]
        for a, b in zip(code.data_matrix, code.mask_matrix, strict=True)
    ]
    return mixed(matrix, [value, *(V[t] for t in range(code.privacy))], shares)


def decoded(code: LagrangeCode, results: Mapping[int, Element], degree: int) -> Element:
    """Values at the K data points, (K, ...), from the first R results by party, of this degree."""
    parties = tuple(results)
    first = results[parties[0]]
    values = np.stack([one._value for one in results.values()])
    found = code.decode(values, parties, degree=degree)
    home = home_of(list(results.values()))
    if first._world is None:
        return Element(found, None, home, None, first._field)
    used = parties[: code.recovery_threshold(degree)]
    matrix = code.decode_matrix(used)
    return stack(mixed(matrix, [results[j] for j in used], found))


def masked(
    party: Hands,
    prss: Prss,
    keys: Mapping[int, Key],
    result: Element,
    label: bytes,
    of: Sequence[Any],
    degree: int,
) -> Element:
    """Masked result: result + P(alpha) rho(alpha), from a party's keys for one use (`label`, `of`).

    `keys` are by place in `Prss.blocks`; `degree` is that of the result in the shares. Use a label
    for one result only. Values equal those of `Prss.mask` for `asked(label, of)`.
    """
    home = home_of((result, *of), party.index)  # a trace looks at each key that it uses
    told, own = asked(label, list(map(bare, of))), {n: key._value for n, key in keys.items()}
    value = prss.mask(party.index, own, told, result._value, degree)
    if result._world is None:
        return Element(value, None, home, None, result._field)
    unknown, p = mask_streams(prss.code, degree), prss.code.field.modulus
    factor = int(prss.code.vanishing[party.index])
    terms: list[tuple[int, Element]] = [(1, result)]
    for n, weights in zip(prss.held(party.index), prss.weights(party.index, unknown), strict=True):
        own_weights = [int(w) * factor % p for w in weights]
        if any(own_weights):
            streams = party.prf(keys[n], label, len(weights), *result.shape, of=of)
            terms += [(w, streams[e]) for e, w in enumerate(own_weights)]
    return combination(terms, value)


class Beside:
    """Matrices of several parties side by side; one kernel gathers rows of them all.

    It caches the addresses of the newest matrices, so that a party needs one object for its
    matrices.
    """

    def __init__(self) -> None:
        self._kept: SideBySide | None = None
        self._home: int | None = None

    def rows(self, matrices: Sequence[Element], numbers: Array) -> Element:
        """Rows of the joined matrix by their public numbers, (numbers, all columns)."""
        held, first = [one._value for one in matrices], matrices[0]
        if self._kept is None or not self._kept.are(held):
            self._kept, self._home = SideBySide(held), home_of(matrices)
        value, home = self._kept.rows(numbers), self._home
        if first._world is None:
            return Element(value, None, home, None, first._field)
        made = concatenate([one.rows(numbers) for one in matrices], axis=1)
        return Element(value, made._node, home, first._world, first._field)


def dealt_masks(
    party: Hands,
    prss: Prss,
    keys: Mapping[int, Key],
    label: bytes,
    of: Sequence[Any],
    shape: tuple[int, ...],
) -> list[Element]:
    """Mask values rho of `shape` for label and `of`, from a dealer to each of `Prss.receivers`."""
    told, own = asked(label, list(map(bare, of))), {n: key._value for n, key in keys.items()}
    value = prss.values(party.index, own, told, shape)
    if party.world is None:
        return [Element(row, None, party.index, None, party.field) for row in value]
    dealt = prss.dealt(party.index)
    parts = [party.prf(keys[n], label, 1, *shape, of=of)[0] for n in dealt]
    return mixed(prss.onto, parts, value)


def with_masks(party: Hands, prss: Prss, result: Element, masks: Sequence[Element]) -> Element:
    """Masked result: result + P(alpha) times the sum of the masks that dealers sent."""
    rho = sum(masks[1:], masks[0])
    value = prss.add(party.index, result._value, rho._value)
    factor = int(prss.code.vanishing[party.index])
    home = home_of((result, *masks), party.index)
    if result._world is None:
        return Element(value, None, home, None, result._field)
    return combination([(1, result), (factor, rho)], value)


def _apart(share: Array) -> Array:
    """A copy whose memory is returned to the system as soon as the receiver frees it.

    A view would keep all holders' shares in memory until the last holder has taken its own, and
    freed heap blocks would be too small for the joined arrays: a simulation would need the shares
    of all holders twice.
    """
    if share.nbytes < _LARGE:
        return share.copy()
    copy = np.frombuffer(mmap(-1, share.nbytes), share.dtype).reshape(share.shape)
    copy[...] = share
    return copy
