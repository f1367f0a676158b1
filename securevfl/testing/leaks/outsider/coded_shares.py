"""Leaks of coded_split: its keys, labels, shares of steps, and what surrounds them."""

from __future__ import annotations

from typing import Any

import numpy as np

from securevfl.engine import wire
from securevfl.engine.party import SERVER
from securevfl.field import prss
from securevfl.field.prss import Prss, derive
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.coded_split.dealing import Dealing
from securevfl.protocols.coded_split.messages import NO_STEPS, Label
from securevfl.protocols.coded_split.quantisation import whole_rows
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.fedvs_masks import CLIENTS_DATA, UPLOADS
from securevfl.testing.leaks.fedvs_messages import SERVER_DATA
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.outsider.rare_events import spread_bit
from securevfl.testing.leaks.planting import (
    Leak,
    clients,
    messages,
    planted,
    replaced,
    tap,
    telling_column,
)
from securevfl.testing.runs import Outcome

LABELS = (("T clients", "labels"),)


def _known_keys(client: Any) -> None:
    """Keys are the number of the client that draws them."""
    client.secret_bytes = lambda count: bytes([client.index]) * count


def _one_key(client: Any) -> None:
    """A client's keys of all sets are one, so members of a set know the key of theirs."""
    draw, kept = client.secret_bytes, []  # type: ignore[var-annotated]

    def drawing(count: int) -> bytes:
        if not kept:
            kept.append(draw(count))
        found: bytes = kept[0]
        return found

    client.secret_bytes = drawing


