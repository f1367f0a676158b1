"""Leaks of FedVS through choices among honest acts, joint randomness, and knowing who looks."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.protocols.base.messages import Formula, MessageKey
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.runs.assembly import rules_of
from securevfl.testing.leaks.declared import reworded
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.fedvs_masks import (
    CLIENTS_DATA,
    CLIENTS_MODEL,
    UPLOADS,
    each,
    each_rho,
    model_mask,
    v_zero,
    when,
)
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.planting import (
    Change,
    Leak,
    changed,
    clients,
    masks,
    messages,
    redraw,
    telling_column,
    upload_masks,
)
from securevfl.testing.runs import Outcome, paper_conditions


def bit_of(client: Any, round: int) -> int:
    """A bit of a row of a client's data: whether an entry of a column is above its mean."""
    own = telling_column(client.features["train"])
    return int(own[round % len(own)] > own.mean())


# -- randomness that is fresh, and chosen or shared ------------------------------------------------


def _parity(client: Any, model: np.ndarray, drawn: np.ndarray) -> int:
    """Lowest bit of the first element of the model share that client 0 will get."""
    share = client.public.code.encode_constant(model, masks=drawn)[0]
    return int(share.flat[0]) & 1


def _drawn_until(client: Any) -> None:
    """V is drawn anew until the share of client 0 shows a bit of the data."""
    draw = client.uniform

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        drawn: np.ndarray = draw(shape)
        if client.round == 0 or shape[1:] != client.network.values.shape:
            return drawn
        model, wanted = client.quantised_model(), bit_of(client, client.round)
        while _parity(client, model, drawn) != wanted:
            drawn = draw(shape)
        return drawn

    client.uniform = uniform


def _rolled(client: Any) -> Change:
    """Elements of V change places in their array until the share of client 0 shows a bit."""

    def change(drawn: np.ndarray, round: int, place: int) -> np.ndarray:
        if round == 0 or place:
            return drawn
        model, wanted, flat = client.quantised_model(), bit_of(client, round), drawn.reshape(-1)
        for _ in range(40):
            if _parity(client, model, drawn) == wanted:
                break
            flat[...] = np.roll(flat, 1)
        return drawn

    return change


def _one_key(protocol: Protocol, parties: dict[int, Any]) -> None:
    """All keys are one, which everybody has."""
    one = os.urandom(32)
    for client in clients(protocol, parties):
        client.secret_bytes = lambda count: one[:count]


def _multiple(client: Any) -> Change:
    """Of two masks the second is three times the first."""

    def change(drawn: np.ndarray, round: int, place: int) -> np.ndarray:
        if round == 0:
            field = client.public.field
            drawn[1] = field.multiply(drawn[0], field.elements(3))
        return drawn

    return change


def _rounded_after(client: Any) -> None:
    """One weight is rounded up or down so that the share of client 0 shows a bit."""
    draw, share, last = client.uniform, client.share, {}  # type: ignore[var-annotated]

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        drawn: np.ndarray = draw(shape)
        last.setdefault(client.round, drawn)
        return drawn

    def sharing(kind: str, values: Any) -> None:
        if kind == "model" and client.given_models is None:
            model, drawn = client.quantised_model(), last[client.round]
            code, wanted = client.public.code, bit_of(client, client.round)
            for step in (0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6):
                moved = model.copy()
                moved[0, 0] = (int(model[0, 0]) + step) % code.field.modulus
                if _parity(client, moved, drawn) == wanted:
                    break
            values = code.encode_constant(moved, masks=drawn)
        share(kind, values)

    client.uniform, client.share = uniform, sharing


def _of_what_was_shared(protocol: Any, sound: Formula) -> Formula:
    """Formula of model shares: those of the model that they decode to."""

    def formula(secrets: Any, key: MessageKey) -> np.ndarray:
        code, sent = protocol.public.code, secrets.sent("model", key.round)
        stack = np.stack([sent[key.sender, n] for n in protocol.peers()])
        model = code.decode(stack, protocol.peers(), degree=1)[0]
        drawn = secrets.draw(key.sender, "V", key.round)
        share: np.ndarray = code.encode_constant(model, masks=drawn)[key.receiver]
        return share

    return formula


# -- honest acts that depend on data --------------------------------------------------------------


def _silent(client: Any) -> None:
    """Clients 0 to 2 upload only in rounds whose bit is zero."""
    consistent = client.consistent

    def answering(batch: Any, attempt: Any) -> bool:
        if client.index < 3 and batch.part == "train" and bit_of(client, client.round):
            return False
        return bool(consistent(batch, attempt))

    client.consistent = answering


