"""Faults of links: each planted one is found, and the links of runs have none."""

import hashlib
import secrets
from contextlib import suppress

import pytest
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.ciphers.base import Cipher
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from securevfl.audit.subject import Subject
from securevfl.engine import wire
from securevfl.engine.security.sealing import OVERHEAD, Sealer
from securevfl.errors import SealError
from securevfl.testing.runs import make
from tests.oracles.powers import (
    changed_frames,
    link_faults,
    open_links,
    readdressed_frames,
    repeated_frames,
    restored_states,
    streams_that_meet,
)
from tests.oracles.sealed_links import SealedLinks

# Failure probability of this file: below 2^-94, that a keystream repeats by chance.


def key_of(*parts):
    """Cipher with a key that follows from these values."""
    return ChaCha20Poly1305(HKDF(SHA256(), 32, None, wire.encode(parts)).derive(b"planted"))


class Derived(Sealer):
    """A sealer whose keys follow from chosen things."""

    def agreed(self, sender, receiver):
        """What two parties agree on: the number, and both public keys in the link's order."""
        from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

        other = receiver if sender == self.index else sender
        theirs = self._public[other]
        shared = self._secret.exchange(X25519PublicKey.from_public_bytes(theirs))
        keys = (self.public, theirs) if sender == self.index else (theirs, self.public)
        return shared, *keys


class OneKeyForBothDirections(Derived):
    def _derive(self, sender, receiver):
        shared, *keys = self.agreed(sender, receiver)
        return key_of(shared, self.protocol, self.run, *sorted(keys), *sorted((sender, receiver)))


class ReflectsFrames(OneKeyForBothDirections):
    def _bound(self, sender, receiver, *message):
        return super()._bound(*sorted((sender, receiver)), *message)


class NamesNoParties(Derived):
    """Neither keys nor associated data name a link: who announces another's key is taken for it."""

    def _derive(self, sender, receiver):
        return key_of(self.protocol, self.run, *self.agreed(sender, receiver))

    def _bound(self, sender, receiver, *message):
        return super()._bound(0, 0, *message)


class KeyOfTheSenderAlone(Derived):
    """One key for all receivers, as where it is broadcast."""

    def _derive(self, sender, receiver):
        _, own, _ = self.agreed(sender, receiver)
        return key_of(self.protocol, self.run, own)


class KeyOfThePublicKeys(Derived):
    def _derive(self, sender, receiver):
        _, *keys = self.agreed(sender, receiver)
        return key_of(self.protocol, self.run, sender, receiver, *keys)


class KeyOfNamesAlone(Sealer):
    def _derive(self, sender, receiver):
        return key_of(self.protocol, self.run, sender, receiver)


class KeyOfNoRun(Derived):
    def _derive(self, sender, receiver):
        return key_of(self.protocol, sender, receiver, *self.agreed(sender, receiver))


class KeyOfNoProtocol(Derived):
    def _derive(self, sender, receiver):
        return key_of(self.run, sender, receiver, *self.agreed(sender, receiver))


class BindsNoParties(Sealer):
    def _bound(self, sender, receiver, *message):
        return super()._bound(0, 0, *message)


class BindsNoRun(Sealer):
    def _bound(self, sender, receiver, kind, round, epoch):
        return wire.encode((self.protocol, round, kind, sender, receiver, epoch))


class BindsNoProtocol(Sealer):
    def _bound(self, sender, receiver, kind, round, epoch):
        return wire.encode((self.run, round, kind, sender, receiver, epoch))


class BindsNoKind(Sealer):
    def _bound(self, sender, receiver, kind, round, epoch):
        return super()._bound(sender, receiver, "", round, epoch)


class BindsNoRound(Sealer):
    def _bound(self, sender, receiver, kind, round, epoch):
        return super()._bound(sender, receiver, kind, 0, epoch)


class BindsNoEpoch(Sealer):
    def _bound(self, sender, receiver, kind, round, epoch):
        return super()._bound(sender, receiver, kind, round, 0)


class BindsTwoBytesOfARound(Sealer):
    def _bound(self, sender, receiver, kind, round, epoch):
        return super()._bound(sender, receiver, kind, round % 2**16, epoch)


class BindsNumbersAsOneText(Sealer):
    """Writes round and epoch one after the other, with nothing between."""

    def _bound(self, sender, receiver, kind, round, epoch):
        return super()._bound(sender, receiver, f"{kind}{round}{epoch}", 0, 0)


