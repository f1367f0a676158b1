"""A zoo of leaks that an honest author can write: protocols with one fault each, one a cause.

`all_leaks` has them, and `sound_variants` protocols that were changed and that nobody may blame.
They were written without looking at the verifiers. Methods that are proved have none here:
tests/outsider has programs with faults, each NOT PROVED.
"""

from __future__ import annotations

from tests.zoo.planting import ACCUSED, ENDORSED, WITHHELD, Leak, Variant


def all_leaks() -> tuple[Leak, ...]:
    """Every leak, by protocol."""
    from tests.zoo import labels, researcher

    every = (labels, researcher)
    return tuple(one for module in every for one in module.LEAKS)


def sound_variants() -> tuple[Variant, ...]:
    """Every sound variant, by protocol."""
    from tests.zoo import harmless_changes, researcher

    return (*harmless_changes.VARIANTS, *researcher.VARIANTS)


__all__ = ["ACCUSED", "ENDORSED", "WITHHELD", "Leak", "Variant", "all_leaks", "sound_variants"]
