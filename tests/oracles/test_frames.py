"""Frames of all sizes, kinds and lives: what is planted is found, the library has no fault."""

import os
import zlib

import pytest

from securevfl.audit.subject import Subject
from securevfl.engine import wire
from securevfl.engine.carriers.session import Session
from securevfl.engine.security.sealing import Sealer, Sealing
from securevfl.privacy.claims import link_claims
from securevfl.protocols.base.registry import find_protocols
from securevfl.testing.runs import make
from tests.oracles import frames, sealed_links, sealed_runs
from tests.oracles.frames import (
    DocumentedLink,
    keys_not_fresh,
    packed_otherwise,
    restored_simulations,
    sealed_otherwise,
    unverified_hellos,
)
from tests.oracles.sealed_links import SealedLinks
from tests.oracles.sealed_runs import run_sealed, talk_sealed
from tests.protocols.joint import three_hands

KINDS = ("embedding", "gradient", "labels")
SMALL = {"rounds": 6, "batch": 15, "width": 4}


def verdict(name):
    """Effects and words of the verifier on a claim against an outsider."""
    subject = Subject(make(name, three_hands(name), **SMALL))
    claim = link_claims(True)[0]
    return [
        (one.effect, one.text) for one in SealedLinks().examine(claim, subject, seed=0, level=0)
    ]


class OneNonceForLarge(Sealer):
    """Payloads of 4096 bytes and more are sealed and opened under the nonce 0."""

    def _derive(self, sender, receiver):
        return _OneNonce(super()._derive(sender, receiver))


class _OneNonce:
    def __init__(self, cipher):
        self.cipher = cipher

    def encrypt(self, nonce, payload, data):
        return self.cipher.encrypt(bytes(12) if len(payload) >= 4096 else nonce, payload, data)

    def decrypt(self, nonce, body, data):
        return self.cipher.decrypt(bytes(12) if len(body) >= 4096 + 16 else nonce, body, data)


class LabelsInTheClear(Sealer):
    """One kind is authenticated and not encrypted."""

    def seal(self, receiver, kind, round, epoch, payload):
        if kind != "labels":
            return super().seal(receiver, kind, round, epoch, payload)
        sealed = super().seal(receiver, kind, round, epoch, payload)
        tag = super().seal(receiver, kind, round, epoch, sealed + payload)
        return sealed[:8] + payload + tag[-16:]

    def open(self, sender, kind, round, epoch, sealed):
        if kind != "labels":
            return super().open(sender, kind, round, epoch, sealed)
        return sealed[8:-16]


class FewKeys(Sealer):
    """Private keys of 32 bits."""

    def __init__(self, protocol, run, index):
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

        super().__init__(protocol, run, index)
        self._secret = X25519PrivateKey.from_private_bytes(os.urandom(4) * 8)


class OldKeysAgain(Sealing):
    """A restored simulation goes on with keys and counters of its checkpoint."""

    def restore(self, state):
        super().restore(state)
        self._sealers, *self._earlier = self._earlier
        for sealer in self._sealers.values():
            sealer._restored = False


class LargeOpen(Session):
    """Pieces of more than 2^16 bytes also leave open, between processes."""

    def _seal(self, peer, link, kind, number, rest):
        sealed = super()._seal(peer, link, kind, number, rest)
        return sealed + rest[2] if len(rest[2]) > 2**16 else sealed


@pytest.mark.parametrize(
    ("sealer", "words"),
    [
        (OneNonceForLarge, "4096 bytes of 'embedding' is not as documented: it is of another key"),
        (LabelsInTheClear, "of 'labels' is not as documented: they are in the frame"),
    ],
)
def test_a_sealer_that_is_right_for_small_payloads_or_most_kinds_is_found(sealer, words):
    assert any(words in fault for fault in sealed_otherwise(sealer, "split", KINDS))
    assert not any("of 100 bytes of 'embedding'" in one
                   for one in sealed_otherwise(sealer, "split", KINDS))  # fmt: skip


def test_frames_of_the_library_are_as_documented():
    assert sealed_otherwise(Sealer, "split", KINDS) == []
    assert packed_otherwise("split", KINDS, Session) == []
    assert keys_not_fresh(Sealer) == []
    assert restored_simulations(Sealing) == []


class Trusting(Session):
    """Verifies the first introduction of a party alone."""

    def _new_link(self, peer):
        made = super()._new_link(peer)
        if self._attempts[peer] > 1:
            made.handshake.check = lambda theirs: None
        return made


def test_introductions_that_nobody_signed_are_found():
    assert unverified_hellos(Session) == []
    assert "of a party is believed unsigned" in unverified_hellos(Trusting)[0]


def test_private_keys_of_few_bits_are_found():
    [fault] = keys_not_fresh(FewKeys)
    assert fault == "a private key is not of 32 fresh bytes of the operating system"


def test_a_restored_simulation_with_its_old_keys_is_found():
    assert "a restored simulation seals under a key that was used" in restored_simulations(
        OldKeysAgain
    )


def test_large_frames_between_processes_that_are_not_sealed_are_found():
    faults = packed_otherwise("split", KINDS, LargeOpen)
    assert any("payload of" in one and "is in a datagram" in one for one in faults)
    assert not any(" 109 bytes" in one for one in faults)


