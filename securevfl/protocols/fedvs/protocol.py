"""The protocol class of FedVS: card, options, parties, message schedule and claims."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.errors import (
    RangeError,
    WouldOverflowError,
)
from securevfl.field import FixedPoint, LagrangeCode, PrimeField
from securevfl.field.cohorts import TOLD_APART, Cohorts, cohorts_of
from securevfl.field.prss import Prss
from securevfl.models.polynomial_network import PolynomialNetwork, expanded_width
from securevfl.models.pretraining.pretext import make_objective
from securevfl.models.pretraining.trainer import Pretraining, check_stop, pretraining_optimizer
from securevfl.privacy.claims import Claim, budget_claims, given_sums
from securevfl.privacy.released_equations import LAW
from securevfl.protocols.base.card import Card
from securevfl.protocols.base.coded import CodedProtocol
from securevfl.protocols.base.decoding import inference_step
from securevfl.protocols.base.levels.schedule import (
    identity_posts,
    proof_of,
    signed_gradient,
    told_posts,
)
from securevfl.protocols.base.mask_keys import key_posts
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.pretraining import pretraining_messages
from securevfl.protocols.base.schedule import Outline, Post, Shape, Stage, hollow
from securevfl.protocols.base.split import SplitProtocol
from securevfl.protocols.base.sum_budget import rounds_allowed, unknowns_posts
from securevfl.protocols.fedvs import history
from securevfl.protocols.fedvs.algorithm import Client, Server
from securevfl.protocols.fedvs.claims import MASKED, PAPER, PLAIN, SHARES, UNPROTECTED
from securevfl.protocols.fedvs.declaration import messages_of
from securevfl.protocols.fedvs.ideal import declare
from securevfl.protocols.fedvs.parameters import (
    FedVSConfig,
    Parameters,
    code_of,
    coded_rows,
    cohort_number,
    default_segments,
    degree_of,
    prss_of,
    refuse_any_sharers,
    results_needed,
)
from securevfl.protocols.fedvs.prediction import (
    PredictingClient,
    PredictingServer,
    opened_scores,
)
from securevfl.protocols.fedvs.quantisation import row_sum_of, segments_of
from securevfl.protocols.fedvs.schedule import attempts, beside, coding_operations
from securevfl.verified import Provable, Schedule, World, bare_of, usual

if TYPE_CHECKING:
    from typing import Self

    from securevfl.data.dataset import VerticalDataset


class FedVS(Provable, SplitProtocol, CodedProtocol):
    """FedVS on one data set."""

    name = "fedvs"
    apart = True
    twin = "split"
    tells_sums = True
    weighs_rows = True
    Config = FedVSConfig
    public: Parameters
    traced_options: ClassVar[dict[str, Any]] = {"rounds": 2, "batch": 4, "width": 1} | {
        "hidden": 8, "sum_budget": 0.0,
    }  # fmt: skip
    role_options = ("sum_budget",)
    fault_options: ClassVar[dict[str, Any]] = {
        "share_timeout": 60.0,
        "result_timeout": 60.0,
        "cohorts": 0,  # few clients are one cohort, and none of them can be spared
    }
    refused_options: ClassVar[dict[str, str]] = dict.fromkeys(
        ("client", "own_client"),
        "clients compute on shares, which polynomial networks alone allow; its depth is degree. "
        "`split` and other methods that see single embeddings have other networks",
    )
    card = Card(
        title="FedVS",
        paper="Li, Yao, Liu, ICML 2023, arXiv 2304.13407",
        roles={
            "server": "holds the labels and the server model; decodes sums of embeddings",
            "client": "holds some columns and a polynomial network; computes on everyone's shares",
        },
        sees={
            "server": "the exact sums of embeddings of each attempt; in plain evaluation every "
            "coefficient of psi besides; who shared and answered, and when. "
            f"{LAW}. One that knows the clients' initial weights, as the secret seed of a "
            "simulation tells them, needs fewer; on a cluster each client's are its own. With SGD "
            "the sums and its own gradients give X X^T of columns and powers: at degree 1 all data "
            "up to a rotation (1.3 to 1.5 % off on breast-cancer, h = 64), with powers more. "
            "Columns of zeros and ones are not in them modulo 2^lx: a client with other numbers, "
            "among clients with such columns alone, is read off them exactly",
            "client": "shares of data and models (any T uniform), dL/dH, batches and sharers; with "
            "a budget of sums, as the server, how many independent columns each client has",
            "server + 1 client": "in plain evaluation all data and models, by linear algebra; "
            "masked, what both know put together, so the sums of the others",
            "outsider": "kinds, sizes and times; without sealed links all that a listener to K+T "
            "clients needs",
        },
        absence="tolerates",
        deviations=(
            "uploads are masked by default (ours); masked=false is the paper's evaluation",
            "p, lx, lw, h, the optimiser, initialisation and batch order are ours",
            "tolerate_corrupt (ours): wrong uploads only, and the named client may be honest: one "
            "client that deals inconsistent shares or keys has an honest one named; A+1 colluders "
            "move the sums, and nobody or an honest client is named. Consistent shares of any "
            "data and model move them unseen",
            "a client whose value could wrap stops the run, which reveals one bit about its data, "
            "and to a cluster's driver how large it is",
            "B is announced with the round, S after sharing; the paper supposes that all share",
            "S is a union of cohorts (ours), fixed groups of at least T+2 clients that stand in a "
            "masked sum whole or not at all, and clients refuse any other S. cohorts=0 is the "
            f"paper's S, of whoever shared in time: {TOLD_APART}",
            "R is the paper's: a server that announces two S to different clients decodes both if "
            "2R <= N + T + 2(K-1), T clients helping. Cohorts leave it cohorts' sums by that, or "
            "nothing where all clients are one; with cohorts=0 it has a single client's embedding, "
            "and that is refused where the server waits for all. One that announces different rows "
            "gets sums beyond the budget. "
            "security = covert (ours) raises R above (N + T)/2 + K - 1, and the server signs what "
            "it tells, which clients compare: two stories name it (docs/active.md); active names "
            "who deals or uploads wrong values. No claim here is about that",
            "pretrain (ours): networks start from VFLHLP's; with full, client 0 is one "
            "organisation with the server, and both start from its own model instead of having a "
            "proximal term towards it",
        ),
    )

    def __init__(self, config: FedVSConfig, data: VerticalDataset, *, seed: int) -> None:
        super().__init__(config, data, seed=seed)
        config = self.config
        self.check_sizes()
        code = code_of(config, data.parties)
        self.public = Parameters(
            config=config,
            code=code,
            data_point=FixedPoint(code.field, bits=config.data_bits),
            model_point=FixedPoint(code.field, bits=config.model_bits),
            batches={part: self.batches(code.segments, part) for part in self.shared_parts},
        )
        self.check_overflow()

    @classmethod
    def check_parties(cls, config: FedVSConfig, parties: int) -> None:
        """Raise ConfigurationError for fewer than R + 2A clients, or too many mask keys."""
        super().check_parties(config, parties)
        check_stop(cls.name, config, on_labels=config.pretrain == "full")
        code = code_of(config, parties)
        cohorts_of(cls.name, cohort_number(config, parties), parties, config.privacy)
        refuse_any_sharers(config, code)
        if config.masked:
            prss_of(code, degree_of(config, code.segments, parties))

    @classmethod
    def results(cls, config: FedVSConfig, parties: int) -> tuple[int, int]:
        """Recovery threshold R, higher against liars, and the results that the server waits for."""
        K = config.segments or default_segments(parties, config.privacy, config.tolerate_corrupt)
        R = degree_of(config, K, parties) * (K + config.privacy - 1) + 1
        return R, results_needed(config, K, parties)

    @classmethod
    def outline(cls, config: FedVSConfig, shape: Shape) -> Outline | None:
        """Message schedule of a run; None with a timeout, when the sharers depend on chance."""
        if config.share_timeout is not None or config.result_timeout is not None:
            return None
        if config.pretrain == "full":  # a schedule cannot hold labels and head in setup
            return None
        N, A = len(shape.widths), config.tolerate_corrupt
        K = config.segments or default_segments(N, config.privacy, A)
        dtype = PrimeField(config.prime).dtype
        widths = [expanded_width(d, config.degree) for d in shape.widths]
        lengths = {"train": math.ceil(shape.rows / K)}
        if config.secure:
            lengths["test"] = math.ceil(shape.test_rows / K)
        sizes: Any = {"parties": N, "segments": K, "privacy": config.privacy, "degree": 1}
        covert, active = config.security != "semi-honest", config.security == "active"
        # Whether N clients are enough for K is said elsewhere.
        code = LagrangeCode(PrimeField(config.prime), **sizes) if config.masked else None
        proof = proof_of(code) if covert and code else ()
        setup = tuple(
            Post(
                f"{part}-data",
                "peers",
                tuple(beside(hollow((rows, w), dtype), proof) for w in widths),
                operations=tuple(coding_operations(rows * w, N) for w in widths),
                modulus=config.prime,
            )
            for part, rows in lengths.items()
        )
        if config.budget:
            setup += (*unknowns_posts(shape.widths),)
        coded = coded_rows(config, K, lengths["train"])
        unknowns = shape.unknowns or sum(shape.widths)
        rounds = rounds_allowed(config, unknowns, lengths["train"] // coded)
        gradient = Post(
            "gradient",
            "clients",
            (signed_gradient(hollow((K * coded, config.width), np.float32), config),),
            operations=(coding_operations(coded * config.width, cls.results(config, N)[0]),),
        )
        if code is not None:
            prss = prss_of(code, degree_of(config, K, N))
            setup += key_posts(prss)
            if covert:
                told = told_posts(N, prss if active else None)
                setup = (*identity_posts(N, to_server=active), *setup, *told)
        phases = [attempts(config, widths, K, "train", coded, rounds, Stage((gradient,)))]
        if config.secure:
            step = inference_step(coded_rows(config, K, lengths["test"]), K)
            whole, rest = divmod(lengths["test"], step)
            phases += [attempts(config, widths, K, "test", step, whole)] * bool(whole)
            phases += [attempts(config, widths, K, "test", rest, 1)] * bool(rest)
        return Outline(setup, tuple(phases), coded)

    @property
    def messages(self) -> tuple[MessageSpec, ...]:
        """Declared messages: shares of data and models, keys, uploads, announcements, gradients."""
        before = pretraining_messages() if self.config.pretrain == "full" else ()
        every = before + messages_of(self.public, self.data.widths)
        return history.messages(self.public, every) if self.public.covert else every

    @property
    def prediction_messages(self) -> tuple[MessageSpec, ...]:
        """Message declarations of coded prediction, for any number of rows."""
        public = self.predicting(1).public
        every = messages_of(public, self.data.widths, training=False)
        every = history.messages(public, every) if public.covert else every
        return tuple(replace(one, shape=None) for one in every)

    @property
    def field(self) -> PrimeField:
        """Prime field F_p of all shares."""
        return self.public.field

    def ideal(self, world: World) -> None:
        """Declare the outputs; see `securevfl.protocols.fedvs.ideal`."""
        centre = self.centre()
        own = {n: found for n in self.peers() if (found := self.pretraining(n)) is not None}
        declare(world, self.public, centre.outputs, centre.task, own)

    def schedules(self) -> tuple[Schedule, ...]:
        """Usual schedules for a proof, with late sharers if timed; above semi-honest no crash."""
        waits = self.config.share_timeout is None
        every = usual(len(self.peers()), waits=False, shares=not waits)
        return tuple(one for one in every if not self.public.covert or not one.outages)

    def roles(self) -> dict[str, tuple[int, ...]]:
        """Numbers of the parties by role; with ``pretrain=full`` client 0 is the active party."""
        active = {"active": (0,)} if self.config.pretrain == "full" else {}
        return super().roles() | active

    def check_overflow(self) -> None:
        """Raise WouldOverflowError if the sum could leave [-(p-1)/2, (p-1)/2] and wrap."""
        self.refuse_overflow(self.public, {p: self.features(p) for p in self.shared_parts})

    def refuse_overflow(
        self, public: Parameters, parts: Mapping[str, Sequence[np.ndarray]]
    ) -> None:
        """Raise WouldOverflowError for rows, (M, d_n) by part and client, whose sum could wrap.

        Safe is sum_n max_i sum_j |X-bar_n[i,j]| ceil(2^lw w) <= (p-1)/2, with w the
        enforced weight bound.
        """
        config = self.config
        weight = math.ceil(2**config.model_bits * config.weight_bound)
        limit = (config.prime - 1) // 2
        for part, features in parts.items():
            try:
                every = (self.segments(public, part, x) for x in features)
                rows = sum(row_sum_of(one, public.field) for one in every)
            except RangeError as error:
                raise WouldOverflowError(f"fedvs: {error}") from None
            if rows * weight > limit:
                raise WouldOverflowError(
                    f"fedvs: the quantised sum of embeddings can reach {rows * weight:.4g} (row "
                    f"sums {rows:.4g} x weights {weight:.4g}) and (p-1)/2 = {limit:.4g} for "
                    f"p = {config.prime}. Lower data_bits ({config.data_bits}), model_bits "
                    f"({config.model_bits}) or log2 of weight_bound ({config.weight_bound:g}) by "
                    f"{math.ceil(math.log2(rows * weight / limit))} in all, or use a larger prime"
                )

    def parties(self) -> dict[int, Party]:
        """The server and N clients, each with only its own columns."""
        labels = {"train": self.data.train_labels, "test": self.data.test_labels}
        server = Server(self.peers(), self.public, self.centre(), labels, self.data.alone_labels)
        return {SERVER: server} | {n: self.client(n) for n in self.peers()}

    def client(self, index: int) -> Client:
        """Create client `index`, counted from 0."""
        features: dict[str, np.ndarray] = {
            part: self.features(part)[index] for part in self.shared_parts
        }
        network = self.network(index, bound=self.config.weight_bound)
        own = self.pretraining(index)
        return Client(index, self.peers(), self.public, features, network, own)

    @property
    def prss(self) -> Prss | None:
        """Holders of each key of the masks; None in plain evaluation."""
        return self.public.prss if self.config.masked else None

    def quantised_columns(self) -> dict[int, np.ndarray]:
        """Training rows X-bar in F_p, by client."""
        return {n: self.segments(self.public, "train", X) for n, X in enumerate(self.data.train)}

    @staticmethod
    def segments(public: Parameters, part: str, features: np.ndarray) -> np.ndarray:
        """Powers of rows as field elements X-bar, in the K segments of a part of the data."""
        return segments_of(features, public.config.degree, public.data_point, public.order(part))

    def opened_scores(self, rows: int, told: Any, blind: np.ndarray) -> np.ndarray:
        """Raw scores, at the client that asked, from the server of a blinded prediction."""
        made = self.predicting(rows)
        return opened_scores(made.public, made.centre(), told, blind)

    def predicting(self, rows: int) -> Self:
        """A copy with parameters for a coded prediction of `rows` rows."""
        made = copy.copy(self)
        made.config = self.config.model_copy(update={"pretrain": "none", "sum_budget": 0.0})
        layout = self.batches(self.public.code.segments, "test", rows, short=True)
        made.public = replace(self.public, config=made.config, batches={"test": layout})
        return made

    def predictors(
        self, parties: Mapping[int, Party], features: Sequence[np.ndarray]
    ) -> dict[int, Party]:
        """Parties by number of a coded prediction of rows (m, d_n), with masks as in training.

        Rows, even a single one, are padded into K segments like training rows. Networks and server
        model are those of `parties`, which are only read.
        """
        trained: Any = parties
        public = self.predicting(len(features[0])).public
        self.refuse_overflow(public, {"test": features})
        centre = bare_of(trained[SERVER].centre)
        made: dict[int, Party] = {
            n: PredictingClient(
                n, self.peers(), public, {"test": rows}, bare_of(trained[n].network)
            )
            for n, rows in enumerate(features)
        }
        made[SERVER] = PredictingServer(self.peers(), public, centre)
        for n, party in made.items() if public.covert else ():
            own: Any = party
            own.story = trained[n].story[:1]  # who was told another one has another model
        return made

    def pretraining(self, index: int) -> Pretraining | None:
        """New pre-training of client `index`, not begun: client 0 with labels, others without.

        None if the option `pretrain` is "none", and for client 0 if it is "p" (passive clients).
        """
        config, data = self.config, self.data
        if config.pretrain == "none" or (config.pretrain == "p" and index == 0):
            return None
        rule = pretraining_optimizer(config)

        def encoder() -> PolynomialNetwork:
            return self.network(index, bound=config.weight_bound, optimizer=rule)

        alone = data.alone[index] if data.alone else None
        if index == 0:
            means: Any = self.centre(optimizer=rule, stream=self.secret_stream(0, "head"))
            alone = alone if data.alone_labels is not None else None
        else:
            means = make_objective(
                "scarf",
                config.width,
                config.sizes(),
                make_target=encoder,
                stream=self.secret_stream(index, "heads"),
                optimizer=rule,
            )
        return Pretraining(config, encoder(), alone, means)

    @property
    def claims(self) -> tuple[Claim, ...]:
        """Claims by Theorem 5.2 and on masks, and what is not protected."""
        about_server = MASKED if self.config.masked else PLAIN
        if self.told_apart:
            about_server = tuple(replace(c, reason=f"{c.reason}; {TOLD_APART}") for c in MASKED)
        if self.config.pretrain == "full":
            about_server = tuple(
                replace(
                    claim,
                    reason="of clients 1 to N-1, as client 0 is its own, and one of the T where "
                    f"they are named: {claim.reason}",
                )
                for claim in about_server
            )
        odometer = self.released()
        stated = SHARES + about_server + UNPROTECTED + budget_claims(odometer, self.public.stories)
        return given_sums(stated, odometer)

    @classmethod
    def cohorts(cls, config: FedVSConfig, parties: int) -> Cohorts | None:
        """Groups of clients of which a sum has all or none if `share_timeout` is set; else None."""
        patient = config.model_copy(update={"share_timeout": config.share_timeout or 1.0})
        number = cohort_number(patient, parties)
        return cohorts_of(cls.name, number, parties, config.privacy) if number else None

    @property
    def told_apart(self) -> str:
        """Warning if masked sums over changing clients reveal single values; else ""."""
        changing = self.public.sharers_change
        return TOLD_APART if changing and self.config.cohorts == 0 else ""

    @property
    def paper_claims(self) -> tuple[Claim, ...]:
        """The paper's claims on plain evaluation, which the card does not repeat."""
        return SHARES + PAPER

    def describe(self) -> dict[str, Any]:
        """Numbers for summaries: N, K, T, R, A, p, |B|, and whether uploads are masked."""
        code = self.public.code
        return {
            "N": code.parties,
            "K": code.segments,
            "T": code.privacy,
            "R": self.public.threshold,
            "A": self.config.tolerate_corrupt,
            "masked": self.config.masked,
            "p": code.field.modulus,
            "batch_rows": self.batch_rows,
        }

    def memory(self) -> int:
        """Bytes of all data shares, and of the largest client's rows during encoding."""
        return self._memory(self.public.code.segments)

    def _memory(self, segments: int) -> int:
        widths = [expanded_width(d, self.config.degree) for d in self.data.widths]
        size = self.public.field.dtype.itemsize
        rows = [len(self.features(part)[0]) for part in self.shared_parts]
        shares = sum(math.ceil(m / segments) for m in rows) * sum(widths) * self.data.parties
        # Real powers, field elements and their copy in segments, of one client at a time.
        working = max(rows) * max(widths) * (4 + 3 * size)
        return shares * size + working

    def advice(self, available: int) -> str:
        """Advice for less memory: the smallest larger K whose shares fit, if R may be so large."""
        N, T = self.data.parties, self.config.privacy
        for K in range(self.public.code.segments + 1, (N - 1) // 2 - T + 2):
            if self._memory(K) <= available:
                return f"use segments = {K}, whose shares need {self._memory(K) / 1e9:.2f} GB"
        return "use fewer rows, a lower degree, or a prime below 2^32"
