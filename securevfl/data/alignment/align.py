"""Alignment of samples: parties find the identifiers that all of them have, before training.

`align` does so with identifiers in the clear, or by private set intersection
(`securevfl.data.alignment.psi`). The docstrings there and here say what each reveals.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

import numpy as np

from securevfl.data.alignment.psi import intersect
from securevfl.engine.party import Party
from securevfl.errors import DataError


async def align(
    party: Party, ids: Sequence[str], peers: Sequence[int], *, private: bool = False
) -> np.ndarray:
    """Own rows of the identifiers that all members have; a coroutine of every member's `setup`.

    The member with the highest number leads: it sends its identifiers to the others, each answers
    which of them it has, and the leader tells all which are common. In the clear the others so
    learn the leader's identifiers, and the leader which of them each other one has.

    Parameters
    ----------
    party : Party
        The member itself.
    ids : sequence of str
        Its own identifiers, each once.
    peers : sequence of int
        The other members. A party may take part in several alignments, one after the other, if
        their leaders differ; twice under the same leader only in different rounds.
    private : bool
        By private set intersection, whose collector is the leader.

    Returns
    -------
    ndarray, (common,), int64
        Row numbers in the order of the sorted identifiers, which is the same for all members.

    Raises
    ------
    DataError
        When an identifier occurs twice, or none is common.
    """
    members = sorted({party.index, *peers})
    name = f"ids {members[-1]}"  # a kind is closed once it was collected
    row = {identifier: number for number, identifier in enumerate(ids)}
    if len(row) < len(ids):
        raise DataError(
            f"align: party {party.index} has {len(ids)} identifiers of which {len(row)} differ; an "
            f"identifier names one row, so remove the repeated ones."
        )
    if private:
        rows = await intersect(
            party, ids, members, collector=members[-1], workers=1, name=f"psi {members[-1]}"
        )
        texts = [unicodedata.normalize("NFC", ids[n]) for n in rows.tolist()]  # as psi hashes them
        return rows[np.argsort(texts, kind="stable")]
    common = await _common(party, ids, row, members, name)
    if not common:
        raise DataError(
            f"align: the {len(members)} members have no identifier in common; check that all use "
            f"the same kind of identifier, written alike."
        )
    return np.array([row[identifier] for identifier in sorted(common)], np.int64)


async def _common(
    party: Party, ids: Sequence[str], row: dict[str, int], members: Sequence[int], name: str
) -> list[str]:
    """Identifiers that all members have, in the leader's order."""
    leader, others = members[-1], members[:-1]
    if party.index == leader:
        party.broadcast(name, tuple(ids), to=others)
        answers = await party.collect(f"{name} held", senders=others)
        shared = np.logical_and.reduce(list(answers.values()))
        party.broadcast(f"{name} common", shared, to=others)
        asked: Sequence[str] = ids
    else:
        asked = (await party.collect(name, senders=[leader]))[leader]
        held = np.array([identifier in row for identifier in asked], bool)
        party.send(leader, f"{name} held", held)
        shared = (await party.collect(f"{name} common", senders=[leader]))[leader]
    return [identifier for identifier, both in zip(asked, shared, strict=True) if both]
