"""Private set intersection over sample identifiers, by an oblivious pseudo-random function.

One member, the collector, runs `securevfl.data.alignment.oprf` with each other member in turn, as
its receiver: it ends with F of its own identifiers, and each member sends F of its own, sorted. So
the collector finds which of its identifiers that member has. It tells every member which of its
values are common to all.

Beyond the intersection, the collector learns the sizes of the sets and which of its identifiers
each other member has; the others learn the size of its set. Members that collude learn what each of
them knows. A malicious member may enter identifiers that it does not have, as many as it declares;
the collector a few times as many plus some hundreds (`oprf` has the bound). Both may omit
identifiers. If a manifest names the run, messages cannot be replayed in another run. Other
deviations end the run: a matrix that encodes no set, an answer that names identifiers which the
collector does not have, and answers that differ from member to member, in identifiers or their
order.

A party that enters guessed identifiers learns which of them are common.

**Resumption.** With a folder (`intersect`, `kept`) each party stores its result of a finished pair
of collector and member, with the random session of that pair. The collector stores the places of
its identifiers among the member's values, the member the order of its values, and both the proofs:
further bytes of F, by which the collector shows that it has an identifier. After a restart the pair
uses these if session and sets are the same at both. An unfinished pair begins anew, with new
transfers; secret bits and seeds of streams are never written. With the same streams a second matrix
would be masked by what masked the first, and their sum would show how the encodings differ; a
second set under the same secret bits would give its owner F at more identifiers than the bound
allows. Stored values are those of one matrix, so the collector has F of its identifiers alone.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.data.alignment import oprf
from securevfl.data.alignment.base_ot import POINT
from securevfl.data.preparation.cells import id_of
from securevfl.engine.party import Party, name_of
from securevfl.errors import DataError, RunError
from securevfl.field.binary import CODE_LENGTH
from securevfl.reading import read_arrays
from securevfl.writing import make_folder, write_durably

Progress = Callable[[int, int], None]
_PART = 1 << 20  # rows of a message: 12 MiB of values


def common_places(sets: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Positions, in each set, of the rows that all sets have; in one order for all sets.

    Sets are uint8 (n_m, bytes); places are int64, in the order of rows. A row that occurs twice in
    a set is not common, because its place would be ambiguous.
    """
    # Rows as 64-bit words, most significant first, so that lexsort orders them as numbers.
    words = [_words(each) for each in sets]
    stacked = np.concatenate(words)
    owner = np.repeat(np.arange(len(sets)), [len(each) for each in sets])
    place = np.concatenate([np.arange(len(each)) for each in sets])
    order = np.lexsort((owner, *(stacked[:, k] for k in reversed(range(stacked.shape[1])))))
    # Equal rows now stand side by side, those of set 0 first. A common one is a group of as many
    # rows as there are sets, one of each, in the order of the sets.
    rows = stacked[order]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    starts = np.flatnonzero(fresh)
    counts = np.diff(np.append(starts, len(rows)))
    full = starts[counts == len(sets)]
    for n in range(len(sets)):
        full = full[owner[order[full + n]] == n]
    return [place[order[full + n]].astype(np.int64) for n in range(len(sets))]


