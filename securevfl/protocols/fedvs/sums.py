"""Ledger of announced sums: rows that may be summed again, and over which clients.

The uploads of an attempt that is given up may still reach the server, which can then decode it. A
second sum of the same rows and models over other clients would reveal the difference of the two
sums, which may be one client's embedding. Therefore

    no row stands in two different sums to each of which K + T or more clients may have uploaded.

K + T - 1 uploads are uniform for the server with T clients, whatever the sum is: these clients lack
keys whose streams move rho in K + T - 1 dimensions (docs/masking.md).

A client that shares in a later round says itself to which rounds it may have uploaded. Three rules
keep this true through crashes:

- A client writes down an upload before it sends it (`Party.write_ahead`).
- A client that rejoins names all rounds since its checkpoint, in case the note was lost.
- An upload that the server has counts, whatever its sender says. A late one need not be counted:
  its sender has named the round, or is still a possible uploader.

The server may lie about `harmless` and `stepped`. A client therefore ignores them for uploads of
its present incarnation, which began with its last start. It forgets these uploads when it has
applied a gradient that moved its own model: from then on sums differ by its own step as well. A
gradient of zeros is no step: neither clients nor server forget anything by it. For
uploads before a crash it believes the server, because it may have missed the gradient. Without
that, honest crashes would soon leave too few clients that upload (5 of 16 runs reach their end
instead of 13, with a third of the clients down). A lying server therefore learns one client's
embedding from clients that crashed in between, and from one tiny gradient up to its step. At the
levels covert and active a client is told all gradients that it missed, and believes neither. At
semi-honest a server that tells clients different things within one attempt is not detected. Nor is
one that sends them different gradients: sums of the same S then differ by the client that moved
(docs/threat-model.md).

A run that is resumed makes rounds again, with the models that they had. Where sharers may be others
then, server and clients keep a note of each sum over steps (`noted`), and what they noted beyond
the round that they went back to counts as announced, and as uploaded by all, as long as the
server's last step is what it was. So such rows are summed over the same clients again, or others
are taken.

Since clients refuse other sums of rows that they uploaded, a server that drew such rows anew would
soon be answered by nobody. It takes rows to which nobody uploaded as long as there are any, and
then a whole batch of an earlier attempt, one that the fewest clients refuse (`again`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.protocols.fedvs.messages import Attempt, Batch

_NOTED = 128  # sums that are noted over steps: a run does not go back further


@dataclass(frozen=True)
class Sum:
    """Sum of embeddings: its rows, and the clients whose models are in it.

    Attributes
    ----------
    batch : Batch
        Part of the data, and rows.
    attempt : Attempt
        The attempt that announced it, with the clients in it.
    """

    batch: Batch
    attempt: Attempt

    def conflicts(self, other: Sum) -> bool:
        """Whether the two sums have a row in common but different models."""
        return self.batch.meets(other.batch) and not self.attempt.same_sum(other.attempt)


class SumLedger:
    """Announced sums since the last step, and the clients that may have uploaded to each.

    The server has a ledger of all sums that it announced; each client has one of the sums to which
    it uploaded.

    Parameters
    ----------
    parties : int
        Number N of parties.
    threshold : int
        Number of uploads that reveal something, K + T; N + 1 to remember no sums.
    notes : bool
        Whether to remember sums across steps, because a resumed run may have other sharers.

    Attributes
    ----------
    sums : dict of int to Sum
        Sums by round.
    uploaders : dict of int to tuple of int
        Clients that may have uploaded to each sum.
    received : dict of int to tuple of int
        Clients whose upload the server received, by round.
    below_threshold : tuple of int
        Rounds since the last step to whose sums fewer than `threshold` clients uploaded.
    partly : tuple of (Batch, tuple of int)
        Batches of such sums, each with the clients that may have uploaded, which refuse other sums
        of its rows until the next step. No two batches share a row.
    last_step : int
        Round of the last step. For a client that remembers older uploads: the last round whose
        gradient it received without a step; else 0.
    unsure : (int, int)
        For a client: range (first, after last) of rounds in which it may have uploaded in an
        earlier incarnation (before a crash). The second is 0 until the first round of the new
        incarnation; (0, 0) for none.
    incarnation : int
        For a client: first round of its current incarnation, 0 before that. Not in checkpoints.
    noted : tuple of (int, Sum)
        The newest sums with their rounds, also from before the last step.
    repeated : dict of int to (int, Sum)
        Those of `noted` after the round from which the run was resumed, under negative numbers,
        which serve as rounds in `sums`.
    """

    def __init__(self, *, parties: int, threshold: int, notes: bool = False) -> None:
        self.notes = notes
        self.noted: tuple[tuple[int, Sum], ...] = ()
        self.repeated: dict[int, tuple[int, Sum]] = {}
        self.parties = parties
        self.threshold = threshold
        self.sums: dict[int, Sum] = {}
        self.uploaders: dict[int, tuple[int, ...]] = {}
        self.below_threshold: tuple[int, ...] = ()
        self.partly: tuple[tuple[Batch, tuple[int, ...]], ...] = ()
        self.last_step = 0
        self.received: dict[int, tuple[int, ...]] = {}
        self.unsure = (0, 0)
        self.incarnation = 0

    def conflict(self, total: Sum) -> Sum | None:
        """Announced sum of other models with a row in common; None if there is none."""
        # The difference of two sums over one row is a difference of the terms in which they differ,
        # which may be one client's. Only sums that may have K + T uploads are left (`settle`):
        # fewer uploads decode to nothing.
        return next((one for one in self.sums.values() if one.conflicts(total)), None)

    def same_rows(self, batch: Batch) -> Sum | None:
        """Newest announced sum with a row of the batch; None if there is none."""
        found = [one for one in self.sums.values() if one.batch.meets(batch)]
        return found[-1] if found else None

    def free(self, rows: np.ndarray) -> np.ndarray:
        """Training rows for whose sums no client may have uploaded since the last step."""
        for batch in (*(one.batch for one in self.sums.values()), *(b for b, _ in self.partly)):
            rows = rows[~np.isin(rows, batch.rows)]
        return rows

    def newest(self) -> Sum:
        """Newest announced sum; there must be one."""
        return self.sums[max(self.sums)]

    def again(self, wanted: int) -> Batch:
        """Earlier batch to request again, when each row is in a sum since the last step.

        It is one without enough uploads to decode, whose rows the fewest clients refuse, if at
        least `wanted` clients do not refuse it: of random rows nearly all clients would refuse
        some. Otherwise it is the newest sum's batch, which needs the same clients again.
        """
        left = [one for one in self.partly if self.same_rows(one[0]) is None]
        least = min(left, key=lambda one: len(one[1]), default=None)
        enough = least is not None and self.parties - len(least[1]) >= wanted
        return least[0] if least is not None and (enough or not self.sums) else self.newest().batch

    def announce(self, round: int, total: Sum) -> None:
        """Store a sum; every client is a possible uploader."""
        self.sums[round] = total
        self.uploaders[round] = tuple(range(self.parties))
        if self.notes and round > 0:
            self.noted = (*self.noted, (round, total))[-_NOTED:]

    def repeat(self, round: int) -> None:
        """Continue from a round: noted sums of later rounds may repeat with the same models."""
        beyond = [one for one in self.noted if one[0] > round]
        lowest = min((0, *self.sums))
        self.repeated = {lowest - number: one for number, one in enumerate(beyond, 1)}

    def recall(self, stepped: int) -> None:
        """Announce again the sums in `repeated` that were made after step `stepped`."""
        for number, (_, one) in self.repeated.items():
            if one.attempt.stepped == stepped:
                self.announce(number, one)

    def made_before(self, round: int) -> Batch | None:
        """Batch of a round before the run was resumed; None if models differ or there is none."""
        made = [
            self.sums[n].batch
            for n, one in self.repeated.items()
            if one[0] == round and n in self.sums
        ]
        return next((batch for batch in made if batch.part == "train"), None)

    def report(self, client: int, uploaded: Collection[int]) -> None:
        """Store a client's report of the rounds in which it may have uploaded.

        A client reports in a later round, and then uploads to no earlier one.
        """
        # What has come outweighs what a client says: it may have crashed and forgotten its upload.
        for round, possible in self.uploaders.items():
            silent = client not in self.received.get(round, ()) and round > 0
            if round not in uploaded and silent:
                self.uploaders[round] = tuple(n for n in possible if n != client)

    def receive(self, round: int, clients: Collection[int]) -> None:
        """Note that uploads of these clients have arrived."""
        if round in self.sums:
            self.received[round] = tuple(sorted({*self.received.get(round, ()), *clients}))

    def settle(self) -> tuple[int, ...]:
        """Forget sums with too few uploads to decode; return their rounds since the last step."""
        few = [r for r, possible in self.uploaders.items() if len(possible) < self.threshold]
        if self.threshold <= self.parties:  # else clients remember nothing
            for r in few:
                self._note_partly(self.sums[r].batch, self.uploaders[r])
        self.forget(few)
        self.below_threshold += tuple(few)
        return self.below_threshold

    def _note_partly(self, batch: Batch, uploaders: Collection[int]) -> None:
        """Note in `partly` that these uploaders refuse other sums of these rows."""
        before = [one for one in self.partly if one[0].meets(batch)]
        who = {*uploaders}.union(*(refusing for _, refusing in before))
        if who:
            others = [one for one in self.partly if not one[0].meets(batch)]
            self.partly = (*others, (batch, tuple(sorted(who))))

    def forget(self, rounds: Collection[int]) -> None:
        """Forget sums, uploaders and received uploads of these rounds."""
        for round in rounds:
            self.sums.pop(round, None)
            self.uploaders.pop(round, None)
            self.received.pop(round, None)

    def go_back(self, round: int) -> None:
        """Forget sums after `round`, if all parties went back over a step and lost those models.

        Otherwise the rows of these sums would be left out of batches, and the resumed run would
        differ from the unbroken one. A server that restarts alone is in a round after all that it
        announced: clients may have those models, and it forgets nothing.

        Parameters
        ----------
        round : int
            The round from which the server goes on.
        """
        sums = self.sums.items()
        later = [r for r, one in sums if r > round and one.attempt.stepped > self.last_step]
        self.forget(later)
        self.repeat(round)
        self.recall(self.last_step)

    def step(self, round: int) -> None:
        """Forget all sums: the models have changed."""
        self.forget(tuple(self.sums))
        self.below_threshold, self.last_step, self.unsure = (), round, (0, 0)
        self.partly = ()
        if round:  # a client hears of it with the next attempt
            self.recall(round)

    def stand_still(self) -> None:
        """Keep the server's sums after a zero gradient, which moved no model.

        Of sums over the same clients, each row stays only in the newest, to bound memory.
        """
        self._merge()

    # -- of a client ---------------------------------------------------------------------------

    def come_back(self, round: int) -> None:
        """Begin a new incarnation of a client from a checkpoint of this round.

        The client does not know to which later rounds it uploaded before it crashed. Rounds of
        which an earlier incarnation was unsure stay unsure.
        """
        first, _ = self.unsure
        self.unsure = (min(first, round + 1) if first else round + 1, 0)
        self.repeat(round)

    def enter(self, round: int) -> None:
        """Begin a round; this incarnation knows its own uploads from here on."""
        first, end = self.unsure
        self.incarnation = self.incarnation or round
        # A client that came back alone makes no round again; what it uploaded to is in `sums`.
        again = self.repeated.items()
        self.repeated = {n: one for n, one in again if one[0] >= self.incarnation}
        if first and not end:
            self.unsure = (first, round) if first < round else (0, 0)

    def hear_of_attempt(self, attempt: Attempt, *, believed: bool = True) -> None:
        """Update a client's ledger by the server's announcement of an attempt.

        A client forgets its uploads before its last crash to rounds up to the server's last step,
        ``attempt.stepped``, and to rounds with too few uploads, ``attempt.harmless``. Rounds up to
        ``stepped`` also leave the range `unsure`. Uploads since the crash are forgotten in
        `hear_of_step` only.

        Parameters
        ----------
        attempt : Attempt
            Announcement of the server.
        believed : bool
            Whether the client trusts it. If not, it forgets no upload here.
        """
        if believed:
            old = [n for n in self.sums if 0 < n < self.incarnation]
            self.forget([n for n in old if n <= attempt.stepped or n in attempt.harmless])
        self.recall(attempt.stepped)
        first, end = self.unsure
        if end and believed:
            first = max(first, attempt.stepped + 1)
            self.unsure = (first, end) if first < end else (0, 0)

    def possible_uploads(self) -> tuple[int, ...]:
        """Rounds since the last step in which the client may have uploaded, for the server."""
        rounds = {*self.sums, *range(*self.unsure)}
        return tuple(sorted(round for round in rounds if round > max(self.last_step, 0)))

    def hear_of_step(self, round: int, *, moved: bool) -> None:
        """Update a client's ledger after the server's step of a round; `moved` for its own model.

        If the model moved, its uploads up to this round are forgotten, because later sums have
        another model. If not, its uploads are no longer reported, but still count, because only the
        server says that others stepped. A missed step from before the last crash undoes no upload
        of a later round.
        """
        if moved:
            later = {n for n in self.sums if round < n < self.incarnation}
            self.forget([n for n in self.sums if n not in later])
            first, end = max(self.unsure[0], round + 1), self.unsure[1]
            self.last_step = 0
            self.unsure = (first, end) if first < end else (0, 0)
            return
        self.last_step = round if self.sums or self.unsure != (0, 0) else 0
        self._merge()

    def _merge(self) -> None:
        """Remove rows of the newest sum from older equal sums, to bound memory."""
        if not self.sums:
            return
        # Equal sums have the same sharers, so a row needs to stand in one of them only. Without
        # this a client whose model never moves would remember every batch of the run.
        newest = self.newest()
        for round, one in list(self.sums.items()):
            if one is newest or not one.attempt.same_sum(newest.attempt):
                continue
            if one.batch.meets(newest.batch):
                rows = one.batch.rows[~np.isin(one.batch.rows, newest.batch.rows)]
                self.sums[round] = Sum(Batch(one.batch.part, rows), one.attempt)
                if not rows.size:
                    self.forget((round,))

    # -- state in checkpoints, in the form of the first version -------------------------------

    @property
    def stored_notes(self) -> tuple[tuple[int, Batch, Attempt], ...]:
        """Round, batch and attempt of each noted sum."""
        return tuple((round, one.batch, one.attempt) for round, one in self.noted)

    @stored_notes.setter
    def stored_notes(self, stored: Sequence[tuple[int, Batch, Attempt]]) -> None:
        self.noted = tuple((round, Sum(batch, attempt)) for round, batch, attempt in stored)

    @property
    def stored_uploads(self) -> dict[int, tuple[Batch, Attempt]]:
        """Batch and attempt of each sum, by round."""
        return {round: (one.batch, one.attempt) for round, one in self.sums.items()}

    @stored_uploads.setter
    def stored_uploads(self, stored: Mapping[int, tuple[Batch, Attempt]]) -> None:
        self.sums = {round: Sum(*one) for round, one in stored.items()}
        self.uploaders = dict.fromkeys(self.sums, tuple(range(self.parties)))

    @property
    def stored_sums(self) -> dict[int, tuple[Batch, Attempt, tuple[int, ...]]]:
        """Batch, attempt and possible uploaders of each sum, by round."""
        return {
            round: (one.batch, one.attempt, self.uploaders[round])
            for round, one in self.sums.items()
        }

    @stored_sums.setter
    def stored_sums(self, stored: Mapping[int, tuple[Batch, Attempt, tuple[int, ...]]]) -> None:
        self.sums = {round: Sum(batch, attempt) for round, (batch, attempt, _) in stored.items()}
        self.uploaders = {round: uploaders for round, (_, _, uploaders) in stored.items()}


def of_ledger(name: str) -> Any:
    """Property of a party that reads and writes the attribute `name` of its `ledger`."""

    def get(party: Any) -> Any:
        return getattr(party.ledger, name)

    def put(party: Any, value: Any) -> None:
        setattr(party.ledger, name, value)

    return property(get, put, doc=f"`{name}` of the ledger.")
