"""The protocol class of coded split learning: card, options, parties, messages, claims."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from securevfl.active.dealt import PARTS
from securevfl.engine.party import SERVER, Party
from securevfl.errors import NotEnoughResultsError, WouldOverflowError
from securevfl.field import PrimeField
from securevfl.field.prss import Prss
from securevfl.models.split import Batches
from securevfl.privacy.claims import Claim, budget_claims, given_sums
from securevfl.privacy.released_equations import LAW, independent_columns
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.coded import SharedModels
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.schedule import Needs, Outline, Shape
from securevfl.protocols.base.split import SplitProtocol
from securevfl.protocols.coded_split.algorithm import Holder, Model, Owner
from securevfl.protocols.coded_split.bounds import RangeBound
from securevfl.protocols.coded_split.claims import claims_of
from securevfl.protocols.coded_split.covert import covert_messages
from securevfl.protocols.coded_split.declaration import again, messages_of
from securevfl.protocols.coded_split.evaluation import (
    can_catch_up,
    caught_up,
    check_same_steps,
    joint_embedding,
    settle,
    whole_models,
)
from securevfl.protocols.coded_split.ideal import declare
from securevfl.protocols.coded_split.options import REFUSED, CodedSplitConfig
from securevfl.protocols.coded_split.parameters import Parameters, check_numbers, make_parameters
from securevfl.protocols.coded_split.prediction import PredictingServer, opened_scores
from securevfl.protocols.coded_split.quantisation import (
    Preparation,
    preparation_of,
    whole_rows,
)
from securevfl.protocols.coded_split.schedule import memory_of, needs_of, outline_of
from securevfl.protocols.coded_split.server import Server
from securevfl.protocols.coded_split.steps import Steps
from securevfl.verified import Provable, Schedule, World, bare_of, usual

if TYPE_CHECKING:
    from typing import Self

    from securevfl.data.dataset import VerticalDataset


class CodedSplit(Provable, SplitProtocol, SharedModels):
    """Coded split learning on one data set."""

    name = "coded_split"
    apart = True
    tells_sums = True
    weighs_rows = True
    Config = CodedSplitConfig
    public: Parameters
    traced_options: ClassVar[Mapping[str, Any]] = {"rounds": 3, "batch": 2, "width": 1} | {
        "hidden": 2, "sum_budget": 0.0,
    }  # fmt: skip
    role_options = ("sum_budget",)
    refused_options: ClassVar[dict[str, str]] = REFUSED
    fault_options: ClassVar[dict[str, Any]] = {"result_timeout": 60.0, "ask_timeout": 60.0}
    card = Card(
        title="Coded split learning",
        paper="ours, unpublished; docs/coded-split.md",
        roles={
            "server": "holds the labels and the server model; decodes sums of embeddings",
            "client": "holds shares of all data and models and computes on them; owners have "
            "columns, helpers have none",
        },
        sees={
            "server": "the exact sums of all owners' embeddings of each batch, whoever is late or "
            "away, and who answered when: no two sums differ by one owner, as they may in fedvs "
            "with share_timeout and no cohorts. "
            f"{LAW}. Its own steps besides give exact inner products of all rows and their powers: "
            "at degree 1 the rows up to one rotation of all columns; with d known rows, or columns "
            "that are nearly independent, the columns themselves, if not whose they are. Modulo "
            "2^lx columns of zeros and ones are not in the sums: an owner with other numbers, "
            "among owners with such columns alone, is alone there. In a simulation the first "
            "weights follow from the secret seed: a server that knows it needs fewer equations; on "
            "a cluster each owner's weights are its own",
            "client": "uniform shares of data, models and steps; labels of batches; when the "
            "server stops; with a budget of sums, as the server, how many independent columns "
            "each owner has",
            "server + 1 client": "with T = 1 and both honest but curious, what both know put "
            "together, so the sums of the others; the client's columns are known ones",
            "T + 1 clients": "linear combinations of all data, models and steps; K + T all of it. "
            "A helper that an owner or the server runs counts with it: at K = T = 1 an owner with "
            "one helper has all of it",
            "outsider": "kinds, sizes and times; without sealed links all shares",
        },
        absence="tolerates",
        deviations=(
            "ours: there is no paper",
            "honest but curious parties: a server that deals shares of no polynomial of degree "
            "K+T-1, with one client, learns everything; holders check that with security = covert "
            "alone (docs/active.md), which no claim here is about",
            "owners train by SGD only; the server's optimiser is free",
            "models are in shares only and nobody can look at them: predict on shares, or release",
            "replicas of K > 1 are never averaged; no noise is added to the sums",
            "the server rolls forward after a crash, and never back",
        ),
    )

    def __init__(self, config: CodedSplitConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        config = self.config
        self._prepared: dict[int, tuple[np.ndarray, Preparation]] = {}
        self.check_sizes()
        layouts: dict[str, Batches] = {
            part: self.batches(config.segments, part) for part in self.shared_parts
        }
        self.public = make_parameters(config, data.widths, layouts)
        RangeBound.of(self.public)  # refuses a prime without room

    @classmethod
    def check_parties(cls, config: CodedSplitConfig, parties: int) -> None:
        """Raise ConfigurationError unless holders >= R + 2A, and owners suffice for T."""
        super().check_parties(config, parties)
        check_numbers(config, parties)

    def peers(self) -> range:
        """Numbers of the holders: owners, then helpers."""
        return range(self.data.parties + self.config.helpers)

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role; owners are clients, too."""
        return super().roles() | {"owner": tuple(range(self.data.parties))}

    def preparation(self, owner: int) -> Preparation:
        """An owner's preparation of its columns, fitted once on its training rows."""
        columns = self.data.train[owner]
        fitted_on, found = self._prepared.get(owner, (None, None))
        if found is None or fitted_on is not columns:
            found = preparation_of(self.config.prepare, columns)
            self._prepared[owner] = (columns, found)
        return found

    def first_weights(self, owner: int) -> np.ndarray:
        """Initial weights W_n^0 of an owner's network, from its secret stream `init`; a copy."""
        return self.network(owner, optimizer={"name": "sgd", "lr": 1.0}).values.copy()

    @property
    def rounding_stream(self) -> Callable[[int], np.random.Generator]:
        """Function from a step's number to the server's stream for stochastic rounding.

        The function does not refer to this object, which has all parties' columns.
        """
        return functools.partial(self.secrets.stream, SERVER, "rounding")

    def parties(self) -> dict[int, Party]:
        """The server, owners with only their own columns, and helpers."""
        made: dict[int, Party] = {SERVER: self.new_server()}
        for n in self.peers():
            own = n < self.data.parties
            made[n] = self.owner(n) if own else Holder(n, self.peers(), self.public)
        return made

    def new_server(self) -> Server:
        """The server in its state before the run."""
        labels = {"train": self.data.train_labels, "test": self.data.test_labels}
        steps = Steps(self.public, self.rounding_stream)
        return Server(self.peers(), self.public, self.centre(), labels, steps)

    def owner(self, index: int) -> Owner:
        """Create owner `index`, counted from 0."""
        features: dict[str, np.ndarray] = {
            part: self.preparation(index).apply(self.features(part)[index])
            for part in self.shared_parts
        }
        return Owner(index, self.peers(), self.public, features, self.first_weights(index))

    @property
    def field(self) -> PrimeField:
        """Prime field F_p of all shares."""
        return self.public.field

    def schedules(self) -> tuple[Schedule, ...]:
        """Usual schedules of late and lost parties for a proof; nobody waits for late ones."""
        return usual(len(self.peers()), waits=False)

    def ideal(self, world: World) -> None:
        """Declare the outputs; see `securevfl.protocols.coded_split.ideal`."""
        unit = 2.0**-self.config.data_bits
        prepared = (self.preparation(n).apply(X) for n, X in enumerate(self.data.train))
        unknowns = sum(independent_columns(X, unit) for X in prepared)
        declare(world, self.public, self.public.steps_allowed(unknowns), self.centre())

    def scores(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """Scores by the shared models, which the experimenter decodes."""
        server: Any = parties[SERVER]
        centre = bare_of(server.centre)
        scores: np.ndarray = centre.scores(self.embedding(parties, features))
        return scores

    def embedding(self, parties: Mapping[int, Party], features: Sequence[np.ndarray]) -> np.ndarray:
        """Joint embedding H of rows, (rows, h), computed unencrypted by the experimenter."""
        models = self.models(parties)
        prepared = [self.preparation(n).apply(rows) for n, rows in enumerate(features)]
        server: Any = parties[SERVER]
        layout = self.layout_of(len(features[0]))
        return joint_embedding(self.public, layout, models, prepared, server.steps)

    def embed(self, client: Any, rows: np.ndarray) -> Any:
        """An owner's embedding of rows by its first replica, if released; else None."""
        models = bare_of(getattr(client, "released", ()))
        if not models:
            return None
        prepared = self.preparation(client.index).apply(rows)
        return whole_rows(self.public, client.index, prepared) @ models[0][0]

    def models(self, parties: Mapping[int, Party]) -> np.ndarray:
        """Models of all owners, (K, d, h) integers with lx + lu bits, for the experimenter.

        With weight decay the models are `Parameters.scale` of the server's steps times these.
        """
        return whole_models(self.public, parties)

    def can_spare(self, absent: Collection[int]) -> bool:
        """Whether the server and 2(K+T-1)+1 holders remain, which hold the models in shares."""
        left = len(self.peers()) - len(absent)
        return SERVER not in absent and left >= self.public.models_needed

    def settle(self, parties: Mapping[int, Party]) -> None:
        """Give the missing steps to holders that a crash or a lost message left behind."""
        made: Any = parties
        settle(made[SERVER], [made[j] for j in self.peers()])

    def layout_of(self, rows: int) -> Batches:
        """Segments of new rows; a row's segment determines the replica that evaluates it."""
        return self.batches(self.public.code.segments, "test", rows, short=True)

    def predictors(
        self, parties: Mapping[int, Party], features: Sequence[np.ndarray]
    ) -> dict[int, Party]:
        """Parties of a coded prediction of rows (m, d_n): new shares and keys, trained models.

        ConfigurationError if sums of the new rows could overflow. NotEnoughResultsError if too few
        holders have all steps. CheckpointError if their shares have different steps.
        """
        trained: Any = parties
        server = trained[SERVER]
        made: dict[int, Party] = {SERVER: self._predicting_server(server, features)}
        able = [j for j in self.peers() if can_catch_up(server, trained[j])]
        if len(able) < self.public.results_needed and server.steps:
            raise NotEnoughResultsError(
                f"coded_split: a coded prediction needs {self.public.results_wanted} "
                f"holders with all {server.steps} steps, and {len(able)} have them: "
                f"{', '.join(f'party {j}' for j in able) or 'none'}"
            )
        shares = {j: caught_up(server, trained[j]) for j in able}
        check_same_steps(shares)
        for j in self.peers():
            made[j] = self._predicting_holder(trained[j], shares.get(j), features)
        return made

    def predictor(self, index: int, party: Party, features: Sequence[np.ndarray]) -> Party:
        """Predicting party `index` of a run's `party`; a holder that lacks steps stays silent."""
        own: Any = party
        if index == SERVER:
            return self._predicting_server(own, features)
        has_all = own.model[1:3] == (own.last_step, ()) and own.is_confirmed
        return self._predicting_holder(own, own.model if has_all else None, features)

    def _predicting_server(self, server: Any, features: Sequence[np.ndarray]) -> Party:
        bound = bare_of(server.made).bound
        lasting, limit = bound.lasting, bound.limit
        if lasting > limit:
            raise WouldOverflowError(
                f"coded_split: sums of new rows can reach {lasting:.4g}, and (p-1)/2 = "
                f"{limit:.4g}: while it trained, only the training rows' bound was kept. Train "
                "with secure = true, or with a larger prime"
            )
        public, centre = self.predicting(len(features[0])).public, bare_of(server.centre)
        return PredictingServer(self.peers(), public, centre, lasting, server.steps)

    def _predicting_holder(
        self, trained: Any, share: Model | None, features: Sequence[np.ndarray]
    ) -> Party:
        """Holder for a prediction; without a `share` of the final models (None) it stays silent."""
        j, public = trained.index, self.predicting(len(features[0])).public
        holder = Holder(j, self.peers(), public)
        if j < self.data.parties:
            own = {"test": self.preparation(j).apply(features[j])}
            holder = Owner(j, self.peers(), public, own, bare_of(trained.weights))
        # The digest is that of the run's steps, so that labels bind these.
        if share is None:
            holder.model = (trained.model[0], 0, (1,), holder.no_steps)
        else:
            holder.model = (share[0], 0, (), share[3])
        return holder

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Declared messages: shares of data, models and steps, keys, masked uploads, control."""
        made = messages_of(self.public)
        return covert_messages(self.public, made) if self.public.covert else made

    @property
    def prediction_messages(self) -> tuple[MessageSpec, ...]:
        """Message declarations of coded prediction, for any number of rows."""
        public = self.predicting(1).public
        every = messages_of(public, training=False)
        every = covert_messages(public, every) if public.covert else every
        pieces = {"request", "embedding"}  # of which there are as many as rows ask for
        return tuple(
            replace(one, shape=None, count=again)
            if one.kind in pieces
            else replace(one, shape=None)
            for one in every
        )

    def opened_scores(self, rows: int, told: Any, blind: np.ndarray) -> np.ndarray:
        """Raw scores, at the client that asked, from the server of a blinded prediction."""
        made = self.predicting(rows)
        return opened_scores(made.public, made.centre(), told, blind)

    def predicting(self, rows: int) -> Self:
        """A copy with parameters for a coded prediction of `rows` rows."""
        made = copy.copy(self)
        made.public = replace(self.public, batches={"test": self.layout_of(rows)})
        return made

    @classmethod
    def outline(cls, config: CodedSplitConfig, shape: Shape) -> Outline | None:
        """Message schedule of a run without losses; None with timeouts or a release."""
        return outline_of(config, shape)

    @classmethod
    def needs(cls, config: CodedSplitConfig, shape: Shape) -> Needs:
        """Numbers for the planner, such as R, p, the room for sums, and memory."""
        return needs_of(config, shape)

    def shown(self, payload: Any) -> tuple[Any, Any]:
        """None (no row numbers), and the upload or step share in a message.

        In a tuple the share precedes its proof, or else follows a digest or its label's name.
        """
        if not isinstance(payload, tuple):
            return None, payload
        return None, payload[0 if len(payload) == 1 + len(PARTS) else 1]

    @property
    def prss(self) -> Prss:
        """Holders of each key of the masks (`securevfl.field.prss`)."""
        return self.public.prss

    @property
    def owners(self) -> int:
        """Number n_o of holders with columns."""
        return self.public.owners

    def quantised_columns(self) -> dict[int, np.ndarray]:
        """Training rows X-bar in F_p, by owner."""
        columns = enumerate(self.data.train)
        return {n: self._laid_out(n, "train", self.preparation(n).apply(own)) for n, own in columns}

    def _laid_out(self, owner: int, part: str, prepared: np.ndarray) -> np.ndarray:
        whole = whole_rows(self.public, owner, prepared)
        laid_out: np.ndarray = self.public.batches[part].lay_out(self.public.field.reduce(whole))
        return laid_out

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims by Theorem 1, and on what released models reveal."""
        odometer = self.released()
        sums = budget_claims(odometer, self.public.stories)
        stated = claims_of(release=self.config.release) + sums
        return given_sums(stated, odometer)

    def describe(self) -> dict[str, Any]:
        """Numbers for summaries: N, owners, K, T, R, A, p, |B|, and the number of mask keys."""
        code = self.public.code
        return {
            "N": code.parties,
            "owners": self.public.owners,
            "K": code.segments,
            "T": code.privacy,
            "R": self.public.threshold,
            "A": self.config.tolerate_corrupt,
            "p": code.field.modulus,
            "batch_rows": self.batch_rows,
            "keys": len(self.public.prss.blocks),
        }

    def memory(self) -> int:
        """Bytes of all shares of data and models, of the log, and of the bounds by row."""
        return memory_of(self.public, self.data.rows, self.public.code.parties)[1]

    def advice(self, available: int) -> str:
        """Advice for less memory: options that make shares smaller."""
        return (
            f"use more segments (K = {self.public.code.segments} now; each needs 3 more holders), "
            "fewer rows, a lower degree, or a prime below 2^32"
        )
