"""Coalitions as values: the server, some clients, or both."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from securevfl.errors import ConfigurationError

SERVER = -1


@dataclass(frozen=True)
class Coalition:
    """Parties that pool everything they see.

    Attributes
    ----------
    server : bool
        Whether the server is a member.
    clients : tuple of int
        Colluding clients.
    uploads : tuple of int
        Clients whose uploads the coalition sees without the server being a member, as in
        Theorem 5.3 of the FedVS paper, which is about single uploads.
    outsider : bool
        Whether it is an outsider, who listens to all links and is no party.
    """

    server: bool = False
    clients: tuple[int, ...] = ()
    uploads: tuple[int, ...] = ()
    outsider: bool = False

    @property
    def members(self) -> tuple[int, ...]:
        """Party numbers of the coalition; the server is -1."""
        return (SERVER,) * self.server + tuple(self.clients)

    def __str__(self) -> str:
        names = ["server"] * self.server + ["outsider"] * self.outsider
        if self.clients:
            names.append(f"{_word('client', self.clients)}")
        if self.uploads:
            names.append(f"{_word('upload', self.uploads)}")
        return " + ".join(names) or "nobody"

    @classmethod
    def parse(cls, text: str) -> Coalition:
        """Coalition from words such as "server", "server + clients 0, 2" or "outsider".

        ConfigurationError for other words.

        Examples
        --------
        >>> Coalition.parse("server + clients 0, 2").clients
        (0, 2)
        >>> str(Coalition.parse("client 1"))
        'client 1'
        """
        made: dict[str, Any] = {}
        for part in text.split("+"):
            match = re.fullmatch(r"(server|outsider|clients?|uploads?)\s*([\d,\s]*)", part.strip())
            if match is None or (match[1][0] in "cu") != bool(match[2].strip()):
                raise ConfigurationError(
                    f"coalition {text!r}: {part.strip()!r} is not 'server', 'outsider', "
                    "'clients 0, 1' or 'uploads 0, 1'"
                )
            numbers = tuple(int(n) for n in re.findall(r"\d+", match[2]))
            name = {"c": "clients", "u": "uploads"}.get(match[1][0], match[1])
            made[name] = numbers or True
        return cls(**made)


def _word(what: str, numbers: Sequence[int]) -> str:
    return f"{what}{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
