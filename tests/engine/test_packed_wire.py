"""Messages of field elements: packed on the way between parties, and nowhere else."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest

from securevfl.engine import wire
from securevfl.engine.message_rules import MessageRules, Route
from securevfl.engine.network import SERVER
from securevfl.engine.party import Party
from securevfl.engine.security.sealing import OVERHEAD, Sealing
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.engine.wire import decode, encode, message, size
from securevfl.errors import WireError
from securevfl.field.packing import element_dtype, pack

from .realtime.live_parties import Carrier

FIFTY = 2**50 - 2**14 + 1
PRIMES = (97, 2**31 - 1, FIFTY, 2**61 - 1)
HEAD = 3 + 8 * 2  # tag, bits, dimensions, two lengths


@message("tests.Pair")
@dataclasses.dataclass(frozen=True)
class Pair:
    key: bytes
    values: np.ndarray


def elements(p: int, *shape: int) -> np.ndarray:
    drawn = np.random.default_rng(3).integers(0, p, shape, np.uint64)
    return drawn.astype(element_dtype(p))


@pytest.mark.parametrize("p", PRIMES)
def test_an_array_of_elements_takes_its_bits_and_comes_back(p):
    value = elements(p, 5, 7)
    data = encode(value, p)
    assert data[:3] == b"P" + bytes(((p - 1).bit_length(), 2))
    assert data[HEAD:] == pack(value, p).tobytes()
    assert len(data) == size(value, modulus=p) == HEAD + -(-35 * (p - 1).bit_length() // 8)
    again = decode(data, p)
    assert (again.shape, again.dtype) == (value.shape, value.dtype)
    assert (again == value).all()
    assert not again.flags.writeable
    assert encode(again, p) == data


@pytest.mark.parametrize("p", PRIMES)
def test_arrays_within_other_payloads_are_packed_and_nothing_else_is(p):
    value = elements(p, 3, 4)
    other = np.arange(6, dtype=np.float32), np.arange(6, dtype=np.int64), value.dtype.type(96)
    payload = [Pair(b"k", value), {0: value[:, 1:], 1: (value[0], *other)}, "text", None, 7]
    data = encode(payload, p)
    assert len(data) == size(payload, modulus=p)
    assert data.count(b"P" + bytes(((p - 1).bit_length(),))) >= 3
    assert encode(decode(data, p), p) == data
    assert encode(decode(data, p)) == encode(payload)  # the same values and dtypes
    assert size(payload) - len(data) == sum(
        v.nbytes - len(pack(v, p)) for v in (value, value[:, 1:], value[0])
    )


def test_placeholders_are_counted_like_arrays():
    hollow = np.broadcast_to(np.zeros((), np.uint64), (10**6, 10**6))
    assert size(hollow, modulus=FIFTY) == HEAD + 50 * 10**12 // 8


@pytest.mark.parametrize("p", PRIMES)
def test_both_ends_must_agree_that_elements_are_packed(p):
    value = elements(p, 2, 3)
    with pytest.raises(WireError, match="not declared to carry any"):
        decode(encode(value, p))
    with pytest.raises(WireError, match="must be packed"):
        decode(encode([value]), p)


def test_elements_of_another_field_are_refused():
    with pytest.raises(WireError, match=r"61 bits .* have 50 bits. All parties"):
        decode(encode(elements(FIFTY, 3), 2**61 - 1), FIFTY)
    large = np.array([FIFTY], np.uint64)
    with pytest.raises(WireError, match="outside"):
        encode(large, FIFTY)
    with pytest.raises(WireError, match="outside"):  # as many bits, but a larger prime
        decode(encode(large, 2**50 - 27), FIFTY)


@pytest.mark.parametrize("shape", [(5, 2, 4), (5, 3), (5,), (0, 8), (3, 0), (1, 16)])
@pytest.mark.parametrize("p", [97, 2**31 - 1, 2**50 - 2**14 + 1])
def test_rows_are_encoded_at_once_as_one_by_one(p, shape):
    rows = elements(p, *shape)
    assert wire.encode_rows(rows, p) == [encode(row, p) for row in rows]
    assert wire.encode_rows(rows) == [encode(row) for row in rows]


@pytest.mark.parametrize("shape", [(5, 2, 4), (5, 3), (2, 8), (1, 16), (3, 0)])
@pytest.mark.parametrize("p", [97, 2**31 - 1, 2**50 - 2**14 + 1])
def test_payloads_are_decoded_at_once_as_one_by_one(p, shape):
    parts = [encode(row, p) for row in elements(p, *shape)]
    for given in (parts, [*parts, encode(elements(p, 9), p)], [*parts, encode("text")], []):
        found = wire.decode_each(given, p)
        for one, wanted in zip(found, [decode(part, p) for part in given], strict=True):
            np.testing.assert_array_equal(one, wanted)
            assert isinstance(one, str) or not one.flags.writeable
    assert wire.decode_each([encode(1), encode(None)]) == [1, None]


def test_what_is_malformed_is_refused_among_others_too():
    good = encode(elements(97, 8), 97)
    wrong = bytearray(good)
    wrong[-1] |= 254  # an element of 127
    for bad in (bytes(wrong), good[:-1], good + b"\0"):
        with pytest.raises(WireError):
            wire.decode_each([good, bad], 97)


def test_a_row_that_is_not_of_the_field_is_refused():
    rows = np.full((3, 8), 97, np.uint32)
    with pytest.raises(WireError, match="a number in the array is 97"):
        wire.encode_rows(rows, 97)


def test_malformed_streams_are_refused():
    data = encode(elements(97, 1, 3), 97)
    for wrong in (data[:-1], data + b"\0", data[:-1] + bytes((data[-1] | 128,))):
        with pytest.raises(WireError):
            decode(wrong, 97)
    for lengths in ((2**62, 2**62), (-1, 3), (2**62, 0)):
        dimensions = b"".join(n.to_bytes(8, "little", signed=True) for n in lengths)
        head = b"P" + bytes((7, 2)) + dimensions
        with pytest.raises(WireError):
            decode(head + bytes(8), 97)
    with pytest.raises(WireError, match="33 dimensions"):
        decode(b"P" + bytes((7, 33)) + bytes(8 * 33), 97)


class Talker(Party):
    """Sends elements and other numbers to the other client, and keeps what it hears."""

    kept = ("heard",)

    def __init__(self, index, peers):
        super().__init__(index, peers)
        self.heard = ()

    async def run(self):
        while len(self.heard) < 6:
            self.safe_point()
            self.round = len(self.heard) // 2 + 1
            other = SERVER if self.index == 0 else 0
            self.send(other, "share", elements(FIFTY, 4, self.round), after=0.01)
            self.send(other, "note", np.arange(3, dtype=np.uint64))
            share = await self.receive("share", round=self.round)
            note = await self.receive("note", round=self.round)
            self.heard = (*self.heard, share, note)


BOTH = frozenset((SERVER, 0))
RULES = MessageRules(
    "toy",
    [
        Route("share", "party", "party", BOTH, BOTH, FIFTY),
        Route("note", "party", "party", BOTH, BOTH),
    ],
)
WORDS = [(5 + 21, n) for n in (4, 8, 12)]  # envelope of a share, and its elements


def talkers():
    return {n: Talker(n, (0,)) for n in (SERVER, 0)}


def heard_all(parties):
    for party in parties.values():
        assert len(party.heard) == 6
        for turn in (1, 2, 3):
            share, note = party.heard[2 * turn - 2 : 2 * turn]
            assert share.dtype == note.dtype == np.uint64
            assert (share == elements(FIFTY, 4, turn)).all()
            assert note.tolist() == [0, 1, 2]


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize("copying", [True, False])
def test_a_simulation_packs_what_is_declared(sealed, copying):
    parties, transcript = talkers(), Transcript(payloads=True)
    sealing = Sealing("toy", "run", parties) if sealed else None
    Simulation(parties, rules=RULES, transcript=transcript, sealing=sealing, copying=copying).run()
    heard_all(parties)
    columns, more = transcript.columns(), OVERHEAD if sealed else 0
    for kind, payload, nbytes in zip(
        columns["kind"], transcript.payloads, columns["bytes"], strict=True
    ):
        modulus = FIFTY if kind == "share" else None
        assert nbytes == wire.envelope(kind) + len(encode(payload, modulus)) + more
    assert set(columns["bytes"][columns["kind"] == "share"].tolist()) == {
        envelope + HEAD + -(-50 * count // 8) + more for envelope, count in WORDS
    }


def test_sealed_bytes_are_those_of_the_packed_elements():
    parties, seen = talkers(), []
    sealing = Sealing("toy", "run", parties)
    original = sealing.seal
    sealing.seal = lambda *at: seen.append((at[2], at[-1])) or original(*at)
    Simulation(parties, rules=RULES, sealing=sealing).run()
    shares = [plain for kind, plain in seen if kind == "share"]
    assert len(shares) == 6
    assert all(plain[:2] == b"P" + bytes((50,)) for plain in shares)


def test_a_resumed_run_packs_what_is_declared():
    simulation = Simulation(talkers(), rules=RULES, sealing=Sealing("toy", "run", talkers()))
    states = []
    asked = iter(range(10))

    def pause():
        if next(asked, None) == 0:
            simulation.request_state(lambda state: states.append(encode(state)))
        return False

    simulation.run(pause)
    (saved,) = states
    parties = talkers()
    sealing = Sealing("toy", "run", parties)
    resumed = Simulation.from_state(parties, decode(saved), rules=RULES, sealing=sealing)
    resumed.run()
    heard_all(parties)
    whole = simulation.transcript.columns()["bytes"].tolist()
    assert resumed.transcript.columns()["bytes"].tolist() == whole
    plain = {e + HEAD + OVERHEAD + 8 * n for e, n in WORDS}
    assert plain.isdisjoint(whole)


def test_hosts_pack_what_is_declared():
    parties = talkers()
    carrier = Carrier(parties, rules=RULES)
    asyncio.run(carrier.run())
    heard_all(parties)
    sizes = carrier.hosts[0].transcript.columns()
    shares = sizes["bytes"][sizes["kind"] == "share"].tolist()
    assert np.diff(shares).tolist() == [25, 25]  # four elements more, in 6.25 bytes each


def test_the_modulus_of_a_kind_is_one():
    assert (RULES.modulus("share"), RULES.modulus("note"), RULES.modulus("new")) == (
        FIFTY,
        None,
        None,
    )
    with pytest.raises(ValueError, match="'x' is declared with elements of the field of 97 and"):
        MessageRules(
            "toy",
            [Route("x", "a", "b", BOTH, BOTH, 97), Route("x", "b", "a", BOTH, BOTH)],
        )
