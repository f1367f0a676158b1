"""VFB2: the party with the labels starts updates, which the others apply backwards.

Q. Zhang, B. Gu, C. Deng, H. Huang, "Secure Bilevel Asynchronous Vertical Federated Learning with
Backward Updating", 2021, arXiv 2103.00958, in the deep form that DVFL (section 6) uses for a
baseline. A *dominator*, a party with labels, launches an update: it gets the sum of all parties'
outputs of a batch, H = sum_n H_n, steps its own model, and sends theta = dL/dH to the
*collaborators*, which step with it on their own rows whenever it arrives, with their weights of
that moment. It runs several such launches at once and does not wait for the others' updates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from securevfl.engine.party import SERVER, Party
from securevfl.errors import RunError
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.embedding import EmbeddingProtocol
from securevfl.protocols.base.messages import MessageSpec, last_word
from securevfl.protocols.base.open_embeddings import OpenClient, OpenEmbeddings, OpenServer
from securevfl.protocols.base.options import SegmentedConfig
from securevfl.verified import Secret, World

if TYPE_CHECKING:
    from securevfl.data.dataset import VerticalDataset


class Vfb2Config(SegmentedConfig):
    """Options of VFB2; a round is one update started by the dominator."""

    aggregation: Literal["sum"] = Field(  # type: ignore[assignment]
        "sum", description="How outputs are joined. They are added, as in the paper."
    )
    threads: int = Field(
        2,
        ge=1,
        description="Number k of updates under way at once. Outputs are up to k - 1 steps old.",
    )
    timeout: float | None = Field(
        None,
        gt=0,
        description=(
            "Seconds after which an update goes on without the clients whose outputs have "
            "not come. Default: it waits for all."
        ),
    )


@dataclass(eq=False, repr=False)
class Collaborator(OpenClient):
    """Collaborator n: answers requests, and updates backwards whenever a theta arrives."""

    protected: ClassVar[Mapping[str, str | tuple[str, ...]]] = {
        "embedding": ("public", "real"),
        "gradient": ("public", "real"),
    }

    async def run(self) -> None:
        """Answer requests until the dominator sends "stop"."""
        while True:
            self.safe_point()
            payload = await self.receive("request", "gradient", "stop")
            if payload is None:
                return
            assert self.envelope is not None
            number = self.envelope.round
            if self.envelope.kind == "request":
                output = self.embed(self.batches.samples(payload))
                self.send(SERVER, "embedding", (payload, output), round=number)
            else:
                self.round = number
                batch, theta = payload
                # w_n -= lr theta . dH_n/dw_n, at the present weights
                self.update(self.batches.samples(batch), theta)


@dataclass(eq=False, repr=False)
class Dominator(OpenServer):
    """Dominator: holds labels and server model; finishes its updates in order."""

    kept: ClassVar[tuple[str, ...]] = ("centre", "steps", "skipped", "due")
    protected = Collaborator.protected

    _: KW_ONLY
    threads: int
    timeout: float | None
    skipped: int = field(default=0, init=False)
    due: tuple[float, ...] = field(default=(), init=False)  # when each open launch was made

    async def run(self) -> None:
        """Keep `threads` updates in progress; finish the oldest with the outputs in time."""
        while self.steps + self.skipped < self.max_steps:
            self.safe_point()
            self.announce(self.steps + self.skipped + 1, to=())  # requests are sent ahead of it
            self.launch()
            left = None
            if self.timeout is not None:
                # The time counts from when the launch was made, not from now: with k launches under
                # way the oldest has waited for k - 1 steps already.
                left = max(0.0, self.due[0] + self.timeout - self.now)
            outputs = await self.collect("embedding", timeout=left)
            self.due = self.due[1:]
            if outputs:
                batch = self.batches.draw(self.round)
                self.train(batch, {n: output for n, (_, output) in outputs.items()})
            else:
                self.skip()
        self.broadcast("stop", None)

    def launch(self) -> None:
        """Request outputs for as many batches as may be in progress."""
        last = min(self.round + self.threads - 1, self.max_steps)
        for number in range(self.round + len(self.due), last + 1):
            batch = self.batches.draw(number)
            for n in self.peers:
                self.send(n, "request", batch, round=number)
            self.due = (*self.due, self.now)

    def details(self, embeddings: Mapping[int, Secret], samples: np.ndarray) -> dict[str, Any]:
        """Fields of a step for the history: the number of outputs missing from the sum."""
        return {"absent": len(self.peers) - len(embeddings)}

    def answer(self, batch: np.ndarray, gradients: Mapping[int, Secret]) -> None:
        """Send theta with its batch to the clients in the sum; `gradients` has theta by client."""
        for n, theta in gradients.items():
            self.send(n, "gradient", (batch, theta))

    def skip(self) -> None:
        """Give up an update without any output; RunError if all updates were given up."""
        self.skipped += 1
        self.record("skipped", came=0, missing=list(self.peers))
        if self.skipped == self.max_steps:
            raise RunError(
                f"vfb2: no model was trained. In none of {self.max_steps} rounds an output came "
                f"within {self.timeout} s; in round {self.round} there were none of "
                f"{', '.join(f'party {n}' for n in self.peers)}. Use more rounds or a longer "
                "timeout"
            )


class Vfb2(OpenEmbeddings, EmbeddingProtocol):
    """VFB2 on one data set."""

    name = "vfb2"
    apart = True
    Config = Vfb2Config
    fault_options: ClassVar[dict[str, Any]] = {"timeout": 1.0}
    card = Card(
        title="VFB2",
        paper="Zhang, Gu, Deng, Huang, 2021, arXiv 2103.00958; DVFL section 6",
        roles={
            "server": "the dominator: holds the labels and the server model; launches updates",
            "client": "a collaborator: holds some columns and a network; updates backwards",
        },
        sees={
            "server": "every client's outputs of every batch, exactly",
            "client": "dL/dH of the sum, the same for all, and which batches are asked for",
            "outsider": "kinds, sizes and times; without sealed links everything that is sent",
        },
        absence="waits",
        deviations=(
            "outputs are networks' and go through a central network that is as wide as one of "
            "them, as in DVFL; the paper's models are linear",
            "one active party, which holds no columns, as in DVFL; so of the two levels of "
            "asynchrony the one between active parties is empty, and threads is the other",
            "the masked sums over two different trees are not built, as DVFL leaves them out, so "
            "the server sees single outputs; secagg_split and fedvs show what hiding them costs",
            "VFB2-SGD only; launches are finished in the order in which they were made",
            "ours: a timeout; a client that is late for a sum is left out of it and gets no theta, "
            "which says nothing of its output",
            "h, the optimiser, initialisation and batch order are ours, as in FedVS",
        ),
    )

    def __init__(self, config: Vfb2Config, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        if config.timeout is not None:
            self.card = replace(type(self).card, absence="skips")

    def parties(self) -> dict[int, Party]:
        """The dominator and N collaborators."""
        dominator = self.make_server(
            Dominator, threads=self.config.threads, timeout=self.config.timeout
        )
        return {SERVER: dominator} | {n: self.collaborator(n) for n in self.peers()}

    def collaborator(self, index: int) -> Collaborator:
        """Create collaborator `index`, counted from 0."""
        network, features = self.client_network(index), self.data.train[index]
        given = (index, self.peers(), self.layout, features, network)
        return Collaborator(*given, width=self.config.width)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Message declarations: requests (announcements), outputs, theta to clients in time."""
        request = MessageSpec("request", "server", "client", "control", public=True,
                              source="the batch")  # fmt: skip
        return (request, *self.step_messages()[1:], last_word())

    def ideal(self, world: World) -> None:
        """Declare outputs: all H_n to the server, theta to clients in a sum, the loss to all.

        A client processes the dominator's messages in their public order, so an output uses its
        weights at the time of the request.
        """
        ideal = self.inputs(world)
        outputs: dict[int, dict[int, Secret]] = {}
        asked = [m for m in world.messages if m.sender == SERVER and m.to is not None]
        for m in asked:
            assert m.to is not None
            samples = self.layout.samples(self.layout.draw(max(m.round, 1)))
            if m.kind == "request":
                made = ideal.embed(m.to, samples, self.config.width)
                outputs.setdefault(m.round, {})[m.to] = made
            elif m.kind == "gradient" and m.round in outputs:
                sent = outputs.pop(m.round)
                summed = {g.to for g in asked if (g.kind, g.round) == ("gradient", m.round)}
                used = {n: sent[n] for n in sorted(sent) if n in summed}
                ideal.answer(samples, self.ideal_step(ideal, samples, used))

    def describe(self) -> dict[str, Any]:
        """Figures for summaries: parties N, batch size |B|, and the event counted as a round."""
        return {
            "N": self.data.parties,
            "batch_rows": self.batch_rows,
            "round": "one launch of the dominator",
        }

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims of no protection: outputs are sent unencrypted here."""
        return (
            Claim("server", "features", "none", "outputs are sent in the clear"),
            Claim("server", "model", "none", "outputs are sent in the clear"),
            Claim("client", "labels", "none", "dL/dH depends on them"),
        )
