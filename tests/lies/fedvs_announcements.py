"""A server of FedVS that names sharers as it may not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from securevfl.engine.conditions import Conditions, Delay
from securevfl.engine.network import SERVER
from tests.lies.lie import Finding, Lie, Outcome, Size
from tests.lies.stage import PARTIES, LyingServer, play

Words = Callable[[LyingServer], dict[str, Any]]
LATE = 9  # a client that shares long after the attempt, where somebody must be absent
SLOW = Conditions(
    uploads=tuple(Delay(shift=1000.0 * (n == LATE)) for n in range(PARTIES)), share_factor=1.0
)


def names(words: Words) -> type[LyingServer]:
    """A server whose one attempt is as `words` say."""

    class Names(LyingServer):
        """Counts the clients that upload."""

        async def run(self) -> None:
            """One round."""
            uploads = await self.ask(self.rows(), **words(self))
            self.found["uploads"] = len(uploads) / len(self.peers)
            self.conclude()

    return Names


def uploads(words: Words, size: Size, **options: Any) -> Finding:
    """Share of clients that upload, of which an honest attempt has all."""
    played = play(size, names(words), **options)
    quantity = "share of clients that upload"
    value = played.found.get("uploads", 0.0)
    noticed = played.noticed()
    return Finding(quantity, value, 0.0, noticed)


def lie(name: str, does: str, limit: str, expected: Outcome,
        words: Words, **options: Any) -> Lie:  # fmt: skip
    """A lie of the server of FedVS about who is in an attempt."""
    measure: Callable[[Size], Finding] = functools.partial(uploads, words, **options)
    return Lie(f"fedvs: {name}", "fedvs", "server", does, limit, expected, measure)


CHECK = "clients check S and the label"
LIES = (
    lie("a life that is no number", "names a life that clients cannot compare", CHECK, "refused",
        lambda server: {"life": (0,)}),
    lie("a sharer many times", "names one client as all sharers", CHECK, "refused",
        lambda server: {"sharers": (3,) * 5}),
    lie("few sharers", "names T+1 sharers", CHECK, "refused",
        lambda server: {"sharers": (3, 4)}),
    lie("itself as a sharer", "names itself as a sharer", CHECK, "refused",
        lambda server: {"sharers": (3, 4, SERVER)}),
    lie("nobody as a sharer", "names a client that does not exist", CHECK, "refused",
        lambda server: {"sharers": (3, 4, PARTIES)}),
    lie("an absent sharer", "names a client as sharer that has not shared",
        "clients wait for the share", "nothing",
        lambda server: {"sharers": (3, 4, LATE)}, conditions=SLOW),
)  # fmt: skip
