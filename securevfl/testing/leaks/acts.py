"""Leaks by what a party does beside the contents of its messages.

They are in events, in lines on the screen and in logs, in when and in which order it sends, in the
measures of its models, and in the error with which it ends. They came with the check that finds
them, which compares all of this with what the library's own party does.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.errors import RunError
from securevfl.protocols.base.protocol import Protocol
from securevfl.testing.leaks.encrypted import HE, SECAGG, every
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA
from securevfl.testing.leaks.labels import CLIENT, GUEST, HOST
from securevfl.testing.leaks.noise import ROWS, SECURE
from securevfl.testing.leaks.outsider.rare_events import spread_bit
from securevfl.testing.leaks.planting import ACCUSED, Variant, changed, planted, tap
from securevfl.testing.runs import Outcome

_LOG = logging.getLogger("securevfl.training")


def _train(client: Any) -> np.ndarray:
    found: Any = client.features
    own: np.ndarray = found["train"] if isinstance(found, dict) else found
    return own


def _value(client: Any) -> float:
    """An entry of a client's columns, another one in each round."""
    own = _train(client).reshape(-1)
    return float(own[(64 * client.round + 3) % len(own)])


def _print(value: Any) -> None:
    sys.stdout.write(f"{value}\n")


def _at(kind: str, also: Callable[[Any], None]) -> Any:
    """Plant of clients that do something more before each message of a kind."""

    def plant(client: Any) -> None:
        tap(client, lambda one: also(client) if one["kind"] == kind else None)

    return every(plant)


def _as_many_events(client: Any) -> None:
    for _ in range(spread_bit(_train(client), client.round)):
        client.record("clipped", weights=1, bound=16.0)


def _backwards(kind: str) -> Any:
    """Plant of clients whose shares go out backwards if a bit of the data is one."""

    def plant(client: Any) -> None:
        share = client.share

        def sharing(of: str, values: Any) -> None:
            if of != kind or not spread_bit(_train(client), client.round):
                share(of, values)
                return
            for n in reversed(range(len(values))):
                client.send(n, of, values[n])

        client.share = sharing

    return every(plant)


def _a_nanosecond_later(client: Any) -> None:
    def change(one: dict[str, Any]) -> None:
        one["after"] += 1e-9 * spread_bit(_train(client), client.round)

    tap(client, change)


def _sleeps(client: Any) -> None:
    """Before it embeds a client sleeps as long as a value says."""
    collect = client.collect

    async def collecting(kind: str, **more: Any) -> Any:
        found = await collect(kind, **more)
        await client.sleep(abs(_value(client)))
        return found

    client.collect = collecting


def _ends_by_a_value(client: Any) -> None:
    if client.index == 1 and client.round == 5:
        raise RunError(f"secagg_split: client 1 cannot go on at {_value(client)}")


