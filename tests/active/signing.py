"""A party that signs statements, outside of any run."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from securevfl.active.statements import Statement, signed


class Signer:
    """A party that makes statements with a secret of 32 bytes."""

    def __init__(self, secret):
        self._secret = Ed25519PrivateKey.from_private_bytes(secret)

    @property
    def public(self):
        return self._secret.public_key().public_bytes_raw()

    def state(self, subject, content):
        return Statement(subject, content, self._secret.sign(signed(subject, content)))
