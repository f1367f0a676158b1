"""Adversaries as values: parties that pool their views, and how they behave."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Behaviour = Literal["honest-but-curious", "malicious"]
Count = int | str  # a number, or letters of the protocol: "T", "N - 1"
_NOBODY: Count = 0

_COUNTED = re.compile(r"(\d+|[A-Za-z](?: - \d+)?) (client|upload)s?(?: without the (.+))?")


@dataclass(frozen=True)
class Adversary:
    """Parties against whom a claim is made, and their behaviour; equal if all fields are.

    Attributes
    ----------
    server : bool
        Whether the server is one of them.
    clients : int or str
        Number of colluding clients, or letters of the protocol's parameters: "T" (privacy
        threshold), "N - 1" (all but one).
    uploads : int or str
        Number of clients, as above, whose uploads the adversary sees without the server.
    role : str
        One party of a role of the protocol, such as "client" or "key holder", or "outsider", which
        observes the links and is no party. A plural means all parties of the role.
    without : str
        Role that no colluding client has.
    behaviour : {"honest-but-curious", "malicious"}
        Whether the colluding parties follow the protocol.

    Examples
    --------
    >>> str(Adversary(server=True, clients="T"))
    'server + T clients'
    >>> Adversary.parse("server + T clients") == Adversary(server=True, clients="T")
    True
    """

    server: bool = False
    clients: Count = 0
    uploads: Count = 0
    role: str = ""
    without: str = ""
    behaviour: Behaviour = "honest-but-curious"

    def __str__(self) -> str:
        parts = ["server"] * self.server
        if self.clients:
            parts.append(_counted(self.clients, "client"))
        if self.uploads:
            parts.append(_counted(self.uploads, "upload"))
        if self.role:
            parts.append(self.role)
        words = " + ".join(parts) + (f" without the {self.without}" if self.without else "")
        return words if self.behaviour == "honest-but-curious" else f"{self.behaviour} {words}"

    @classmethod
    def parse(cls, text: str) -> Adversary:
        """Adversary from a phrase of a claim; an unknown phrase is taken as a role's name."""
        server, without = False, ""
        clients = uploads = _NOBODY
        roles: list[str] = []
        malicious = text.startswith("malicious ")
        for part in text.removeprefix("malicious ").split(" + "):
            counted = _COUNTED.fullmatch(part)
            if part == "server":
                server = True
            elif counted is None:
                roles.append(part)
            else:
                number = int(counted[1]) if counted[1].isdigit() else counted[1]
                if counted[2] == "client":
                    clients = number
                else:
                    uploads = number
                without = counted[3] or without
        behaviour: Behaviour = "malicious" if malicious else "honest-but-curious"
        return cls(server, clients, uploads, " + ".join(roles), without, behaviour)


def _counted(count: Count, what: str) -> str:
    return f"{count} {what}" + ("s" if count != 1 else "")


OUTSIDER = Adversary(role="outsider")
