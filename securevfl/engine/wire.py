"""Messages as bytes: data only, self-describing, of exactly known size.

One format serves three uses: the transcript's byte counts (`size`, without encoding anything), the
checkpoints, and the links between processes. It carries ``None``, ``bool``, ``int`` (64 bit),
``float``, ``str``, ``bytes``, ``tuple``, ``list``, ``dict``, numpy arrays and scalars, torch
tensors, and the dataclasses that a module declared with `message`. It never runs code that the
bytes name, so bytes of a stranger can at worst be refused (`securevfl.errors.WireError`).

Layout: one tag byte, then the value. Integers and floats are 8 bytes, little-endian; lengths are
8 bytes; an array is a dtype code, the number of dimensions (1 byte each), 8 bytes a dimension and
the raw C-ordered elements.

Between parties, a message that is declared to carry elements of F_p has them packed: each array of
the field's dtype is the number of bits of an element, the number of dimensions (1 byte each), 8
bytes a dimension, and the stream of `securevfl.field.packing`. The modulus is not on the wire: both
ends have it from the declaration. Checkpoints and recordings are never packed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, overload

import numpy as np

from securevfl.errors import FieldError, WireError
from securevfl.field.packing import element_bits, element_dtype, pack, packed_size, unpack

ENVELOPE = 21  # sender 4, receiver 4, round 8, epoch 4, length of the kind 1; then the kind itself
_DTYPES = ("b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8")
_CODE = {np.dtype("<" + name): code for code, name in enumerate(_DTYPES)}
_MAX_DEPTH = 64
_SHORT = 64  # characters of keys whose bytes are kept
_TOGETHER = 1 << 16  # bytes of a payload that is decoded together with others of its form
_ARRAYS, _ARRAY_BYTES = (
    4096,
    64,
)  # a payload may hold so many arrays, and one more for so many bytes
_Cls = TypeVar("_Cls", bound=type)
_registered: dict[str, type] = {}
_names: dict[type, str] = {}
_int = struct.Struct("<q")
_float = struct.Struct("<d")


@overload
def message(name: _Cls, /) -> _Cls: ...
@overload
def message(name: str, /) -> Callable[[_Cls], _Cls]: ...
def message(name: Any, /) -> Any:
    """Declare a dataclass as a payload.

    TypeError when the class is no dataclass, when its constructor does not take all its fields by
    position, or when another class has the name already.

    Parameters
    ----------
    name : str or type
        The name that stands on the wire and in checkpoints, as in ``@message("secagg.Deal")``. It
        stays when the class moves to another module. Bare ``@message`` takes ``module.Class``.
    """
    if isinstance(name, str):
        return lambda cls: _declare(cls, name)
    return _declare(name, f"{name.__module__.rpartition('.')[2]}.{name.__name__}")


def _declare(cls: _Cls, name: str) -> _Cls:
    if not dataclasses.is_dataclass(cls):
        raise TypeError(f"message: {name} must be a dataclass")
    if not all(field.init and not field.kw_only for field in dataclasses.fields(cls)):
        raise TypeError(f"message: {name} must take all its fields by position")
    if _registered.setdefault(name, cls) is not cls:
        known = _registered[name]
        if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise TypeError(f"message: the name {name} is taken by {known.__module__}")
        _registered[name] = cls
    _names[cls] = name
    return cls


def envelope(kind: str) -> int:
    """Bytes of a message of a kind without its payload.

    WireError when the kind is longer than 255 bytes.
    """
    length = len(_utf8(kind))
    if length > 255:
        raise WireError(f"wire: a kind may have 255 bytes, {kind[:20]!r}... has {length}")
    return ENVELOPE + length


def size(value: Any, depth: int = 0, modulus: int | None = None) -> int:
    """Length in bytes of ``encode(value, modulus)``, computed without encoding.

    `depth` is the number of containers around the value. WireError where `encode` would raise it.
    """
    kind = type(value)
    if value is None or kind is bool:
        return 1
    if kind is np.ndarray or isinstance(value, (np.ndarray, np.generic)):
        _dtype_code(value)
        length: int = 3 + 8 * value.ndim
        if modulus is not None and _is_packed(value, modulus):
            return length + packed_size(value.size, modulus)
        return length + int(value.nbytes)
    if kind is int:
        if not -(2**63) <= value < 2**63:
            raise _too_large(value)
        return 9
    if kind is float:
        return 9
    if kind is str or kind is bytes:
        raw: bytes = _utf8(value) if kind is str else value
        return 9 + len(raw)
    return _compound_size(value, depth, modulus)


def _compound_size(value: Any, depth: int, modulus: int | None) -> int:
    if depth >= _MAX_DEPTH:
        raise _too_deep()
    kind, depth = type(value), depth + 1
    if kind is tuple or kind is list:
        return 9 + sum(size(item, depth, modulus) for item in value)
    if kind is dict:
        items = value.items()
        for key in value:
            _check_key(key)
        return 9 + sum(size(k, depth, modulus) + size(v, depth, modulus) for k, v in items)
    if _is_tensor(value):
        return size(_to_array(value), depth)
    name = _names.get(kind)
    if name is not None:
        return 9 + len(name.encode()) + size(_fields(value), depth, modulus)
    raise _unknown(value)


def encode(value: object, modulus: int | None = None) -> bytes:
    """Bytes of a payload.

    WireError for a type that is no payload, an integer beyond 64 bits, nesting deeper than 64, and
    for an element to be packed that is not below p.

    Parameters
    ----------
    value : payload
        None, bool, int, float, str, bytes, numpy array or scalar, torch tensor, dataclass declared
        by `message`, or a list, tuple or dict of these; keys are str, int or bytes.
    modulus : int, optional
        Prime p, where all arrays of the dtype of F_p hold its elements; they are packed.
    """
    out = bytearray()
    _encode(value, out, 0, modulus)
    return bytes(out)


def encode_rows(rows: np.ndarray, modulus: int | None = None) -> list[bytes]:
    """``[encode(row, modulus) for row in rows]``, in one pass if possible; WireError likewise."""
    if (
        modulus is None
        or rows.ndim < 2
        or rows.dtype != element_dtype(modulus)
        or rows[:1].size * element_bits(modulus) % 8  # then rows do not end with a byte
    ):
        return [encode(row, modulus) for row in rows]
    head = _elements_head(element_bits(modulus), rows.shape[1:])
    try:
        stream = pack(rows, modulus).tobytes()
    except FieldError as error:
        raise WireError(f"wire: {error}") from None
    size = len(stream) // max(1, len(rows))
    return [head + stream[row * size : (row + 1) * size] for row in range(len(rows))]


def decode(data: bytes | memoryview, modulus: int | None = None) -> Any:
    """Payload from its bytes; arrays are read-only, and views of `data` where aligned.

    WireError for truncated, over-long or malformed bytes, and for names that were not declared; for
    packed elements of another number of bits, that are not below p, or with bits after them.

    Parameters
    ----------
    data : bytes or memoryview
        Result of `encode`.
    modulus : int, optional
        Prime p. If given, arrays with the dtype of F_p must be packed; otherwise none may be.
    """
    view = memoryview(data).toreadonly()
    if (
        modulus is not None and len(view) and view[0] == ord("P")
    ):  # most messages are one array of elements
        value, end = _decode_elements(view, 1, modulus)
    else:
        value, end = _decode(view, 0, 0, _Rules(modulus, _ARRAYS + len(view) // _ARRAY_BYTES))
    if end != len(view):
        raise WireError(f"wire: {len(view) - end} bytes follow the end of the payload")
    return value


def decode_each(parts: Sequence[bytes], modulus: int | None = None) -> list[Any]:
    """``[decode(part, modulus) for part in parts]``, in one pass if possible.

    Small arrays of field elements of one shape are unpacked together, and are rows of one array.
    WireError for bytes that are no payload.
    """
    first = parts[0] if len(parts) > 1 else b""
    if modulus is None or first[:1] != b"P" or not 2 < len(first) <= _TOGETHER:
        return [decode(part, modulus) for part in parts]
    begin = 3 + 8 * first[2]
    shape, nbytes = _elements_form(first[1:begin], modulus)
    head, size = first[:begin], begin + nbytes
    alike = all(len(part) == size and part.startswith(head) for part in parts)
    if not alike or math.prod(shape) * element_bits(modulus) % 8:  # rows do not end with a byte
        return [decode(part, modulus) for part in parts]
    try:
        rows = unpack(b"".join([part[begin:] for part in parts]), (len(parts), *shape), modulus)
    except (FieldError, ValueError) as error:
        raise WireError(f"wire: {error}") from None
    rows.setflags(write=False)
    return list(rows)


_FLAT = {str: b"s", int: b"i", bytes: b"b"}


def decode_flat(data: bytes | memoryview, kinds: Sequence[type]) -> tuple[Any, ...]:
    """A tuple of texts, integers and bytes of these kinds; time and memory are linear in `data`.

    For bytes of unknown origin, before they are authenticated. WireError for anything else.
    """
    view = memoryview(data).toreadonly()
    if bytes(view[:1]) != b"t" or _length(view, 1) != len(kinds):
        raise WireError(f"wire: these bytes are no tuple of {len(kinds)} values")
    values: list[object] = []
    at = 9
    for kind in kinds:
        if view[at : at + 1] != _FLAT[kind]:
            raise WireError(f"wire: value {len(values)} is no {kind.__name__}")
        if kind is int:
            values.append(_number(_int, view, at + 1))
            at += 9
            continue
        length = _length(view, at + 1)
        raw = bytes(_take(view, at + 9, length))
        values.append(_text(raw) if kind is str else raw)
        at += 9 + length
    if at != len(view):
        raise WireError(f"wire: {len(view) - at} bytes follow the end of the payload")
    return tuple(values)


@dataclasses.dataclass
class _Rules:
    """Rules for decoding a payload: modulus, and number of arrays still permitted."""

    modulus: int | None
    arrays: int

    def count_array(self) -> None:
        """Count an array; WireError beyond the limit, since small ones need far more memory."""
        self.arrays -= 1
        if self.arrays < 0:
            raise WireError(
                f"wire: too many arrays for so few bytes; {_ARRAYS} and one for each "
                f"{_ARRAY_BYTES} bytes are allowed"
            )


def _encode(value: Any, out: bytearray, depth: int, modulus: int | None) -> None:
    if depth > _MAX_DEPTH:
        raise _too_deep()
    kind = type(value)
    if value is None:
        out += b"N"
    elif kind is bool:
        out += b"T" if value else b"F"
    elif kind is int:
        _encode_int(value, out)
    elif kind is float:
        out += b"f" + _float.pack(value)
    elif kind is str or kind is bytes:
        raw = _utf8(value) if kind is str else value
        out += (b"s" if kind is str else b"b") + _int.pack(len(raw)) + raw
    elif kind is tuple or kind is list:
        out += (b"t" if kind is tuple else b"l") + _int.pack(len(value))
        for item in value:
            if type(item) is int and depth < _MAX_DEPTH:
                _encode_int(item, out)
            else:
                _encode(item, out, depth + 1, modulus)
    elif kind is dict:
        out += b"d" + _int.pack(len(value))
        for key, item in value.items():
            if type(key) is str and len(key) <= _SHORT:
                out += _key(key)
            else:
                _check_key(key)
                _encode(key, out, depth + 1, modulus)
            _encode(item, out, depth + 1, modulus)
    elif isinstance(value, np.ndarray):
        if modulus is not None and _is_packed(value, modulus):
            _encode_elements(value, modulus, out)
        else:
            _encode_array(b"A", value, out)
    elif isinstance(value, np.generic):
        _encode_array(b"G", np.asarray(value), out)
    elif _is_tensor(value):
        _encode_array(b"X", _to_array(value), out)
    elif kind in _names:
        name = _names[kind].encode()
        out += b"m" + _int.pack(len(name)) + name
        _encode(_fields(value), out, depth + 1, modulus)
    else:
        raise _unknown(value)


@functools.lru_cache(maxsize=4096)
def _key(name: str) -> bytes:
    """Bytes of a text that is a dictionary key; cached, since names repeat."""
    raw = _utf8(name)
    return b"s" + _int.pack(len(raw)) + raw


def _check_key(key: object) -> None:
    if type(key) not in (str, int, bytes):
        raise WireError(
            f"wire: a {type(key).__name__} cannot be a key; a key is a text, an integer or bytes"
        )


def _encode_int(value: int, out: bytearray) -> None:
    try:
        out += b"i" + _int.pack(value)
    except struct.error:
        raise _too_large(value) from None


def _encode_array(tag: bytes, array: np.ndarray, out: bytearray) -> None:
    array = np.ascontiguousarray(array) if array.ndim else array
    out += tag + bytes((_dtype_code(array), array.ndim))
    for length in array.shape:
        out += _int.pack(length)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    out += little.reshape(-1).view(np.uint8).data  # without a copy of the array between


def _is_packed(value: object, modulus: int) -> bool:
    """Whether a message of elements of F_p packs this value: an array of their dtype."""
    return isinstance(value, np.ndarray) and value.dtype == element_dtype(modulus)


@functools.lru_cache(maxsize=256)
def _elements_head(bits: int, shape: tuple[int, ...]) -> bytes:
    """Header bytes of packed elements, before their bit stream."""
    return b"P" + bytes((bits, len(shape))) + struct.pack(f"<{len(shape)}q", *shape)


def _encode_elements(array: np.ndarray, modulus: int, out: bytearray) -> None:
    _dtype_code(array)
    out += _elements_head(element_bits(modulus), array.shape)
    try:
        out += pack(array, modulus).data
    except FieldError as error:
        raise WireError(f"wire: {error}") from None


def _dtype_code(array: np.ndarray | np.generic) -> int:
    code = _CODE.get(array.dtype)
    if code is None:
        code = _CODE.get(array.dtype.newbyteorder("<"))
    if code is None:
        raise WireError(f"wire: arrays of dtype {array.dtype} cannot be sent; use numbers")
    if array.ndim > 32:
        raise WireError(f"wire: an array may have 32 dimensions, this one has {array.ndim}")
    return code


_TAGS = [bytes([number]) for number in range(256)]
_WORDS = {b"N": None, b"T": True, b"F": False}


def _decode(view: memoryview, at: int, depth: int, rules: _Rules) -> tuple[Any, int]:
    if depth > _MAX_DEPTH:
        raise _too_deep()
    tag = _TAGS[view[at]] if at < len(view) else bytes(_take(view, at, 1))
    at += 1
    if tag == b"i":
        return _number(_int, view, at), at + 8
    if tag in _WORDS:
        return _WORDS[tag], at
    if tag == b"f":
        return _number(_float, view, at), at + 8
    if tag == b"P":
        rules.count_array()
        return _decode_elements(view, at, rules.modulus)
    if tag in b"AGX":
        if tag != b"G":
            rules.count_array()
        array, end = _decode_array(tag, view, at)
        if tag == b"A" and rules.modulus is not None and _is_packed(array, rules.modulus):
            raise WireError(
                f"wire: an array of {array.dtype} in a message of field elements must be packed"
            )
        return array, end
    length = _length(view, at)
    at += 8
    if tag in b"sb":
        raw = bytes(_take(view, at, length))
        return (_text(raw) if tag == b"s" else raw), at + length
    if tag in b"tl":
        items = []
        for _ in range(length):
            item, at = _decode(view, at, depth + 1, rules)
            items.append(item)
        return (tuple(items) if tag == b"t" else items), at
    if tag == b"d":
        return _decode_dict(view, at, length, depth, rules)
    if tag == b"m":
        name = _text(bytes(_take(view, at, length)))
        fields, at = _decode(view, at + length, depth + 1, rules)
        return _rebuild(name, fields), at
    raise WireError(f"wire: unknown tag {tag!r} at byte {at - 9}")


def _decode_dict(
    view: memoryview, at: int, length: int, depth: int, rules: _Rules
) -> tuple[Any, int]:
    items: dict[str | int | bytes, object] = {}
    for _ in range(length):
        # Other keys can be chosen so that all have one hash: to find one then takes the time of
        # all. Texts and bytes are hashed with a random key, and few integers of 64 bits are equal
        # modulo 2^61 - 1.
        if bytes(view[at : at + 1]) not in (b"s", b"i", b"b"):
            raise WireError(
                f"wire: what begins with {bytes(view[at : at + 1])!r} cannot be a key; a key is a "
                "text, an integer or bytes"
            )
        key, at = _decode(view, at, depth + 1, rules)
        value, at = _decode(view, at, depth + 1, rules)
        if key in items:
            raise WireError("wire: a key occurs twice in a dictionary")
        items[key] = value
    return items, at


def _decode_array(tag: bytes, view: memoryview, at: int) -> tuple[Any, int]:
    code, ndim = bytes(_take(view, at, 2))
    at += 2
    if code >= len(_DTYPES) or ndim > 32:
        raise WireError(f"wire: array of dtype code {code} with {ndim} dimensions")
    shape = tuple(_length(view, at + 8 * axis, bounded=False) for axis in range(ndim))
    at += 8 * ndim
    dtype = np.dtype("<" + _DTYPES[code])
    nbytes = dtype.itemsize
    for length in shape:
        # Python's integers do not overflow, so impossible lengths ask for more bytes than there are
        # and are refused before anything is allocated.
        nbytes *= length
    raw = _take(view, at, nbytes)
    if dtype.kind == "b" and nbytes and np.frombuffer(raw, np.uint8).max() > 1:
        raise WireError("wire: a truth value that is neither 0 nor 1")
    try:
        array = np.frombuffer(raw, dtype).reshape(shape)
    except ValueError:  # no element, and other lengths beyond what numpy can address
        raise WireError("wire: an array with impossible lengths") from None
    if not array.flags.aligned:  # compiled kernels take aligned arrays only
        array = array.copy()
        array.flags.writeable = False
    if tag == b"G":
        if ndim:
            raise WireError("wire: a scalar has no dimensions")
        return array[()], at + nbytes
    return (_to_tensor(array) if tag == b"X" else array), at + nbytes


def _decode_elements(view: memoryview, at: int, modulus: int | None) -> tuple[np.ndarray, int]:
    if modulus is None:
        raise WireError("wire: packed elements in a message that is not declared to carry any")
    ndim = _take(view, at, 2)[1]
    begin = at + 2 + 8 * ndim
    shape, nbytes = _elements_form(bytes(_take(view, at, begin - at)), modulus)
    end = begin + nbytes
    try:
        array = unpack(_take(view, begin, nbytes), shape, modulus)
    except (FieldError, ValueError) as error:  # or no element, and impossible lengths
        raise WireError(f"wire: {error}") from None
    array.setflags(write=False)
    return array, end


@functools.lru_cache(maxsize=256)
def _elements_form(head: bytes, modulus: int) -> tuple[tuple[int, ...], int]:
    """(Shape of packed elements, bytes of their bit stream) from the header; or WireError."""
    bits, ndim = head[:2]
    if bits != element_bits(modulus) or ndim > 32:
        raise WireError(
            f"wire: packed elements of {bits} bits with {ndim} dimensions; those of the field of "
            f"{modulus} have {element_bits(modulus)} bits. All parties must run with the same prime"
        )
    shape = struct.unpack(f"<{ndim}q", head[2:])
    if min(shape, default=0) < 0:
        raise WireError(f"wire: a length of {min(shape)} in the shape of packed elements")
    return shape, (math.prod(shape) * bits + 7) // 8


def _number(form: struct.Struct, view: memoryview, at: int) -> Any:
    try:
        return form.unpack_from(view, at)[0]
    except struct.error:
        return form.unpack(_take(view, at, 8))[0]  # which says how many bytes there are


def _take(view: memoryview, at: int, length: int) -> memoryview:
    part = view[at : at + length]
    if len(part) != length:
        raise WireError(f"wire: {length} bytes expected at {at}, {len(part)} are there")
    return part


def _length(view: memoryview, at: int, *, bounded: bool = True) -> int:
    # Each item takes a byte at least: a length beyond the payload would only make the reader
    # allocate.
    value: int = _number(_int, view, at)
    if value < 0 or (bounded and value > len(view)):
        raise WireError(f"wire: a length of {value} in a payload of {len(view)} bytes")
    return value


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise WireError("wire: text that is not UTF-8") from None


def _fields(value: Any) -> tuple[object, ...]:
    return tuple(getattr(value, field.name) for field in dataclasses.fields(value))


def _rebuild(name: str, fields: Any) -> Any:
    cls = _registered.get(name)
    if cls is None:
        raise WireError(f"wire: no payload class is called {name!r}")
    if type(fields) is not tuple or len(fields) != len(dataclasses.fields(cls)):
        raise WireError(f"wire: the fields do not fit the payload class {name}")
    try:
        return cls(*fields)
    except Exception as error:  # whatever the class's own checks raise
        raise WireError(f"wire: {name} refuses these fields: {error}") from error


def _is_tensor(value: object) -> bool:
    cls = type(value)
    return cls.__module__.startswith("torch") and hasattr(value, "detach")


def _to_array(tensor: Any) -> np.ndarray:
    try:
        array: np.ndarray = tensor.detach().cpu().resolve_conj().resolve_neg().numpy()
    except (TypeError, RuntimeError) as error:  # bfloat16, sparse, quantised
        raise WireError(f"wire: a tensor of {tensor.dtype} cannot be sent: {error}") from None
    return array


def _to_tensor(array: np.ndarray) -> Any:
    import torch

    return torch.from_numpy(array.copy())


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise WireError("wire: text with half a surrogate pair cannot be sent") from None


def _too_deep() -> WireError:
    return WireError(f"wire: a payload may nest {_MAX_DEPTH} deep, this one is deeper")


def _too_large(value: int) -> WireError:
    return WireError(f"wire: an integer of {value.bit_length()} bits does not fit 64; send arrays")


def _unknown(value: object) -> WireError:
    return WireError(
        f"wire: a {type(value).__name__} cannot be sent; use numbers, text, arrays, tuples, lists, "
        "dictionaries, or a dataclass declared with engine.wire.message"
    )
