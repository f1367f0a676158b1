"""Message schedules: the planned messages of a run, with their order, times and sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from securevfl.engine.party import ANNOUNCE
from securevfl.field.cohorts import Cohorts

HELPERS_COUNT = "A helper that an owner or the server runs counts with it"


@dataclass(frozen=True)
class Shape:
    """Data set shape: the numbers of a data set that a plan needs.

    Attributes
    ----------
    widths : tuple of int
        Number of columns of each client, d_1 to d_N.
    rows, test_rows : int
        Number of training and test rows.
    unknowns, rank : int or None
        Number of independent columns of all clients together, and the rank of their powers and
        ones; None if not computed.
    """

    widths: tuple[int, ...]
    rows: int
    test_rows: int = 0
    unknowns: int | None = None
    rank: int | None = None


@dataclass(frozen=True)
class Needs:
    """Sizes, bounds and memory of a run, which a plan shows besides the messages.

    Attributes
    ----------
    parties : int
        Number N of parties, with helpers.
    keys : int
        Number of keys that the parties agree on in setup.
    threshold, results : int
        R, and the number of results that suffices from any parties.
    prime, data_bits, model_bits : int
        p, and fractional bits of data and of models.
    largest, expected, limit : int
        Bound on the first decoded sums, its expected value at the end, and (p - 1) / 2.
    smallest : int
        Smallest usual prime that suffices for `expected`.
    replay : int
        Multiply-adds by which a client catches up a missed round.
    client_memory, simulation_memory : int
        Memory in bytes of the largest client on its own machine, and of all parties in one process.
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
        K and T. T + 1 shares reveal labels, K + T shares everything.
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
    kind : str
        Kind of the message.
    to : {"peers", "server", "clients"}
        Receivers; "peers" are all clients except the sender, in order.
    payloads : tuple
        Placeholder payloads with the right types and shapes (`hollow`): one per sending client, or
        a single one for all senders.
    senders : callable, optional
        Function from a round to the sending clients; all clients if not given.
    operations : tuple of int
        Multiply-adds that each sender declares for it (`securevfl.engine.party.Party.operations`).
    modulus : int, optional
        p, if arrays of the dtype of F_p hold its elements, which are then sent packed.
    receivers : callable, optional
        Function from a sender to its receivers among `to`, in order; all of them if not given.
    waited : bool
        Whether its receivers wait for it before they send later messages of the stage.
    first : int, optional
        Number of clients that send it, or get it from the server: those whose answers the server
        took in the last stage with `groups`; all of them if not given.
    """

    kind: str
    to: Literal["peers", "server", "clients"]
    payloads: tuple[Any, ...]
    senders: Callable[[int], Sequence[int]] | None = None
    operations: tuple[int, ...] = (0,)
    modulus: int | None = None
    receivers: Callable[[int], Sequence[int]] | None = None
    waited: bool = False
    first: int | None = None


@dataclass(frozen=True)
class Stage:
    """Messages that one side sends together, once those of the other side have arrived.

    Attributes
    ----------
    posts : tuple of Post
        Messages in the order of sending.
    activity : str or None
        Delay class of these messages, "upload" or "share" (`Party.activities`); None for no delay.
    count : int
        Number of clients from which the server waits for the stage's last message; 0 in stages of
        the server. Earlier messages of the stage must not be needed before that.
    fastest_first : bool
        For a stage of the server: whether each client gets one of the messages, clients that were
        most often among the fastest first; otherwise posts are sent in order.
    groups : tuple of tuple of int
        Where given, the server waits until whole groups of clients with `count` members have
        answered, and takes theirs.
    """

    posts: tuple[Post, ...]
    activity: str | None = None
    count: int = 0
    fastest_first: bool = False
    groups: tuple[tuple[int, ...], ...] = ()

    def forgiven(self, parties: int) -> int:
        """Number of late clients, whichever they are, without whom the server continues."""
        return Cohorts(self.groups).spare(self.count) if self.groups else parties - self.count


@dataclass(frozen=True)
class Phase:
    """Equal rounds: an announcement, then stages of clients and server in turn.

    If the announcement is None, the server's last message opens the round.
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
        Phases, training first. Rounds are numbered consecutively, from 1.
    batch_rows : int
        Number |B| of coded rows of a training batch.
    end : tuple of (str, object)
        Kind and payload of the server's last message to all clients.
    setup_waits : bool
        Whether a client sends each setup message only after all messages of the one before have
        arrived; otherwise it sends all at once.
    leaves_out : bool
        Whether a client that was busy skips rounds that were decided meanwhile. If delays occupy
        clients, fewer messages are then sent than planned.
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
