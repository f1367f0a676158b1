"""Keys of pseudo-random masks: how clients agree on them, and the messages for it.

Each block A of clients has a key k_A, which the clients outside A hold (`securevfl.field.prss`). In
setup the lowest client outside A draws k_A and sends it to the others outside A over encrypted
links. A client keeps its keys in its own state, and never draws them again.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.errors import CheckpointError
from securevfl.field.prss import KEY, Prss
from securevfl.protocols.base.messages import MessageKey, MessageSpec, in_setup
from securevfl.protocols.base.received import check_array
from securevfl.protocols.base.schedule import Post, hollow
from securevfl.verified import Key, Participant


class KeyParticipant(Participant):
    """A client that agrees with the others on keys of masks.

    Attributes
    ----------
    keys : dict of int to Key
        k_A of every block A that does not contain the client, by the index of A in `Prss.blocks`. A
        protocol names this attribute in `kept`, as `kept_as("once", ...)`.
    """

    keys: dict[int, Key]

    async def agree_on_keys(self, prss: Prss) -> None:
        """Draw and send the keys that this client deals; receive those that others deal."""
        drawn = {key: self.key(f"k{key}.") for key in prss.dealt(self.index)}
        self.send(self.index, "own-keys", list(drawn.values()))
        sent = ((prss.sent(self.index, j), j) for j in self.peers if drawn)
        for keys, group in itertools.groupby(sent, operator.itemgetter(0)):
            if keys:
                self.broadcast("key", [drawn[key] for key in keys], [j for _, j in group])
        wanted = prss.received(self.index)
        found = await self.collect("key", senders=list(wanted)) if wanted else {}
        for i, some in found.items():
            count = len(wanted[i])
            if not isinstance(some, list) or len(some) != count:
                rows = np.empty((len(some), KEY), np.uint8) if isinstance(some, list) else some
                check_array("the keys of masks", i, rows, (count, KEY), np.uint8)
        received = [zip(wanted[i], some, strict=True) for i, some in found.items()]
        self.keys = drawn | {key: one for pairs in received for key, one in pairs}
        await self.receive("own-keys", sender=self.index)

    def check_keys(self, prss: Prss) -> None:
        """Raise CheckpointError for keys that do not belong to the mask blocks of `prss`."""
        check_keys(self.index, self.keys, prss)


def check_keys(party: int, keys: Mapping[int, Any], prss: Prss) -> None:
    """Raise CheckpointError unless a party's restored keys are those of the blocks of `prss`.

    A checkpoint of another version may have other blocks. Each party checks only its own keys, but
    if blocks differ, at least one party raises.
    """
    wanted = len(prss.held(party))
    if set(keys) != set(prss.held(party)):
        raise CheckpointError(
            f"checkpoint: party {party} has {len(keys)} keys of masks, of other sets "
            f"of parties than the {wanted} that it must hold: the run was begun by a version "
            "that gives keys to other sets. Start it again, or finish it with that version"
        )


def key_messages(prss: Prss, source: str) -> tuple[MessageSpec, MessageSpec]:
    """Declarations of two messages: keys that are sent, and keys that a client draws."""

    def count(key: MessageKey) -> int:
        return int(key.round == 0 and bool(prss.sent(key.sender, key.receiver)))

    return (
        MessageSpec(
            *("key", "client", "client", "key"),
            shape=lambda key: (len(prss.sent(key.sender, key.receiver)), KEY),
            dtype="uint8",
            count=count,
            source=source,
        ),
        MessageSpec(
            *("own-keys", "client", "itself", "key"),
            count=in_setup,
            source=f"{source}: what it draws; nothing is sent",
        ),
    )


def key_posts(prss: Prss) -> tuple[Post, ...]:
    """Planned messages of keys in set-up, in the order in which each dealer sends them.

    One planned message represents consecutive parties to which all dealers send the same number of
    keys.
    """
    N = prss.code.parties
    dealers = [i for i in range(N) if prss.dealt(i)]
    groups: list[tuple[list[int], dict[int, int]]] = []
    for j in range(N):
        numbers = {i: len(prss.sent(i, j)) for i in dealers if i != j}
        if groups and all(groups[-1][1].get(i, number) == number for i, number in numbers.items()):
            groups[-1][0].append(j)
            groups[-1][1].update(numbers)
        else:
            groups.append(([j], numbers))
    return tuple(_post(N, *group) for group in groups)


def _post(N: int, group: Sequence[int], numbers: Mapping[int, int]) -> Post:
    """Planned message with keys to each of `group`; `numbers`: keys in each dealer's message."""
    payloads = tuple(hollow((numbers.get(i, 0), KEY), np.uint8) for i in range(N))

    def receivers(i: int) -> Sequence[int]:
        return [j for j in group if j != i]

    def senders(round: int) -> Sequence[int]:
        return [i for i, number in numbers.items() if number and receivers(i)]

    return Post("key", "peers", payloads, senders, receivers=receivers)
