"""Leaks of FedVS that its own class declares: its formulas, roles and claims agree with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.models.polynomial_network import expand
from securevfl.protocols.base.messages import (
    MessageKey,
    MessageSpec,
    in_setup,
)
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import Outcome
from tests.zoo.fedvs_masks import CLIENTS_DATA
from tests.zoo.fedvs_messages import SERVER_DATA, column
from tests.zoo.fedvs_messages import in_setup as after_setup
from tests.zoo.planting import (
    Leak,
    changed,
    clients,
    messages,
    sent_array,
)


def more(*make: Callable[[Any], MessageSpec]) -> Any:
    """Property `messages` with more declarations, each made for the protocol."""
    base: Any = get_protocol("fedvs")
    return property(lambda self: (*base.messages.fget(self), *(one(self) for one in make)))


def spec_of(protocol: Any, kind: str) -> MessageSpec:
    """The sound declaration of a kind of FedVS."""
    base: Any = get_protocol("fedvs")
    found: MessageSpec = next(one for one in base.messages.fget(protocol) if one.kind == kind)
    return found


# -- what is sent, by whom, and what the class says of it ----------------------------------------


def _after_setup(send: Callable[[Any], None], *only: int) -> Any:
    def plant(protocol: Protocol, parties: dict[int, Any]) -> None:
        for one in clients(protocol, parties):
            if not only or one.index in only:
                after_setup(one, send)

    return plant


def _of_data(protocol: Any) -> MessageSpec:
    def first_rows(secrets: Any, key: MessageKey) -> np.ndarray:
        table = secrets.data(key.sender)["train"]
        best = int(table.reshape(len(table), -1).std(axis=0).argmax())
        return np.ascontiguousarray(table[:, best])[:8]

    return MessageSpec(
        *("scale", "client", "server", "control"),
        public=True,
        count=in_setup,
        shape=lambda key: (8,),
        dtype="float32",
        recompute=first_rows,
    )


def _to_the_helper(protocol: Any) -> MessageSpec:
    return replace(_of_data(protocol), kind="stored", receiver="helper", carries="measure",
                   public=False)  # fmt: skip


def _helper(self: Any) -> dict[str, tuple[int, ...]]:
    base: Any = get_protocol("fedvs")
    return {**base.roles(self), "helper": (SERVER,)}


def _passed_on(protocol: Any) -> MessageSpec:
    data = spec_of(protocol, "train-data")
    length = protocol.public.batches["train"].length
    width = formula_width(protocol, 2)
    return replace(
        data,
        kind="copy",
        shape=lambda key: (length, width),
        count=lambda key: int(key.round == 0 and (key.sender, key.receiver) == (1, 4)),
        recompute=lambda secrets, key: secrets.sent("train-data", 0)[2, 1],
    )


def formula_width(protocol: Any, client: int) -> int:
    """Columns of a client's shares."""
    return int(protocol.data.widths[client]) * int(protocol.config.degree) + 1


# -- what the class says of uploads, and of its claims ---------------------------------------------


# -- seeing them ---------------------------------------------------------------------------------


def _told(*kinds: str) -> Callable[[Outcome], bool]:
    return lambda outcome: sent_array(outcome, column(outcome.parties[1]), *kinds)


def _copied(outcome: Outcome) -> bool:
    """Whether client 4 can decode client 2's data from two shares of it."""
    code = outcome.protocol.code  # type: ignore[attr-defined]
    got = [one["payload"] for one in messages(outcome, "copy") if one["receiver"] == 4]
    if not got:
        return False
    own: Any = outcome.parties[4]
    both = np.stack([got[0], own.data_shares["train"][2]])
    data = code.decode(both, (1, 4), degree=1)[0]
    whole: Any = outcome.parties[2]
    public = whole.public
    wanted = public.batches["train"].lay_out(
        public.data_point.quantize(expand(whole.features["train"], public.config.degree))
    )[0]
    return np.array_equal(data, wanted)


_FORMULA, _ROLE = "a formula that reads what nobody may send", "a party under another role"
_TOLD = "a value that is told to others as well"


def _leak(name: str, cause: str, says: str, plant: Any, breaks: Any, shows: Any,
          options: Any = None, **attributes: Any) -> Leak:  # fmt: skip
    made = changed("fedvs", plant, **attributes)
    return Leak(f"fedvs: {name}", "fedvs", cause, says, made, breaks, options or {}, shows=shows)


LEAKS = (
    _leak(
        "a formula of raw data",
        _FORMULA,
        "A public message has a column, and its formula reads that column.",
        _after_setup(lambda c: c.send(SERVER, "scale", column(c))),
        SERVER_DATA,
        _told("scale"),
        messages=more(_of_data),
    ),
    _leak(
        "the server as a helper",
        _ROLE,
        "Columns go to a helper, which is the server under another role.",
        _after_setup(lambda c: c.send(SERVER, "stored", column(c))),
        SERVER_DATA,
        _told("stored"),
        messages=more(_to_the_helper),
        roles=_helper,
    ),
    _leak(
        "a share passed on",
        _TOLD,
        "Client 1 passes its share of client 2's data on to client 4, which then has two.",
        _after_setup(lambda c: c.send(4, "copy", c.data_shares["train"][2]), 1),
        CLIENTS_DATA,
        _copied,
        messages=more(_passed_on),
    ),
)
