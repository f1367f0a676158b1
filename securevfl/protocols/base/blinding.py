"""Blinded predictions: a client asks for scores of new rows; the server decodes only masked sums.

The asking client draws a uniform mask for each entry of the sums of embeddings, and secret-shares
the masks among all clients by the code of the data. Each client adds its share to its upload. So
the server decodes sums plus masks, which are uniform even to the server and T clients together. The
server sends them with its network to the asking client, which subtracts the masks and scores the
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.models.tensors import tensor
from securevfl.protocols.base.received import check_array, check_number, refusal
from securevfl.verified import Element, bare_of
from securevfl.verified.values import public_element

if TYPE_CHECKING:
    from securevfl.field import LagrangeCode
    from securevfl.models.split import Batches, Centre

Array = np.ndarray[Any, Any]


class Blindable(Protocol):
    """Public parameters of a blinded prediction."""

    @property
    def code(self) -> LagrangeCode:
        """The Lagrange code of the rows."""

    @property
    def config(self) -> Any:
        """The options."""

    @property
    def batches(self) -> Any:
        """The layout of the new rows, as the part "test"."""


#: Sums of each piece of the rows, (K, |B|, h), plus the numbers of who asked; weights of the
#: server's network by name; numbers that the protocol needs besides.
Told: TypeAlias = tuple[list[Array], dict[str, Array], tuple[int, ...]]


def shape_of_blind(public: Blindable) -> tuple[int, int, int]:
    """Shape (K, rows of a segment, h) of the random numbers that mask all sums of a prediction."""
    layout: Batches = public.batches["test"]
    return layout.segments, layout.length, int(public.config.width)


def draw_blind(public: Blindable) -> tuple[Array, Array]:
    """Uniform masks of the sums, (K, length, h), and their shares for all clients, (N, length, h).

    The operating system's entropy gives both.
    """
    blind = public.code.field.random(shape_of_blind(public))
    return blind, public.code.encode(blind)


def blind_share(party: Any, public: Blindable, asker: int, share: Any) -> Element:
    """Share of `asker`'s masks, (length, h), to add to uploads; ProtocolError if malformed."""
    field = public.code.field
    shape = shape_of_blind(public)[1:]
    check_array("prediction: the share of a blind", asker, share, shape, field.dtype, field.modulus)
    return public_element(share, field, party.world)


def blinded(sums: Sequence[Any], centre: Centre, *numbers: int) -> Told:
    """Message to the client that asked: masked sums, the server model's weights, `numbers`."""
    weights = {
        name: np.array(one.numpy(force=True)) for name, one in centre.network.state_dict().items()
    }
    return [bare_of(one) for one in sums], weights, numbers


def unblinded(
    public: Blindable, centre: Centre, told: Any, blind: Array, pieces: Sequence[Array]
) -> tuple[list[Array], tuple[int, ...]]:
    """Sums of each piece after the masks are subtracted; loads the server's weights into `centre`.

    ProtocolError if the server's message has another form.

    Parameters
    ----------
    public, centre : Blindable, Centre
        Code and layout of the rows; a server model, whose weights are replaced.
    told : tuple
        Payload of the server's message: decoded sums by piece, weights by name, numbers.
    blind : ndarray, (K, length, h)
        Masks from `draw_blind`.
    pieces : sequence of ndarray, (|B|,)
        Row numbers of each piece within a segment.

    Returns
    -------
    list of ndarray, (K, |B|, h); tuple of int
        Elements below p, and the server's numbers.
    """
    what, field = "prediction: what the server decoded", public.code.field
    forms = [list, dict, tuple]
    if not isinstance(told, tuple) or list(map(type, told)) != forms or len(told[0]) != len(pieces):
        raise refusal(what, SERVER, f"a {type(told).__name__}", f"sums of {len(pieces)} pieces")
    decoded, weights, numbers = told
    K, _, h = shape_of_blind(public)
    found = []
    for rows, sums in zip(pieces, decoded, strict=True):
        check_array(what, SERVER, sums, (K, len(rows), h), field.dtype, field.modulus)
        found.append(field.subtract(sums, blind[:, rows]))
    own = centre.network.state_dict()
    if list(weights) != list(own):
        raise refusal("prediction: the network", SERVER, "another one", f"of {list(own)}")
    for name, one in own.items():
        dtype = one.numpy(force=True).dtype
        check_array(f"prediction: {name}", SERVER, weights[name], tuple(one.shape), dtype)
    centre.network.load_state_dict({name: tensor(one) for name, one in weights.items()})
    for number in numbers:
        check_number("prediction: a number", SERVER, number, 0, field.modulus)
    return found, numbers