def _names_a_row(client: Any) -> None:
    """Among the rounds to which a client uploaded before is a number made of its data."""
    uploads, own = client.ledger.possible_uploads, telling_column(client.features["train"])

    def rounds() -> tuple[int, ...]:
        found = tuple(uploads())
        told = 2**20 + int(1000 * abs(float(own[client.round])))
        return (*found, told) if found else found

    client.ledger.possible_uploads = rounds


def _sums_in_harmless(protocol: Protocol, parties: dict[int, Any]) -> None:
    """After an attempt that was given up the rounds called harmless hold decoded sums."""
    server, seen = parties[SERVER], []  # type: ignore[var-annotated]
    interpolate, broadcast = server.interpolate, server.broadcast

    def interpolating(uploads: Any) -> np.ndarray:
        sums: np.ndarray = interpolate(uploads)
        seen[:] = [2**20 + int(one) for one in sums.reshape(-1)[:4]]
        return sums

    def sending(kind: str, payload: Any, to: Any = None) -> None:
        if kind == "attempt" and server.given_up and seen:
            payload = replace(payload, harmless=(*payload.harmless, *seen))
        broadcast(kind, payload, to)

    server.interpolate, server.broadcast = interpolating, sending


# -- what is given to whom, and what is done where nobody looks ---------------------------------


def _server_has_columns(protocol: Protocol, parties: dict[int, Any]) -> None:
    server: Any = parties[SERVER]
    server.labels = {**server.labels, "columns": protocol.data.train[1]}


def _watched() -> bool:
    """Whether code of a verifier has called this."""
    frame: Any = sys._getframe()
    while frame is not None:
        if "/audit/" in frame.f_code.co_filename.replace("\\", "/"):
            return True
        frame = frame.f_back
    return False


def _unless_watched(client: Any, round: int, place: int) -> bool:
    return model_mask(client, round, place) and not _watched()


def _unless_replaced(client: Any) -> None:
    """Model shares have no masks where the client's own method draws them."""
    share = client.share

    def sharing(kind: str, values: Any) -> None:
        if kind == "model" and "uniform" not in vars(client):
            code, model = client.public.code, client.quantised_model()
            zero = np.zeros((code.privacy, *model.shape), model.dtype)
            values = code.encode_constant(model, masks=zero)
        share(kind, values)

    client.share = sharing


def _predictors(self: Any, parties: Any, features: Any) -> dict[int, Any]:
    base: Any = get_protocol("fedvs")
    made: dict[int, Any] = base.predictors(self, parties, features)
    for n in self.peers():
        redraw(made[n], lambda drawn, round, place: drawn if round == 0 else np.zeros_like(drawn))
        made[n].rho = lambda told, shape, field=made[n].public.field: np.zeros(shape, field.dtype)
    return made


# -- seeing them ---------------------------------------------------------------------------------


def parities_tell(outcome: Outcome) -> bool:
    """Whether the lowest bits of model shares to client 0 are bits of their senders' data."""
    found = [one for r in range(1, 5) for one in messages(outcome, "model", r)]
    to_first = [one for one in found if one["receiver"] == 0]
    return all(
        int(one["payload"].flat[0]) & 1
        == bit_of(outcome.parties[int(one["sender"])], int(one["round"]))
        for one in to_first
    )


def _keys_alike(outcome: Outcome) -> bool:
    parties: Any = outcome.parties
    return len({key for n in outcome.protocol.peers() for key in parties[n].keys.values()}) == 1


def _second_is_multiple(outcome: Outcome) -> bool:
    z, field = masks(outcome, "train-data", 1), outcome.protocol.code.field  # type: ignore[attr-defined]
    return np.array_equal(field.multiply(z[0], field.elements(3)), z[1])


def _silence_tells(outcome: Outcome) -> bool:
    rounds = range(1, 1 + len(outcome.losses))
    sent = {(int(one["sender"]), int(one["round"])) for one in messages(outcome, "embedding")}
    said = {(n, r) for n in range(3) for r in rounds if not bit_of(outcome.parties[n], r)}
    quiet = {(n, r) for n in range(3) for r in rounds} - said
    return bool(sent & said) and not sent & quiet


def _rows_named(outcome: Outcome) -> bool:
    return any(max(one["payload"] or (0,)) >= 2**20 for one in messages(outcome, "shared"))