class BindsNamesAsOneText(Sealer):
    def _bound(self, sender, receiver, kind, round, epoch):
        names = self.protocol + self.run
        return wire.encode((names, round, kind, sender, receiver, epoch))


class BeginsAnew(Sealer):
    """Its counter begins anew after so many frames."""

    PERIOD = 8

    def seal(self, receiver, *message):
        self._direction(self.index, receiver).next %= self.PERIOD
        return super().seal(receiver, *message)


class BeginsAnewAfterThreeThousand(BeginsAnew):
    PERIOD = 3000


class CounterOfTwoBytes(BeginsAnew):
    PERIOD = 2**16


class CounterOfFourBytes(BeginsAnew):
    PERIOD = 2**32


class CounterByChance(Sealer):
    BITS = 16

    def seal(self, receiver, *message):
        self._direction(self.index, receiver).next = secrets.randbits(self.BITS)
        return super().seal(receiver, *message)


class CounterByChanceOfEightBytes(CounterByChance):
    BITS = 63


class CounterOfThePayload(Sealer):
    """Equal payloads give equal frames, as where no counter is kept."""

    def seal(self, receiver, kind, round, epoch, payload):
        digest = hashlib.sha256(payload).digest()
        self._direction(self.index, receiver).next = int.from_bytes(digest[:7])
        return super().seal(receiver, kind, round, epoch, payload)


class CounterOfEachRound(Sealer):
    def seal(self, receiver, kind, round, *message):
        counts = self.__dict__.setdefault("counts", {})
        counts[receiver, round] = counts.get((receiver, round), -1) + 1
        self._direction(self.index, receiver).next = counts[receiver, round]
        return super().seal(receiver, kind, round, *message)


class CountsNoEmptyPayloads(Sealer):
    def seal(self, receiver, kind, round, epoch, payload):
        sealed = super().seal(receiver, kind, round, epoch, payload)
        self._direction(self.index, receiver).next -= not payload
        return sealed


class CountsAnewWhenIntroduced(Sealer):
    def add_peers(self, keys):
        super().add_peers(keys)
        self._outward.clear()


class NonceBesideTheCounter(Sealer):
    """Shows a counter that ascends, and encrypts under one nonce for eight frames in turn."""

    def _derive(self, sender, receiver):
        return _OneNonce(super()._derive(sender, receiver))


