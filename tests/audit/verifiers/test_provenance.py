"""Sources of secrets: edits of the sampler and of secret streams, and the library as it is."""

import hashlib
import time

import numpy as np
import pytest

from securevfl.audit.beside import known_answers
from securevfl.audit.beside.known_answers import (
    elements,
    entropy_fault,
    expanded,
    rows_fault,
    sampler_fault,
)
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.primitives import Hypotheses
from securevfl.audit.verifiers.provenance import Sources, _alike, _altered_columns, _bare_at_first
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.audit.verify import judge
from securevfl.engine import streams
from securevfl.engine.party import SERVER
from securevfl.engine.realtime.assignment import begun_secrets
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.streams import OwnEntropy, keyed_stream
from securevfl.field import sampling
from securevfl.field.sampling import Keystream
from securevfl.models.polynomial_network import expand
from securevfl.models.split import rows_of
from securevfl.protocols.base.registry import find_protocols, get_protocol
from securevfl.protocols.coded_split.protocol import CodedSplit
from securevfl.protocols.fedvs.protocol import FedVS
from securevfl.protocols.secagg_split.algorithm import Client
from securevfl.testing.runs import make

STREAM, DRAW, START = OwnEntropy.stream, vars(OwnEntropy)["draw"], Keystream._start
FIRST = CodedSplit.first_weights
P50 = 2**50 - 2**14 + 1


def cut_to(size):
    """Secret streams that depend on the first bytes of an entropy."""

    def stream(self, index, name, *keys):
        entropy = self.entropy[:size].ljust(32, b"\0")
        return STREAM(OwnEntropy(self.index, entropy), index, name, *keys)

    return stream


def without_the_last_key(self, index, name, *keys):
    return STREAM(self, index, name, *keys[:-1])


def of_another_generator(self, index, name, *keys):
    return np.random.Generator(np.random.PCG64(STREAM(self, index, name, *keys).integers(2**60)))


def half_drawn(cls, index):
    return cls(index, DRAW.__func__(cls, index).entropy[:16] * 2)


def begins_anew(self):
    """The edit of a review: the second gibibyte has the key of the first."""
    key = self._key
    START(self)
    self._key = key


def folded_key(self):
    START(self)
    self._key = hashlib.sha256(self._key[:2]).digest()


def never_goes_on(self):
    START(self)
    self._left = 1 << 40


def test_the_librarys_sources_have_no_fault():
    assert entropy_fault() == ""
    assert sampler_fault(P50, np.dtype(np.uint64)) == ""


@pytest.mark.parametrize("stream", [cut_to(2), cut_to(31), without_the_last_key,
                                    of_another_generator])  # fmt: skip
def test_streams_that_leave_something_out_are_found(monkeypatch, stream):
    monkeypatch.setattr(OwnEntropy, "stream", stream)
    assert "stream" in entropy_fault()


def test_entropy_of_fewer_bytes_is_found(monkeypatch):
    monkeypatch.setattr(OwnEntropy, "draw", classmethod(half_drawn))
    assert "not 32 bytes of the operating system" in entropy_fault()


def test_entropy_that_a_cluster_takes_from_the_clock_is_found(monkeypatch):
    def begun(store, index, *, restored):
        if restored:
            return begun_secrets(store, index, restored=True)
        secrets = OwnEntropy(index, hashlib.sha256(str(time.time_ns()).encode()).digest())
        if store is not None:
            store.new_entropy(secrets.entropy)
        return secrets

    monkeypatch.setattr(known_answers, "begun_secrets", begun)
    assert "not 32 bytes of the operating system" in entropy_fault()


def test_a_fault_of_one_bit_alone_is_found(monkeypatch):
    """Known answers of one entropy do not show it, as the bit is zero in half of them."""

    def stream(self, index, name, *keys):
        entropy = self.entropy[:-1] + bytes([self.entropy[-1] & 0xFE])
        return STREAM(OwnEntropy(self.index, entropy), index, name, *keys)

    monkeypatch.setattr(streams.OwnEntropy, "stream", stream)
    assert {bool(entropy_fault()) for _ in range(8)} == {True}


