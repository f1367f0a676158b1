"""Leaks of protocols whose best verdict is that nothing was found: in late rounds, after losses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.privacy.mechanisms import clip_rows
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.labels import GUEST, HOST
from securevfl.testing.leaks.noise import OWNERS, ROWS, SECURE
from securevfl.testing.leaks.planting import ACCUSED, messages, planted, tap
from securevfl.testing.runs import Outcome

ANY = (("any party", "messages"),)
LATE = SECURE | {"rounds": 12}


def _released(when: Any) -> Any:
    """Plant of clients of wait_dp that add no noise `when` they need not fear to be seen."""

    def plant(client: Any) -> None:
        release = client.release

        def releasing(embedding: np.ndarray) -> np.ndarray:
            if not when(client):
                noisy: np.ndarray = release(embedding)
                return noisy
            return clip_rows(embedding, client.privacy.clip).astype(np.float32)

        client.release = releasing

    return every(plant)


def _exact_answers(client: Any) -> None:
    """From request 10 on a data owner of multivfl answers without noise."""
    answer = client.answer

    def answering(owner: int, number: int, places: np.ndarray) -> None:
        if number < 10:
            answer(owner, number, places)
            return
        own = client.features[client.rows[str(owner)][places]]
        rows = clip_rows(client.copies.networks[owner].forward(own), client.privacy.clip)
        told = ((owner, places), rows.astype(np.float32))
        client.send(owner, "embedding", told, round=number)

    client.answer = answering


def _later_end(protocol: Protocol, parties: dict[int, Any]) -> None:
    """An owner that lost a host tells the others of the end later, by a label."""
    server = parties[SERVER]
    conclude = server.conclude

    def concluding(to: Any = None) -> None:
        if len(server.answered) == len(server.hosts):
            conclude(to)
            return
        server.round += 1
        for n in to:
            server.send(n, ANNOUNCE, "stop", after=float(server.labels[0]))

    server.conclude = concluding


def _later(client: Any) -> None:
    """From round 10 on embeddings leave later by a value."""

    def change(one: dict[str, Any]) -> None:
        if one["kind"] == "embedding" and client.round >= 10:
            own = client.features.reshape(-1)
            one["after"] += 1e-3 * (1 + abs(float(own[client.round % len(own)])))

    tap(client, change)


def _arrays(outcome: Outcome) -> Iterator[np.ndarray]:
    for one in messages(outcome, "embedding"):
        if one["round"] >= 10:
            found = one["payload"]
            yield found if isinstance(found, np.ndarray) else found[1]


def _short(outcome: Outcome) -> bool:
    """Whether all rows of late rounds are no longer than clipped rows without noise are."""
    found = list(_arrays(outcome))
    norms = [float(np.linalg.norm(rows, axis=1).max()) for rows in found]
    return bool(norms) and max(norms) <= 1.001  # the bound is 1


_ROUNDS, _EVENTS = "only in some rounds or lives", "only after an event"

LEAKS = (
    planted("wait_dp", "no noise from round 10 on", _ROUNDS,
            "From round 10 on rows are clipped and have no noise.",
            _released(lambda client: client.round >= 10), ROWS, _short, LATE, ACCUSED),
    planted("wait_dp", "no noise after a crash", _EVENTS,
            "A client that has crashed and come back adds no noise.",
            _released(lambda client: client.epoch >= 1), ROWS, None, SECURE, ACCUSED),
    planted("multivfl", "no noise from request 10 on", _ROUNDS,
            "From request 10 on activations are clipped and have no noise.",
            every(_exact_answers), OWNERS, _short, LATE, ACCUSED),
    planted("dvfl", "a later end after a host was lost", _EVENTS,
            "Where a host did not answer, the end is announced later, by a label.",
            _later_end, (GUEST, HOST), None, None, ACCUSED),
    planted("vfb2", "values in times from round 10 on", _ROUNDS,
            "From round 10 on outputs leave later by a value.",
            every(_later), ANY, None, {"rounds": 12}, ACCUSED),
    planted("cvfl", "values in times from round 10 on", _ROUNDS,
            "From round 10 on embeddings leave later by a value.",
            every(_later), ANY, None, {"rounds": 12}, ACCUSED),
)  # fmt: skip
