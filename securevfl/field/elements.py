"""Input validation of the field: arrays of elements, and errors that name invalid ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from securevfl.errors import FieldError
from securevfl.field.kernels.scratch import result

Array = NDArray[Any]


def as_elements(values: ArrayLike, p: int, dtype: np.dtype[Any], name: str) -> Array:
    """The values as an array of `dtype`, all checked to lie in [0, p).

    Unsigned arrays and Python integers (scalars, lists or object arrays) are accepted. FieldError,
    whose message begins with `name`, for numbers outside, and for signed and floating arrays,
    because a negative or rounded number would be a wrong element.
    """
    refuse_other_field(values, p, name)
    array = values if isinstance(values, np.ndarray | np.generic) else _from_python(values)
    array = np.asarray(array)
    if array.dtype == object:
        return _from_objects(array, p, dtype, name)
    if array.dtype.kind != "u":
        raise FieldError(
            f"{name}: elements of the field of {p} must be unsigned integers or Python integers, "
            f"got an array of {array.dtype}. Use PrimeField.reduce to map any integers, or "
            f"FixedPoint.quantize for real numbers."
        )
    if array.size and int(array.max()) >= p:
        _refuse_outside(array, p, name)
    return array.astype(dtype, copy=False)


def unproved(values: ArrayLike, p: int, dtype: np.dtype[Any], name: str) -> tuple[Array, bool]:
    """Elements, and whether a later pass over them must still check their range.

    C-contiguous arrays of the dtype, memory maps among them, are neither copied nor read; all
    others are converted as a whole; FieldError for numbers outside [0, p) and for signed or
    floating arrays.
    """
    if isinstance(values, np.ndarray) and values.dtype == dtype:
        refuse_other_field(values, p, name)
        return np.asarray(values, order="C"), True
    return np.asarray(as_elements(values, p, dtype, name), order="C"), False


def refuse_other_field(values: Any, p: int, name: str) -> None:
    """Refuse arrays that declare another field, as galois ones do, or lack values (FieldError)."""
    refuse_masked(values, name)
    order = getattr(type(values), "order", p)
    if order != p:
        raise FieldError(
            f"{name}: these are elements of the field of {order}, and elements of the field of {p} "
            f"are needed; a number means another element there. Convert the integers themselves "
            f"(PrimeField.reduce) if that is what you want."
        )


def refuse_masked(values: Any, name: str) -> None:
    """Refuse masked arrays with missing values, for which no number stands (FieldError)."""
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise FieldError(
            f"{name}: {np.ma.getmaskarray(values).sum()} of {values.size} values are masked, and "
            f"so missing. Fill them (.filled) or leave them out."
        )


def _from_python(values: ArrayLike) -> Array:
    """Return Python scalars and nested lists as objects, so that no integer passes a float."""
    if isinstance(values, list | tuple) and any(isinstance(v, np.ndarray) for v in values):
        return np.asarray(values)
    return np.array(values, dtype=object)


def _from_objects(array: Array, p: int, dtype: np.dtype[Any], name: str) -> Array:
    for index, value in enumerate(array.flat):
        if isinstance(value, bool | np.bool_) or not isinstance(value, int | np.integer):
            raise FieldError(
                f"{name}: the element at index {_place(array, index)} is {value!r} of type "
                f"{type(value).__name__}; elements of the field of {p} must be integers."
            )
        if not 0 <= int(value) < p:
            _refuse(int(value), _place(array, index), p, name)
    return array.astype(dtype)


def _refuse_outside(array: Array, p: int, name: str) -> None:
    index = int(np.argmax(array.reshape(-1) >= p))
    _refuse(int(array.reshape(-1)[index]), _place(array, index), p, name)


def _refuse(value: int, place: str, p: int, name: str) -> None:
    raise FieldError(
        f"{name}: the element at index {place} is {value}, outside [0, {p}). "
        f"Use PrimeField.reduce to map any integers into the field."
    )


def _place(array: Array, flat: int) -> str:
    index = tuple(int(i) for i in np.unravel_index(flat, array.shape)) if array.ndim else ()
    return str(index[0]) if len(index) == 1 else str(index)


def out_array(out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> Array:
    """The array `out`, or a fresh one if None.

    FieldError unless it has this shape and dtype, is C-contiguous and writeable.
    """
    if out is None:
        return result(shape, dtype)
    if not isinstance(out, np.ndarray):
        raise FieldError(f"{name}: out must be an array, got {type(out).__name__}.")
    if out.shape != shape or out.dtype != dtype:
        raise FieldError(
            f"{name}: out must have shape {shape} and dtype {dtype}, "
            f"got shape {out.shape} and dtype {out.dtype}."
        )
    if not out.flags.c_contiguous or not out.flags.writeable:
        raise FieldError(f"{name}: out must be C-contiguous and writeable.")
    return out


def refuse_overlap(out: Array, name: str, *inputs: Array) -> None:
    """Refuse an `out` that shares memory with an input that is still to be read (FieldError)."""
    if any(np.may_share_memory(out, other) for other in inputs):
        raise FieldError(f"{name}: out must not share memory with an input. Give its own array.")
