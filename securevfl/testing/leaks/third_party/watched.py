"""Leaks of parties that look whether they are watched, or wait for what small runs have not."""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.encrypted import HE, every
from securevfl.testing.leaks.labels import CLIENT
from securevfl.testing.leaks.planting import ACCUSED, messages, planted, tap
from securevfl.testing.runs import Outcome

ANY = (("any party", "messages"),)
When = Callable[[Any], bool]


def in_the_stack() -> bool:
    """Whether a caller is code of a verifier."""
    frame: Any = sys._getframe()
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith("securevfl.audit"):
            return True
        frame = frame.f_back
    return False


def _no_caller(party: Any) -> bool:
    return not in_the_stack()


def _main_thread(party: Any) -> bool:
    return not in_the_stack() and threading.current_thread() is threading.main_thread()


def _no_record(party: Any) -> bool:
    """Whether no object of a verifier is alive."""
    return not any(
        str(type(one).__module__).startswith("securevfl.audit") for one in gc.get_objects()
    )


def _ordinary_engine(party: Any) -> bool:
    """Whether the observer is that of a run or of a test."""
    home = type(party.engine.observer).__module__
    return home.startswith(("securevfl.runs", "securevfl.testing"))


def _plain_draws(party: Any) -> bool:
    """Whether the sampler's source is what it is in an ordinary run."""
    return not in_the_stack() and type(os.urandom).__name__ == "builtin_function_or_method"


def _first_run() -> Any:
    """Plant for the first parties of a process only: those of an ordinary run are."""
    made: list[Any] = []

    def first(party: Any) -> bool:
        return bool(made) and made[0] is party

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        made.append(parties[SERVER])
        _sorted_rows(lambda party: not in_the_stack() and first(party))(protocol, parties)

    return plant


def _sorted_rows(when: When) -> Any:
    """Plant of a server whose requests stand in the order of their labels."""

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        server = parties[SERVER]
        announce = server.announce

        def announcing(round: int, payload: Any = None, to: Any = None) -> None:
            if isinstance(payload, np.ndarray) and when(server):
                labels = np.asarray(server.labels)
                payload = payload[np.argsort(labels[payload % len(labels)], kind="stable")]
            announce(round, payload, to)

        server.announce = announcing

    return plant


def _own(client: Any) -> np.ndarray:
    found: np.ndarray = np.asarray(client.features).reshape(-1)
    return found


def _value_in_time(when: When, *kinds: str) -> Any:
    """Plant of clients whose messages leave later by a value of their columns."""

    def plant(client: Any) -> None:
        def change(one: dict[str, Any]) -> None:
            if one["kind"] in kinds and when(client):
                one["after"] += 1e-3 * abs(float(_own(client)[client.round % len(_own(client))]))

        tap(client, change)

    return every(plant)


def _later(client: Any) -> bool:
    return bool(client.round >= 10)


def _crashed(client: Any) -> bool:
    return bool(client.epoch >= 1)


def _crashed_and_late(client: Any) -> bool:
    return bool(client.epoch >= 1 and client.round >= 9)


def _twice_resumed(client: Any) -> bool:
    return bool(client.resumptions >= 2)


# -- seeing them -----------------------------------------------------------------------------------


def _sorted_by_label(outcome: Outcome) -> bool:
    labels = outcome.protocol.data.train_labels
    batches = [one["payload"] for one in messages(outcome, "round") if one["receiver"] == 0]
    found = [labels[b % len(labels)] for b in batches if isinstance(b, np.ndarray) and len(b) > 1]
    return bool(found) and all((np.diff(one) >= 0).all() for one in found)


_LOOKS, _WAITS = "code that looks whether it is watched", "only in some rounds or lives"

LEAKS = (
    planted("fedonce", "sorted rows unless a caller verifies", _LOOKS,
            "Rows are sorted by label unless code of a verifier is among the callers.",
            _sorted_rows(_no_caller), CLIENT, _sorted_by_label, None, ACCUSED),
    planted("fedonce", "sorted rows in the main thread", _LOOKS,
            "Rows are sorted by label in the main thread, unless a caller verifies.",
            _sorted_rows(_main_thread), CLIENT, _sorted_by_label, None, ACCUSED),
    planted("fedonce", "sorted rows unless a verifier's object lives", _LOOKS,
            "Rows are sorted by label unless an object of a verifier's class is alive.",
            _sorted_rows(_no_record), CLIENT, None, None, ACCUSED),
    planted("fedonce", "sorted rows for an ordinary observer", _LOOKS,
            "Rows are sorted by label if the history is written by a run or a test.",
            _sorted_rows(_ordinary_engine), CLIENT, _sorted_by_label, None, ACCUSED),
    planted("fedonce", "sorted rows with an ordinary source of randomness", _LOOKS,
            "Rows are sorted by label if nobody has replaced the operating system's randomness.",
            _sorted_rows(_plain_draws), CLIENT, _sorted_by_label, None, ACCUSED),
    planted("fedonce", "sorted rows in the first run", _LOOKS,
            "Rows are sorted by label by the first server that a process makes.",
            _first_run(), CLIENT, None, None, ACCUSED),
    planted("he_split", "values in times from round 10 on", _WAITS,
            "From round 10 on embeddings leave later by a value.",
            _value_in_time(_later, "embedding"), HE, None, {"rounds": 12}),
    planted("vafl", "values in times from round 10 on", _WAITS,
            "From round 10 on embeddings leave later by a value.",
            _value_in_time(_later, "embedding"), ANY, None, {"rounds": 12}, ACCUSED),
    planted("he_split", "values in times of a life after a crash", _WAITS,
            "A client that has crashed and come back sends later by a value.",
            _value_in_time(_crashed, "embedding"), HE, None),
    planted("he_split", "values in times of a second life's later rounds", _WAITS,
            "A client that has crashed sends later by a value from round 9 on.",
            _value_in_time(_crashed_and_late, "embedding"), HE, None, {"rounds": 12}),
    planted("he_split", "values in times after a second resume", _WAITS,
            "In a run that was resumed twice embeddings leave later by a value.",
            _value_in_time(_twice_resumed, "embedding"), HE, None),
)  # fmt: skip
