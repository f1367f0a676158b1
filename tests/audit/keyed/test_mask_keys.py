"""Keys of masks are fresh, of one run, and used for its sums alone."""

import hashlib
import os

import numpy as np
import pytest

from securevfl.audit import randomness
from securevfl.audit.followed_runs import follow
from securevfl.audit.keyed.mask_keys import Asked, MaskKeys, faults_of_keys, watch_streams
from securevfl.audit.recording.recorded_run import RecordedMessage, Snapshot
from securevfl.audit.subject import Subject
from securevfl.audit.traffic.setting import ITSELF
from securevfl.audit.verifiers.provenance import Provenance
from securevfl.engine import wire
from securevfl.field import prss
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.registry import get_protocol
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.testing.runs import make

FEDVS = {"rounds": 3, "batch": 20, "segments": 1}
ALL = (0, 1, 2, 3, 4, 5)


def planted(wrap):
    """FedVS with clients that `wrap` changes."""
    base = get_protocol("fedvs")

    def parties(self):
        made = base.parties(self)
        for n, client in made.items():
            if n >= 0:
                wrap(client)
        return made

    return type("Planted", (base,), {"parties": parties, "__doc__": "Planted leak."})


def faults(wrap):
    return follow(make(planted(wrap), **FEDVS), ITSELF).mask_keys


def test_keys_of_a_sound_run_have_no_fault():
    assert faults(lambda client: None) == ()


def test_a_key_of_an_earlier_run_is_another_runs():
    old = {n: os.urandom(32) for n in ALL}  # fresh, but not of this run

    def wrap(client):
        client.secret_bytes = lambda count: old[client.index]

    assert any("32 fresh bytes of the run" in one for one in faults(wrap))


def test_a_key_for_two_blocks_is_a_fault():
    def wrap(client):
        draw, kept = client.secret_bytes, []

        def secret_bytes(count):
            kept.append(kept[0] if kept else draw(count))
            return kept[-1]

        client.secret_bytes = secret_bytes

    found = faults(wrap)
    assert "a key of masks is another one" in found
    assert any("were used before" in one for one in found)


def test_a_key_that_nobody_drew_is_a_fault():
    def wrap(client):
        rho = client.rho

        def other(told, shape):
            client.keys = {place: bytes(32) for place in client.keys}
            return rho(told, shape)

        client.rho = other

    assert any("that no client drew in the run" in one for one in faults(wrap))


def test_a_label_that_was_not_announced_is_a_fault():
    def wrap(client):
        rho = client.rho
        client.rho = lambda told, shape: rho(b"one label for all rounds", shape)

    assert "keys are asked for 1 labels that are none of the run's sums" in faults(wrap)


def keys_of_one_round():
    """Keys, and uploads of client 0 in round 1, of which nobody asked a label yet."""
    protocol = make("fedvs", **FEDVS)
    keys = MaskKeys(protocol)
    for client in ALL:
        drawn = [os.urandom(32) for _ in protocol.prss.dealt(client)]
        own = next(one for one in protocol.messages if one.kind == "own-keys")
        take(keys, "own-keys", client, drawn, own)
    batch = Batch("train", np.arange(3, dtype=np.uint32))
    take(keys, "round", -1, batch)
    take(keys, "attempt", -1, Attempt(ALL))
    take(keys, "attempt", -1, Attempt(ALL, life=7))  # of a server that came back
    labels = [
        hashlib.sha256(protocol.told(1, batch, one)).digest()
        for one in (Attempt(ALL), Attempt(ALL, life=7))
    ]
    return protocol, keys, randomness.Log(keys=list(keys.drawn)), labels


def test_two_uploads_of_one_label_are_a_fault():
    _, keys, log, labels = keys_of_one_round()
    one, two = (
        Asked({(key, label): {4} for key in keys.drawn for label in some})
        for some in (labels[:1], labels)
    )
    take(keys, "embedding", 0, np.zeros(3))
    take(keys, "embedding", 0, np.zeros(3))  # again, with the same bytes
    assert list(keys.faults(log, one)) == []
    take(keys, "embedding", 0, np.ones(3))
    fault = "client 0 has 2 uploads in round 1, and its keys were asked for 1 labels"
    assert list(keys.faults(log, one)) == [fault]
    assert list(keys.faults(log, two)) == []


def test_a_label_counts_only_where_each_key_of_the_client_was_asked_for_it():
    protocol, keys, log, labels = keys_of_one_round()
    take(keys, "embedding", 0, np.zeros(3))
    take(keys, "embedding", 0, np.ones(3))
    asked = Asked({(key, label): {4} for key in keys.drawn for label in labels})
    place = next(A for A in range(len(protocol.prss.blocks)) if 0 not in protocol.prss.blocks[A])
    every = [one for n in ALL for one in protocol.prss.dealt(n)]
    key = keys.drawn[every.index(place)]
    del asked.sizes[key, labels[1]]
    assert any("were asked for 1 labels" in one for one in keys.faults(log, asked))


def take(keys, kind, sender, payload, spec=None):
    receiver = sender if spec else (0 if sender < 0 else -1)
    key = MessageKey(kind, 0 if spec else 1, sender, receiver)
    keys.take(RecordedMessage(key, wire.encode(payload), Snapshot({"once": {}})), spec)


@pytest.mark.parametrize("drawn", [[], [b"short"], [bytes(32)] * 2])
def test_keys_of_another_number_length_or_origin_are_faults(drawn):
    assert list(faults_of_keys(drawn, 1, randomness.Log()))


def test_two_sizes_under_one_label_are_seen():
    with watch_streams() as asked:
        for size in (4, 5):
            prss.fill_stream(2**31 - 1, np.empty(size, np.uint32), bytes(32), b"label")
    assert list(asked.sizes.values()) == [{4, 5}]
    keys = MaskKeys(make("fedvs", **FEDVS))
    assert any("two sizes" in one for one in keys.faults(randomness.Log(), asked))


def test_streams_of_two_labels_that_begin_alike_are_seen(monkeypatch):
    fill = prss.fill_stream
    monkeypatch.setattr(prss, "fill_stream", lambda p, out, key, label: fill(p, out, key, b""))
    with watch_streams() as asked:
        for label in (b"one", b"one", b"other"):
            assert not asked.repeated
            prss.fill_stream(2**31 - 1, np.empty(20, np.uint32), bytes(32), label)
    assert asked.repeated
    keys = MaskKeys(make("fedvs", **FEDVS))
    assert any("begin alike" in one for one in keys.faults(randomness.Log(), asked))


def test_a_fault_of_keys_takes_the_proof_of_claims_against_the_server_alone():
    def wrap(client):
        client.secret_bytes = lambda count, n=client.index: bytes([n]) * count

    subject = Subject(make(planted(wrap), **FEDVS))

    def bearings(who):
        claim = Claim(who, "features", "perfect", "")
        found = Provenance().examine(claim, subject, seed=0, level=1e-7)
        return [one.bearing for one in found]

    assert bearings("server") == ["proof", "gap"]
    assert bearings("T clients") == ["proof"]


def test_a_label_of_two_sums_is_a_fault(monkeypatch):
    """Clients and formulas ask for masks by one function, so that no message deviates."""
    own = Attempt.told

    def told(self, round, batch):
        return own(self, round, batch) if round < 2 else b"all later sums"

    monkeypatch.setattr(Attempt, "told", told)
    found = follow(make("fedvs", **FEDVS), ITSELF)
    assert not found.comparison.deviations
    assert any("stand for several announced sums" in one for one in found.mask_keys)
