"""Checks of received messages, before a party computes with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from securevfl.engine.party import name_of
from securevfl.errors import ProtocolError
from securevfl.verified import Element, bare_of

if TYPE_CHECKING:
    from securevfl.field import PrimeField

_CHANGE = "It departs from the protocol, or has other options: give all parties the same ones"


def refusal(what: str, sender: int, sent: str, wanted: str) -> ProtocolError:
    """Error for a malformed message: what it is, from whom, and the required form."""
    return ProtocolError(
        f"{what} from {name_of(sender)} is {sent}, and must be {wanted}. {_CHANGE}"
    )


def check_array(
    what: str,
    sender: int,
    value: Any,
    shape: Sequence[int],
    dtype: Any,
    modulus: int | None = None,
) -> None:
    """Raise ProtocolError unless a value is an array of a shape and dtype, below p if given.

    The check may read a protected value: its shape and dtype are public, and numbers of honest
    parties are always below p.

    Parameters
    ----------
    what : str
        Name of protocol and message, for the error.
    sender : int
        Party that sent it, for the error.
    value : object
        Received value.
    modulus : int, optional
        p, for an array of field elements.
    """
    form, value = (tuple(shape), np.dtype(dtype)), bare_of(value)
    if not isinstance(value, np.ndarray) or (value.shape, value.dtype) != form:
        raise refusal(what, sender, _form(value), f"an array of shape {form[0]}, {form[1]}")
    if modulus is not None and (largest := int(value.max(initial=0))) >= modulus:
        raise refusal(what, sender, f"an array with {largest} in it", f"below p = {modulus}")


def check_element(
    what: str, sender: int, value: Any, shape: Sequence[int], field: PrimeField
) -> None:
    """Raise ProtocolError unless a value is an Element of this shape.

    The numbers need no check: receiving already ensures elements of F_p.
    """
    if not isinstance(value, Element) or value.shape != tuple(shape):
        check_array(what, sender, value, shape, field.dtype, field.modulus)


def check_number(what: str, sender: int, value: Any, least: int, most: int) -> None:
    """Raise ProtocolError unless a value is a whole number from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        raise refusal(what, sender, f"{value!r:.40}", f"a whole number from {least} to {most}")


def check_rows(what: str, sender: int, rows: Any, length: int) -> None:
    """Raise ProtocolError unless `rows` is uint32 (n,), different numbers below `length`."""
    wanted = f"a list of different rows from 0 to {length - 1}, uint32"
    if not isinstance(rows, np.ndarray) or (rows.ndim, rows.dtype) != (1, np.uint32):
        raise refusal(what, sender, _form(rows), wanted)
    if rows.max(initial=0) >= length:
        raise refusal(what, sender, f"a list with row {int(rows.max())}", wanted)
    if len(np.unique(rows)) < len(rows):
        raise refusal(what, sender, "a list that names a row twice", wanted)


def _form(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}, {value.dtype}"
    return f"a {type(value).__name__}"
