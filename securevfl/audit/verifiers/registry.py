"""All verifiers by name: the library's, and those of installed packages."""

from __future__ import annotations

from collections.abc import Mapping

from securevfl.audit.verifiers.base import Verifier
from securevfl.plugins import Registry


def _built_in() -> Mapping[str, Verifier]:
    from securevfl.audit.verifiers.released_sums import ReleasedSums

    return {ReleasedSums.name: ReleasedSums()}


#: An entry point of the group names an object that is a `Verifier`.
VERIFIERS: Registry[Verifier] = Registry(
    "securevfl.verifiers", "verifier", _built_in, lambda thing: isinstance(thing, Verifier)
)
