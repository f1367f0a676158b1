"""Proofs of a method under some of its schedules, and with an honest mistake in its parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

import securevfl.verified.traced.proofs as proofs
from securevfl.protocols.base.registry import get_protocol
from securevfl.verified.prove import Prover
from securevfl.verified.schedules import UNDISTURBED
from securevfl.verified.traced.proofs import Traced, prove_protocol
from securevfl.verified.verdicts import CLEAR, DP, PROVED, Judge, Verdict, who


def proof_under(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    options: Mapping[str, Any],
    schedules: Sequence[str] | None = None,
    change: Callable[[type, pytest.MonkeyPatch], None] | None = None,
    claims: Sequence[str] = (),
    **sizes: int,
) -> Any:
    """A proof under the undisturbed schedule and those whose names are given; all for None.

    `change` plants a mistake, in a class of the protocol that is made for it. Of `claims` alone, if
    some are named.
    """
    before: Any = get_protocol(name)

    class Changed(before):
        __module__ = before.__module__  # the library's rules are for its own modules

        def schedules(self) -> tuple[Any, ...]:
            found = super().schedules()
            if schedules is None:
                return found
            some = tuple(one for one in found if one.name in schedules)
            assert len(some) == len(schedules)
            return (UNDISTURBED, *some)

        def coalitions(self) -> tuple[frozenset[int], ...]:
            every: tuple[frozenset[int], ...] = super().coalitions()
            some = tuple(one for one in every if who(one) in claims)
            assert len(some) == len(claims)
            return some or every

    with monkeypatch.context() as patch:
        if change is not None:
            change(Changed, patch)
        patch.setattr(proofs, "get_protocol", lambda _: Changed)
        return prove_protocol(Traced(name, dict(options), **sizes), fresh=False)


def verdicts_on(
    claims: Sequence[str], name: str, options: Mapping[str, Any], **sizes: int
) -> list[Verdict]:
    """Verdicts on these claims alone where nobody is late: where a leak is, each one is dear."""
    world = Traced(name, dict(options), **sizes).run()
    coalitions = {who(one): one for one in world.coalitions}
    judge = Judge(world, runs=2)
    with pytest.MonkeyPatch.context() as patch:
        # Whether it is NOT PROVED or VIOLATED takes most of the time, and no test asks.
        patch.setattr(Prover, "_violated", lambda prover, form: "")
        return [judge.decide(coalitions[claim]) for claim in claims]


def verdict_on(claim: str, name: str, options: Mapping[str, Any], **sizes: int) -> Verdict:
    """`verdicts_on` one claim."""
    return verdicts_on([claim], name, options, **sizes)[0]


def weak(found: Any) -> dict[str, set[str]]:
    """Claims without a certificate, by schedule."""
    return {
        name: {v.claim for v in found.found[digest] if v.verdict not in (PROVED, DP, CLEAR)}
        for name, digest in found.traces.items()
    }
