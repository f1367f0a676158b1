"""Sealers with one fault each, to show that tests of sealed links see it."""

from securevfl.engine.security.sealing import OVERHEAD, Sealer
from securevfl.errors import SealError

_COUNTER, _TAG = 8, 16  # of a sealed message, OVERHEAD together


class OpenSealer(Sealer):
    """Planted leak "sealing off": payloads travel in clear, and nothing is authenticated."""

    def seal(self, receiver: int, kind: str, round: int, epoch: int, payload: bytes) -> bytes:
        """Return the payload behind as many bytes as a seal has."""
        return bytes(OVERHEAD) + payload

    def open(self, sender: int, kind: str, round: int, epoch: int, sealed: bytes) -> bytes:
        """Return whatever came."""
        return sealed[OVERHEAD:]


class UnauthenticatedSealer(Sealer):
    """Planted leak: payloads are encrypted, and whatever comes is accepted."""

    def seal(self, receiver: int, kind: str, round: int, epoch: int, payload: bytes) -> bytes:
        """Return counter and ciphertext, with nothing in the place of the tag."""
        return super().seal(receiver, kind, round, epoch, payload)[:-_TAG] + bytes(_TAG)

    def open(self, sender: int, kind: str, round: int, epoch: int, sealed: bytes) -> bytes:
        """Return what the keystream makes of it: encrypting a ciphertext again is decrypting it."""
        nonce, body = sealed[:_COUNTER].rjust(12, b"\0"), sealed[_COUNTER:-_TAG]
        return self._direction(sender, self.index).cipher.encrypt(nonce, body, None)[:-_TAG]


class UnencryptedSealer(Sealer):
    """Planted leak: payloads are authenticated, and travel in clear."""

    def seal(self, receiver: int, kind: str, round: int, epoch: int, payload: bytes) -> bytes:
        """Return counter, payload, and the tag of an empty message that is bound to both."""
        tag = super().seal(receiver, kind, round, epoch, b"")
        nonce = tag[:_COUNTER].rjust(12, b"\0")
        tied = self._direction(self.index, receiver).cipher.encrypt(nonce, b"", payload)
        return tag[:_COUNTER] + payload + tied

    def open(self, sender: int, kind: str, round: int, epoch: int, sealed: bytes) -> bytes:
        """Return the payload, if its tag is right."""
        from cryptography.exceptions import InvalidTag

        nonce, payload = sealed[:_COUNTER].rjust(12, b"\0"), sealed[_COUNTER:-_TAG]
        try:
            self._direction(sender, self.index).cipher.decrypt(nonce, sealed[-_TAG:], payload)
        except InvalidTag:
            raise SealError("planted: a tag is wrong") from None
        return payload
