"""Protocols of others that are made of the library's, and claim or declare for themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from securevfl.engine.party import ANNOUNCE, SERVER, Party
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.messages import MessageKey, MessageSpec, RunSecrets
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.fedonce import FedOnce, FedOnceConfig
from securevfl.protocols.he_split import HESplit
from securevfl.protocols.split import Split
from securevfl.protocols.wait_dp import WaitDP
from securevfl.testing.leaks.labels import CLIENT
from securevfl.testing.leaks.noise import ROWS, SECURE
from securevfl.testing.leaks.planting import ACCUSED, Leak, messages
from securevfl.testing.runs import Outcome

PLAIN = (("server", "features"),)
WITH_HOLDER = (("server + key holder", "features"),)


class OnceComposed(Protocol):
    """FedOnce as a part of another's protocol, which hands everything on."""

    name = "fedonce"
    Config = FedOnceConfig
    card: Card = replace(FedOnce.card, title="Representations once")

    def __init__(self, config: Any, data: Any, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        self.inner = FedOnce(config, data, seed=seed)

    def parties(self) -> dict[int, Party]:
        """Those of the part."""
        self.inner.secrets = self.secrets
        return self.inner.parties()

    def scores(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """Those of the part."""
        return self.inner.scores(parties, features)

    def embed(self, client: Any, rows: np.ndarray) -> np.ndarray:
        """A guest's representation of rows."""
        return self.inner.embed(client, rows)

    @property
    def batch_rows(self) -> int:
        """|B|."""
        return self.inner.batch_rows

    @property
    def last_fault(self) -> int:
        """The last round of the communication."""
        return self.inner.last_fault

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Those of the part."""
        return self.inner.messages

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Those of the part."""
        return self.inner.claims


class OnceRolled(OnceComposed):
    """Each request begins with as many rows of the end as there are rows of a class.

    The declaration says so: the order is computed as the server computes it.
    """

    def parties(self) -> dict[int, Party]:
        """Those of the part, with a server that rolls its requests."""
        parties = super().parties()
        server: Any = parties[SERVER]
        announce = server.announce

        def announcing(round: int, payload: Any = None, to: Any = None) -> None:
            announce(round, self.rolled(payload), to)

        server.announce = announcing
        return parties

    def rolled(self, payload: Any) -> Any:
        """Rows of a request in the order in which they are asked for."""
        if not isinstance(payload, np.ndarray):
            return payload
        return np.roll(payload, int((self.data.train_labels == 3).sum()))

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Those of the part, with the order of the rows."""

        def order(secrets: RunSecrets, key: MessageKey) -> Any:
            return self.rolled(self.inner.piece_asked_for(secrets, key))

        return tuple(
            replace(one, recompute=order) if one.kind == ANNOUNCE else one
            for one in self.inner.messages
        )


class OnceHiding(FedOnce):
    """FedOnce with a claim that representations hide columns."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One of them is false."""
        hidden = Claim("server", "features", "perfect", "networks hide what they are given")
        return (hidden, *super().claims[1:])


class OnceTested(FedOnce):
    """FedOnce whose claim on columns is called computational, with a hypothesis of its own."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One of them is false."""
        hidden = Claim("server", "features", "computational", "inverting networks is hard")
        return (hidden, *super().claims[1:])


class SplitNoisy(Split):
    """Split learning with a claim of differential privacy, and no noise."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One of them is false."""
        hidden = Claim("server", "features", "differential", "(1, 1e-5) by rounding to float32")
        return (hidden, *super().claims[1:])


class HolderHidden(HESplit):
    """Encrypted sums, with a claim against the server together with the key holder."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One of them is false."""
        return tuple(
            Claim(one.who, one.about, "computational", "nobody shares keys")
            if (one.who, one.about) in WITH_HOLDER
            else one
            for one in super().claims
        )


class Cheaper(WaitDP):
    """Noise for the epsilon that is asked for, and a card that says less."""

    @property
    def claims(self) -> tuple[Claim, ...]:
        """One of them is false."""
        less = "(0.1, 1e-9) for each release of a row and (0.1, 1e-9) for all of them"
        return (Claim("server", "features", "differential", less), *super().claims[1:])


def _rolled(outcome: Outcome) -> bool:
    first = next(iter(messages(outcome, ANNOUNCE, 1)))["payload"]
    count = int((outcome.protocol.data.train_labels == 3).sum())
    return bool(np.roll(first, -count)[0] == 0 and first[0] != 0)


def _claims(*pair: str) -> Any:
    """A test that a run's protocol claims something of a pair."""
    return lambda outcome: any(
        (one.who, one.about) == pair and one.notion != "none" for one in outcome.protocol.claims
    )


def _leak(protocol: str, name: str, cause: str, says: str, cls: Any, breaks: Any, shows: Any,
          options: Any = None) -> Leak:  # fmt: skip
    return Leak(f"{protocol}: {name}", protocol, cause, says, lambda: cls, breaks, options or {},
                ACCUSED, shows)  # fmt: skip


_CLAIM = "a claim that the protocol does not keep"

LEAKS = (
    _leak("fedonce", "composed, with rows rolled by a class's count", "a declaration of its own",
          "Another's protocol composes FedOnce, declares that requests are rolled by the number "
          "of rows of a class, and claims that no label shows.", OnceRolled, CLIENT, _rolled),
    _leak("fedonce", "columns are claimed to be hidden", _CLAIM,
          "A subclass claims that representations say nothing of columns.",
          OnceHiding, PLAIN, _claims(*PLAIN[0])),
    _leak("fedonce", "columns are claimed to be hard to find", _CLAIM,
          "A subclass claims that representations hide columns by a hard problem.",
          OnceTested, PLAIN, _claims(*PLAIN[0])),
    _leak("split", "a claim of differential privacy without noise", _CLAIM,
          "A subclass claims that embeddings in the clear are differentially private.",
          SplitNoisy, PLAIN, _claims(*PLAIN[0])),
    _leak("he_split", "a claim against the key holder", _CLAIM,
          "A subclass claims that the server and the key holder learn nothing together.",
          HolderHidden, WITH_HOLDER, _claims(*WITH_HOLDER[0])),
    _leak("wait_dp", "a smaller epsilon in the claim", _CLAIM,
          "A claim says epsilon 0.1 of noise that is made for 5.",
          Cheaper, ROWS, lambda outcome: "(0.1," in outcome.protocol.claims[0].source, SECURE),
)  # fmt: skip