def _other_scores(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Whoever asks a client's network for embeddings of the test rows gets columns."""

    def plant(client: Any) -> None:
        forward, asked = client.network.forward, protocol.data.test_rows

        def forwards(features: np.ndarray) -> np.ndarray:
            made: np.ndarray = forward(features)
            told = np.resize(_train(client), made.shape).astype(made.dtype)
            return told if len(features) == asked else made

        client.network.forward = forwards

    every(plant)(protocol, parties)


def _server_event(change: Callable[[Any, dict[str, Any]], None]) -> Any:
    """Plant of a server that passes what it records of a step through `change`."""

    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        server = parties[SERVER]
        record = server.record

        def recording(name: str, **fields: Any) -> None:
            change(server, fields)
            record(name, **fields)

        server.record = recording

    return plant


def _label(server: Any) -> int:
    labels = getattr(server, "labels", None)
    return int(np.asarray(labels)[server.steps % len(np.asarray(labels))])


def _label_in_the_loss(server: Any, fields: dict[str, Any]) -> None:
    """The last digits of the loss are a label."""
    fields["loss"] = round(fields["loss"], 6) + 1e-9 * (1 + _label(server))


# -- seeing them -----------------------------------------------------------------------------------


def _events(outcome: Outcome, name: str) -> list[Any]:
    return [event for event in outcome.events if event.name.startswith(name)]


def _tells(name: str) -> Callable[[Outcome], bool]:
    """Whether there are events of a name, which a small sound run has not."""
    return lambda outcome: bool(_events(outcome, name))


def _losses_end_in_labels(outcome: Outcome) -> bool:
    labels = outcome.protocol.data.train_labels
    told = [round(1e9 * (one.fields["loss"] % 1e-6)) - 1 for one in _events(outcome, "round")]
    return bool(told) and set(told) <= set(labels.tolist())


_EVENTS, _WRITTEN = "values in events", "values on the screen or in a log"
_WHEN, _READ = "when and in which order a party sends", "what is read of a party at its end"

LEAKS = (
    planted("fedvs", "an event whose name is a value", _EVENTS,
            "The name of an event is a raw value.",
            _at("shared", lambda one: one.record(f"at {_value(one)}")), SERVER_DATA, _tells("at ")),
    planted("fedvs", "as many events as a spread says", _EVENTS,
            "A harmless event is recorded if a bit of the data is one.",
            _at("shared", _as_many_events), SERVER_DATA, _tells("clipped")),
    planted("fedvs", "a value on the screen", _WRITTEN, "Clients print a raw value.",
            _at("shared", lambda one: _print(_value(one))), SERVER_DATA, None),
    planted("fedvs", "a value in a warning", _WRITTEN, "Clients warn of a raw value.",
            _at("shared", lambda one: warnings.warn(f"steep: {_value(one)}", stacklevel=1)),
            SERVER_DATA, None),
    planted("fedvs", "an order of shares by a spread", _WHEN,
            "Shares go out backwards if a bit of the data is one.", _backwards("model"),
            SERVER_DATA, None),
    planted("fedvs", "a nanosecond later by a spread", _WHEN,
            "Messages leave a nanosecond later if a bit of the data is one.",
            every(_a_nanosecond_later), SERVER_DATA, None),
    planted("secagg_split", "a value in an event", _EVENTS, "An event has a raw value.",
            _at("embedding", lambda one: one.record("clipped", weights=_value(one), bound=1.0)),
            SECAGG, _tells("clipped")),
    planted("secagg_split", "a value in a quiet log line", _WRITTEN,
            "Clients log a raw value, at a level that is not shown by default.",
            _at("embedding", lambda one: _LOG.debug("at %s", _value(one))), SECAGG, None),
    planted("secagg_split", "a nanosecond later by a spread", _WHEN,
            "Messages leave a nanosecond later if a bit of the data is one.",
            every(_a_nanosecond_later), SECAGG, None),
    planted("secagg_split", "an error that tells a value", _READ,
            "The run ends by an error whose text has a raw value.",
            _at("embedding", _ends_by_a_value), SECAGG, None),
    planted("he_split", "a value in an event", _EVENTS, "An event has a raw value.",
            _at("embedding", lambda one: one.record("clipped", weights=_value(one), bound=1.0)),
            HE, _tells("clipped")),
    planted("he_split", "measures of other embeddings", _READ,
            "Measures on test rows are of columns in the place of embeddings.",
            _other_scores, HE[:1], None),
    planted("wait_dp", "a value in an event", _EVENTS, "An event has a raw value.",
            _at("embedding", lambda one: one.record("clipped", weights=_value(one), bound=1.0)),
            ROWS, _tells("clipped"), SECURE, ACCUSED),
    planted("dvfl", "labels in the last digits of losses", _EVENTS,
            "The last digits of the losses of the history are labels.",
            _server_event(_label_in_the_loss), (GUEST, HOST), _losses_end_in_labels, None,
            ACCUSED),
    planted("fedonce", "labels on the screen", _WRITTEN, "The server prints labels.",
            _server_event(lambda server, fields: _print(_label(server))), CLIENT, None, None,
            ACCUSED),
    planted("coded_split", "a value in an event", _EVENTS, "An event has a raw value.",
            _at("embedding", lambda one: one.record("clipped", weights=_value(one), bound=1.0)),
            SERVER_DATA, _tells("clipped")),
)  # fmt: skip


# -- sound ones ------------------------------------------------------------------------------------


def _diary(client: Any) -> None:
    """A client writes down for itself what it sends."""
    client.diary = []
    tap(client, lambda one: client.diary.append((client.round, one["kind"], _value(client))))


def _other_number(server: Any, fields: dict[str, Any]) -> None:
    if "loss" in fields:
        fields["loss"] = np.float64(fields["loss"])


VARIANTS = (
    Variant("fedvs: a diary", "fedvs", "Clients note for themselves what they send.",
            changed("fedvs", every(_diary))),
    Variant("secagg_split: losses of another type", "secagg_split",
            "Losses of the history are NumPy's numbers, with the same digits.",
            changed("secagg_split", _server_event(_other_number))),
    Variant("secagg_split: a constant event", "secagg_split",
            "Clients record an event that always says the same.",
            changed("secagg_split", _at("embedding", lambda one: one.record("sends")))),
    Variant("dvfl: a constant line", "dvfl", "The owner prints the same word in each step.",
            changed("dvfl", _server_event(lambda server, fields: _print("step")))),
)  # fmt: skip
