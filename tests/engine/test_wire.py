import dataclasses
import math
import struct
import tracemalloc
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from securevfl.engine import wire
from securevfl.engine.wire import decode, encode, message, size
from securevfl.errors import WireError

DTYPES = ["?", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8", ">u4", ">f8"]


@message
@dataclasses.dataclass(frozen=True)
class Note:
    text: str
    content: object = None


@message
@dataclasses.dataclass(frozen=True)
class Positive:
    number: int

    def __post_init__(self):
        if self.number <= 0:
            raise ValueError("must be positive")


def same(a, b):
    """Equality of payloads: types, dtypes up to byte order, bits (so that nan equals nan)."""
    if torch.is_tensor(a):
        return torch.is_tensor(b) and same(a.detach().numpy(), b.numpy())
    if isinstance(a, (np.ndarray, np.generic)):
        little = a.dtype.newbyteorder("<")
        return (
            type(a) is type(b)
            and b.dtype == little
            and a.shape == b.shape
            and a.astype(little).tobytes() == b.tobytes()
        )
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return struct.pack("<d", a) == struct.pack("<d", b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(map(type, a)) == list(map(type, b)) and all(
            same(k, n) and same(a[k], b[n]) for k, n in zip(a, b, strict=True)
        )
    if dataclasses.is_dataclass(a):
        return all(
            same(getattr(a, f.name), getattr(b, f.name)) for f in dataclasses.fields(type(a))
        )
    return a == b


arrays = st.one_of(
    *[
        hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
        for dtype in DTYPES
    ]
)
keys = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(), st.binary())
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.text(),
    st.binary(),
    arrays,
    arrays.filter(lambda a: a.ndim > 0).map(lambda a: a[::2]),
    st.sampled_from([np.float64(1.5), np.float32(-0.0), np.bool_(True), np.uint64(2**64 - 1)]),
    st.sampled_from(
        [torch.arange(6.0).reshape(2, 3), torch.zeros(()), torch.ones(3).requires_grad_()]
    ),
)
payloads = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(keys, inner, max_size=4),
        st.builds(Note, st.text(), inner),
    ),
    max_leaves=12,
)


@given(payloads)
def test_a_payload_comes_back_and_its_size_was_known(value):
    data = encode(value)
    assert size(value) == len(data)
    back = decode(data)
    assert same(value, back)
    assert encode(back) == data


@settings(max_examples=2000)
@given(st.binary(max_size=80))
def test_arbitrary_bytes_decode_or_are_refused(data):
    try:
        value = decode(data)
    except WireError:
        return
    assert encode(value) == data  # a value has one encoding only


SAMPLE = {
    "a": (1, 2.5, None, True, b"xy", "text"),
    7: [np.arange(6, dtype=np.uint64).reshape(2, 3), np.float32(1.0), Note("n", (1, 2))],
    "t": torch.ones(2, 2),
    "b": np.array([True, False]),
}


def test_every_damaged_byte_and_every_truncation_is_refused_or_decodes_to_something_else():
    data = encode(SAMPLE)
    rng = np.random.default_rng(0)
    for end in range(len(data)):
        with pytest.raises(WireError):
            decode(data[:end])
    with pytest.raises(WireError, match="follow the end"):
        decode(data + b"N")
    refused = 0
    for _ in range(6000):
        damaged = bytearray(data)
        for at in rng.integers(0, len(data), rng.integers(1, 4)):
            damaged[at] ^= int(rng.integers(1, 256))
        try:
            decode(bytes(damaged))
        except WireError:
            refused += 1
    assert refused > 1000


LENGTH = struct.pack("<q", 2**62)


def named(cls):
    name = f"{cls.__module__.rpartition('.')[2]}.{cls.__name__}".encode()
    return struct.pack("<q", len(name)) + name


