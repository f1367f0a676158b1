"""More leaks of secagg_split, he_split, wait_dp, multivfl, dvfl, fedonce, vafl and cvfl."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER
from securevfl.models.homomorphic import Ckks
from securevfl.privacy.mechanisms import release_rows
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.declared_contents import DECLARED
from securevfl.testing.leaks.encrypted import SECAGG, every
from securevfl.testing.leaks.labels import CLIENT, GUEST, HOST
from securevfl.testing.leaks.noise import OWNERS, ROWS, SECURE
from securevfl.testing.leaks.outsider.rare_events import spread_bit
from securevfl.testing.leaks.planting import (
    ACCUSED,
    messages,
    planted,
    tap,
    telling_column,
)
from securevfl.testing.runs import Outcome

KEY_HOLDER = (("key holder", "features"),)


# -- secure aggregation ----------------------------------------------------------------------------


def _again_after_nothing(client: Any) -> None:
    """After a round that was given up a client takes its key and seed once more."""
    draw, update = client.random_bytes, client.update
    kept: list[bytes] = []
    stepped = [True]

    def drawing() -> bytes:
        begins = len(kept) >= 2
        if begins and stepped[0]:
            kept.clear()
        if begins and not stepped[0]:
            kept.append(kept.pop(0))
            found: bytes = kept[-1]
            stepped[0] = False
            return found
        kept.append(draw())
        if len(kept) == 2:
            stepped[0] = False
        return kept[-1]

    def updating(own: np.ndarray, gradient: np.ndarray) -> None:
        stepped[0] = True
        update(own, gradient)

    client.random_bytes, client.update = drawing, updating


def _neighbours_only(client: Any) -> None:
    """Masks are agreed with the two neighbours only."""
    hide = client.masked

    def masked(x: np.ndarray, pairing: Any, seed: bytes, deals: Any) -> np.ndarray:
        hidden: np.ndarray = hide(x, pairing, seed, deals)
        N, field = len(client.peers), client.public.field
        for v, deal in deals.items():
            if v != client.index and (v - client.index) % N not in (1, N - 1):
                mask = client.public.stream(pairing.agree(v, deal.key), x.shape)
                hidden = (field.subtract if v < client.index else field.add)(hidden, mask)
        return hidden

    client.masked = masked


def _identity_of_data(client: Any) -> None:
    """The signing key is a hash of the columns, so whoever guesses them can see it."""
    draw, count = client.random_bytes, [0]

    def drawing() -> bytes:
        count[0] += 1
        if count[0] == 1:
            return hashlib.sha256(client.features.tobytes()).digest()
        found: bytes = draw()
        return found

    client.random_bytes = drawing


def _late_waits(client: Any) -> None:
    """Once somebody had dropped out, uploads depart later if a value is far from the middle."""
    check, late = client.check, []

    def checking(survivors: set[int], sharers: set[int]) -> None:
        if len(sharers) < len(client.peers):
            late.append(client.round)
        check(survivors, sharers)

    def change(one: dict[str, Any]) -> None:
        if late and one["kind"] == "embedding":
            one["after"] += 0.3 * spread_bit(client.features, client.round)

    client.check = checking
    tap(client, change)


# -- homomorphic encryption ------------------------------------------------------------------------


class _Telling(Ckks):
    """CKKS whose plaintexts are a little off in the first slot where a bit is one."""

    bits: Callable[[], int]

    def encrypt(self, key: bytes, values: np.ndarray) -> tuple[bytes, ...]:
        """As CKKS does, with 6 standard deviations of noise in the first slot."""
        off = np.zeros(len(values))
        off[0] = 6 * self.NOISE * self.bits()
        found: tuple[bytes, ...] = super().encrypt(key, values + off)
        return found


def _bits_in_noise(client: Any) -> None:
    import copy

    public = copy.copy(client.public)
    scheme = copy.copy(public.scheme)
    scheme.__class__ = _Telling
    column = telling_column(client.features)
    scheme.bits = lambda: int(column[client.round % len(column)] > column.mean())
    object.__setattr__(public, "scheme", scheme)
    client.public = public


# -- noise -----------------------------------------------------------------------------------------


def _until(make: Callable[[], np.ndarray], bit: int, exact: float) -> np.ndarray:
    """A release that is drawn anew until its first entry lies on the side that a bit says."""
    while True:
        found = make()
        if (float(found.flat[0]) > exact) == bool(bit):
            return found


def _until_a_sign(client: Any) -> None:
    release = client.release

    def releasing(embedding: np.ndarray) -> np.ndarray:
        column = telling_column(client.features)
        bit = int(column[client.round % len(column)] > column.mean())
        return _until(lambda: release(embedding), bit, float(embedding.flat[0]))

    client.release = releasing


def _owners_until_a_sign(client: Any) -> None:
    def answer(owner: int, number: int, places: np.ndarray) -> None:
        own = client.features[client.rows[str(owner)][places]]
        rows = client.copies.networks[owner].forward(own)
        column = telling_column(client.features)
        bit = int(column[number % len(column)] > column.mean())

        def make() -> np.ndarray:
            privacy = client.privacy
            found: np.ndarray = release_rows(rows, bound=privacy.clip, sigma=privacy.sigma)
            return found.astype(np.float32)

        sent = _until(make, bit, float(rows.flat[0]))
        client.send(owner, "embedding", ((owner, places), sent), round=number)

    client.answer = answer


# -- labels ----------------------------------------------------------------------------------------


def _class_waits(kind: str) -> Any:
    """The first message of a kind waits as many seconds as rows have the first label."""

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        server = parties[SERVER]
        labels = np.asarray(protocol.data.train_labels)
        broadcast = server.broadcast

        def sending(name: str, payload: Any, to: Any = None) -> None:
            if name != kind:
                broadcast(name, payload, to)
                return
            late = float((labels == labels.min()).sum())
            for one in to or server.peers:
                server.send(one, name, payload, after=late)

        server.broadcast = sending

    return plant


def _labels_in_the_table(protocol: Protocol, parties: dict[int, Any]) -> None:
    """In the server's table the newest embeddings of client 0 are labels, once they were used."""
    server = parties[SERVER]
    answer = server.answer

    def answering(batch: np.ndarray, step: Any) -> None:
        answer(batch, step)
        known = server.last.version[0, :-1] >= 0
        told = np.asarray(server.labels, np.float32)[known]
        server.last.table[0, :-1][known] = 10 * told[:, None]

    server.answer = answering


