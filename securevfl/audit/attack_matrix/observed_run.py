"""A run as attackers observe it: their views of its transcript, and their own models.

A protocol declares the kinds of message that carry values row by row (`Protocol.exposures`), and
all views are found by this declaration. Two parts of a view are not messages: the joint embedding
in the server's model, and a client's own network. They are read from the parties.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.audit.attacks.outcome import NoView
from securevfl.audit.attacks.sum_equations import Step
from securevfl.audit.views import View, cut
from securevfl.engine.mailbox import ANNOUNCE
from securevfl.engine.network import SERVER
from securevfl.engine.transcript import Transcript
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.card import Exposure
from securevfl.protocols.base.protocol import Protocol
from securevfl.verified import bare_of


@dataclass(frozen=True)
class Table:
    """Values by row, each from one message that included the row.

    Attributes
    ----------
    rows : ndarray, (n,)
        Numbers of training rows, ascending.
    values : ndarray, (n, width), floating
        One row of values for each row number.
    """

    rows: np.ndarray
    values: np.ndarray


@dataclass
class Inputs:
    """The `last` latest (row numbers, joint embedding) given to a server model, dL/dH of each."""

    last: int
    recent: deque[tuple[np.ndarray, np.ndarray]] = field(default_factory=deque)
    gradients: deque[np.ndarray] = field(default_factory=deque)  # dL/dH of each recent one

    def watch(self, centre: Any) -> None:
        """Record all further inputs of the server model `centre`."""
        for name in ("step", "gradients"):
            if hasattr(centre, name):
                setattr(centre, name, self._watched(getattr(centre, name)))

    def _watched(self, step: Callable[..., Any]) -> Callable[..., Any]:
        def watched(embedding: np.ndarray, samples: np.ndarray, labels: np.ndarray) -> Any:
            given = (np.array(samples), np.array(embedding))
            self.recent.append(given)
            found = step(embedding, samples, labels)
            self.gradients.append(np.array(found[1]))
            if len(self.recent) > self.last:
                self.recent.popleft()
                self.gradients.popleft()
            return found

        return watched


@dataclass(frozen=True)
class ObservedRun:
    """A run with the views of its roles.

    Attributes
    ----------
    protocol : Protocol
        Configured protocol.
    parties : mapping of int to Party
        Parties at the end of the run.
    client : int
        The attacking client, or the client that the server attacks.
    observer : int
        Receiver of the client's embeddings or uploads; mostly the server.
    transcript : Transcript
        Messages with recorded payloads.
    inputs : Inputs or None
        Inputs of the server model.
    used : tuple of int
        Number of clients in the joint embedding, per round.
    figures : mapping
        Held-out measures, virtual seconds, bytes and messages.
    """

    protocol: Protocol
    parties: Mapping[int, Any]
    client: int
    observer: int
    transcript: Transcript
    inputs: Inputs | None
    used: tuple[int, ...]
    figures: Mapping[str, Any]

    @functools.cached_property
    def client_view(self) -> View:
        """View of the client that attacks or is attacked."""
        return cut(self.transcript, Coalition(clients=(self.client,)))

    @functools.cached_property
    def observer_view(self) -> View:
        """View of the server, or of the party that receives the embeddings."""
        server = self.observer == SERVER
        clients = () if server else (self.observer,)
        return cut(self.transcript, Coalition(server=server, clients=clients))

    @functools.cached_property
    def gradients(self) -> Table | NoView:
        """The client's newest gradient of each row; `NoView` if it gets none."""
        return self._gradients(newest=True)

    @functools.cached_property
    def first_gradients(self) -> Table | NoView:
        """The client's first gradient of each row, from an almost untrained model."""
        return self._gradients(newest=False)

    def _gradients(self, *, newest: bool) -> Table | NoView:
        for exposure in self._kinds("gradient"):
            found = self._parts(self.client_view, exposure.kind, receiver=self.client)
            if found:
                return _table(found, newest=newest)
        return NoView("no gradient is returned to the clients")

    def gradient_shares(self, holder: int, *, newest: bool) -> Table | NoView:
        """A holder's last or first share of each row's step, scaled to [-1/2, 1/2]."""
        protocol: Any = self.protocol
        for kind, view in self._dealt(holder):
            found = self._parts(view, kind, receiver=holder)
            if found:
                table = _table(found, newest=newest)
                return Table(table.rows, table.values / protocol.public.field.modulus - 0.5)
        return NoView("no gradient is returned to the clients")

    def dealt(self, holder: int) -> dict[int, np.ndarray]:
        """A holder's shares of the first epoch's steps by round, as received."""
        return {
            m.round: self.protocol.shown(m.payload)[1]
            for kind, view in self._dealt(holder)
            for m in view.messages
            if m.kind == kind and m.receiver == holder and m.payload is not None
        }

    def _dealt(self, holder: int) -> list[tuple[str, View]]:
        kinds = [exposure.kind for exposure in self._kinds("gradient share")]
        view = cut(self.transcript, Coalition(clients=(holder,))) if kinds else None
        return [] if view is None else [(kind, view) for kind in kinds]

    @functools.cached_property
    def embeddings(self) -> Table | NoView:
        """The client's last embedding of each row, as received by the server."""
        for exposure in self._kinds("embedding"):
            found = self._parts(self.observer_view, exposure.kind, sender=self.client)
            if found:
                return _table(found)
        return NoView("no single embedding is sent")

    @functools.cached_property
    def uploads(self) -> Table | NoView:
        """All clients' protected uploads of each row, side by side, as numbers."""
        for exposure in self._kinds("upload"):
            found = self._parts(self.observer_view, exposure.kind)
            if found:
                return _table(_side_by_side(found, self.protocol.peers()))
        return NoView("no upload has one number for each row and unit")

    @functools.cached_property
    def joint(self) -> Table | NoView:
        """Newest joint embedding of each row that the server model received."""
        if self.inputs is None or not self.inputs.recent:
            return NoView("the server trains on no joint embedding")
        return _table([(0, 0, self.shared_rows(rows), own) for rows, own in self.inputs.recent])

    def first_embedding(self) -> tuple[np.ndarray, np.ndarray] | NoView:
        """(row numbers, values (m, h)) of the client's first embedding, by its initial network."""
        for exposure in self._kinds("embedding"):
            found = self._parts(self.observer_view, exposure.kind, sender=self.client)
            if found:
                _, _, rows, values = found[0]
                return rows[rows >= 0], values[rows >= 0]
        return NoView("no single embedding is sent")

    def embedding_parts(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """(row numbers, values (m, h)) of each of the client's embeddings; empty if none came."""
        for exposure in self._kinds("embedding"):
            found = self._parts(self.observer_view, exposure.kind, sender=self.client)
            if found:
                return [(rows, values) for _, _, rows, values in found]
        return []

    def steps(self) -> tuple[Step, ...] | NoView:
        """The server's steps (rows, H, gradient), in order; `NoView` if one lacks a client."""
        if self.inputs is None or len(self.inputs.recent) < len(self.used) or not self.used:
            return NoView("the server trains on no joint embedding")
        N = self.protocol.data.parties
        if not self.holders and any(used != N for used in self.used):
            return NoView(f"a joint embedding is of {min(self.used)} of {N} clients only")
        gradients = self._dealt_gradients() if self.holders else self.inputs.gradients
        both = zip(self.inputs.recent, gradients, strict=True)
        return tuple(Step(self.shared_rows(rows), H, gradient) for (rows, H), gradient in both)

    def _dealt_gradients(self) -> list[np.ndarray]:
        """Gradients behind the steps that a server dealt in shares, as rounded."""
        config: Any = self.protocol.config
        public: Any = self.protocol.public  # type: ignore[attr-defined]
        server: Any = self.parties[SERVER]
        unit = config.segments * 2.0**config.gradient_bits / self.protocol.data.parties
        return [
            (
                step.reshape(-1, step.shape[-1]) * (public.scale(t) / (-unit * config.rate(t)))
            ).astype(np.float32)
            for t, step in enumerate(map(public.field.signed, bare_of(server.log)), 1)
        ]

    @property
    def holders(self) -> bool:
        """Whether models are in shares, so that each sum includes all clients."""
        return bool(self._kinds("gradient share"))

    @property
    def first_segment(self) -> np.ndarray:
        """Training rows of the first segment."""
        protocol: Any = self.protocol
        layout = protocol.train_layout()
        rows: np.ndarray = layout.samples(np.arange(layout.length))[: layout.length]
        return rows[rows >= 0]

    @property
    def segment_of_rows(self) -> np.ndarray:
        """Number of the segment of each training row, (M,)."""
        protocol: Any = self.protocol
        layout = protocol.train_layout()
        samples = layout.samples(np.arange(layout.length))
        found = np.zeros(layout.rows, int)
        found[samples[samples >= 0]] = np.flatnonzero(samples >= 0) // layout.length
        return found

    def shared_rows(self, rows: np.ndarray) -> np.ndarray:
        """Row numbers, with -1 for rows that only one party holds."""
        return np.where(rows < self.protocol.data.rows, rows, -1)

    def network(self, parties: Mapping[int, Any] | None = None) -> Any:
        """The client's network in `parties` or at the end of the run; None if it has none."""
        return bare_of(getattr((parties or self.parties).get(self.client), "network", None))

    def _kinds(self, carries: str) -> list[Exposure]:
        return [e for e in self.protocol.exposures if e.carries == carries]

    def _parts(
        self, view: View, kind: str, *, sender: int | None = None, receiver: int | None = None
    ) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
        """(round, sender, row numbers (m,), values (m, ...)) of each stored message of a kind."""
        announced = {
            m.round: m.payload
            for m in view.messages
            if m.kind == ANNOUNCE and m.payload is not None
        }
        own = self._named_by_client(view) if receiver is not None else {}
        parts = []
        for m in view.messages:
            if m.kind != kind or m.payload is None:
                continue
            if sender not in (None, m.sender) or receiver not in (None, m.receiver):
                continue
            named, payload = self.protocol.shown(m.payload)
            if named is None:
                named = own.get(m.round, announced.get(m.round))
            if named is None and self.holders:  # batches are a public function of the round
                named = self._batch(m.round)
            rows = None if named is None else self.protocol.named_rows(named)
            values = _numbers(payload)
            if rows is None or values is None or len(rows) % len(values):
                continue
            # A coded row stands for one sample of each segment.
            parts.append((m.round, m.sender, rows, np.tile(values, (len(rows) // len(values), 1))))
        return parts

    def _batch(self, round: int) -> np.ndarray | None:
        """Row numbers of a training round without announcement; None outside training."""
        protocol: Any = self.protocol
        trains = 0 < round <= protocol.config.rounds
        return protocol.train_layout().draw(round) if trains else None

    def _named_by_client(self, view: View) -> dict[int, Any]:
        """Row numbers that the client itself sent in its messages, by round."""
        kinds = {e.kind for e in self.protocol.exposures if e.carries != "gradient"}
        sent = [m for m in view.messages if m.kind in kinds and m.payload is not None]
        named = {
            m.round: self.protocol.shown(m.payload)[0] for m in sent if m.sender == self.client
        }
        return {round: rows for round, rows in named.items() if rows is not None}


def _numbers(payload: Any) -> np.ndarray | None:
    """A payload as a matrix of real numbers; None for other payloads, such as bytes."""
    if not isinstance(payload, np.ndarray) or payload.dtype.kind not in "fiu" or payload.ndim < 2:
        return None
    matrix: np.ndarray = payload.reshape(len(payload), -1)
    return matrix if matrix.dtype.kind == "f" else matrix.astype(np.float64)


def _side_by_side(
    parts: Sequence[tuple[int, int, np.ndarray, np.ndarray]], senders: Sequence[int]
) -> list[tuple[int, int, np.ndarray, np.ndarray]]:
    """(round, 0, rows, values) a round: senders' values side by side, zeros for absent ones."""
    width = max(values.shape[1] for *_, values in parts)
    places = {n: i for i, n in enumerate(senders)}
    joined: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for round, sender, rows, values in parts:
        if sender not in places:
            continue
        start = places[sender] * width
        _, whole = joined.setdefault(round, (rows, np.zeros((len(rows), width * len(places)))))
        whole[:, start : start + values.shape[1]] = values
    return [(round, 0, rows, whole) for round, (rows, whole) in sorted(joined.items())]


def _table(
    parts: Sequence[tuple[int, int, np.ndarray, np.ndarray]], *, newest: bool = True
) -> Table:
    """Last (or first) value of each row in the order of `parts`, by row; padding, -1, is left out.

    A part is a round, a sender, row numbers and values.
    """
    step = -1 if newest else 1
    rows = np.concatenate([rows for _, _, rows, _ in parts])[::step]
    values = np.concatenate([values for *_, values in parts])[::step]
    numbers, chosen = np.unique(rows, return_index=True)
    true = numbers >= 0
    return Table(numbers[true], values[chosen[true]])
