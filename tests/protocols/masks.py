"""Masks of secagg_split from bare secrets, as whoever has them computes them."""

import numpy as np

from securevfl.engine import wire
from securevfl.verified.parties import bytes_of, public_half
from tests.oracles.known_answers import derived_key, elements


def stream(protocol, seed, shape):
    """PRG(seed)."""
    field = protocol.field
    drawn = elements(seed, field.modulus, field.dtype, int(np.prod(shape)), aes=True)
    return drawn.reshape(shape)


def agreed(own, secret, other, key, round):
    """s_{u,v}: X25519 and HKDF-SHA256, bound to the round, both numbers and both keys."""
    from cryptography.hazmat.primitives.asymmetric import x25519

    private = x25519.X25519PrivateKey.from_private_bytes(secret)
    shared = private.exchange(x25519.X25519PublicKey.from_public_bytes(key))
    ends = sorted([(own, public_half(secret)), (other, key)])
    return derived_key(shared, wire.encode(("securevfl secagg pair 1", round, ends)))


def pair_masks(protocol, own, secret, keys, shape, round=1):
    """Sum over v of +-PRG(s_{u,v}), of u's secret and all public keys."""
    field, total = protocol.field, np.zeros(shape, protocol.field.dtype)
    for v, key in keys.items():
        if v != own:
            mask = stream(protocol, agreed(own, secret, v, key, round), shape)
            total = (field.add if v < own else field.subtract)(total, mask)
    return total


def rebuild(protocol, shares):
    """A secret from the shares of t clients."""
    code = protocol.public.shamir
    limbs = code.decode(np.stack(list(shares.values())), tuple(shares), 1)[0]
    return bytes_of(limbs, protocol.field)