@pytest.mark.parametrize("code", range(11))
@pytest.mark.parametrize("tag", [b"A", b"X"])
def test_huge_arrays_are_refused_without_allocating(tag, code):
    for shape in [(2**62,), (2**40, 2**40), (2**62, 0, 2**62)]:
        head = tag + bytes((code, len(shape))) + b"".join(struct.pack("<q", n) for n in shape)
        _refused_cheaply(head)


@pytest.mark.parametrize("tag", [b"s", b"b", b"t", b"l", b"d", b"m"])
def test_huge_lengths_are_refused_without_allocating(tag):
    _refused_cheaply(tag + LENGTH)
    _refused_cheaply(tag + struct.pack("<q", -1))
    _refused_cheaply(tag + LENGTH + b"N" * 100)


def _refused_cheaply(data):
    tracemalloc.start()
    with pytest.raises(WireError):
        decode(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 10_000_000


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "bytes expected"),
        (b"?" + bytes(8), "unknown tag"),
        (b"A\x0b\x00", "dtype code 11"),
        (b"A\x00\x21", "33 dimensions"),
        (b"A\x00\x00\x02", "neither 0 nor 1"),
        (b"G\x01\x01" + struct.pack("<q", 1) + b"\x00", "no dimensions"),
        (b"s" + struct.pack("<q", 1) + b"\xff", "UTF-8"),
        (b"m" + struct.pack("<q", 4) + b"Nope" + encode(()), "no payload class"),
        (b"m" + named(Note) + encode((1,)), "do not fit"),
        (b"m" + named(Note) + encode([1, 2]), "do not fit"),
        (b"m" + named(Positive) + encode((-1,)), "must be positive"),
        (b"m" + named(Positive) + encode(("x",)), "refuses these fields"),
        (b"d" + struct.pack("<q", 1) + encode([]) + encode(1), "cannot be a key"),
        (b"d" + struct.pack("<q", 2) + (encode(1) + encode(2)) * 2, "occurs twice"),
        (b"t\x01" + bytes(7), "bytes expected"),
    ],
)
def test_malformed_bytes_are_named(data, words):
    with pytest.raises(WireError, match=words):
        decode(data)


def nested(depth):
    value = None
    for _ in range(depth):
        value = (value,)
    return value


def test_depth_is_bounded_in_both_directions():
    assert decode(encode(nested(64))) == nested(64)
    assert size(nested(64)) == len(encode(nested(64)))
    data = b"".join(b"t" + struct.pack("<q", 1) for _ in range(65)) + b"N"
    for refuse in (lambda: encode(nested(65)), lambda: size(nested(65)), lambda: decode(data)):
        with pytest.raises(WireError, match="64 deep"):
            refuse()
    circular: list = []
    circular.append(circular)
    with pytest.raises(WireError, match="64 deep"):
        size(circular)


class Sub(np.ndarray):
    pass


@dataclasses.dataclass
class Unknown:
    x: int = 0


NoteTwin = dataclasses.make_dataclass("Note", ["text", "content"])


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        "\ud800",
        object(),
        {1, 2},
        np.array([object()]),
        np.array(["text"]),
        np.array([1j]),
        np.zeros(2, np.float16),
        np.str_("text"),
        np.datetime64("2020-01-01"),
        torch.zeros(2, dtype=torch.bfloat16),
        torch.zeros(2, dtype=torch.complex64),
        Unknown(),
        NoteTwin("a", 1),
        [1, {"x": object()}],
        lambda: None,
    ],
)
def test_size_refuses_what_encode_refuses(value):
    for refuse in (encode, size):
        with pytest.raises(WireError):
            refuse(value)


def test_array_subclasses_travel_as_arrays():
    value = np.arange(4.0).view(Sub)
    assert size(value) == len(encode(value))
    assert type(decode(encode(value))) is np.ndarray


@pytest.mark.parametrize("dtype", ["u1", "u4", "f8"])
@pytest.mark.parametrize("before", [0, 1, 4, 5])
def test_decoded_arrays_are_read_only_and_aligned_views_where_they_can_be(dtype, before):
    data = encode((bytes(before), np.arange(100).astype(dtype)))
    array = decode(data)[1]
    assert (array == np.arange(100)).all()
    assert not array.flags.writeable
    assert array.flags.aligned
    if dtype == "u1":
        assert np.shares_memory(array, np.frombuffer(data, np.uint8))


