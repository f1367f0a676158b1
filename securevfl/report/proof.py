"""HTML page of a proof: each coalition's view, drawn, with the reason for each part."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from securevfl.report.page import rendered, script_of

if TYPE_CHECKING:
    from securevfl.verified.trace import Message, Trace
    from securevfl.verified.traced.proofs import Proof
    from securevfl.verified.verdicts import Verdict

_LANE, _ROW, _LEFT, _TOP, _LETTER = 84, 22, 190, 34, 7  # pixels; at most _LEFT for labels
_MOST = 60  # messages that are drawn of one coalition
#: What explains a message, in the words of the legend.
WAYS = {
    "uniform": "uniform: masked by a tape or stream that the coalition lacks",
    "follows": "follows from its own values, what is uniform, and the outputs",
    "open": "not explained",
}


@dataclass(frozen=True)
class Arrow:
    """A message in a drawing: row, both ends in pixels, explanation, and texts."""

    y: int
    start: int
    end: int
    way: str
    label: str
    title: str


@dataclass(frozen=True)
class Drawing:
    """A coalition's view drawn as messages between lanes; `more` messages are left out."""

    lanes: tuple[tuple[int, str, bool], ...]  # place, name, and whether the coalition has it
    arrows: tuple[Arrow, ...]
    more: int
    width: int
    height: int


def proof_page(proof: Proof, world: Trace) -> str:
    """Self-contained HTML page of a proof: no network, no tracking.

    Parameters
    ----------
    proof : Proof
        Verdicts and their certificates.
    world : Trace
        The run that was traced for it, in which nobody is late; it is the one that is drawn.
    """
    from securevfl._version import __version__
    from securevfl.verified.traced.proofs import NOT_COVERED, OUTPUTS_TELL

    return rendered(
        "proof.html",
        title=f"Proof of {proof.traced.protocol}",
        proof=proof,
        claims=[_claim(*two, world) for two in zip(proof.verdicts, proof.first, strict=True)],
        ways=WAYS,
        outputs_tell=OUTPUTS_TELL,
        not_covered=NOT_COVERED,
        version=__version__,
        **script_of(("theme.js",)),
    )


def _claim(whole: Verdict, verdict: Verdict, world: Trace) -> dict[str, Any]:
    """Page content of a coalition: its verdict over all schedules, one trace's view and steps."""
    some = frozenset(verdict.coalition)
    moves = [step for step in verdict.steps if step.what == "move"]
    others = [step for step in verdict.steps if step.what != "move"]
    return {
        "verdict": whole,
        "drawing": _drawn(verdict, world, some),
        "moves": moves,
        "others": others,
    }


def _drawn(verdict: Verdict, world: Trace, coalition: frozenset[int]) -> Drawing:
    """Drawing of a trace's messages with protected values from others to a coalition."""
    clients = sorted(n for n in world.members if n >= 0)
    order = [-1, *clients]
    seen = [m for m in world.messages if m.parts and m.seen_by(coalition)]
    left = min(_LEFT, 24 + _LETTER * max((len(_label(m)) for m in seen[:_MOST]), default=0))
    place = {n: left + _LANE * i + _LANE // 2 for i, n in enumerate(order)}
    arrows = [
        _arrow(row, message, place, _way(verdict, message))
        for row, message in enumerate(seen[:_MOST])
    ]
    names = tuple((place[n], "server" if n < 0 else f"client {n}", n in coalition) for n in order)
    height = _TOP + _ROW * (len(arrows) + 1)
    whole = left + _LANE * len(order)
    return Drawing(names, tuple(arrows), len(seen) - len(arrows), whole, height)


def _way(verdict: Verdict, message: Message) -> str:
    """Explanation of a message to the coalition: a key of `WAYS`."""
    words = str(message)
    if not verdict.sure:
        return "open" if words in verdict.messages or words in verdict.text else "follows"
    moved = any(step.what == "move" and step.text.startswith(words) for step in verdict.steps)
    return "uniform" if moved else "follows"


def _arrow(row: int, message: Message, place: dict[int, int], way: str) -> Arrow:
    y = _TOP + _ROW * (row + 1)
    edge = max(place.values()) + _LANE // 3
    end = edge if message.to is None else place[message.to]
    return Arrow(y, place[message.sender], end, way, _label(message), f"{message}: {WAYS[way]}")


def _label(message: Message) -> str:
    return f"{message.round} · {message.kind}"
