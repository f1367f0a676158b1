"""Damage for fuzzers: random bytes of a file, and random values of a TOML document."""

from __future__ import annotations

import random
from typing import Any

EXTREMES: tuple[Any, ...] = (
    *(0, 1, -1, 2, 63, 10**9, -(10**9), 2**31, 2**62, -(2**63)),
    *(0.0, -0.0, 0.5, 1e-300, -1e300, 1e300, 5e-324, 1.8e308, float("inf"), float("nan")),
    *(True, False, "", "server", "x", "\x1b]0;owned\x07", "=1+2", "../..", "none", "1e5", "é"),
    *([], [[]], [0], [1, 2, 3], [0, "server"], [1e300], ["a", 1], {}, {"a": 1}, {"": []}),
    *(10**4400, "a" * 5000, [1] * 300),
)


def damaged(data: bytes, rng: random.Random) -> bytes:
    """The bytes with one to five of them changed, inserted, removed, repeated, or cut off."""
    changed = bytearray(data)
    for _ in range(rng.randint(1, 5)):
        at = rng.randrange(len(changed) + 1)
        kind = rng.randrange(6)
        if kind == 0 and changed:
            changed[min(at, len(changed) - 1)] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0x22, 0x2C))
        elif kind == 1 and changed:
            changed[min(at, len(changed) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 2:
            changed[at:at] = rng.randbytes(rng.randint(1, 9))
        elif kind == 3:
            del changed[at : at + rng.randint(1, 9)]
        elif kind == 4:
            changed[at:at] = changed[max(0, at - 40) : at]
        elif rng.random() < 0.2:
            del changed[at:]
    return bytes(changed)


def varied(value: Any, rng: random.Random, chance: float = 0.15) -> Any:
    """A document with some of its values replaced by extremes, and some of its keys lost."""
    if rng.random() < chance:
        return rng.choice(EXTREMES)
    if isinstance(value, dict):
        kept = {k: varied(v, rng, chance) for k, v in value.items() if rng.random() > chance / 3}
        if rng.random() < chance:
            kept[rng.choice(("", "x", "format", *value))] = rng.choice(EXTREMES)
        return kept
    if isinstance(value, list):
        return [varied(item, rng, chance) for item in value if rng.random() > chance / 3]
    return value