def _short_keys(client: Any) -> None:
    draw = client.secret_bytes
    client.secret_bytes = lambda count: draw(count)[:2] * (count // 2)


def _known_secret(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The secret that all shares of steps follow from is zero."""
    server = parties[SERVER]

    async def setup() -> None:
        server.secret = bytes(32)

    server.setup = setup


def _waits_for_classes(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Before the first deal the server waits as many seconds as rows have the first label."""
    server = parties[SERVER]
    labels = protocol.data.train_labels

    def change(one: dict[str, Any]) -> None:
        if one["round"] == 1:
            one["after"] += float((labels == labels.min()).sum())

    tap(server, change)


def _waits_of_a_spread(client: Any) -> None:
    """Once a step was missed, uploads depart later if a value is far from the middle."""
    asked, ask = [], client.ask

    def asking() -> None:
        asked.append(client.round)
        ask()

    def change(one: dict[str, Any]) -> None:
        if asked and one["kind"] == "embedding" and hasattr(client, "features"):
            one["after"] += 0.3 * spread_bit(client.features["train"], one["round"])

    client.ask = asking
    tap(client, change)


def _bit_in_z(client: Any) -> None:
    """Z is drawn anew until four elements of the share for client 0 show a bit of their rows."""
    if not hasattr(client, "features"):
        return
    draw, public, drawn_before = client.uniform, client.public, []  # type: ignore[var-annotated]
    own = telling_column(client.features["train"])
    whole = whole_rows(public, client.index, client.features["train"])
    X = public.batches["train"].lay_out(public.field.reduce(whole))[:, :4, :1]

    def uniform(shape: tuple[int, ...]) -> np.ndarray:
        drawn: np.ndarray = draw(shape)
        if not drawn_before:
            while not _shown(own, public.code.encode(X, masks=drawn[:, :4, :1])[0]):
                drawn = draw(shape)
        drawn_before.append(shape)
        return drawn

    client.uniform = uniform


def _shown(own: np.ndarray, share: np.ndarray) -> bool:
    """Whether the lowest bits of the first four elements are those of four rows."""
    bits = share.reshape(len(share), -1)[:4, 0] & share.dtype.type(1)
    return np.array_equal(bits, own[:4] > own.mean())


def _columns_for_the_server(protocol: Protocol, parties: dict[int, Any]) -> None:
    server = parties[SERVER]
    server.seen = {}

    def plant(client: Any) -> None:
        setup = client.setup

        async def more() -> None:
            server.seen[client.index] = getattr(client, "features", None)
            await setup()

        client.setup = more

    for one in clients(protocol, parties):
        plant(one)


def _one_label(told: Any) -> Any:
    return lambda self, rows, digest: b"coded_split"


def _one_stream_less(streams: Any) -> Any:
    return lambda code, degree: streams(code, degree) - 1


def _one_seed(seeds: Any) -> Any:
    """Seeds of a step that do not follow from its number or content."""

    def dealt(self: Any, secret: bytes, number: int, step: np.ndarray) -> list[bytes]:
        return [derive(secret, bytes([j])) for j in range(self.code.privacy)]

    return dealt


def _zero_rho(value: Any) -> Any:
    """Masks that are zero in two rounds."""

    def masked(self: Any, party: int, keys: Any, label: bytes, shape: Any, streams: int) -> Any:
        found = value(self, party, keys, label, shape, streams)
        part, step, *_ = wire.decode(label)
        return np.zeros_like(found) if (part, step) in (("train", 3), ("train", 4)) else found

    return masked


_NO_ROWS = np.empty(0, np.uint32)


# -- seeing them -----------------------------------------------------------------------------------


def _keys_are(outcome: Outcome) -> bool:
    found = list(messages(outcome, "key"))
    return all(set(one["payload"].reshape(-1).tolist()) == {int(one["sender"])} for one in found)


def _keys_repeat(outcome: Outcome) -> bool:
    found = [row.tobytes() for one in messages(outcome, "key") for row in one["payload"]]
    senders = {int(one["sender"]) for one in messages(outcome, "key")}
    return len(set(found)) == len(senders)


def _keys_are_short(outcome: Outcome) -> bool:
    found = [row.tobytes() for one in messages(outcome, "key") for row in one["payload"]]
    return all(one == one[:2] * 16 for one in found)


def _secret_is_zero(outcome: Outcome) -> bool:
    server: Any = outcome.parties[SERVER]
    return bool(server.secret == bytes(32))


def _labels_alike(outcome: Outcome) -> bool:
    one, two = (Label("train", step).told(_NO_ROWS, NO_STEPS) for step in (1, 2))
    return one == two


def _seeds_repeat(outcome: Outcome) -> bool:
    sent = [one["payload"][1].tobytes() for one in messages(outcome, "seed")]
    return len(set(sent)) == 1


def _streams_lack_one(outcome: Outcome) -> bool:
    code = outcome.protocol.public.code  # type: ignore[attr-defined]
    K, T = code.segments, code.privacy
    return bool(prss.mask_streams(code, 3) == 2 * (K + T) - 3)


def _server_saw(outcome: Outcome) -> bool:
    return bool(getattr(outcome.parties[SERVER], "seen", {}))


def _told_by_parity(outcome: Outcome) -> bool:
    for one in messages(outcome, "train-data"):
        if one["receiver"] == 0:
            party: Any = outcome.parties[int(one["sender"])]
            own = telling_column(party.features["train"])
            if not _shown(own, one["payload"]):
                return False
    return True


def _first_deal_is_late(outcome: Outcome) -> bool:
    labels = outcome.protocol.data.train_labels
    arrived = [int(m["arrived"]) for m in messages(outcome, "deal", 1)]
    return bool(min(arrived) / 1e9 >= (labels == labels.min()).sum())


_KEYS, _ALIKE = "keys and seeds reused or known", "masks reused"
_DEALT, _UNMOVED = "shares of steps that tell the step", "a statistic that comparisons do not move"
_CHOSEN = "fresh randomness that is chosen by the data"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          **more: Any) -> Leak:  # fmt: skip
    return planted("coded_split", name, cause, says, plant, breaks, shows, **more)


LEAKS = (
    _leak("keys that are known", _KEYS, "The keys of masks are numbers of clients.",
          every(_known_keys), UPLOADS, _keys_are),
    _leak("one key for all sets", _KEYS, "A client draws one key for all sets.", every(_one_key),
          UPLOADS[2:], _keys_repeat),
    _leak("keys of two bytes", _KEYS, "Keys repeat their first two bytes.", every(_short_keys),
          UPLOADS, _keys_are_short),
    _leak("one label for all masks", _ALIKE,
          "All rounds have one label, so the masks of uploads are the same.", nothing, UPLOADS,
          _labels_alike, around=replaced(Label, "told", _one_label)),
    _leak("masks of one stream less", "a dealer that does not deal what it must",
          "Masks have one stream less than the result needs.", nothing, UPLOADS[2:],
          _streams_lack_one, around=replaced(prss, "mask_streams", _one_stream_less)),
    _leak("masks zero in rounds 3 and 4", "masks that are zero",
          "The masks of uploads are zero in two rounds.", nothing, UPLOADS, None,
          around=replaced(Prss, "value", _zero_rho)),
    _leak("the server's secret is zero", _DEALT,
          "The secret of all shares of steps is known, so a share tells the step.",
          _known_secret, LABELS, _secret_is_zero),
    _leak("one seed for all steps", _DEALT,
          "All steps are dealt with the same seeds, so shares tell their differences.", nothing,
          LABELS, _seeds_repeat, around=replaced(Dealing, "seeds", _one_seed)),
    _leak("waits for the first class", _UNMOVED,
          "The first deal waits as many seconds as rows have the first label.",
          _waits_for_classes, LABELS, _first_deal_is_late),
    _leak("waits of a spread, once steps were missed", _UNMOVED,
          "Once steps were missed, departures tell whether values are far from the middle.",
          every(_waits_of_a_spread), SERVER_DATA, None),
    _leak("Z drawn until a bit shows", _CHOSEN,
          "Z is drawn anew until four lowest bits of client 0's share tell bits.",
          every(_bit_in_z), CLIENTS_DATA, _told_by_parity),
    _leak("columns in the server's dictionary", "objects that parties share",
          "Owners put their columns into an object of the server's.", _columns_for_the_server,
          SERVER_DATA, _server_saw),
)  # fmt: skip
