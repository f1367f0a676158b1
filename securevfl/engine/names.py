"""`PartyNames`: names of a run's parties, for people.

Engine, protocols, histories and stored messages identify parties by number. Names occur only in
texts for people: errors that leave `securevfl.run`, tables, pages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from securevfl.engine.network import SERVER, name_of
from securevfl.errors import SecureVFLError

_SERVER = "server"
# A party in a sentence of ours; "'s" may follow. One in brackets has been named already.
_MENTION = re.compile(r"(?<!\()\b(party|client) (\d+)\b(?!-)('s)?")


class PartyNames:
    """Names of a run's parties; a party without a name appears by its number.

    Parameters
    ----------
    names : sequence of str
        Names of parties 0, 1, ...; the entry "party 3" for party 3 counts as no name.

    Examples
    --------
    >>> names = PartyNames(["bank", "party 1"])
    >>> names[0], names[1], names[-1]
    ('bank', 'party 1', 'server')
    >>> names.in_text("has 1 of 2 embeddings; missing: client 0, client 1")
    'has 1 of 2 embeddings; missing: bank (client 0), client 1'
    """

    def __init__(self, names: Sequence[str] = ()) -> None:
        own = {n: name for n, name in enumerate(names) if name != name_of(n)}
        self._names = own

    def __bool__(self) -> bool:
        return bool(self._names)

    def __getitem__(self, party: int) -> str:
        """Short name, for a cell of a table."""
        return _SERVER if party == SERVER else self._names.get(party, name_of(party))

    def number(self, word: str) -> int | None:
        """Party number for "bank", "3", "party-3" or "server"; None for an unknown word."""
        if word == _SERVER:
            return SERVER
        found = [party for party, name in self._names.items() if name == word]
        if found:
            return found[0]
        match = re.fullmatch(r"(?:party[- ])?(\d+)", word)
        return None if match is None else int(match[1])

    def listed(self) -> str:
        """All given names, separated by commas."""
        return ", ".join(self._names.values())

    def in_text(self, text: str) -> str:
        """A text of this library in which "bank (party 1)" replaces "party 1"."""
        return _MENTION.sub(self._mention, text) if self else text

    def _mention(self, match: re.Match[str]) -> str:
        name = self._names.get(int(match[2]))
        if name is None:
            return match[0]
        return f"{name}{match[3]}" if match[3] else f"{name} ({match[1]} {match[2]})"

    @contextmanager
    def in_errors(self) -> Iterator[None]:
        """Context manager in which this library's errors name parties by their names."""
        try:
            yield
        except SecureVFLError as error:
            if self:
                error.args = (self.in_text(str(error)), *error.args[1:])
            raise
