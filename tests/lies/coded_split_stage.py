"""Runs of coded split learning in which some party lies, and a judge who knows what all hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.data.dataset import VerticalDataset
from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.field.lagrange import interpolation_matrix
from securevfl.protocols.coded_split.algorithm import Owner
from securevfl.protocols.coded_split.messages import Label
from securevfl.protocols.coded_split.protocol import CodedSplit
from securevfl.protocols.coded_split.server import Server
from securevfl.runs.assembly import rules_of
from securevfl.testing.runs import make
from securevfl.verified import bare_of
from securevfl.verified.values import wrapped
from tests.lies.lie import Size
from tests.lies.running import Played, carry_out

PARTIES = 10
PRIME = 2**40 - 87  # of the committed gains
VICTIM = 7
PATIENCE = 5.0  # seconds that a lying server waits for holders that may refuse


@dataclass
class Judge:
    """Knowledge of the script that no liar has.

    Attributes
    ----------
    parties : mapping of int to Party
    plain : dict of (int, int) to ndarray
        Uploads before masks were added, by holder and round.
    means : list of ndarray
        H of each step.
    """

    parties: Mapping[int, Any]
    plain: dict[tuple[int, int], np.ndarray] = field(default_factory=dict)
    means: list[np.ndarray] = field(default_factory=list)

    def watch(self) -> None:
        """Note uploads and decoded means; nothing of the run changes."""
        for party in self.parties.values():
            if party.index == SERVER:
                centre = bare_of(party.centre)
                centre.gradients = self._noting_mean(centre.gradients)
            else:
                party.upload = self._noting_upload(party, party.upload)

    def _noting_upload(self, party: Any, upload: Callable[..., Any]) -> Callable[..., Any]:
        def noting(label: Label, rows: np.ndarray, round: int) -> Any:
            psi = party.data_shares[label.part].rows(rows) @ party.model[0]
            self.plain[party.index, round] = bare_of(psi)
            return upload(label, rows, round)

        return noting

    def _noting_mean(self, gradients: Callable[..., Any]) -> Callable[..., Any]:
        def noting(embedding: np.ndarray, *rest: Any) -> Any:
            self.means.append(embedding)
            return gradients(embedding, *rest)

        return noting

    def shares(self, holder: int, part: str = "train") -> np.ndarray:
        """F(alpha_j) of all owners, side by side."""
        found: np.ndarray = bare_of(self.parties[holder].data_shares[part])
        return found


class LyingServer(Server):
    """A server that deals and asks for what it likes. `found` has what its run brought."""

    judge: Judge
    found: dict[str, Any]

    async def uploads(self, round: int) -> dict[int, np.ndarray]:
        """Whatever holders upload in a round, all of them if they do."""
        self.begin(round)
        every = await self.collect("embedding", count=len(self.peers), timeout=PATIENCE)
        return dict(bare_of(every))

    def train_on(self, uploads: Mapping[int, np.ndarray]) -> None:
        """An honest step on honest uploads; it is not dealt yet."""
        from securevfl.protocols.coded_split.decoding import decode_sums

        rows = self.public.batches["train"].draw(self.round)
        bare_of(self.made).bound.promised = lambda rows: np.array(2**62)  # whatever they are
        own = {j: wrapped(Y, ("field", self.field), None, SERVER, None)
               for j, Y in uploads.items()}  # fmt: skip
        shape = len(rows), self.public.config.width
        self.train(rows, decode_sums(self, self.public, own, shape)[0])

    def shares(self) -> list[np.ndarray]:
        """Consistent shares of the last step."""
        return list(bare_of(self.dealt(self.steps).shares))

    def hand_out(self, shares: Mapping[int, np.ndarray], step: int) -> None:
        """Deal elements to some holders, those that should have got a seed left out."""
        for j, share in shares.items():
            if j >= self.public.code.privacy:
                self.send(j, "deal", (self.digest_of(step), share), round=step)

    def digest_of(self, step: int) -> bytes:
        """The digest of a step, or of the last one where a number has none."""
        done = min(max(step, 1), self.steps)
        made = self.dealing.dealt(self, self.secret, step, self.log[done - 1])
        return bytes(bare_of(made.digest).tobytes())

    def expected(self, uploads: Mapping[int, np.ndarray], holder: int) -> np.ndarray:
        """Upload that a holder should have sent, by the uploads of R others."""
        code, others = self.public.code, [j for j in uploads if j != holder]
        good = [j for j in others if j not in self.found.get("moved", ())][: self.public.threshold]
        onto = interpolation_matrix(code.field, [code.alphas[j] for j in good],
                                    [code.alphas[holder]])  # fmt: skip
        stack = np.stack([uploads[j] for j in good]).reshape(len(good), -1)
        made: np.ndarray = code.field.matmul(onto, stack).reshape(uploads[good[0]].shape)
        return made


def play(
    size: Size,
    server: type[Server] | None = None,
    *,
    liars: Mapping[int, type[Owner]] | None = None,
    parties: int = PARTIES,
    data: VerticalDataset | None = None,
    **options: Any,
) -> Played:
    """Run coded split learning with its parties, some of which are liars.

    Parameters
    ----------
    size : Size
    server : type, optional
        Class of a lying server.
    liars : mapping of int to type, optional
        Classes of lying owners.
    parties : int
    data : VerticalDataset, optional
        Digits if not given.
    **options
        Of the protocol; three rounds if not given.
    """
    small = {"rounds": 3, "batch": size.batch, "width": size.width, "prime": PRIME}
    small |= {"degree": 2, "sum_budget": 0.0, "client_lr": 4.0, "client_lr_decay": "none"}
    small |= {"lr_decay": "none"}
    given = size.data(parties) if data is None else data
    protocol: Any = make(CodedSplit, given, defaults=small, **options)
    made: dict[int, Any] = protocol.parties()
    judge = Judge(made)
    if server is not None:
        made[SERVER].__class__ = server
        made[SERVER].judge, made[SERVER].found = judge, {}
    for n, liar in (liars or {}).items():
        made[n].__class__ = liar
    judge.watch()
    _, events, error = carry_out(
        made, conditions=NONE, make_party=protocol.party, rules=rules_of(protocol)
    )
    return Played(made[SERVER], judge, events, error)
