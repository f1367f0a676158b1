"""All verifiers by name: those of the library, and those that installed packages add."""

from __future__ import annotations

from collections.abc import Mapping

from securevfl.audit.verifiers.base import Verifier
from securevfl.plugins import Registry


def _built_in() -> Mapping[str, Verifier]:
    from securevfl.audit.verifiers.code_of_others import CodeOfOthers
    from securevfl.audit.verifiers.declaration import DeclaredMessages
    from securevfl.audit.verifiers.demonstration import SentInTheClear
    from securevfl.audit.verifiers.influence import Influence
    from securevfl.audit.verifiers.plaintext import PlainHistory, Plaintext
    from securevfl.audit.verifiers.released_sums import ReleasedSums
    from securevfl.audit.verifiers.traffic import TrafficComparison

    every: tuple[Verifier, ...] = (
        DeclaredMessages(),
        CodeOfOthers(),
        SentInTheClear(),
        Influence(),
        TrafficComparison(),
        Plaintext(),
        PlainHistory(),
        ReleasedSums(),
    )
    return {one.name: one for one in every}


#: An entry point of the group names an object that is a `Verifier`.
VERIFIERS: Registry[Verifier] = Registry(
    "securevfl.verifiers", "verifier", _built_in, lambda thing: isinstance(thing, Verifier)
)
