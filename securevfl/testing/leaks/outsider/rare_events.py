"""Leaks of FedVS that come with rare events, or tell what the usual comparisons leave as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.fedvs_masks import (
    CLIENTS_MODEL,
    UPLOADS,
    model_mask,
    when,
)
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA
from securevfl.testing.leaks.planting import (
    clients,
    messages,
    planted,
    tap,
    telling_column,
    upload_masks,
)
from securevfl.testing.runs import Outcome

MANY = 250  # rows from which some leaks are there: small runs have fewer


def spread_bit(features: np.ndarray, round: int) -> int:
    """1 where an entry is far from the middle of its column, which a mirrored column keeps."""
    own = telling_column(features)
    far = np.abs(own - (own.max() + own.min()) / 2)
    return int(far[(7 * round) % len(far)] > np.median(far))


def bit_of(client: Any) -> int:
    """The bit of a client in its present round."""
    return spread_bit(client.features["train"], client.round)


def zero(which: Callable[[Any, int, int], bool]) -> Any:
    """Plant whose clients draw zeros where `which` (client, round, place in the round) says."""
    return when(which, np.zeros_like)


def _far_in_epoch(client: Any, round: int, place: int) -> bool:
    return model_mask(client, round, place) and client.epoch >= 2


def _two_in_a_row(client: Any, round: int, place: int) -> bool:
    return model_mask(client, round, place) and len(client.ledger.possible_uploads()) >= 2


def _returned_with_many(client: Any, round: int, place: int) -> bool:
    many = len(client.features["train"]) > MANY
    return bool(model_mask(client, round, place) and client.returned and many)


def _late_waits(client: Any) -> None:
    """Once a round had fewer sharers than clients, `shared` departs later if a bit is one."""
    checked, late = client.checked, []

    def checking(batch: Any, attempt: Any) -> Any:
        if len(attempt.sharers) < len(client.peers):
            late.append(client.round)
        return checked(batch, attempt)

    def change(one: dict[str, Any]) -> None:
        if late and one["kind"] == "shared":
            one["after"] += 0.3 * bit_of(client)

    client.checked = checking
    tap(client, change)


def _waits_of_many(client: Any) -> None:
    def change(one: dict[str, Any]) -> None:
        if one["kind"] == "shared" and len(client.features["train"]) > MANY:
            one["after"] += 0.3 * bit_of(client)

    tap(client, change)


def _quiet_after(client: Any) -> None:
    """After an attempt that was given up a client uploads only if a bit is zero."""
    consistent = client.consistent

    def answering(batch: Any, attempt: Any) -> bool:
        if batch.part == "train" and client.ledger.possible_uploads() and bit_of(client):
            return False
        return bool(consistent(batch, attempt))

    client.consistent = answering


def _names_fewer(client: Any) -> None:
    """Of the rounds to which a client may have uploaded it leaves one out if a bit is one."""
    uploads = client.ledger.possible_uploads

    def rounds() -> tuple[int, ...]:
        found = tuple(uploads())
        return found[:-1] if found and bit_of(client) else found

    client.ledger.possible_uploads = rounds


def _same_rows_again(protocol: Protocol, parties: dict[int, Any]) -> None:
    """After an attempt that was given up the server asks for its rows, and nobody refuses."""
    server = parties[SERVER]
    following, same = server.next_batch, server.ledger.same_rows

    def batch() -> Any:
        return server.batch if server.given_up else following()

    server.next_batch = batch
    server.ledger.same_rows = lambda batch: None if server.given_up else same(batch)
    for one in clients(protocol, parties):
        one.consistent = lambda batch, attempt: True


def _of_batch(which: Callable[[Any, Any], bool]) -> Callable[[Any], None]:
    """Plant of a client whose rho is zero in the rounds of some batches."""

    def plant(client: Any) -> None:
        checked, own, chosen = client.checked, client.rho, set()

        def checking(batch: Any, attempt: Any) -> Any:
            if which(client, batch):
                chosen.add(client.round)
            return checked(batch, attempt)

        def rho(told: bytes, shape: tuple[int, ...]) -> np.ndarray:
            values: np.ndarray = own(told, shape)
            return np.zeros_like(values) if client.round in chosen else values

        client.checked, client.rho = checking, rho

    return plant


def _padded(client: Any, batch: Any) -> bool:
    return bool((client.public.batches[batch.part].samples(batch.rows) < 0).any())


# -- seeing them -----------------------------------------------------------------------------------


def _rho_zero_where(asked: Callable[[Any, Any], bool]) -> Callable[[Outcome], bool]:
    def shows(outcome: Outcome) -> bool:
        opened = {int(one["round"]): one["payload"] for one in messages(outcome, "round")
                  if one["receiver"] == 0}  # fmt: skip
        client = outcome.parties[0]
        summed = {int(one["round"]) for one in messages(outcome, "attempt")}
        told = [round for round in sorted(summed) if asked(client, opened[round])]
        return bool(told) and not any(
            one.any() for round in told for one in upload_masks(outcome, round).values()
        )

    return shows


_EVENT, _BOTH = "only after an event", "an event and a size together"
_UNMOVED = "a statistic that comparisons do not move"
_TIMEOUTS = {"share_timeout": 60.0, "result_timeout": 0.2, "max_attempts": 30, "rounds": 8}
SERVER_ALL = (("server", "features"), ("server", "model"))


LEAKS = (
    planted("fedvs", "V zero after the second crash", _EVENT,
            "A client that came back twice has models without masks.", zero(_far_in_epoch),
            CLIENTS_MODEL, None),
    planted("fedvs", "V zero after two attempts in a row", _EVENT,
            "After two attempts in a row that were given up models have no masks.",
            zero(_two_in_a_row), CLIENTS_MODEL, None, _TIMEOUTS),
    planted("fedvs", "the same rows after an attempt", _EVENT,
            "After an attempt that was given up its rows are summed with other models.",
            _same_rows_again, SERVER_ALL, None, _TIMEOUTS | {"share_timeout": 0.5}),
    planted("fedvs", "V zero after a return, with many rows", _BOTH,
            "With more than 250 rows a client that came back has models without masks.",
            zero(_returned_with_many), CLIENTS_MODEL, None),
    planted("fedvs", "waits of a spread, once somebody was late", _UNMOVED,
            "Once somebody was late, departures tell whether values are far from the middle.",
            every(_late_waits), SERVER_DATA, None),
    planted("fedvs", "waits of a spread, with many rows", _UNMOVED,
            "With more than 250 rows departures tell whether values are far from the middle.",
            every(_waits_of_many), SERVER_DATA, None),
    planted("fedvs", "silence of a spread after an attempt", _UNMOVED,
            "After an attempt that was given up clients upload only if a value is near the middle.",
            every(_quiet_after), SERVER_DATA, None, _TIMEOUTS),
    planted("fedvs", "fewer rounds named by a spread", _UNMOVED,
            "After an attempt that was given up a client leaves a round out if a bit is one.",
            every(_names_fewer), SERVER_DATA, None, _TIMEOUTS),
    planted("fedvs", "secure: rho zero in inference", "only with an option",
            "Masks of uploads are zero while test rows are inferred.",
            every(_of_batch(lambda client, batch: batch.part == "test")), UPLOADS,
            _rho_zero_where(lambda client, batch: getattr(batch, "part", "") == "test"),
            {"secure": True}),
    planted("fedvs", "rho zero where rows are padded", "only in some rounds",
            "Masks of uploads are zero in batches that hold padded rows.",
            every(_of_batch(_padded)), UPLOADS,
            _rho_zero_where(lambda client, batch: hasattr(batch, "part")
                            and _padded(client, batch)), {"rounds": 8, "segments": 2}),
)  # fmt: skip
