"""Parties of a protocol for which an adversary stands, as far as it names any."""

from __future__ import annotations

from securevfl.privacy.adversary import Adversary
from securevfl.privacy.coalition import SERVER, Coalition
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.base.protocol import Protocol


def coalitions_of(against: Adversary, protocol: Protocol) -> list[Coalition]:
    """Coalitions of the adversary's kind; none where the protocol has no such parties.

    Of a role in the singular one for each party that has it, of one in the plural one of all; but
    single parties again where all clients have the role, for nobody else would be left.
    """
    roles = protocol.roles()
    chosen: list[set[int]] = [set()]
    for name in filter(None, against.role.split(" + ")):
        members = _members(name, roles)
        everybody = set(members or ()) == set(protocol.peers())
        alone = name.replace(" ", "_") in roles or everybody
        parts = [{n} for n in members or ()] if alone or not members else [set(members)]
        chosen = [one | part for one in chosen for part in parts]
    return [_coalition(against, protocol, named) for named in chosen]


def _coalition(against: Adversary, protocol: Protocol, named: set[int]) -> Coalition:
    roles = protocol.roles()
    barred = set(_members(against.without, roles) or ()) if against.without else set()
    free = [n for n in protocol.peers() if n not in barred and n not in named]
    clients = free[: _number(against.clients, protocol)]
    uploads = tuple(free[: _number(against.uploads, protocol)])
    server = against.server or SERVER in named
    return Coalition(server, tuple(sorted({*clients, *named} - {SERVER})), uploads)


def may_see(against: Adversary, protocol: Protocol, key: MessageKey) -> bool:
    """Whether some coalition of the adversary's kind is sent the message."""
    if against.role == "outsider":
        return False
    if key.receiver == SERVER and against.server:
        return True
    if key.receiver != SERVER and (against.clients or against.uploads):
        return True
    roles = protocol.roles()
    named = [_members(name, roles) or () for name in filter(None, against.role.split(" + "))]
    return any(key.receiver in members for members in named)


def _number(count: int | str, protocol: Protocol) -> int:
    """As a number: "T" is the option `privacy`, "N - 1" all clients but one."""
    if isinstance(count, int):
        return count
    letter, _, less = count.partition(" - ")
    known = {"N": len(protocol.peers()), "T": int(getattr(protocol.config, "privacy", 1) or 0)}
    return known.get(letter, 0) - int(less or 0)


def _members(name: str, roles: dict[str, tuple[int, ...]]) -> tuple[int, ...] | None:
    role = name.replace(" ", "_")
    if role in roles:
        return roles[role]
    for ending in ("_parties", "s"):
        if role.removesuffix(ending) in roles:
            return roles[role.removesuffix(ending)]
    return None
