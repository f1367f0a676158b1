"""Table of planted leaks of message content: what catches each, and the line that says so.

Write it anew after a change of the words of a verdict::

    python -m tests.verified.leaks

The tests of these leaks compare; `docs/proof.md` has the numbers. An outsider's leaks are those of
`tests.outsider`, the referee's those of `tests.verified.test_referee`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from securevfl.verified import SERVER, FlowError, World, decide
from securevfl.verified.rules import problems

TABLE = Path(__file__).parent / "leaks.tsv"
NOT_CLAIMED = ("NOT PROTECTED", "DP")
OUTPUTS = r"tell of .* alone|no function of inputs"
RUNS = r"ended in an error|gave two results|gives another result"


def caught(verdict: str, text: str) -> str:
    """The kind of what catches a leak; "rank" is the algebra of moves."""
    if verdict in NOT_CLAIMED:
        return "not claimed"
    if re.match(r"\w+\.py:\d+: ", text):
        return "rule"
    if text.startswith("where "):
        return "schedule"
    if re.search(OUTPUTS, text):
        return "outputs"
    if re.search(RUNS, text):
        return "run again"
    return "type" if verdict == "TYPE" else "rank"


def line(verdict: str, text: str) -> tuple[str, str]:
    """What catches a leak, and the beginning of what is printed, without what is drawn."""
    said = " ".join(text.partition("; with ")[0].split())
    said = re.sub(r"-?\d{4,}", "...", said)
    said = re.sub(r"(?<!author)\.py:\d+: ", ".py: line ...: ", said)  # of the example, which moves
    word = "" if verdict in ("TYPE", "RULE", *NOT_CLAIMED) else f"{verdict}: "
    return caught(verdict, text), f"{word}{said}"[:130].rstrip()


def of(run: Callable[[], tuple[str, str]]) -> tuple[str, str]:
    """The line of a leak that is run."""
    try:
        return line(*run())
    except FlowError as error:
        return line("TYPE", str(error))


def agrees(who: str, name: str, verdict: str, text: str) -> None:
    """Check that a leak is caught as the table says.

    Raises
    ------
    AssertionError
    """
    kept = {(row[0], row[1]): row[2:] for row in read()}
    assert line(verdict, text) == kept[who, name], "python -m tests.verified.leaks writes it anew"


def on(program: Callable[[], Any]) -> Callable[[], tuple[str, str]]:
    """A leak that is a program: the verdict on its coalition."""

    def run() -> tuple[str, str]:
        found = decide(*program())
        return found.verdict, found.text or found.scope

    return run


def changed(change: Any) -> tuple[str, str]:
    """A leak that is a change of the example."""
    import tempfile

    import pytest

    from tests.outsider.test_second import verdict_of

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        verdict, text = verdict_of(change, patch, Path(folder))
    return ("TYPE" if verdict == "refused" else verdict), text


def disturbed(cls: Any, claim: str, *schedules: str) -> tuple[str, str]:
    """A leak that some schedules show."""
    import pytest

    from tests.verified.test_schedules import proof_of

    with pytest.MonkeyPatch.context() as patch:
        found = {v.claim: v for v in proof_of(patch, cls, *schedules).verdicts}
    return found[claim].verdict, found[claim].text


def sent_as_it_is() -> tuple[World, set[int]]:
    """An embedding that a method sends by intent."""
    world = World()
    alice, _ = world.party(0), world.party(SERVER)
    x = world.secret(0, "embedding", (2, 2))
    alice.send(SERVER, "embedding", x)
    world.output("embedding of party 0", world.spec(x), to=[SERVER], alone=True)
    return world, {SERVER}


def released() -> tuple[World, set[int]]:
    """Rows with noise that is small: a price, and no proof."""
    world = World()
    alice, _ = world.party(0), world.party(SERVER)
    x = world.secret(0, "x", (2, 2), real=True)
    alice.send(SERVER, "up", alice.gaussian(x.clip(1.0), 0.1))
    return world, {SERVER}


def leaks() -> Iterator[tuple[str, str, Callable[[], tuple[str, str]]]]:
    """Who planted it, its name, and how it is run."""
    from tests.outsider import second
    from tests.outsider.programs import LEAKING
    from tests.verified import test_referee, test_rules, test_schedules

    for leak in test_referee.LEAKS:

        def referee(leak: Any = leak) -> tuple[Any, set[int]]:
            s = test_referee.start()
            leak(s)
            return s.world, {SERVER}

        yield "referee", leak.__name__, on(referee)
    for name, program in LEAKING.items():
        yield "outsider", name, on(program.run)
    for one in second.LEAKS:
        yield "second outsider", one.name, on(lambda one=one: (one.make(), one.coalition))
    for change in second.CHANGES:
        yield "second outsider", change.name, partial(changed, change)
    for name, leak in test_schedules.LEAKS.items():
        yield "schedules", name, partial(disturbed, *leak)
    for program in (sent_as_it_is, released):
        yield "declared", program.__name__, on(program)
    for name, source in test_rules.BAD.items():
        yield "author's module", name, lambda s=source: ("RULE", problems(s, "author.py")[0])


def table() -> list[tuple[str, str, str, str]]:
    """All of them, run."""
    return [(who, name, *of(run)) for who, name, run in leaks()]


def read() -> list[tuple[str, ...]]:
    """The table that is kept."""
    return [tuple(row.split("\t")) for row in TABLE.read_text().splitlines()]


if __name__ == "__main__":
    rows = table()
    TABLE.write_text("".join("\t".join(row) + "\n" for row in rows))
    print(Counter(by for _, _, by, _ in rows))  # noqa: T201
