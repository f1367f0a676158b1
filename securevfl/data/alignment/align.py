"""Alignment of samples: parties find their common identifiers before training.

`align` does so with identifiers in the clear, or by private set intersection
(`securevfl.data.alignment.psi`). The docstrings there and here say what each reveals.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from securevfl.data.alignment.psi import intersect
from securevfl.data.preparation.cells import id_of
from securevfl.engine.party import Party
from securevfl.errors import DataError


async def align(
    party: Party, ids: Sequence[str], peers: Sequence[int], *, private: bool = False
) -> np.ndarray:
    """This party's row numbers, int64, of the identifiers that all members have.

    Members are this party and `peers`, party numbers. Each awaits this coroutine in its `setup`
    with its own `ids`, one for each of its rows.

    The member with the highest number leads: it sends its identifiers to the others, each answers
    which of them it has, and the leader sends the common ones to all. In the clear, the others thus
    learn the leader's identifiers, and the leader learns which of them each member has. `private`
    selects private set intersection, with the leader as collector.

    A party may take part in several alignments in sequence if their leaders differ; twice under one
    leader only in different rounds. Row numbers are int64, in the order of the sorted identifiers,
    which is equal for all members. DataError if an identifier occurs twice, at the leader too, if
    none is common, or if a member's answer is not one boolean per identifier. With `private` also
    RunError, if a member's message violates the protocol.
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
            party, ids, members, collector=members[-1], name=f"psi {members[-1]}"
        )
        texts = [id_of(ids[n]) for n in rows.tolist()]  # as psi hashes them
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
    """Identifiers that all have, in the order of the leader (last); DataError for a foreign one."""
    leader, others = members[-1], members[:-1]
    if party.index == leader:
        party.broadcast(name, tuple(ids), to=others)
        answers = await party.collect(f"{name} held", senders=others)
        for member, answer in answers.items():
            _check_truths(answer, len(ids), party.index, member)
        shared = np.logical_and.reduce(list(answers.values()))
        party.broadcast(f"{name} common", shared, to=others)
        asked: Sequence[str] = ids
    else:
        asked = (await party.collect(name, senders=[leader]))[leader]
        _check_ids(asked, party.index, leader)
        held = np.array([identifier in row for identifier in asked], bool)
        party.send(leader, f"{name} held", held)
        shared = (await party.collect(f"{name} common", senders=[leader]))[leader]
        _check_truths(shared, len(asked), party.index, leader)
        if foreign := int((shared & ~held).sum()):
            raise DataError(
                f"align: party {leader} told party {party.index} that {foreign} identifiers are "
                f"common which party {party.index} does not have; do not go on with it."
            )
    return [identifier for identifier, both in zip(asked, shared, strict=True) if both]


def _check_ids(ids: object, member: int, leader: int) -> None:
    """Raise DataError, which names both, if a leader's identifiers are no texts or are repeated."""
    whose = f"align: party {leader} sent party {member}"
    if not isinstance(ids, tuple | list) or not all(type(one) is str for one in ids):
        raise DataError(f"{whose} identifiers that are not a list of texts; do not go on with it.")
    if len(set(ids)) < len(ids):
        raise DataError(
            f"{whose} {len(ids)} identifiers of which {len(set(ids))} differ; an identifier names "
            f"one row: it would be joined twice. Its owner must remove the repeated ones."
        )


def _check_truths(given: object, count: int, member: int, sender: int) -> None:
    """Raise DataError unless `sender` gave `member` bools (`count`,), one for each identifier."""
    if not isinstance(given, np.ndarray) or given.dtype != bool or given.shape != (count,):
        told = f"{given.dtype} {given.shape}" if isinstance(given, np.ndarray) else type(given)
        raise DataError(
            f"align: party {sender} answered party {member} with {told}; {count} truth values, one "
            f"for each identifier, were asked for. Do not go on with it."
        )