def test_signs_of_zero_and_nan_survive():
    back = decode(encode((-0.0, math.nan, np.float32(-0.0))))
    assert math.copysign(1, back[0]) == -1
    assert math.isnan(back[1])
    assert np.signbit(back[2])


def test_only_dataclasses_that_can_be_rebuilt_are_declared():
    with pytest.raises(TypeError, match="dataclass"):
        message(Sub)
    with pytest.raises(TypeError, match="by position"):
        message(dataclasses.make_dataclass("Keyword", ["x"], kw_only=True))
    with pytest.raises(TypeError, match="by position"):
        message(dataclasses.make_dataclass("Hidden", [("x", int, dataclasses.field(init=False))]))
    other = dataclasses.make_dataclass("Note", ["x"])
    other.__module__ = f"elsewhere.{__name__.rpartition('.')[2]}"
    with pytest.raises(TypeError, match="is taken"):
        message(other)
    assert message(Note) is Note


def test_a_stated_name_stands_on_the_wire_wherever_the_class_lies():
    kept = dataclasses.make_dataclass("Moved", ["x"], frozen=True)
    assert message("old_module.Kept")(kept) is kept
    data = wire.encode(kept(5))
    assert b"old_module.Kept" in data
    assert wire.decode(data) == kept(5)
    with pytest.raises(TypeError, match="is taken"):
        message("old_module.Kept")(dataclasses.make_dataclass("Other", ["y"]))


def test_the_envelope_counts_the_kind_and_bounds_it():
    assert wire.envelope("model") == 21 + 5
    assert wire.envelope("é" * 127) == 21 + 254
    with pytest.raises(WireError, match="255"):
        wire.envelope("é" * 128)


def dictionary(keys):
    return b"d" + struct.pack("<q", len(keys)) + b"".join(key + b"N" for key in keys)


def test_keys_are_texts_integers_or_bytes_in_both_directions():
    """Of tuples as many as one likes have the same hash: 1 MB of them took 1.5 s, 10 MB 100 s."""
    for key in [(-1, -2), None, True, 1.5, np.int64(1)]:
        with pytest.raises(WireError, match="cannot be a key; a key is a text"):
            encode({key: 1})
        with pytest.raises(WireError, match="cannot be a key; a key is a text"):
            size({key: 1})
        with pytest.raises(WireError, match="cannot be a key; a key is a text"):
            decode(dictionary([encode(key)]))
    assert decode(encode({1: 1, "a": 2, b"a": 3})) == {1: 1, "a": 2, b"a": 3}


def test_at_most_nine_keys_collide():
    """hash(-1) == hash(-2); of integers at most 9 of 64 bits have one hash."""
    colliding = [k * (2**61 - 1) + r for r in range(2000) for k in range(-4, 4)]
    data = dictionary([encode(key) for key in colliding])
    assert len(decode(data)) == 16000
    assert max(Counter(hash(key) for key in colliding).values()) <= 9
    with pytest.raises(WireError):  # longer ones, of which as many as one likes have one hash
        encode({2**63: 1})


@pytest.mark.parametrize("tag", [b"A", b"X"])
def test_empty_arrays_cannot_amplify_a_message(tag):
    """2.2 MB of 200,000 empty tensors took 323 MB."""
    empty = tag + b"\x09\x01" + bytes(8)
    few = b"l" + struct.pack("<q", 4096) + 4096 * empty
    assert len(decode(few)) == 4096
    many = b"l" + struct.pack("<q", 200_000) + 200_000 * empty
    with pytest.raises(WireError, match="too many arrays for so few bytes"):
        decode(many)


def test_as_many_arrays_as_their_bytes_allow_are_read():
    arrays = [np.arange(8.0) for _ in range(20_000)]
    assert len(decode(encode(arrays))) == 20_000
