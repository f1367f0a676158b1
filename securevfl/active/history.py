"""One story for all: a chain over everything that a server told, signed in each round.

h_t = H(h_{t-1}, run, life, t, rows, S, H(gradient)). The server signs (run, life, start, t, h_t),
and a client hands this statement on beside each share of its model. So whoever shares was told one
story, or two statements show who told two. Whoever missed the gradient of a round in which it was
summed needs the gradient itself, and steps with it before it shares again: a hash in its place
would let a server give one client another gradient.

The links are chained in the order of rounds. Joined by XOR, 254 steps in two stories each can be
chosen so that all holders have equal labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from securevfl.active.judge import TwoStories
from securevfl.active.statements import DIGEST, Statement, Subject, digest
from securevfl.engine import wire
from securevfl.errors import ConfigurationError

HISTORY = "history"
NOTHING = bytes(DIGEST)  # in the place of a gradient that nobody got


@dataclass(frozen=True)
class Told:
    """Content of what a server told of a round.

    Attributes
    ----------
    step : int
        t.
    rows : bytes
        Of the batch: their numbers as they were announced.
    sharers : tuple of int
        S.
    gradient : bytes
        SHA-256 of the gradient that S steps with, or `NOTHING` where the sum failed.
    """

    step: int
    rows: bytes
    sharers: tuple[int, ...]
    gradient: bytes = NOTHING


class History:
    """The chain of one party.

    Parameters
    ----------
    run : bytes
    link : bytes, optional
        h of the last round; that of the beginning by default.
    step : int
        Number of the last round.
    """

    def __init__(self, run: bytes, link: bytes | None = None, step: int = 0) -> None:
        self.run = run
        self.link = digest("history begins", run) if link is None else link
        self.step = step

    def advance(self, life: int, told: Told) -> bytes:
        """Append a round; returns h_t.

        Raises
        ------
        ConfigurationError
            When it is not the next round: the order is part of the story.
        """
        if told.step != self.step + 1:
            raise ConfigurationError(
                f"history: round {told.step} cannot follow round {self.step}; whoever missed a "
                "round needs what was told of it"
            )
        numbers = wire.encode((life, told.step, tuple(told.sharers)))
        self.link = digest("history", self.link, self.run, numbers, told.rows, told.gradient)
        self.step = told.step
        return self.link


def two_stories(
    own: Statement, others: Sequence[Statement], keys: Mapping[int, bytes]
) -> TwoStories | None:
    """Evidence against the signer of a story, from what sharers hand on; None for one story.

    A statement that its signer did not sign is left out: it shows nothing of anybody.

    Parameters
    ----------
    own : Statement
    others : sequence of Statement
    keys : mapping of int to bytes
        Public keys by party.
    """
    return next(
        (TwoStories(own, one) for one in others if one.is_valid(keys) and own.contradicts(one)),
        None,
    )


def is_shared(own: Subject, content: bytes, other: Statement, keys: Mapping[int, bytes]) -> bool:
    """Whether a sharer was told the same story of the round, under the server's signature."""
    return other.subject == own and other.content == content and other.is_valid(keys)


def results_for_one_story(threshold: int, parties: int, segments: int, privacy: int) -> int:
    """R' = max(R, floor((N + T) / 2) + K): then no two stories give a server anything.

    A server with T helpers that tells two stories gets, of each, the uploads of those it told it
    and its helpers'. With 2 R' > N + T + 2 (K - 1) only one of them has a relation among its sums.
    The degree of the masks rises with R'.

    Parameters
    ----------
    threshold : int
        R, the results that decode.
    parties, segments, privacy : int
        N, K and T.
    """
    return max(threshold, (parties + privacy) // 2 + segments)


def next_life(signed: Sequence[int], quorum: int) -> int:
    """Life of a server that starts: 1 + the highest that a quorum of holders has signed.

    Parameters
    ----------
    signed : sequence of int
        The highest life that each holder who answered has signed; 0 for none.
    quorum : int
        Holders of whom any two quorums have an honest one in common.

    Raises
    ------
    ConfigurationError
        When fewer have answered.
    """
    if len(signed) < quorum:
        raise ConfigurationError(
            f"a server that starts needs the lives that {quorum} holders have signed, and "
            f"{len(signed)} have answered; start the others"
        )
    return 1 + max(signed)


def quorum_of(parties: int, privacy: int) -> int:
    """Smallest number of holders of which two sets have an honest one in common."""
    return (parties + privacy) // 2 + 1