def _words(rows: np.ndarray) -> np.ndarray:
    """Rows of bytes, filled up with zeros, as 64-bit words with the most significant first."""
    filled = np.zeros((len(rows), -(-rows.shape[1] // 8) * 8), np.uint8)
    filled[:, : rows.shape[1]] = rows
    return filled.view(">u8").astype(np.uint64)


def id_order(identifiers: Sequence[str]) -> np.ndarray:
    """Positions of distinct identifiers in an order that depends only on their hashes.

    All holders of the same identifiers find the same order, whatever the order of their own rows.
    So the order reveals nothing about other parties' tables, which may be sorted by label.
    """
    texts = (id_of(each).encode() for each in identifiers)
    hashes = [hashlib.sha256(b"securevfl psi 1\0order" + text).digest() for text in texts]
    return np.array(sorted(range(len(hashes)), key=hashes.__getitem__), np.int64)


def work(sizes: Sequence[int], collector: int) -> int:
    """Steps of progress that all members of an intersection of these sets count together."""
    others = [size for member, size in enumerate(sizes) if member != collector]
    return sum(oprf.work(sizes[collector], size) for size in others)


async def intersect(
    party: Party,
    identifiers: Sequence[str],
    members: Sequence[int],
    *,
    collector: int,
    progress: Progress | None = None,
    name: str = "psi",
    kept: Path | None = None,
) -> np.ndarray:
    """Rows of this party whose identifier every member has, by private set intersection.

    A coroutine that each member awaits in its `setup`. It returns row numbers, int64, in an order
    that is equal for all members and reveals nothing else.

    Parameters
    ----------
    party : Party
        The member itself.
    identifiers : sequence of str
        The member's identifiers, without repetition; at most 2^24.
    members : sequence of int
        Numbers of all members, this one included, the same at all of them; at least two.
    collector : int
        Member that compares the values; it learns what the module's docstring says.
    progress : callable, optional
        Function of two integers: steps since its last call, and all steps of this member. The
        steps of all members together are `work`.
    name : str
        Name of the messages; a member of several groups must give each group its own name.
    kept : Path, optional
        Private folder of this party for its results with each member, which a restart reuses. The
        caller removes it at the end, because it reveals more than the intersection.

    Raises
    ------
    DataError
        If members are fewer than two, or lack this party or the collector; if an identifier occurs
        twice, none is common, a set is too large, the collector's answer is no set of this member's
        rows, or members received different answers.
    RunError
        If a member sends a message that violates the protocol.
    """
    ring = sorted(members)
    if len(ring) < 2 or party.index not in ring or collector not in ring:
        raise DataError(
            f"psi: {len(ring)} members, member {party.index} and collector {collector}: there must "
            "be two or more, and both among them"
        )
    _refuse_repeated(identifiers)
    if len(identifiers) > oprf.MOST:
        raise DataError(
            f"psi: member {party.index} has {len(identifiers)} identifiers; the parameters hold "
            f"for {oprf.MOST} (2^24) at most. Divide the tables, by a hash of the ids, say"
        )
    others = [n for n in ring if n != collector] if party.index == collector else [collector]
    links = [_Link(party, peer, name, kept) for peer in others]
    if party.index == collector:
        rows = await _collect(links, identifiers, progress or oprf.ignore)
    else:
        rows = await _answer(links[0], identifiers, progress or oprf.ignore)
    await _agree(party, ring, [identifiers[row] for row in rows], f"{name} rows")
    if not len(rows):
        raise DataError(
            f"psi: the {len(ring)} members have no identifier in common (member {party.index} has "
            f"{len(identifiers)}); check that all use the same kind of identifier, written alike"
        )
    return rows


class _Link:
    """Messages of an intersection between a party and one peer, checked for type and shape."""

    def __init__(self, party: Party, peer: int, name: str, folder: Path | None) -> None:
        self.party, self.peer, self.name = party, peer, name
        self.whose = name_of(peer)
        self._file = None if folder is None else folder / f"{name.replace(' ', '-')}-{peer}.npz"

    def context(self, collector: int, member: int) -> bytes:
        """Bytes that bind messages to their run, if a manifest names it, and to both ends."""
        run = "" if self.party.signing is None else self.party.signing.run.hex()
        return json.dumps([run, self.name, collector, member]).encode()

    def keep(self, identifiers: Sequence[str], session: bytes, **found: np.ndarray) -> None:
        """Write the results of a finished pair, if there is a folder."""
        if self._file is None:
            return
        content = io.BytesIO()
        found["session"] = np.frombuffer(session, np.uint8)
        found["set"] = self._set(identifiers)
        np.savez(content, allow_pickle=False, **found)
        make_folder(self._file.parent, mode=0o700)
        write_durably(self._file, content.getvalue(), mode=0o600)

    def kept(self, identifiers: Sequence[str]) -> dict[str, np.ndarray] | None:
        """State that `keep` wrote for these identifiers; None if there is no complete one."""
        if self._file is None or not self._file.exists():
            return None
        try:
            found = read_arrays(self._file)
        except (OSError, ValueError):
            return None
        same = np.array_equal(found.pop("set", np.empty(0)), self._set(identifiers))
        return found if same else None

    def _set(self, identifiers: Sequence[str]) -> np.ndarray:
        """Digest of run, peer and own identifiers in their order, uint8 (32,)."""
        told = self.context(self.party.index, self.peer)
        texts = json.dumps([id_of(one) for one in identifiers]).encode()
        return np.frombuffer(_digest(b"kept" + told + texts), np.uint8)

    def send(self, kind: str, payload: object) -> None:
        self.party.send(self.peer, f"{self.name} {kind}", payload)

    async def receive(self, kind: str) -> Any:
        return await self.party.receive(f"{self.name} {kind}", sender=self.peer)

    def checked(self, found: object, kind: str, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        """A received array of this dtype and shape; RunError, which names `kind`, for another."""
        if isinstance(found, np.ndarray) and found.dtype == dtype and found.shape == shape:
            return found
        given = f"{getattr(found, 'dtype', type(found).__name__)} {getattr(found, 'shape', '')}"
        raise RunError(
            f"psi: {self.whose} sent {given.strip()} as {kind}; {np.dtype(dtype)} {shape} was "
            "asked for. It does not follow the protocol"
        )

    def size(self, found: object) -> int:
        """A received set size, an int from 0 to `oprf.MOST`; RunError for anything else."""
        if type(found) is int and 0 <= found <= oprf.MOST:
            return found
        raise RunError(
            f"psi: {self.whose} says that it has {found!r} identifiers; it must be a number from "
            f"0 to {oprf.MOST}"
        )

    async def send_parts(self, kind: str, parts: Iterable[np.ndarray]) -> None:
        """Send one array for each request of the peer, so that few wait at a slow peer."""
        for part in parts:
            await self.receive("more")
            self.send(kind, part)

    async def part(self, kind: str, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        """Ask for the next array of the peer's `send_parts`; RunError for other dtype or shape."""
        self.send("more", None)
        return self.checked(await self.receive(kind), kind, dtype, shape)

    async def parts(self, kind: str, dtype: type, shape: tuple[int, ...]) -> np.ndarray:
        """Array of this dtype and shape, which the peer sends in pieces by `send_parts`."""
        found: list[np.ndarray] = [np.empty((0, *shape[1:]), dtype)]
        for at, stop in _parts(shape[0]):
            found.append(await self.part(kind, dtype, (stop - at, *shape[1:])))
        return np.concatenate(found)


def _parts(count: int) -> Iterator[tuple[int, int]]:
    """First and last row (exclusive) of each part, for `count` rows in all."""
    return ((at, min(at + _PART, count)) for at in range(0, count, _PART))


async def _collect(
    links: Sequence[_Link], identifiers: Sequence[str], progress: Progress
) -> np.ndarray:
    """Own rows that all others have, (common,); each link's party is sent its matching rows."""
    held = np.ones(len(identifiers), bool)
    found: list[tuple[_Link, np.ndarray, np.ndarray]] = []
    order: np.ndarray | None = None
    steps = oprf.work_of_receiver(len(identifiers))
    total = steps * len(links)
    for link in links:
        done = await _taken_up(link, identifiers)
        if done is None:
            done = await _compare(link, identifiers, lambda count: progress(count, total))
        else:
            progress(steps, total)
        places, proofs, rows = done
        held &= places >= 0
        found.append((link, places, proofs))
        order = rows if order is None else order
    assert order is not None
    common: np.ndarray = order[held[order]]  # in the order of values, which are pseudo-random
    for link, places, proofs in found:
        link.send("common", (len(common), _digest(proofs[common].tobytes())))
        told = places[common]
        await link.send_parts("places", (told[at:stop] for at, stop in _parts(len(told))))
    return common


async def _taken_up(
    link: _Link, identifiers: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """(places, proofs, rows) of `_compare` before a restart; None unless both ends stored them."""
    kept = link.kept(identifiers)
    if kept is None:
        return None
    link.send("keys", kept["session"])
    if await link.receive("choices") is not True:
        return None
    return kept["places"], kept["proofs"], kept["rows"]


async def _compare(
    link: _Link, identifiers: Sequence[str], progress: oprf.Progress
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run the oblivious function as receiver, and compare its values with the member's.

    Returns each identifier's place among the member's values, (n,), -1 for none; the proof of each,
    (n, bytes); and the row numbers found, in the order of values. RunError if the peer errs.
    """
    context = link.context(link.party.index, link.peer)
    receiver = oprf.Receiver(identifiers, link.whose, progress, context)
    hello = receiver.hello()
    link.send("keys", hello)
    answer = await link.receive("choices")
    if type(answer) is not tuple or len(answer) != 2:
        raise RunError(
            f"psi: {link.whose} sent no size and choices; it does not follow the protocol"
        )
    count = link.size(answer[0])
    choices = link.checked(answer[1], "choices", np.uint8, (CODE_LENGTH, 2 * POINT))
    await link.send_parts("matrix", receiver.matrix(choices))
    challenge = await link.receive("challenge")
    challenge = link.checked(challenge, "challenge", np.uint8, (oprf.CHALLENGE,))
    link.send("opening", receiver.opening(challenge.tobytes()))
    size = oprf.value_bytes(len(identifiers), count)
    own = receiver.values(size + oprf.PROOF)
    values = await link.parts("values", np.uint8, (count, size))
    if not _ascend(_words(values)):
        raise RunError(
            f"psi: {link.whose} sent values that do not ascend; it does not follow the protocol"
        )
    rows, at_theirs = common_places([own[:, :size], values])
    places = np.full(len(identifiers), -1, np.int64)
    places[rows] = at_theirs
    proofs = own[:, size:]
    link.keep(identifiers, hello[1], places=places, proofs=proofs, rows=rows)
    return places, proofs, rows


async def _answer(link: _Link, identifiers: Sequence[str], progress: Progress) -> np.ndarray:
    """Own rows that the collector names; DataError without proof that it has them, or RunError."""
    hello = await link.receive("keys")
    done = None
    if isinstance(hello, np.ndarray):  # the session of a pair that the collector has finished
        kept = link.kept(identifiers)
        if kept is not None and np.array_equal(hello, kept["session"]):
            done = kept["order"], kept["proofs"]
            progress(1, 1)
        link.send("choices", done is not None)
        hello = await link.receive("keys") if done is None else None
    order, proofs = done or await _evaluate(link, identifiers, hello, progress)
    told = await link.receive("common")
    if type(told) is not tuple or len(told) != 2 or type(told[1]) is not bytes:
        raise RunError(f"psi: {link.whose} told no common rows; it does not follow the protocol")
    places, proof = await link.parts("places", np.int64, (link.size(told[0]),)), told[1]
    check_places(places, len(identifiers), link.party.index, link.peer)
    if proof != _digest(proofs[places].tobytes()):
        raise DataError(
            f"psi: the collector, {link.whose}, named common rows without proof that it has their "
            "identifiers; do not go on with it"
        )
    rows: np.ndarray = order[places]
    return rows


async def _evaluate(
    link: _Link, identifiers: Sequence[str], hello: object, progress: Progress
) -> tuple[np.ndarray, np.ndarray]:
    """Send own values, sorted; return (row numbers, proofs) in that order. RunError if it errs."""
    if type(hello) is not tuple or len(hello) != 3 or type(hello[1]) is not bytes:
        raise RunError(f"psi: {link.whose} sent no keys; it does not follow the protocol")
    count, session = link.size(hello[0]), hello[1]
    offered = link.checked(hello[2], "keys", np.uint8, (CODE_LENGTH, POINT))
    if len(session) != oprf.SESSION:
        raise RunError(f"psi: {link.whose} sent a session of {len(session)} bytes, not 32")
    total = oprf.work(count, len(identifiers)) - oprf.work_of_receiver(count)
    context = link.context(link.peer, link.party.index)
    sender = oprf.Sender(identifiers, link.whose, lambda steps: progress(steps, total), context)
    link.send("choices", (len(identifiers), sender.choices(count, session, offered)))
    for number, shape in enumerate(sender.part_shapes()):
        sender.take(number, await link.part("matrix", np.uint64, shape))
    link.send("challenge", np.frombuffer(sender.challenge(), np.uint8))
    opening = await link.receive("opening")
    sender.check(link.checked(opening, "opening", np.uint64, oprf.OPENING))
    size = oprf.value_bytes(count, len(identifiers))
    values = sender.values(size + oprf.PROOF)
    order = np.lexsort(_words(values[:, :size]).T[::-1])
    values = values[order]  # an order that says nothing of the own rows'
    await link.send_parts("values", (values[at:stop, :size] for at, stop in _parts(len(values))))
    proofs = values[:, size:]
    link.keep(identifiers, session, order=order, proofs=proofs)
    return order, proofs


def _ascend(words: np.ndarray) -> bool:
    """Whether rows of words, most significant word first, are strictly increasing."""
    before, after = words[:-1], words[1:]
    greater = np.zeros(len(before), bool)
    for k in reversed(range(words.shape[1])):
        greater = (after[:, k] > before[:, k]) | ((after[:, k] == before[:, k]) & greater)
    return bool(greater.all())


def check_places(places: np.ndarray, held: int, member: int, collector: int) -> None:
    """Raise DataError if positions from the collector are out of range or repeated.

    They index the values that the member sent, one for each of its `held` identifiers.
    """
    whose = f"psi: the collector, {name_of(collector)}, told {name_of(member)}"
    if len(places) and not 0 <= int(places.min()) <= int(places.max()) < held:
        raise DataError(
            f"{whose} of places from {int(places.min())} to {int(places.max())}; its set has "
            f"{held} identifiers, so they must lie in [0, {held})"
        )
    if len(np.unique(places)) < len(places):
        raise DataError(
            f"{whose} of {len(places)} places, of which {len(np.unique(places))} differ; an "
            "identifier is common once"
        )


async def _agree(party: Party, ring: Sequence[int], common: Sequence[str], name: str) -> None:
    """Raise DataError unless all of `ring` found the same identifiers in the same order.

    Members send each other a hash of the intersection.
    """
    others = [member for member in ring if member != party.index]
    own = _digest(json.dumps([id_of(one) for one in common]).encode())
    for member in others:
        party.send(member, name, own)
    digests = await party.collect(name, senders=others)
    same = {member for member, digest in digests.items() if type(digest) is bytes and digest == own}
    differ = [name_of(member) for member in others if member not in same]
    if differ:
        raise DataError(
            f"psi: {name_of(party.index)} was told of {len(common)} common rows, and "
            f"{', '.join(differ)} of others, or of another order. The collector, or a member that "
            "says so, does not follow the protocol"
        )


def _digest(told: bytes) -> bytes:
    return hashlib.sha256(b"securevfl psi 2 digest" + told).digest()


def _refuse_repeated(identifiers: Sequence[str]) -> None:
    seen: dict[str, int] = {}
    for row, identifier in enumerate(identifiers):
        text = id_of(identifier)
        if text in seen:
            shown = repr(identifier)
            if identifier != identifiers[seen[text]]:  # two texts that print alike
                shown = f"{identifiers[seen[text]]!a}, or {identifier!a},"
            raise DataError(
                f"psi: the identifier {shown} is in rows {seen[text]} and {row}; an "
                "identifier names one row, so remove the repeated ones"
            )
        seen[text] = row