def test_an_engine_that_goes_round_its_seals_is_found(monkeypatch):
    seal = Sealing.seal

    def sealing(self, sender, receiver, kind, round, epoch, payload):
        if round < 5:
            return seal(self, sender, receiver, kind, round, epoch, payload)
        return bytes(8) + payload + bytes(16)

    def opening(self, sender, receiver, kind, round, epoch, sealed, opened=Sealing.open):
        if round < 5:
            return opened(self, sender, receiver, kind, round, epoch, sealed)
        return sealed[8:-16]

    def each(self, sender, receivers, kind, round, epoch, payloads):
        for receiver, payload in zip(receivers, payloads, strict=True):
            yield sealing(self, sender, receiver, kind, round, epoch, payload)

    monkeypatch.setattr(Sealing, "seal", sealing)
    monkeypatch.setattr(Sealing, "seal_each", each)
    monkeypatch.setattr(Sealing, "open", opening)
    assert any("are no frame under the keys of its ends" in one
               for one in run_sealed(make("split", **SMALL)).faults)  # fmt: skip
    assert talk_sealed("split", KINDS).faults


def test_sizes_that_depend_on_columns_are_told(monkeypatch):
    encode, size = wire.encode, wire.size

    def packed(value, modulus=None):
        return zlib.compress(encode(value, modulus))

    def packed_size(value, depth=0, modulus=None):
        return size(value, depth, modulus) if depth else len(packed(value, modulus))

    subject = Subject(make("split", **SMALL))
    assert list(sealed_links._told_by_envelopes(subject)) == []
    monkeypatch.setattr("securevfl.engine.simulation.simulator.wire.size", packed_size)
    found = sealed_links._told_by_envelopes(Subject(make("split", **SMALL)))
    assert any("depends on columns or networks" in text for text in found)


def test_sizes_that_are_chance_hide_no_size_that_depends_on_columns(monkeypatch):
    """Embeddings have another size in every run, and gradients one that depends on columns."""
    runs = []

    def traffic(protocol):
        """The second run has other columns, the third the first one's, the fourth other labels."""
        runs.append(protocol)
        other = len(runs) == 2
        sent = [("embedding", 1, 0, -1, 100 + len(runs)), ("gradient", 1, -1, 0, 50 + 9 * other)]
        return tuple((*one, 0, 0) for one in sent)

    monkeypatch.setattr(sealed_links, "traffic_of", traffic)
    found = list(sealed_links._told_by_envelopes(Subject(make("split", **SMALL))))
    assert len(runs) == 4
    assert found == ["the size of 'gradient' depends on columns or networks, in round 1"]


@pytest.mark.parametrize(("changed", "told"), [(2, "columns or networks"), (4, "labels")])
def test_times_that_depend_on_columns_or_labels_are_told(monkeypatch, changed, told):
    runs = []

    def traffic(protocol):
        runs.append(protocol)
        later = 3 * (len(runs) == changed)
        return (("embedding", 1, 0, -1, 100, 5 + later, 9 + later),)

    monkeypatch.setattr(sealed_links, "traffic_of", traffic)
    if changed == 4:  # no run beyond that with other columns differs before
        runs.append(None)
    found = list(sealed_links._told_by_envelopes(Subject(make("split", **SMALL))))
    where = ": first 'embedding', in round 1"
    assert found == [f"number or times of messages depend on {told}{where}"]


class OpenLater(Session):
    """Frames of late incarnations are not sealed."""

    def _seal(self, peer, link, kind, number, rest):
        sealed = super()._seal(peer, link, kind, number, rest)
        return sealed if self.epoch < 3 else sealed[:30] + rest[2]


def test_frames_that_are_open_in_late_incarnations_are_found():
    faults = packed_otherwise("split", KINDS, OpenLater)
    assert any("does not arrive, or arrives changed, in round" in one for one in faults)
    assert not any(one.endswith("incarnation 1") for one in faults)


@pytest.mark.parametrize("name", sorted(find_protocols()))
def test_links_of_every_protocol_hold(name, monkeypatch):
    """Payloads of all lengths, and all rounds, for one; names alone are other ones for the rest."""
    if name == "he_split":
        pytest.importorskip("tenseal")
    if name != "split":
        for module in (frames, sealed_runs):
            monkeypatch.setattr(module, "LENGTHS", (0, 1, 100, 2**16 + 1))
        monkeypatch.setattr(sealed_runs, "_ROUNDS", (0, 1, 2, 2**16, 2**30))
        monkeypatch.setattr(sealed_links, "link_faults", lambda _: [])  # which name no protocol
    [(effect, text)] = verdict(name)
    assert effect == "supports", text
    assert "open by the keys of their ends" in text


def test_a_link_is_written_down_a_second_time():
    """Both directions of a pair, by the audit's own lines, open what the library seals."""
    one, two = Sealer("split", "run", 0), Sealer("split", "run", 1)
    for end in (one, two):
        end.add_peers({0: one.public, 1: two.public})
    sealed = one.seal(1, "embedding", 4, 2, b"payload")
    link = DocumentedLink.between(one, two)
    assert link.open("embedding", 4, 2, sealed) == b"payload"
    assert link.open("embedding", 5, 2, sealed) is None
    assert DocumentedLink.between(two, one).open("embedding", 4, 2, sealed) is None
