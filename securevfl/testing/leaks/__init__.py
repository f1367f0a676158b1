"""A zoo of leaks: protocols with one fault each, and sound variants that nobody may blame.

`all_leaks` and `sound_variants` are public, so that a verifier of one's own can be tried on them.
They were written without looking at the verifiers, but for those of `declared_contents`,
`followed_states`, `acts` and `beginnings`, which came with the checks that find them, and
`disguises`, which was written against them. Not for use outside tests.
"""

from __future__ import annotations

from securevfl.testing.leaks.planting import ACCUSED, ENDORSED, WITHHELD, Leak, Variant


def all_leaks() -> tuple[Leak, ...]:
    """Every leak, by protocol."""
    from securevfl.testing.leaks import (
        acts,
        beginnings,
        choices,
        declared,
        declared_contents,
        declared_parts,
        disguises,
        encrypted,
        fedvs_masks,
        fedvs_messages,
        fedvs_options,
        followed_states,
        label_channels,
        labels,
        noise,
        primitives,
        shared_models,
        structured_noise,
    )
    from securevfl.testing.leaks.outsider import (
        beside_messages,
        coded_shares,
        library_parts,
        other_methods,
        prepared_tables,
        rare_events,
        states,
        swapped_parts,
        unwatched,
        without_code,
        wrapped_makers,
    )
    from securevfl.testing.leaks.third_party import (
        more_surroundings,
        own_protocols,
        rare,
        replaced_packages,
        researcher,
        surroundings,
        watched,
    )

    of_fedvs = (fedvs_messages, fedvs_masks, fedvs_options, declared, declared_parts, choices)
    methods = (primitives, structured_noise, label_channels, declared_contents, followed_states)
    others = (encrypted, noise, labels, shared_models, *methods)
    second = (rare_events, beside_messages, states, library_parts, coded_shares, other_methods)
    third = (prepared_tables, unwatched, swapped_parts, without_code, wrapped_makers)
    fourth = (surroundings, more_surroundings, watched, rare, replaced_packages, own_protocols)
    fifth = (disguises, researcher)
    every = (*of_fedvs, *others, *second, *third, acts, beginnings, *fourth, *fifth)
    return tuple(one for module in every for one in module.LEAKS)


def sound_variants() -> tuple[Variant, ...]:
    """Every sound variant, by protocol."""
    from securevfl.testing.leaks import acts, disguises, harmless_changes
    from securevfl.testing.leaks.outsider import harmless_shapes, sound_neighbours
    from securevfl.testing.leaks.third_party import researcher, sound_packages

    first = (harmless_changes, harmless_shapes, sound_neighbours, acts, sound_packages)
    modules = (*first, disguises, researcher)
    return tuple(one for module in modules for one in module.VARIANTS)


__all__ = ["ACCUSED", "ENDORSED", "WITHHELD", "Leak", "Variant", "all_leaks", "sound_variants"]
