"""Messages of the alignment under a label owner."""

from __future__ import annotations

from securevfl.protocols.base.messages import SELF, MessageSpec


def alignment_messages(leader: int, *, private: bool) -> tuple[MessageSpec, ...]:
    """Messages of `align` under a label owner, which all data owners are members of."""
    name = f"psi {leader}" if private else f"ids {leader}"
    member, head = "client", "label_owner"
    if not private:
        links = [(name, head, member), (f"{name} held", member, head)]
        links.append((f"{name} common", head, member))
    else:  # a ring of all of them, whose finished sets go to the leader
        ring = [(member, member), (member, head), (head, member)]
        links = [(name, *ends) for ends in ring]
        links += [(f"{name} finished", member, head), (f"{name} finished", head, SELF)]
        links += [(f"{name} common", head, member), (f"{name} common", head, SELF)]
        links += [(f"{name} count", *ends) for ends in ring]
    return tuple(MessageSpec(*link, "identifier", source="setup") for link in links)
