"""Mailbox of a party: matches arrived messages to waits, and decides which are late.

Simulation and real time use the same class, so both have the same rules:

- A collect takes messages in order of arrival and, once it has enough, closes its (kind, round);
  later messages of it are late.
- Once a party has entered a round, messages of earlier rounds are late.
- If several rounds were announced, a wait takes the newest.
- A second message of the same kind, round and sender, while the first is held or awaited, is late:
  the first one counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from securevfl.engine.network import ANY_ROUND, Message, Wait

ANNOUNCE = "round"


class Mailbox:
    """Messages that have arrived at a party and wait to be taken.

    Parameters
    ----------
    late : callable
        Called with each message that arrives after its round or kind was closed, or twice.

    Attributes
    ----------
    wait : Wait or None
        The present wait of the party.
    """

    def __init__(self, late: Callable[[Message], None]) -> None:
        self._late = late
        self._held: dict[str, dict[tuple[int, int], tuple[int, Message]]] = {}
        self._closed: set[tuple[str, int]] = set()
        self._floor = 0
        self._arrivals = 0
        self._restored: list[Message] = []
        self.wait: Wait | None = None

    def put(self, message: Message) -> bool:
        """Add an arrived message; return True if it satisfies the present wait."""
        sender, _, kind, _, round, _, _ = message
        if round < self._floor or (kind, round) in self._closed:
            self._late(message)
            return False
        wait = self.wait
        if wait is not None and kind in wait.kinds and not wait.satisfied and wait.accepts(message):
            if wait.has(round, sender):
                self._late(message)
                return False
            wait.take(message)
            return wait.satisfied
        held = self._held.get(kind)
        if held is None:
            held = self._held[kind] = {}
        key = (round, sender)
        if key in held:
            self._late(message)
        else:
            held[key] = (self._arrivals, message)
            self._arrivals += 1
        return False

    def put_each(self, messages: list[Message]) -> None:
        """Add messages in the order of arrival, as repeated `put` does."""
        awaited = () if self.wait is None or self.wait.satisfied else self.wait.kinds
        floor, closed = self._floor, self._closed
        for message in messages:
            sender, _, kind, _, round, _, _ = message
            if kind in awaited or round < floor or (kind, round) in closed:
                self.put(message)
                continue
            held = self._held.get(kind)
            if held is None:
                held = self._held[kind] = {}
            key = (round, sender)
            if key in held:
                self._late(message)
            else:
                held[key] = (self._arrivals, message)
                self._arrivals += 1

    def begin_wait(self, wait: Wait) -> bool:
        """Begin a wait; return True if messages already here satisfy it."""
        self.wait = wait
        # After a resume the wait that was going on begins anew, with what it had taken before.
        restored, self._restored = self._restored, []
        for message in restored:
            wait.take(message)
        if wait.count:
            self._take_wanted(wait)
        elif not wait.taken:
            self._take_first(wait)
        return wait.satisfied

    def _take_first(self, wait: Wait) -> None:
        first = min(
            (
                entry
                for kind in wait.kinds
                for entry in self._held.get(kind, {}).values()
                if wait.accepts(entry[1])
            ),
            key=_newest_round if wait.kinds == (ANNOUNCE,) else _arrival,
            default=None,
        )
        if first is not None:
            self._remove(first[1])
            wait.take(first[1])

    def _take_wanted(self, wait: Wait) -> None:
        held = self._held.get(wait.kinds[0])
        if not held:
            return
        round, senders = wait.round, wait.senders
        accepted = [
            (key, message)
            for key, (_, message) in held.items()
            if (round in (ANY_ROUND, key[0])) and (senders is None or key[1] in senders)
        ]
        if not wait.groups:
            del accepted[max(0, wait.count - len(wait.taken)) :]
            wait.take_each(accepted)
            for key, _ in accepted:
                del held[key]
            return
        for key, message in accepted:
            if wait.satisfied:
                return
            del held[key]
            wait.take(message)

    def finish(self) -> list[Message]:
        """End the present wait and return its messages; after a collect, further ones are late."""
        wait = self.wait
        self.wait = None
        if wait is None:
            return []
        if wait.count and wait.round != ANY_ROUND:
            kind = wait.kinds[0]
            self._closed.add((kind, wait.round))
            self._drop(lambda message: message.round == wait.round, (kind,))
        return wait.taken

    def newer_announcement(self, round: int) -> bool:
        """Whether a round later than `round` has been announced."""
        return any(number > round for number, _ in self._held.get(ANNOUNCE, {}))

    @property
    def overtaken(self) -> bool:
        """Whether the party waits inside a round although a newer one has been announced."""
        wait = self.wait
        if wait is None or wait.announced is None:
            return False
        return self.newer_announcement(wait.announced)

    def enter(self, round: int) -> None:
        """Begin a round: messages of earlier rounds, held or yet to come, are late."""
        if round > self._floor:
            self._floor = round
            # What is below the floor is late without being closed; forgetting it keeps the set as
            # small as the rounds that are open.
            self._closed = {closed for closed in self._closed if closed[1] >= round}
            self._drop(lambda message: message.round < round)

    def withdraw(self, kind: str) -> list[Message]:
        """Remove and return all messages of a kind, in order of arrival."""
        entries = sorted(self._held.pop(kind, {}).values(), key=_arrival)
        return [message for _, message in entries]

    def close(self) -> None:
        """Count all remaining messages as late."""
        self._drop(lambda message: True)

    def _remove(self, message: Message) -> None:
        del self._held[message.kind][message.round, message.sender]

    def _drop(self, useless: Callable[[Message], bool], kinds: Iterable[str] | None = None) -> None:
        for kind in self._held if kinds is None else kinds:
            held = self._held.get(kind, {})
            for message in [message for _, message in held.values() if useless(message)]:
                self._remove(message)
                self._late(message)

    def open_all(self, opened: Callable[[list[Message]], list[Message]]) -> None:
        """Replace all messages by their decryption `opened`, before a checkpoint is written."""
        if self.wait is not None:
            self.wait.taken = opened(self.wait.taken)
        for held in self._held.values():
            messages = opened([message for _, message in held.values()])
            for (key, (arrival, _)), message in zip(list(held.items()), messages, strict=True):
                held[key] = (arrival, message)

    def state(self) -> dict[str, object]:
        """The content as a payload; messages that the present wait has taken are listed first."""
        taken = [] if self.wait is None else self.wait.taken
        entries = sorted(
            (entry for held in self._held.values() for entry in held.values()), key=_arrival
        )
        return {
            "taken": [tuple(message) for message in taken],
            "held": [tuple(message) for _, message in entries],
            "closed": sorted(self._closed),
            "floor": self._floor,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Restore the state from `state`; the present wait begins again with its messages."""
        self._restored = [Message(*fields) for fields in state["taken"]]
        self._floor = state["floor"]
        self._closed = {(kind, number) for kind, number in state["closed"]}
        self._held = {}
        self._arrivals = 0
        # Put in order of arrival, so that the numbers of arrival, new as they are, order messages
        # as before.
        for fields in state["held"]:
            self.put(Message(*fields))


def _arrival(entry: tuple[int, Message]) -> int:
    return entry[0]


def _newest_round(entry: tuple[int, Message]) -> int:
    return -entry[1].round