def _labels_in_the_top_model(protocol: Any, parties: dict[int, Any]) -> None:
    """The collaborator's own step takes the labels that are in its gradients' low bits."""
    for active in protocol.data.label_sets if hasattr(protocol.data, "label_sets") else ():
        del active
    for party in parties.values():
        if hasattr(party, "labelled_rows"):
            tap(party, lambda one, party=party: _with_labels(party, one))  # type: ignore[misc]


def _with_labels(party: Any, one: dict[str, Any]) -> None:
    if one["kind"] != "gradient":
        return
    rows, gradient = one["payload"]
    labels = party.labels[np.searchsorted(party.labelled_rows, rows)]
    words = np.ascontiguousarray(gradient).view(np.uint32).copy()
    words[:, 0] = (words[:, 0] & ~np.uint32(15)) | labels.astype(np.uint32)
    one["payload"] = rows, words.view(np.float32)


# -- seeing them -----------------------------------------------------------------------------------


def _identities_of_data(outcome: Outcome) -> bool:
    party: Any = outcome.parties[1]
    return bool(party.identity == hashlib.sha256(party.features.tobytes()).digest())


def _starts_late(kind: str) -> Callable[[Outcome], bool]:
    def shows(outcome: Outcome) -> bool:
        labels = np.asarray(outcome.protocol.data.train_labels)
        arrived = [int(m["arrived"]) for m in messages(outcome, kind)]
        return bool(min(arrived) / 1e9 >= (labels == labels.min()).sum())

    return shows


def _table_tells(outcome: Outcome) -> bool:
    server: Any = outcome.parties[SERVER]
    known = server.last.version[0, :-1] >= 0
    told = 10 * np.asarray(server.labels, np.float32)[known]
    return bool(known.any()) and np.array_equal(server.last.table[0, :-1][known][:, 0], told)


def _low_bits_are_labels(outcome: Outcome) -> bool:
    labels = outcome.protocol.data.train_labels
    for one in messages(outcome, "gradient"):
        rows, gradient = one["payload"]
        if not np.array_equal(
            np.ascontiguousarray(gradient).view(np.uint32)[:, 0] & 15, labels[rows]
        ):
            return False
    return True


_UNMOVED = "a statistic that comparisons do not move"
_DRAWN, _MASKS = "keys and seeds reused or known", "masks left out"
_CHOSEN, _STATE = "noise that is chosen by the data", "a state that no formula makes"

LEAKS = (
    planted("secagg_split", "secrets of a round that was given up", _DRAWN,
            "After a round that was given up clients take its key and seed again.",
            every(_again_after_nothing), SECAGG, None),
    planted("secagg_split", "masks of neighbours only", _MASKS,
            "A client agrees on masks with two others only, who can take them off.",
            every(_neighbours_only), SECAGG[2:], None),
    planted("secagg_split", "a signing key of the data", _DRAWN,
            "The signing key is a hash of the columns.", every(_identity_of_data), SECAGG[:1],
            _identities_of_data, {"consistency": True}),
    planted("secagg_split", "waits of a spread, once somebody dropped out", _UNMOVED,
            "Once somebody dropped out, departures tell whether values are far from the middle.",
            every(_late_waits), SECAGG[:1], None),
    planted("he_split", "bits in the noise of ciphertexts", "low bits of noise",
            "The first slot of a ciphertext is off by less than what noise may be if a bit is one.",
            every(_bits_in_noise), KEY_HOLDER, None),
    planted("wait_dp", "noise drawn until a sign shows", _CHOSEN,
            "Noise is drawn anew until the sign of its first entry tells a bit.",
            every(_until_a_sign), ROWS, None, SECURE, ACCUSED),
    planted("multivfl", "noise drawn until a sign shows", _CHOSEN,
            "Noise is drawn anew until the sign of its first entry tells a bit.",
            every(_owners_until_a_sign), OWNERS, None, SECURE, ACCUSED),
    planted("dvfl", "waits for the first class", _UNMOVED,
            "The first announcement waits as many seconds as rows have the first label.",
            _class_waits(ANNOUNCE), (GUEST, HOST), None, None, ACCUSED),
    planted("fedonce", "waits for the first class", _UNMOVED,
            "Announcements wait as many seconds as rows have the first label.",
            _class_waits(ANNOUNCE), CLIENT, _starts_late(ANNOUNCE), None, ACCUSED),
    planted("vafl", "labels in the table of embeddings", _STATE,
            "In the server's table client 0's embeddings are labels, which gradients then tell.",
            _labels_in_the_table, DECLARED, _table_tells, None, ACCUSED),
    planted("cvfl", "labels in the low bits of gradients", "labels in a declared message",
            "The last bits of a row's gradient are its label.", _labels_in_the_top_model,
            DECLARED, _low_bits_are_labels, None, ACCUSED),
)  # fmt: skip
