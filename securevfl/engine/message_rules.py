"""Rules of a run's messages: allowed kinds by sender and receiver, and the refusal of all others.

A run whose protocol declares its messages has `MessageRules`; without a declaration every message
is sent and delivered. The rules apply twice. At the sender's engine an undeclared message is a
fault of the protocol, and raises an error. At the receiver's engine it may come from a deviating
party: it is dropped, so that no client can act as the server, and the event "refused" names the
sender.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from securevfl.engine.network import Message, name_of
from securevfl.errors import UndeclaredMessageError


@dataclass(frozen=True)
class Route:
    """Permission for parties of one role to send a kind of message to parties of another.

    Attributes
    ----------
    kind : str
        Kind of the message.
    sender, receiver : str
        Names of the roles, for error messages.
    senders : frozenset of int
        Numbers of the parties that have the role.
    receivers : frozenset of int or None
        Numbers of the receivers; None if each sender may send only to itself.
    modulus : int or None
        p, if arrays with the dtype of F_p hold its elements (`securevfl.engine.wire.encode`).
    """

    kind: str
    sender: str
    receiver: str
    senders: frozenset[int]
    receivers: frozenset[int] | None
    modulus: int | None = None

    def reached(self, sender: int) -> frozenset[int]:
        """Parties to which one of `senders` may send."""
        return frozenset((sender,)) if self.receivers is None else self.receivers

    def allows(self, sender: int, receiver: int) -> bool:
        """Whether the route allows messages from `sender` to `receiver`."""
        return sender in self.senders and receiver in self.reached(sender)


class MessageRules:
    """All routes of a protocol.

    ValueError if two routes of one kind have different moduli.

    Parameters
    ----------
    protocol : str
        Name of the protocol, for error messages.
    routes : iterable of Route
        Permitted routes; all routes of one kind have the same modulus.
    """

    def __init__(self, protocol: str, routes: Iterable[Route]) -> None:
        self.protocol = protocol
        self._routes: dict[str, list[Route]] = {}
        self._moduli: dict[str, int | None] = {}
        for route in routes:
            self._routes.setdefault(route.kind, []).append(route)
            known = self._moduli.setdefault(route.kind, route.modulus)
            if known != route.modulus:
                raise ValueError(
                    f"{protocol}: {route.kind!r} is declared with elements of the field of {known} "
                    f"and of {route.modulus}; declare one modulus for a kind, or give it two names"
                )
        self._sent: dict[tuple[str, int], tuple[int, ...]] = {}  # receivers of the last, declared

    def allows(self, kind: str, sender: int, receiver: int) -> bool:
        """Whether a kind of message is declared from `sender` to `receiver`."""
        return any(route.allows(sender, receiver) for route in self._routes.get(kind, ()))

    def modulus(self, kind: str) -> int | None:
        """Modulus of the field elements in a kind of message; None if it has none."""
        return self._moduli.get(kind)

    def check_sending(self, sender: int, to: Sequence[int], kind: str) -> None:
        """Raise UndeclaredMessageError unless `sender` may send `kind` to all parties in `to`.

        The message names sender, receiver and kind, and the declared routes of the kind.
        """
        receivers = tuple(to)
        if self._sent.get((kind, sender)) == receivers:
            return
        routes = [route for route in self._routes.get(kind, ()) if sender in route.senders]
        left = set(receivers).difference(*[route.reached(sender) for route in routes])
        for receiver in receivers:
            if receiver in left:
                raise UndeclaredMessageError(
                    f"{self.protocol}: {name_of(sender)} sends {kind!r} to {name_of(receiver)}, "
                    f"and {self._declared(kind)}. Add a MessageSpec to the protocol's messages, or "
                    "do not send it"
                )
        self._sent[kind, sender] = receivers

    def refusal(self, message: Message) -> dict[str, Any] | None:
        """Fields of the event "refused" for a message that arrived undeclared; None for others."""
        sender, receiver, kind = message.sender, message.receiver, message.kind
        if self.allows(kind, sender, receiver):
            return None
        return {
            "kind": kind,
            "sender": sender,
            "of_round": message.round,
            "why": f"{name_of(sender)} may not send it: {self._declared(kind)}",
        }

    def _declared(self, kind: str) -> str:
        routes = self._routes.get(kind)
        if routes is None:
            return f"the declared kinds are {', '.join(sorted(self._routes))}"
        pairs = " and ".join(f"from {r.sender} to {r.receiver}" for r in routes)
        return f"{kind!r} is declared {pairs}"