def test_entropy_of_an_earlier_run_is_found(monkeypatch):
    """The edit of a review: a run that begins anew has the first models of the one before."""
    new = CheckpointStore.new_entropy

    def once(self, entropy):
        if self.entropy() is None:
            new(self, entropy)

    def kept(store, index, *, restored):
        found = begun_secrets(store, index, restored=restored)
        return OwnEntropy(index, (store and store.entropy()) or found.entropy)

    monkeypatch.setattr(CheckpointStore, "new_entropy", once)
    assert "of an earlier one" in entropy_fault()  # one that comes back has another one's
    monkeypatch.setattr(known_answers, "begun_secrets", kept)
    assert "of an earlier one" in entropy_fault()


@pytest.mark.parametrize("start", [begins_anew, folded_key, never_goes_on])
def test_a_keystream_that_goes_on_otherwise_after_a_gibibyte_is_found(monkeypatch, start):
    monkeypatch.setattr(Keystream, "_start", start)
    assert "after a gibibyte" in sampler_fault(P50, np.dtype(np.uint64))


@pytest.mark.parametrize("aes", [True, False])
def test_long_streams_are_computed_by_other_code_under_all_their_keys(monkeypatch, aes):
    monkeypatch.setattr(sampling, "_REKEY", 4096)
    monkeypatch.setattr(known_answers, "_PER_KEY", 4096)
    key, found = bytes(range(32)), np.empty(10_000, np.uint8)
    Keystream(key, aes).fill(found)
    assert expanded(key, found.size, aes=aes) == found.tobytes()
    drawn = np.empty(2000, np.uint64)
    sampling.fill_uniform(P50, drawn, Keystream(key, aes))
    assert np.array_equal(elements(key, P50, drawn.dtype, drawn.size, aes=aes), drawn)


# -- verdicts ----------------------------------------------------------------------------------


def verdict():
    return judged(undisturbed())


def undisturbed():
    """Secure aggregation that is run once, with nobody late or absent."""
    subject = Subject(make("secagg_split"))
    subject.shared("settings", tuple)
    return subject


def judged(subject):
    return judge(subject.protocol.claims[0], subject, [Sources(), Hypotheses()])


def test_the_verdict_on_the_library_as_it_is():
    found = verdict()
    assert found.verdict == "HYPOTHESES HOLD"
    assert "each bit of which counts" in found.words
    assert "sources of secrets" in VERIFIERS.all()


@pytest.mark.parametrize(
    ("owner", "name", "edit", "words"),
    [
        (OwnEntropy, "stream", cut_to(2), "secret stream"),
        (Keystream, "_start", begins_anew, "after a gibibyte"),
    ],
)
def test_the_verdict_is_withheld(monkeypatch, owner, name, edit, words):
    subject = undisturbed()
    _ = subject.run
    monkeypatch.setattr(owner, name, edit)
    found = judged(subject)
    assert found.verdict == "NO VIOLATION FOUND"
    assert words in found.words


@pytest.mark.parametrize("protocol", ["fedvs", "coded_split", "secagg_split", "he_split"])
def test_first_weights_that_do_not_follow_from_the_entropy_are_found(monkeypatch, protocol):
    if protocol == "he_split":
        pytest.importorskip("tenseal")
    made = make(protocol)
    claim = next(one for one in made.claims if one.strength != "none")
    assert Sources().applies(claim, made)
    assert "gap" not in {one.bearing for one in examined(claim, made)}
    monkeypatch.setattr(streams.WithPlaceholders, "stream", from_the_name)
    found = [one.text for one in examined(claim, made) if one.bearing == "gap"]
    assert any("differ in the last byte alone" in one for one in found)


def apart(self, owner):
    """First weights on an entry of the embedding each: every sum is one client's."""
    values = FIRST(self, owner)
    values[:, np.arange(values.shape[1]) % self.data.parties != owner] = 0
    return values


def test_sums_of_one_client_alone_are_found(monkeypatch):
    made = make("coded_split", width=8)
    claim = next(one for one in made.claims if one.strength != "none")
    monkeypatch.setattr(CodedSplit, "first_weights", apart)
    found = [one.text for one in examined(claim, made) if one.bearing == "gap"]
    assert [one.startswith("to 8 of 8 entries of the summed embedding fewer") for one in found] == [
        True
    ]


def test_a_protocol_without_embeddings_is_examined_all_the_same():
    class Bare(get_protocol("secagg_split")):
        def embed(self, client, rows):
            return None

    made = make(Bare)
    claim = next(one for one in made.claims if one.strength != "none")
    assert "gap" not in {one.bearing for one in examined(claim, made)}


