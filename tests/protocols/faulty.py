"""Proofs of a method under some of its schedules, and with an honest mistake in its parties."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import securevfl.verified.traced.proofs as proofs
from securevfl.protocols.base.registry import get_protocol
from securevfl.verified.forms import Form
from securevfl.verified.prove import Prover
from securevfl.verified.schedules import UNDISTURBED, Schedule
from securevfl.verified.traced.proofs import Traced, check_certificate, prove_protocol
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


def unasked(prover: Prover, form: Form) -> str:
    """Nothing, for `Prover._violated`, in tests that do not ask for NOT PROVED or VIOLATED.

    The search for two inputs that tell them apart takes most of the time of a refusal.
    """
    return ""


def verdicts_on(
    claims: Sequence[str], name: str, options: Mapping[str, Any], **sizes: int
) -> list[Verdict]:
    """Verdicts on these claims alone where nobody is late: where a leak is, each one is dear."""
    world = Traced(name, dict(options), **sizes).run()
    coalitions = {who(one): one for one in world.coalitions}
    judge = Judge(world, runs=2)
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


def checked_here(path: Path) -> tuple[dict[str, str], str]:
    """Answers on each claim of a certificate, as another process gives them, from this one."""
    found = check_certificate(path)
    return {",".join(map(str, some)): why or "" for some, why in found.items()}, ""


@contextmanager
def schedules_of_each_kind(name: str, *, apart: Sequence[int] = ()) -> Iterator[dict[str, int]]:
    """Let a method be proved under the first schedule of each kind; how many each stands for.

    Clients stand for one another, but for those in `apart`. A proof decides on every coalition, so
    with another client late, down or back it finds the same of coalitions of the same kind.
    """
    method: Any = get_protocol(name)
    every, number = method.schedules, dict[str, int]()

    def first(made: Any) -> tuple[Schedule, ...]:
        found: dict[Any, list[Schedule]] = {}
        for one in every(made):
            found.setdefault(_kind(one, apart), []).append(one)
        number.update((some[0].name, len(some)) for some in found.values())
        return tuple(some[0] for some in found.values())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method, "schedules", first)
        patch.setattr(proofs, "_elsewhere", checked_here)
        yield number


def _kind(one: Schedule, apart: Sequence[int]) -> Any:
    """What a schedule does to parties, whichever of the clients that are alike it does it to."""
    done: dict[int, list[Any]] = {n: [slow] for n, slow in enumerate(one.uploads)}
    for outage in one.outages:
        assert isinstance(outage.entity, int)
        done.setdefault(outage.entity, []).append((outage.rounds, outage.seconds))
    parties = ((n if n < 0 or n in apart else "a client", what) for n, what in done.items())
    return repr((sorted(map(repr, parties)), one.sharing))
