"""A zoo of leaks that an honest author can write: protocols with one fault each, one a cause.

`all_leaks` has them, and `sound_variants` protocols that were changed and that nobody may blame.
They were written without looking at the verifiers, but for those of `declared_contents` and
`beginnings`, which came with the checks that find them.
"""

from __future__ import annotations

from tests.zoo.planting import ACCUSED, ENDORSED, WITHHELD, Leak, Variant


def all_leaks() -> tuple[Leak, ...]:
    """Every leak, by protocol."""
    from tests.zoo import (
        beginnings,
        beside_messages,
        choices,
        declared,
        declared_contents,
        declared_parts,
        fedvs_masks,
        fedvs_messages,
        fedvs_options,
        label_channels,
        labels,
        rare_events,
        researcher,
        states,
        values_of_classes,
    )

    of_fedvs = (fedvs_messages, fedvs_masks, fedvs_options, declared, declared_parts, choices)
    methods = (label_channels, declared_contents)
    others = (labels, *methods)
    rest = (rare_events, beside_messages, states, values_of_classes)
    every = (*of_fedvs, *others, *rest, beginnings, researcher)
    return tuple(one for module in every for one in module.LEAKS)


def sound_variants() -> tuple[Variant, ...]:
    """Every sound variant, by protocol."""
    from tests.zoo import harmless_changes, researcher

    return (*harmless_changes.VARIANTS, *researcher.VARIANTS)


__all__ = ["ACCUSED", "ENDORSED", "WITHHELD", "Leak", "Variant", "all_leaks", "sound_variants"]
