"""The messages of a run in advance: what is sent to whom, in which order, of which size."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True)
class Shape:
    """What a plan needs to know of a data set.

    Attributes
    ----------
    widths : tuple of int
        Columns of each client, d_1 to d_N.
    rows, test_rows : int
        Training and test rows.
    """

    widths: tuple[int, ...]
    rows: int
    test_rows: int = 0


@dataclass(frozen=True)
class Post:
    """One message to each of `to`, without its content.

    Attributes
    ----------
    kind : str
    to : {"peers", "server", "clients"}
        "peers" are all clients but the sender, in order.
    payloads : tuple
        Skeletons of the right types and shapes (`hollow`): one for each client that may send, or
        a single one for all of them and for the server.
    senders : callable, optional
        Round to the clients that send it; all of them if not given.
    operations : tuple of int
        Multiply-adds that each sender states for it (`securevfl.engine.party.Party.operations`).
    """

    kind: str
    to: Literal["peers", "server", "clients"]
    payloads: tuple[Any, ...]
    senders: Callable[[int], Sequence[int]] | None = None
    operations: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Stage:
    """What one side sends at once when it has what the other side sent before.

    Attributes
    ----------
    posts : tuple of Post
        In the order in which they are sent.
    activity : str or None
        Work that delays them, as in `securevfl.engine.party.Party.activities`.
    count : int
        Clients from whom the server waits for the last of them; 0 in its own stages. Whoever gets
        an earlier one must not need it before the server has these.
    """

    posts: tuple[Post, ...]
    activity: str | None = None
    count: int = 0


@dataclass(frozen=True)
class Phase:
    """Equal rounds: an announcement, then stages of the clients and of the server in turn."""

    announcement: Any
    stages: tuple[Stage, ...]
    rounds: int


@dataclass(frozen=True)
class Outline:
    """All messages of a run, in advance.

    Attributes
    ----------
    setup : tuple of Post
        Sent by every client to its peers, one after the other: each when all of those of the one
        before have come.
    phases : tuple of Phase
        Training first. Rounds are numbered through, from 1.
    batch_rows : int
        |B| in training.
    """

    setup: tuple[Post, ...]
    phases: tuple[Phase, ...]
    batch_rows: int


def hollow(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Placeholder array of a shape and dtype that occupies no memory, for planned messages."""
    return np.broadcast_to(np.zeros((), dtype), shape)