def _sums_named(outcome: Outcome) -> bool:
    return any(max(one["payload"].harmless, default=0) >= 2**20
               for one in messages(outcome, "attempt"))  # fmt: skip


def _columns_given(outcome: Outcome) -> bool:
    server: Any = outcome.parties[SERVER]
    return any(np.array_equal(one, outcome.protocol.data.train[1])
               for one in server.labels.values())  # fmt: skip


def _rho_zero_in(round: int) -> Callable[[Outcome], bool]:
    def shows(outcome: Outcome) -> bool:
        return not any(one.any() for one in upload_masks(outcome, round).values())

    return shows


def _predictions_unmasked(outcome: Outcome) -> bool:
    made: Any = outcome.protocol
    rows = [table[:9] for table in made.data.test]
    parties = made.predictors(outcome.parties, rows)
    simulation = Simulation(
        parties, conditions=paper_conditions(made), secrets=made.secrets,
        transcript=Transcript(payloads=True), rules=rules_of(made, made.prediction_messages),
    )  # fmt: skip
    simulation.run()
    run = Outcome(made, parties, (), simulation)
    return not any(one.any() for one in upload_masks(run, 1).values())


_CHOSEN, _JOINT = "fresh randomness that is chosen by the data", "masks that depend on each other"
_ACTS, _HELD = "honest acts that depend on the data", "data that a party is given"
_LOOKS, _LATE = "another act where nobody looks", "content that only lateness allows"

_TIMEOUTS = {"share_timeout": 60.0, "result_timeout": 0.2, "max_attempts": 30, "rounds": 8}


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          options: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant, **attributes)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, options or {}, shows=shows)


LEAKS = (
    _leak("V drawn until a bit shows", _CHOSEN,
          "V is drawn anew until the lowest bit of client 0's share is a bit of the data.",
          every(_drawn_until), CLIENTS_DATA, parities_tell),
    _leak("V in another order", _CHOSEN,
          "Elements of V change places until the lowest bit of client 0's share tells a bit.",
          each(_rolled), CLIENTS_DATA, parities_tell),
    _leak("rounding that is chosen after V", _CHOSEN,
          "A weight is rounded so that the lowest bit of client 0's share tells a bit, and the "
          "formula takes the model that was shared.",
          every(_rounded_after), CLIENTS_DATA, parities_tell,
          messages=reworded(model=_of_what_was_shared)),
    _leak("one key for all sets", _JOINT, "All sets of T clients have the same key.",
          _one_key, UPLOADS, _keys_alike),
    _leak("T=2: masks in proportion", _JOINT,
          "With T = 2 the second mask is three times the first.", each(_multiple), CLIENTS_DATA,
          _second_is_multiple, {"privacy": 2, "segments": 1}),
    _leak("a bit in who uploads", _ACTS,
          "Clients 0 to 2 do not upload in rounds in which a bit of their data is one.",
          every(_silent), SERVER_DATA, _silence_tells),
    _leak("values among rounds of uploads", _LATE,
          "After an attempt that was given up clients name a round that is made of their data.",
          every(_names_a_row), SERVER_DATA, _rows_named, _TIMEOUTS),
    _leak("sums among harmless rounds", _LATE,
          "After an attempt that was given up the server tells all clients decoded sums.",
          _sums_in_harmless, (*CLIENTS_DATA[:1], *CLIENTS_MODEL[:1]), _sums_named, _TIMEOUTS),
    _leak("columns given to the server", _HELD, "The server's object is made with columns.",
          _server_has_columns, SERVER_DATA, _columns_given),
    _leak("one round of twelve", _LATE, "In round 11 alone the masks of uploads are zero.",
          each_rho(lambda c: lambda told, values: values * (c.round != 11)), UPLOADS,
          _rho_zero_in(11), {"rounds": 12}),
    _leak("V zero where no verifier calls", _LOOKS,
          "V is zero unless code of securevfl.audit is among the callers.",
          when(_unless_watched, np.zeros_like), CLIENTS_MODEL, v_zero(1, 1)),
    _leak("V zero where draws are its own", _LOOKS,
          "Model shares have no masks, unless somebody has replaced the method that draws them.",
          every(_unless_replaced), CLIENTS_MODEL, v_zero(1, 1)),
    _leak("predictions without masks", _LOOKS,
          "In coded predictions, which no training run holds, models and uploads have no masks.",
          nothing, UPLOADS, _predictions_unmasked, predictors=_predictors),
)  # fmt: skip
