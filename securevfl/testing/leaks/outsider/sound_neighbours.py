"""Sound variants near the leaks of `prepared_tables` and `unwatched`."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.field.kernels import dispatch
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.secagg_split.algorithm import Pairing
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.harmless_changes import nothing
from securevfl.testing.leaks.planting import Variant, changed, tap


def _own_matrix(client: Any) -> None:
    """The matrix that encodes data is prepared anew, and is the same."""
    code = client.public.code
    vars(code)["_left"] = dispatch.prepare(code.field.modulus, code._basis.copy())


def _last_first(client: Any) -> None:
    """Products of the clients are summed from the last client on."""
    field = client.public.field

    def evaluate(batch: Any, attempt: Any, models: Any) -> np.ndarray:
        held = client.data_shares[batch.part]
        parts = [field.matmul(held[n][batch.rows], models[n]) for n in reversed(attempt.sharers)]
        whole: np.ndarray = functools.reduce(field.add, parts)
        return whole

    client.evaluate = evaluate


def _statistics(client: Any) -> None:
    """A client counts the bytes that it sends, by kind, in an attribute of its own."""
    client.sent_bytes = {}

    def change(one: dict[str, Any]) -> None:
        size = getattr(one["payload"], "nbytes", 0)
        client.sent_bytes[one["kind"]] = client.sent_bytes.get(one["kind"], 0) + size

    tap(client, change)


def _sent_singly(protocol: Protocol, parties: dict[int, Any]) -> None:
    """The server sends its gradients by one call each."""
    server = parties[SERVER]
    broadcast = server.broadcast

    def singly(kind: str, payload: Any, to: Any = None) -> None:
        if kind != "gradient":
            broadcast(kind, payload, to)
            return
        for n in server.peers if to is None else to:
            server.send(n, kind, payload)

    server.broadcast = singly


def _masks_in_a_table(client: Any) -> None:
    """Masks of pairs are written down before they are added."""
    public, field = client.public, client.public.field

    def masked(x: np.ndarray, pairing: Pairing, seed: bytes, deals: Any) -> np.ndarray:
        table = {
            v: public.stream(pairing.agree(v, deal.key), x.shape)
            for v, deal in deals.items()
            if v != pairing.index
        }
        plus = [mask for v, mask in table.items() if v < pairing.index]
        minus = [mask for v, mask in table.items() if v > pairing.index]
        up = functools.reduce(field.add, plus, field.add(x, public.stream(seed, x.shape)))
        whole: np.ndarray = functools.reduce(field.subtract, minus, up)
        return whole

    client.masked = masked


def _row_by_row(client: Any) -> None:
    """A holder's uploads are multiplied in two halves of the rows."""
    field = client.public.field

    def upload(label: Any, rows: np.ndarray, round: int) -> None:
        share, half = client.data_shares[label.part][rows], len(rows) // 2
        psi = np.concatenate([
            field.matmul(np.ascontiguousarray(part), client.model[0])
            for part in (share[:half], share[half:]) if len(part)
        ])  # fmt: skip
        told = label.told(rows, client.model[3])
        masked = client.public.prss.mask(client.index, client.keys, told, psi, 3)
        client.send(SERVER, "embedding", masked, round=round)

    client.upload = upload


def _variant(protocol: str, name: str, says: str, plant: Any = nothing,
             **options: Any) -> Variant:  # fmt: skip
    return Variant(f"{protocol}: {name}", protocol, says, changed(protocol, plant), options)


VARIANTS = (
    _variant("fedvs", "a matrix that is prepared anew", "The code's matrix is prepared anew.",
             every(_own_matrix)),
    _variant("fedvs", "from the last client on", "Products are summed in another order.",
             every(_last_first)),
    _variant("fedvs", "bytes counted", "Clients count the bytes that they send.",
             every(_statistics)),
    _variant("fedvs", "T = 2 of degree 2", "T = 2, K = 1 and second powers.", privacy=2,
             segments=1, degree=2),
    _variant("secagg_split", "masks in a table", "Masks of pairs stand in a table first.",
             every(_masks_in_a_table)),
    _variant("secagg_split", "gradients sent singly", "Gradients leave by one call each.",
             _sent_singly),
    _variant("coded_split", "uploads in two halves", "Uploads are computed in two halves.",
             every(_row_by_row)),
    _variant("coded_split", "bytes counted", "Holders count the bytes that they send.",
             every(_statistics)),
)  # fmt: skip