def test_another_row_than_was_asked_for_is_found(monkeypatch):
    def first_row_too(features, samples):
        rows = rows_of(features, samples)
        rows[0] = features[0]
        return rows

    features = make("secagg_split").data.train
    assert rows_fault(features) == ""
    monkeypatch.setattr(known_answers, "rows_of", first_row_too)
    assert "not those that are taken of a table" in rows_fault(features)


def test_keys_that_are_drawn_until_they_please_are_found(monkeypatch):
    made = make("secagg_split")
    claim = next(one for one in made.claims if one.strength != "none")
    subject = Subject(made)
    draw = Client.random_bytes

    def until_even(self):
        key = draw(self)
        while key[0]:  # so seldom that two runs hardly ever draw equally often
            key = draw(self)
        return key

    monkeypatch.setattr(Client, "random_bytes", until_even)
    words = [one.text for one in Sources().examine(claim, subject, seed=0, level=1e-7)
             if one.bearing == "gap"]  # fmt: skip
    assert any("what is used may be chosen" in one for one in words)


def from_the_name(self, index, name, *keys):
    """Streams below a party's own entropy that everybody can compute; it is asked all the same."""
    if index == self.own.index:
        self.own.stream(index, name, *keys)
    return streams.keyed_stream(0, index, name, *keys)


def examined(claim, made):
    return list(Sources().examine(claim, Subject(made), seed=0, level=1e-7))


@pytest.mark.parametrize("protocol", ["split", "dvfl", "wait_dp"])
def test_claims_that_rest_on_no_secret_choices_are_not_concerned(protocol):
    made = make(protocol)
    assert not any(Sources().applies(claim, made) for claim in made.claims)


def starting_with(first):
    """FedVS whose clients' first weights are ``first(common, own)``."""

    def network(self, index, **more):
        made = FedVS.network(self, index, **more)
        common = keyed_stream(self.seed, SERVER, "beginning").uniform(-1, 1, made.values.shape)
        made.values[:] = first(common.astype(np.float32), made.values)
        return made

    return type("Beginning", (FedVS,), {"network": network, "__doc__": "Planted leak."})


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (lambda common, own: np.vstack([own[:1], common[1:]]), "equal rows or columns"),
        (lambda common, own: np.hstack([common[:, :-1], own[:, -1:]]), "equal rows or columns"),
        (lambda common, own: common * (own != 0) + own / 100, "numbers that hardly differ"),
        (lambda common, own: common, "the same arrays"),
    ],
)
def test_first_weights_of_the_public_seed_are_found_where_a_part_is_secret(first, words):
    assert words in _alike(Subject(make(starting_with(first))), 0)


def test_entries_that_one_client_fills_but_for_the_rounding_are_found():
    def alone(common, own):
        scale = np.ones(own.shape[1], np.float32)
        scale[3:] = 1e-9
        return own * scale

    cls = starting_with(alone)
    network = cls.network
    cls.network = lambda self, index, **more: (network if index else FedVS.network)(
        self, index, **more
    )
    fault = _bare_at_first(Subject(make(cls)))
    assert fault.startswith("to 3 of 6 entries")
    assert fault.endswith("entry 3 is that of clients [0]")


@pytest.mark.parametrize("name", sorted(find_protocols()))
def test_sound_parties_have_no_array_that_is_partly_of_the_public_seed(name):
    subject = Subject(make(name))
    roles = subject.protocol.roles().values()
    assert [_alike(subject, numbers[0]) for numbers in roles if numbers] == [""] * sum(
        bool(numbers) for numbers in roles
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda powers: powers * (np.arange(len(powers))[:, None] % 16 != 15), "not all zero"),
        (lambda powers: powers + 0.25, "other numbers than its columns"),
        (lambda powers: powers / np.where(np.arange(len(powers)) % 9, 1, 64)[:, None], "other"),
    ],
)
def test_shared_columns_that_are_not_the_clients_are_found(monkeypatch, change, words):
    assert _altered_columns(make("fedvs", segments=2, degree=2)) == ""

    def changed(public, features, part):
        powers = change(expand(features, public.config.degree)).astype(np.float32)
        return public.batches[part].lay_out(public.data_point.quantize(powers)), 1

    monkeypatch.setattr("securevfl.protocols.fedvs.protocol.quantised_data", changed)
    cls = type("Changed", (FedVS,), {"check_sizes": lambda self: None, "__doc__": "Planted."})
    made = make(cls, segments=2, degree=2)
    assert words in _altered_columns(made)