class _OneNonce:
    def __init__(self, cipher):
        self.cipher = cipher

    def few(self, nonce):
        return nonce[:4] + (int.from_bytes(nonce[4:], "little") // 8).to_bytes(8, "little")

    def encrypt(self, nonce, payload, data):
        return self.cipher.encrypt(self.few(nonce), payload, (data or b"") + nonce)

    def decrypt(self, nonce, body, data):
        return self.cipher.decrypt(self.few(nonce), body, (data or b"") + nonce)


class StreamsOverlap(Sealer):
    """The counter counts blocks of a stream, and advances by one for each frame of many."""

    def _derive(self, sender, receiver):
        return _OneStream(super()._derive(sender, receiver))


class _OneStream:
    def __init__(self, cipher):
        self.cipher = cipher
        self.key = cipher.encrypt(bytes(12), bytes(32), None)[:32]

    def crypt(self, nonce, text):
        rest, block = divmod(int.from_bytes(nonce[4:], "little"), 2**31)
        place = block.to_bytes(4, "little") + rest.to_bytes(12, "little")
        return Cipher(ChaCha20(self.key, place), None).encryptor().update(text)

    def encrypt(self, nonce, payload, data):
        body = self.crypt(nonce, payload)
        return body + self.cipher.encrypt(nonce, b"", data + body)

    def decrypt(self, nonce, body, data):
        self.cipher.decrypt(nonce, body[-16:], data + body[:-16])
        return self.crypt(nonce, body[:-16])


class TagOfFourBytes(Sealer):
    """Looks at the first bytes of the tag only."""

    def open(self, sender, kind, round, epoch, sealed):
        nonce, body = bytes(sealed[:8]).rjust(12, b"\0"), sealed[8:-16]
        cipher = self._direction(sender, self.index).cipher
        data = self._bound(sender, self.index, kind, round, epoch)
        payload = cipher.encrypt(nonce, body, data)[:-16]
        if cipher.encrypt(nonce, payload, data)[: len(body) + 4] != sealed[8 : len(body) + 12]:
            raise SealError("planted: a tag is wrong")
        whole = sealed[:8] + cipher.encrypt(nonce, payload, data)
        return super().open(sender, kind, round, epoch, whole)


class TagOfAnyLength(Sealer):
    """Takes a frame that lacks bytes at the end of its tag."""

    def open(self, sender, kind, round, epoch, sealed):
        for length in (16, 12, 8, 4):
            whole = self.completed(sender, kind, round, epoch, sealed, length)
            if whole is not None:
                return super().open(sender, kind, round, epoch, whole)
        return super().open(sender, kind, round, epoch, sealed)

    def completed(self, sender, kind, round, epoch, sealed, length):
        nonce, body, tag = bytes(sealed[:8]).rjust(12, b"\0"), sealed[8:-length], sealed[-length:]
        cipher = self._direction(sender, self.index).cipher
        data = self._bound(sender, self.index, kind, round, epoch)
        payload = cipher.encrypt(nonce, body, data)[:-16]
        whole = cipher.encrypt(nonce, payload, data)
        right = len(sealed) > 8 + length and whole[len(body) :].startswith(tag)
        return sealed[:8] + whole if right else None


class IgnoresWhatFollows(Sealer):
    """Takes a frame with bytes behind it: tries to open shorter and shorter ones."""

    def open(self, sender, kind, round, epoch, sealed):
        for end in range(len(sealed), max(OVERHEAD, len(sealed) - 2), -1):
            with suppress(SealError):
                return super().open(sender, kind, round, epoch, sealed[:end])
        raise SealError("planted: no beginning of it is right")


class ForgetsOldFrames(Sealer):
    """Remembers the last 1,024 counters only."""

    def open(self, sender, kind, round, epoch, sealed):
        direction = self._direction(sender, self.index)
        floor, counter = direction.next, int.from_bytes(sealed[:8], "little")
        if counter < floor - 1024:
            direction.next = counter
        try:
            return super().open(sender, kind, round, epoch, sealed)
        finally:
            direction.next = max(floor, direction.next)


class SealsAfterARestore(Sealer):
    """Goes on from the counters of the state."""

    def restore(self, state):
        super().restore(state)
        self._restored = False


class SealsAfterARestoreFarAhead(SealsAfterARestore):
    """Leaves a gap, which the broken run may have passed."""

    def restore(self, state):
        super().restore(state)
        for direction in self._outward.values():
            direction.next += 1000


class SealsAfterARestoreFromTheBeginning(SealsAfterARestore):
    def restore(self, state):
        super().restore(state)
        self._outward.clear()


class SealsToNewReceiversAfterARestore(Sealer):
    """Refuses only those to whom the state had sealed before."""

    def seal(self, receiver, *message):
        self._restored = self._restored and receiver in self._outward
        return super().seal(receiver, *message)


class SealsUnderAKeyOfTheState(SealsAfterARestore):
    """All copies of a state have one new key."""

    def _derive(self, sender, receiver):
        own = sender == self.index and hasattr(self, "later")
        return self.later if own else super()._derive(sender, receiver)

    def restore(self, state):
        super().restore(state)
        self.later = key_of(state["secret"])


class SealsUnderANewKeyAfterARestore(SealsUnderAKeyOfTheState):
    """A sound variant: what the state's key opens, and what it seals, have two keys."""

    def restore(self, state):
        super().restore(state)
        self.later = ChaCha20Poly1305(ChaCha20Poly1305.generate_key())


class ForgetsWhatItOpened(Sealer):
    """A restored state opens all frames again."""

    def restore(self, state):
        super().restore({**state, "floor": {}, "seen": {}})


TWICE = "a keystream is used twice"
ACCEPTED = "a frame is accepted"
BY_DATA = "by the associated data alone"
ONE_KEY = "where parties announce one key"
SEALS = "a restored state seals under a key that was used"
PLANTED = [
    (OneKeyForBothDirections, streams_that_meet, f"{TWICE} in both directions"),
    (OneKeyForBothDirections, readdressed_frames, f"{ACCEPTED} by its own sender by the key alone"),
    (ReflectsFrames, readdressed_frames, f"{ACCEPTED} by its own sender"),
    (BindsNoParties, readdressed_frames, f"{ACCEPTED} on another link {BY_DATA}"),
    (NamesNoParties, readdressed_frames, f"{ACCEPTED} on another link {ONE_KEY}"),
    (BeginsAnew, streams_that_meet, f"{TWICE} in one direction"),
    (SealsAfterARestore, restored_states, SEALS),
    (SealsAfterARestoreFarAhead, restored_states, SEALS),
    (SealsAfterARestoreFromTheBeginning, restored_states, SEALS),
    (SealsToNewReceiversAfterARestore, restored_states, SEALS),
    (SealsUnderAKeyOfTheState, restored_states, SEALS),
    (ForgetsWhatItOpened, restored_states, "what was opened before a state is accepted after it"),
    (KeyOfTheSenderAlone, streams_that_meet, f"{TWICE} with a third party"),
    (KeyOfThePublicKeys, changed_frames, "a frame is accepted that was made from public keys"),
    (KeyOfNamesAlone, streams_that_meet, f"{TWICE} under a new key"),
    (KeyOfNoRun, streams_that_meet, f"{TWICE} in another run"),
    (KeyOfNoProtocol, streams_that_meet, f"{TWICE} in another protocol"),
    (BindsNoRun, readdressed_frames, f"{ACCEPTED} in another run {BY_DATA}"),
    (BindsNoProtocol, readdressed_frames, f"{ACCEPTED} in another protocol {BY_DATA}"),
    (BindsNamesAsOneText, readdressed_frames, f"{ACCEPTED} where names are as one text {BY_DATA}"),
    (BindsNoKind, readdressed_frames, f"{ACCEPTED} as 'mask' of round 3, epoch 10"),
    (BindsNoRound, readdressed_frames, f"{ACCEPTED} as 'model' of round 4, epoch 10"),
    (BindsNoEpoch, readdressed_frames, f"{ACCEPTED} as 'model' of round 3, epoch 11"),
    (BindsTwoBytesOfARound, readdressed_frames, f"{ACCEPTED} as 'model' of round 65539, epoch 10"),
    (BindsNumbersAsOneText, readdressed_frames, f"{ACCEPTED} as 'model' of round 31, epoch 0"),
    (BeginsAnewAfterThreeThousand, streams_that_meet, f"{TWICE} in one direction"),
    (CounterOfTwoBytes, streams_that_meet, f"{TWICE} in one direction"),
    (CounterOfFourBytes, streams_that_meet, f"{TWICE} in one direction"),
    (CounterByChance, streams_that_meet, f"{TWICE} in one direction"),
    (CounterByChanceOfEightBytes, streams_that_meet, "a counter does not ascend"),
    (CounterOfThePayload, streams_that_meet, f"{TWICE} in one direction"),
    (CounterOfEachRound, streams_that_meet, f"{TWICE} in one direction"),
    (CountsNoEmptyPayloads, streams_that_meet, "a counter does not ascend"),
    (CountsAnewWhenIntroduced, streams_that_meet, f"{TWICE} in one direction"),
    (NonceBesideTheCounter, streams_that_meet, f"{TWICE} in one direction"),
    (StreamsOverlap, streams_that_meet, f"{TWICE} in one direction"),
    (TagOfFourBytes, open_links, "a flipped bit in the tag is accepted"),
    (TagOfAnyLength, changed_frames, "a frame that was cut or lengthened is accepted"),
    (IgnoresWhatFollows, changed_frames, "a frame that was cut or lengthened is accepted"),
    (ForgetsOldFrames, repeated_frames, "a frame is accepted twice"),
]  # fmt: skip


@pytest.mark.parametrize(("planted", "check", "fault"), PLANTED)
def test_planted_faults_are_found(planted, check, fault):
    assert fault in check(planted)


@pytest.mark.parametrize("planted", dict.fromkeys(planted for planted, _, _ in PLANTED))
def test_planted_links_carry_messages_like_real_ones(planted):
    one, two = (planted("fedvs", "run", index) for index in (0, 1))
    for sealer in (one, two):
        sealer.add_peers({0: one.public, 1: two.public})
    for payload in (b"x", bytes(range(200))):
        sealed = one.seal(1, "model", 1, 0, payload)
        assert len(sealed) == len(payload) + OVERHEAD
        assert two.open(0, "model", 1, 0, sealed) == payload


@pytest.mark.parametrize("sound", [Sealer, Derived, SealsUnderANewKeyAfterARestore])
def test_sound_links_have_no_fault(sound):
    assert link_faults(sound) == []


def test_the_verifier_accuses_links_with_a_fault(monkeypatch):
    (support,) = SealedLinks().examine(None, Subject(make("split")), seed=0, level=0.01)
    assert support.effect == "supports"
    monkeypatch.setattr("tests.oracles.sealed_links.Sealer", OneKeyForBothDirections)
    found = list(SealedLinks().examine(None, Subject(make("split")), seed=0, level=0.01))
    assert found
    assert {evidence.effect for evidence in found} == {"accuses"}
