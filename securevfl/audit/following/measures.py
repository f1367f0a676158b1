"""Measures and models of parties, which the history and the files of a run have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from securevfl.audit.following.reference import same_state, torch_at, torch_generator
from securevfl.engine.network import name_of
from securevfl.engine.party import Party
from securevfl.engine.party_state import snapshot
from securevfl.protocols.base.protocol import Protocol


def unlike_measures(
    protocol: Protocol,
    parties: Mapping[int, Party],
    library: Protocol,
    own: Mapping[int, Party],
    *,
    last: bool,
) -> Iterator[str]:
    """In words, what others would read of a protocol's parties than of the library's.

    Parameters
    ----------
    protocol, library : Protocol
        The recorded protocol, and one of the library's class.
    parties, own : mapping of int to Party
        Parties of each, at the same moment.
    last : bool
        Whether the run is at its end, after which files have what parties keep from their setup,
        too.
    """
    for index, party in parties.items():
        if not same_state(_state(party, last), _state(own[index], last)):
            yield f"{name_of(index)}, round {party.round}: its state, which files of a run have"
    with torch_at(torch_generator()):
        if _scores(protocol, parties) != _scores(library, own):
            yield "scores of the models on test rows, from which a history has its measures"


def _state(party: Party, whole: bool) -> Mapping[str, Any]:
    found = snapshot(party, waits=0, time=0)
    return found if whole else {**found, "once": {}}  # too much to be encoded each time


def _scores(protocol: Protocol, parties: Mapping[int, Party]) -> bytes | str:
    try:
        return protocol.scores(parties, protocol.data.test).tobytes()
    except Exception as error:  # where nothing was trained; then both end so
        return f"{type(error).__name__}: {error}"
