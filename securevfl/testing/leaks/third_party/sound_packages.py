"""Sound protocols as other packages would bring them."""

from __future__ import annotations

import gc
import time
from typing import Any

import numpy as np

from securevfl.engine.party import SERVER
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.fedonce import FedOnce
from securevfl.protocols.he_split import Client as EncryptingClient
from securevfl.protocols.he_split import HESplit
from securevfl.protocols.wait_dp import WaitDP
from securevfl.testing.leaks.encrypted import every
from securevfl.testing.leaks.noise import SECURE
from securevfl.testing.leaks.planting import Variant, changed, tap
from securevfl.testing.leaks.third_party.own_protocols import OnceComposed


class PatientClient(EncryptingClient):
    """A client of he_split in a class of another package, which counts its rounds."""

    taken = 0

    async def train(self, batch: np.ndarray) -> None:
        """One step, as ever."""
        self.taken += 1
        await super().train(batch)


class PatientSplit(HESplit):
    """he_split with these clients."""

    def client(self, index: int) -> PatientClient:
        """Client `index`, from 0."""
        made = super().client(index)
        return PatientClient(
            made.index, made.peers, made.batches, made.features, made.network, made.public
        )


class OnceBackwards(FedOnce):
    """FedOnce whose parties are made from the last to the server."""

    def parties(self) -> dict[int, Any]:
        """The same parties in another order."""
        made = super().parties()
        return {n: made[n] for n in (*reversed(self.peers()), SERVER)}


class Explained(WaitDP):
    """Wait-DP with a docstring and an empty subclass."""


def _copies(protocol: Protocol, parties: dict[int, Any]) -> None:
    """Requests are sent as copies of their own."""
    server = parties[SERVER]
    announce = server.announce

    def announcing(round: int, payload: Any = None, to: Any = None) -> None:
        own = payload.copy() if isinstance(payload, np.ndarray) else payload
        announce(round, own, to)

    server.announce = announcing


def _columns_first(client: Any) -> None:
    """Arrays lie by columns in memory, which no wire shows."""

    def change(one: dict[str, Any]) -> None:
        if isinstance(one["payload"], np.ndarray):
            one["payload"] = np.asfortranarray(one["payload"])

    tap(client, change)


def _tidies(client: Any) -> None:
    """Garbage is collected before a code is sent, and a millisecond is slept."""

    def change(one: dict[str, Any]) -> None:
        if one["kind"] == "code":
            gc.collect()
            time.sleep(0.001)

    tap(client, change)


VARIANTS = (
    Variant("fedonce: composed", "fedonce", "Another's protocol has FedOnce as a part.",
            lambda: OnceComposed),
    Variant("fedonce: parties made backwards", "fedonce", "The parties are made in another order.",
            lambda: OnceBackwards),
    Variant("fedonce: copies", "fedonce", "Requests are sent as copies.",
            changed("fedonce", _copies)),
    Variant("he_split: clients of another package", "he_split",
            "Clients are of a subclass that counts its rounds.", lambda: PatientSplit),
    Variant("wait_dp: an empty subclass", "wait_dp", "The protocol is a subclass with nothing.",
            lambda: Explained, SECURE),
    Variant("wait_dp: arrays by columns", "wait_dp", "Arrays lie by columns in memory.",
            changed("wait_dp", every(_columns_first)), SECURE),
    Variant("dvfl: collects garbage", "dvfl",
            "Guests collect garbage and sleep a millisecond before they send codes.",
            changed("dvfl", every(_tidies))),
)  # fmt: skip
