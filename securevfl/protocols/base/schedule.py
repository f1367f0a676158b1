"""Message schedules: the planned messages of a run, with their order, times and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from securevfl.engine.party import ANNOUNCE

HELPERS_COUNT = "A helper that an owner or the server runs counts with it"


@dataclass(frozen=True)
class Shape:
    """Data set shape: the numbers of a data set that a plan needs.

    Attributes
    ----------
    widths : tuple of int
        Columns of each client, d_1 to d_N.
    rows, test_rows : int
        Training and test rows.
    unknowns, rank : int or None
        Independent columns of all clients together, and the rank of their powers and ones; None
        where nobody looked.
    """

    widths: tuple[int, ...]
    rows: int
    test_rows: int = 0
    unknowns: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Needs:
    """Numbers of a configuration that a plan shows besides its messages.

    Attributes
    ----------
    parties : int
        N, helpers included.
    keys : int
        Keys that the parties agree on in setup.
    threshold, results : int
        R, and results that are waited for.
    prime, data_bits, model_bits : int
        p, and fractional bits of data and of models.
    largest, expected, limit : int
        Bound on the first sums that are decoded, what it is expected to grow to, and (p - 1) / 2.
    smallest : int
        The smallest usual prime with room for what is expected.
    replay : int
        Multiply-adds with which a client makes up for a round that it missed.
    client_memory, simulation_memory : int
        Bytes of the largest client on a machine of its own, and of all parties in one process.
    """

    parties: int
    keys: int
    threshold: int
    results: int
    prime: int
    data_bits: int
    model_bits: int
    largest: int
    expected: int
    limit: int
    smallest: int
    replay: int
    client_memory: int
    simulation_memory: int


def shares_of_one_operator(segments: int, privacy: int) -> str:
    """Sentence on the shares that an owner has if it also runs helpers.

    Parameters
    ----------
    segments, privacy : int
        K and T. T + 1 shares tell labels, K + T everything.
    """
    K, T = segments, privacy
    some = "one helper" if T == 1 else f"{T} helpers"
    found = "K + T shares, which are all data, models and labels"
    if K > 1:
        found = f"T + 1 shares, which tell labels; with {K + T - 1} helpers it has everything"
    return f"{HELPERS_COUNT}: at K = {K} and T = {T} an owner that runs {some} has {found}"


@dataclass(frozen=True)
class Post:
    """Planned message, one to each party of `to`, without its content.

    Attributes
    ----------
    to : {"peers", "server", "clients"}
        "peers" are all clients but the sender, in order.
    payloads : tuple
        Skeletons of the right types and shapes (`hollow`): one for each client that may send, or
        a single one for all of them and for the server.
    senders : callable, optional
        Round to the clients that send it; all of them if not given.
    operations : tuple of int
        Multiply-adds that each sender states for it (`securevfl.engine.party.Party.operations`).
    modulus : int, optional
        As of the message's declaration (`securevfl.protocols.base.messages.MessageSpec`).
    receivers : callable, optional
        Sender to those of `to` that it is sent to, in order; all of them if not given.
    waited : bool
        Whether its receivers send the later messages of the stage only when they have it.
    """

    kind: str
    to: Literal["peers", "server", "clients"]
    payloads: tuple[Any, ...]
    senders: Callable[[int], Sequence[int]] | None = None
    operations: tuple[int, ...] = (0,)
    modulus: int | None = None
    receivers: Callable[[int], Sequence[int]] | None = None
    waited: bool = False


@dataclass(frozen=True)
class Stage:
    """Messages that one side sends together, once those of the other side have arrived.

    Attributes
    ----------
    posts : tuple of Post
        In the order in which they are sent.
    activity : str or None
        Delay class of these messages, as in `securevfl.engine.party.Party.activities`.
    count : int
        Clients from whom the server waits for the last of the messages; 0 in its own stages. The
        receiver of an earlier one must not need it before the server has these.
    fastest_first : bool
        Of a stage of the server: whether each client gets one of the messages, in the order of how
        often the clients were among those that it waited for; else the posts go out in turn.
    """

    posts: tuple[Post, ...]
    activity: str | None = None
    count: int = 0
    fastest_first: bool = False


@dataclass(frozen=True)
class Phase:
    """Equal rounds: an announcement, then stages of clients and server in turn.

    Where the announcement is None there is none, and what the server sent last opens the round.
    """

    announcement: Any
    stages: tuple[Stage, ...]
    rounds: int


@dataclass(frozen=True)
class Outline:
    """Message schedule: all planned messages of a run.

    Attributes
    ----------
    setup : tuple of Post
        Messages of every client to its peers, in order.
    phases : tuple of Phase
        Training first. Rounds are numbered through, from 1.
    batch_rows : int
        |B| in training.
    end : tuple of (str, object)
        Kind and payload of the server's last word to all clients.
    setup_waits : bool
        Whether a client sends the next message of the setup when all of the one before have come;
        else it sends them all at once.
    leaves_out : bool
        Whether a client that was busy leaves out the rounds that were decided meanwhile. Where
        delays occupy clients, fewer messages are then sent than are planned.
    """

    setup: tuple[Post, ...]
    phases: tuple[Phase, ...]
    batch_rows: int
    end: tuple[str, Any] = (ANNOUNCE, "stop")
    setup_waits: bool = True
    leaves_out: bool = False


def hollow(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Placeholder array of a shape and dtype that occupies no memory, for planned messages."""
    return np.broadcast_to(np.zeros((), dtype), shape)
