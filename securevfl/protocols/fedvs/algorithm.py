"""FedVS: straggler-resilient, secret-shared split vertical learning.

S. Li, D. Yao, J. Liu, "FedVS: Straggler-Resilient and Privacy-Preserving Vertical Federated
Learning for Split Models", ICML 2023. Line numbers are those of its Algorithm 1, letters those of
its text: N clients, K segments, T colluders, R results needed, D layers, |B| coded rows, h
embedding width.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from securevfl.engine.party import SERVER, Party
from securevfl.errors import (
    CorruptResultsError,
    NotEnoughResultsError,
    RangeError,
    RunError,
)
from securevfl.field import PrimeField
from securevfl.models.polynomial_network import PolynomialNetwork, expand
from securevfl.models.pretraining.trainer import Pretraining
from securevfl.models.split import Centre, measure, rows_of
from securevfl.models.weights import load_weights, weights_of
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.parameters import (
    Parameters,
    inference_step,
)
from securevfl.protocols.fedvs.schedule import coding_operations


class Client(Party):
    """Client n: shares its data once and its model every round, evaluates, updates."""

    activities: ClassVar[Mapping[str, str]] = {**Party.activities, "mask": "share"}
    kept: ClassVar[tuple[str, ...]] = ("network", "uploaded")
    kept_once: ClassVar[tuple[str, ...]] = ("data_shares", "row_sum")
    kept_frozen: ClassVar[tuple[str, ...]] = ("held",)

    def __init__(
        self,
        index: int,
        peers: Sequence[int],
        public: Parameters,
        features: Mapping[str, np.ndarray],
        network: PolynomialNetwork,
        pretraining: Pretraining | None = None,
    ) -> None:
        super().__init__(index, peers)
        self.public = public
        self.features = features
        self.network = network
        self.pretraining = pretraining
        self.data_shares: dict[str, dict[int, np.ndarray]] = {}
        self.row_sum = 0
        self.held: dict[int, tuple[int, np.ndarray]] = {}  # the last share of each, and its round
        self.uploaded: dict[int, tuple[Batch, Attempt]] = {}  # by round, since S last stepped
        self.rows = 0  # |B| of the round under way
        # Models by round that are shared instead of trained ones (`CodedProtocol.parties_with`).
        self.given_models: Mapping[int, np.ndarray] | None = None

    async def setup(self) -> None:
        """Share the data (lines 2-10), and pre-train if that is wanted."""
        if self.pretraining is not None:
            await self.pretrain(self.pretraining)
        for part, features in self.features.items():
            quantised, row_sum = quantised_data(self.public, features, part)
            self.row_sum = max(self.row_sum, row_sum)
            masks = self.uniform((self.public.code.privacy, *quantised.shape[1:]))  # Z, line 6
            shares = self.public.code.encode(quantised, masks=masks)
            self.share(f"{part}-data", shares)  # lines 7-8
            self.data_shares[part] = await self.collect(f"{part}-data", senders=self.peers)

    async def pretrain(self, own: Pretraining) -> None:
        """Train alone on all own rows, and start from the result."""
        labels = await self.receive("labels", sender=SERVER) if own.supervised else None
        self.record("pretrained", **own.run(self.features["train"], self.secret_stream, labels))
        load_weights(self.network, weights_of(own.encoder))
        if own.supervised:
            self.send(SERVER, "head", weights_of(own.means))

    async def run(self) -> None:
        """Take part in every round (lines 12-36)."""
        async for round_ in self.rounds():
            with round_:
                batch: Batch = round_.payload
                self.rows = len(batch.rows)
                model = self.quantised_model()  # line 15
                self.check_range(batch, model)
                masks = self.uniform((self.public.code.privacy, *model.shape))  # V, line 16
                self.share("model", self.public.code.encode_constant(model, masks=masks))
                if self.index in self.public.candidates(self.round):
                    self.share("mask", self.deal_mask(len(batch.rows)))
                before = tuple(self.uploaded) if batch.part == "train" else ()
                self.send(SERVER, "shared", before or None)
                attempt = self.checked(batch, await self.receive("attempt", sender=SERVER))
                shares = await self.collect("model", senders=attempt.sharers)  # line 19
                if self.complete(attempt, shares) and self.consistent(batch, attempt):
                    upload = self.evaluate(batch, attempt, shares)  # line 23
                    if self.public.config.masked:
                        rhos = await self.collect("mask", senders=attempt.dealers)
                        upload = self.masked(upload, rhos)
                    self.uploaded[self.round] = (batch, attempt)
                    self.send(SERVER, "embedding", upload)
                if batch.part == "train":
                    gradient = await self.receive("gradient", sender=SERVER)
                    self.update(batch, attempt, gradient)
                    self.uploaded = {}
                    if self.public.config.absent == "last":  # the sum was decoded: keep its shares
                        fresh = {n: (self.round, shares[n]) for n in attempt.sharers}
                        self.held = self.held | fresh

    def operations(self, kind: str) -> int:
        """Multiply-adds of section 5.3: d_n h D_n N log^2 N to share, |B| h sum_n d_n D_n to embed.

        Dealing a mask (ours) costs its product of powers and coefficients, |B| h N (K + 2T - 1).
        """
        public, h, N = self.public, self.public.config.width, len(self.peers)
        own: int = self.network.values.shape[0]
        if kind == "model":
            return coding_operations(own * h, N)
        if kind == "mask":
            return int(self.rows * h * public.mask_powers.size)
        if kind == "embedding":
            held = next(iter(self.data_shares.values()))
            widths = sum(share.shape[1] for share in held.values())
            return int(self.rows * h * widths)
        part = kind.removesuffix("-data")
        return coding_operations(public.batches[part].length * own, N) if kind != part else 0

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Fresh uniform field elements from the operating system's entropy.

        All secret randomness of a client comes through here: Z once in setup, then each round V
        and, of a dealer, the coefficients of rho. Nothing of it is kept. The privacy verifiers
        replace this method by a tape.
        """
        return self.public.field.random(shape)

    def deal_mask(self, rows: int) -> np.ndarray:
        """rho at every client's point, (N, |B|, h), for a uniform rho of degree K + 2T - 2."""
        field, powers = self.public.field, self.public.mask_powers
        shape = (rows, self.public.config.width)
        coefficients = self.uniform((powers.shape[1], *shape))
        values = field.matmul(powers, coefficients.reshape(powers.shape[1], -1))
        dealt: np.ndarray = values.reshape(-1, *shape)
        return dealt

    def checked(self, batch: Batch, attempt: Attempt) -> Attempt:
        """The attempt, if its sharers and dealers keep the guarantee; never upload otherwise.

        A client named twice, or one that is no client, would let a sum single somebody out.
        """
        public, N = self.public, len(self.peers)
        dealers = set(attempt.dealers) & set(public.candidates(self.round))
        terms = set(attempt.terms) & set(self.peers)
        repeated = len(terms) < len(attempt.terms)
        held = attempt.held and (public.config.absent == "omit" or batch.part != "train")
        if repeated or held or not public.maskable(attempt.sharers, sorted(dealers)):
            raise RunError(
                f"fedvs: the server announced the sharers {list(attempt.sharers)}, and models of "
                f"earlier rounds (client, round) {list(attempt.held)}: {len(terms)} different "
                f"clients of {N}, and {len(dealers)} dealers that were appointed. Masks with "
                f"T = {public.code.privacy} need at least T+2 sharers and T+1 dealers, each once, "
                "and earlier models stand in sums of training rows with absent=last alone. "
                "Nothing was uploaded"
            )
        return attempt

    def consistent(self, batch: Batch, attempt: Attempt) -> bool:
        """Whether no row of the batch was uploaded to another sum of the same models.

        Two such sums tell their difference, which may be one client's. The server avoids them;
        after a crash it may have forgotten. What it has found harmless is forgotten here, too.
        """
        for round in list(self.uploaded):
            if round in attempt.harmless or round <= attempt.stepped:
                del self.uploaded[round]
        for rows, one in self.uploaded.values() if self.public.config.masked else ():
            if rows.meets(batch) and not one.same_sum(attempt):
                self.record("refused", sharers=list(attempt.sharers), before=list(one.sharers))
                return False
        return True

    def complete(self, attempt: Attempt, shares: dict[int, np.ndarray]) -> bool:
        """Add to `shares` those of earlier rounds that the attempt names, if all are held."""
        for n, round in attempt.held:
            known, share = self.held.get(n, (0, None))
            if share is None or known != round:
                self.record("lacks", client=n, share_of=round)
                break
            shares[n] = share
        return len(shares) == len(attempt.terms)

    def masked(self, upload: np.ndarray, rhos: Mapping[int, np.ndarray]) -> np.ndarray:
        """Y = H-tilde + P(alpha) sum over D of rho_j(alpha), P(z) = prod_{k<=K} (z - beta_k).

        P vanishes at the data points, so the wanted sums and R do not change. The client, not the
        dealer, multiplies by P, so no dealer can move a wanted value.
        """
        field = self.public.field
        total = functools.reduce(field.add, rhos.values())
        masked: np.ndarray = field.add(
            upload, field.multiply(self.public.code.vanishing[self.index], total)
        )
        return masked

    def quantised_model(self) -> np.ndarray:
        """W-bar (equation 3)."""
        if self.given_models is not None:
            return self.given_models[self.round]
        stream = self.secret_stream("rounding", self.round)
        quantised: np.ndarray = self.public.model_point.quantize(self.network.values, rng=stream)
        return quantised

    def check_range(self, batch: Batch, model: np.ndarray) -> None:
        """Refuse to share when |X-bar^(B) W-bar| > floor((p-1)/(2N)) for an entry: it could wrap.

        The server cannot see a wrap. That a client stopped here is one bit about its data, listed
        on the card. Row sum times largest weight bounds every entry; the exact product is
        computed only where that bound does not settle it, in int64, which the protocol's check
        before the run makes wide enough; of all rows where other batches may meet this model.
        """
        if self.given_models is not None:
            return
        public = self.public
        limit = (public.field.modulus - 1) // (2 * len(self.peers))
        largest = int(magnitude(public.field, model).max())
        if self.row_sum * largest <= limit:
            return
        rows = self.features[batch.part]
        if public.config.absent == "omit" or batch.part != "train":
            rows = rows_of(rows, public.batches[batch.part].samples(batch.rows))
        data = public.data_point.round(expand(rows, self.network.degree))
        product = int(np.abs(data @ public.field.signed(model)).max())
        if product > limit:
            config = public.config
            raise RangeError(
                f"fedvs: in round {self.round} client {self.index} has a quantised embedding of "
                f"{product}, and floor((p-1)/(2N)) = {limit}. Lower data_bits "
                f"({config.data_bits}), model_bits ({config.model_bits}) or weight_bound "
                f"({config.weight_bound:g}), or use a larger prime"
            )

    def evaluate(
        self, batch: Batch, attempt: Attempt, shares: Mapping[int, np.ndarray]
    ) -> np.ndarray:
        """H-tilde = sum over S of X-tilde^(B) W-tilde (equation 5), one product over F_p."""
        held = self.data_shares[batch.part]
        data = np.concatenate([held[n][batch.rows] for n in attempt.terms], axis=1)
        model = np.concatenate([shares[n] for n in attempt.terms])
        product: np.ndarray = self.public.field.matmul(data, model)
        return product

    def update(self, batch: Batch, attempt: Attempt, gradient: np.ndarray) -> None:
        """Step with dL/dH_n = (1/|S|) dL/dH on the own real rows (lines 33-35).

        A client whose earlier model was in the sum stands still: |S| counts it, and what it would
        step from is not the model that the gradient is of.
        """
        if self.index not in attempt.sharers or self.given_models is not None:
            return
        samples = self.public.batches["train"].samples(batch.rows)
        own = rows_of(self.features["train"], samples)
        clipped = self.network.update(own, gradient / np.float32(len(attempt.terms)))
        if clipped:
            self.record("clipped", weights=clipped, bound=self.public.config.weight_bound)


class Server(Party):
    """Names the batch and the sharers, decodes the sum from the first R results, trains W_0."""

    kept: ClassVar[tuple[str, ...]] = (
        *("centre", "steps", "given_up", "test_scores", "summed", "harmless", "stepped", "latest"),
    )

    def __init__(
        self,
        peers: Sequence[int],
        public: Parameters,
        centre: Centre,
        labels: Mapping[str, np.ndarray],
        alone_labels: np.ndarray | None = None,
    ) -> None:
        super().__init__(SERVER, peers)
        self.public = public
        self.centre = centre
        self.labels = labels
        self.alone_labels = alone_labels
        self.steps = 0
        self.given_up = 0
        self.batch = Batch("train", np.empty(0, np.uint32))  # of the attempt under way
        self.test_scores: dict[int, np.ndarray] = {}
        # Announced since S last stepped, by round, and who may have uploaded.
        self.summed: dict[int, tuple[Batch, Attempt, tuple[int, ...]]] = {}
        self.harmless: tuple[int, ...] = ()  # rounds of those that need not be remembered
        self.stepped = 0  # round of the last step
        # With absent=last: of each client the last round that its model was summed in, and its S.
        self.latest: dict[int, tuple[int, tuple[int, ...]]] = {}

    def operations(self, kind: str) -> int:
        """Multiply-adds of section 5.3: |B| h R log^2 R to decode."""
        if kind != "gradient":
            return 0
        elements = len(self.batch.rows) * self.public.config.width
        return coding_operations(elements, self.public.threshold)

    async def setup(self) -> None:
        """Have client 0 pre-train on the labels of its rows, and start from its head."""
        if self.public.config.pretrain == "full":
            more = [] if self.alone_labels is None else [self.alone_labels]
            self.send(0, "labels", np.concatenate([self.labels["train"], *more]))
            head = await self.receive("head", sender=0)
            first = next(name for name, weight in head.items() if weight.ndim > 1)
            # H is the mean, so N H is client 0's embedding, which its head knows, and the others'.
            load_weights(self.centre, head | {first: len(self.peers) * head[first]})

    async def run(self) -> None:
        """Train (lines 25-31), then infer the test set from its shares if asked to."""
        while self.steps < self.public.config.rounds:
            self.safe_point()
            batch, again = self.next_batch()
            attempt = await self.attempt(batch, again)
            embedding = await self.decode(attempt)
            if embedding is not None:
                self.train(batch, attempt, embedding)
        if self.public.config.secure:
            await self.infer()
        self.conclude()

    def next_batch(self) -> tuple[Batch, Attempt | None]:
        """The batch of the next round, without rows of attempts that were given up since a step.

        Where nothing is left of it, the last of these attempts is made again.
        """
        rows = self.public.batches["train"].draw(self.round + 1)
        for given_up, _, _ in self.summed.values():
            rows = rows[~np.isin(rows, given_up.rows)]
        return (Batch("train", rows), None) if rows.size else self.last_attempt()

    def last_attempt(self) -> tuple[Batch, Attempt]:
        """The newest attempt that was announced since a step."""
        batch, attempt, _ = self.summed[max(self.summed)]
        return batch, attempt

    def forget_harmless(self, shared: Mapping[int, tuple[int, ...] | None]) -> None:
        """Forget attempts to which too few can have uploaded for their uploads to tell anything.

        A client that has shared for a later round uploads to no earlier one, and says to which it
        has. K + T - 1 uploads are uniform for the server with T clients, whatever the sums: rho has
        K + 2T - 1 coefficients, and T clients know it at T points.
        In plain evaluation every attempt tells the server everything, and none is remembered.
        """
        code = self.public.code
        for round, (batch, attempt, able) in list(self.summed.items()):
            able = tuple(n for n in able if n not in shared or round in (shared[n] or ()))
            self.summed[round] = (batch, attempt, able)
            if not self.public.config.masked or len(able) < code.segments + code.privacy:
                del self.summed[round]
                self.harmless += (round,)

    async def attempt(self, batch: Batch, again: Attempt | None) -> Attempt:
        """Announce B, then S: those that shared their model in time (footnote 2), and D.

        With ``absent=last`` (ours) clients outside S stand in sums of training rows with the model
        of the last decoded sum for which they shared it, whose shares the others have.
        S and D that would not keep the masked guarantee are not announced; `decode` gives such an
        attempt up. An attempt on rows that were announced before is made with the models of that
        one, `again`, or not at all: two sums of the same rows and models tell their difference.
        """
        self.batch = batch
        self.announce(self.round + 1, batch)
        timeout = self.public.config.share_timeout
        shared = await self.collect("shared", timeout=timeout)
        sharers = tuple(shared)
        if again is not None:
            sharers = again.sharers if set(again.sharers) <= set(sharers) else ()
        dealt = [j for j in self.public.candidates(self.round) if j in sharers]
        dealers = tuple(sorted(dealt[: self.public.code.privacy + 1]))
        held = self.held(sharers) if batch.part == "train" else ()
        if batch.part == "train":
            self.forget_harmless(shared)
        held = held if again is None else again.held
        attempt = Attempt(sharers, dealers, held, self.harmless, self.stepped)
        if self.public.maskable(attempt.sharers, attempt.dealers):
            self.summed[self.round] = (batch, attempt, tuple(self.peers))
            self.broadcast("attempt", attempt)
        return attempt

    def held(self, sharers: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
        """Clients outside S and the round of their last model, as far as enough of S have both.

        Who shared in a round has its shares. A client whose model would leave fewer than are
        wanted stays out of the sum.
        """
        able, chosen = set(sharers), []
        needed = min(self.public.wanted, len(able))  # of the rest nobody knows whether it uploads
        had = {n: able & set(S) for n, (_, S) in self.latest.items() if n not in able}
        for n in sorted(had, key=lambda n: -len(had[n])):
            if len(able & had[n]) >= needed:
                able &= had[n]
                chosen.append((n, self.latest[n][0]))
        return tuple(sorted(chosen))

    async def decode(self, attempt: Attempt) -> np.ndarray | None:
        """H from the first R results (lines 27-30, equation 7); None if the attempt is given up."""
        public = self.public
        before = [one for rows, one, _ in self.summed.values() if rows.meets(self.batch)]
        if before and not attempt.sharers:
            self.give_up(
                f"the rows were to be summed over clients {list(before[-1].sharers)} before, and "
                "not all of these shared again within share_timeout = "
                f"{public.config.share_timeout} s",
                (),
            )
            return None
        if not public.maskable(attempt.sharers, attempt.dealers):
            self.give_up(
                f"{len(attempt.sharers)} clients shared, {len(attempt.dealers)} of them dealt masks"
                f" within share_timeout = {public.config.share_timeout} s",
                attempt.sharers,
            )
            return None
        results = await self.collect(
            "embedding", count=public.wanted, timeout=public.config.result_timeout
        )
        if len(results) < public.wanted:
            self.give_up(
                f"{public.requirement} results are needed and {len(results)} came within "
                f"result_timeout = {public.config.result_timeout} s",
                tuple(results),
            )
            self.latest = {}  # too few may have had what was asked for
            return None
        try:
            sums = self.interpolate(results)
        except (CorruptResultsError, NotEnoughResultsError) as error:
            self.give_up(str(error), tuple(results))
            return None
        self.given_up = 0
        stacked = sums.reshape(-1, sums.shape[-1])  # segment by segment
        bits = public.config.data_bits + public.config.model_bits
        total = public.model_point.dequantize(stacked, bits=bits)
        mean: np.ndarray = total / len(attempt.terms)
        return mean

    def interpolate(self, results: Mapping[int, np.ndarray]) -> np.ndarray:
        """psi(beta_1..beta_K); with A > 0 up to A wrong uploads are corrected and recorded."""
        code = self.public.code
        if not self.public.config.tolerate_corrupt:
            return code.decode(np.stack(list(results.values())), tuple(results), degree=2)
        shape = (len(self.batch.rows), self.public.config.width)
        sound = {
            n: upload
            for n, upload in results.items()
            if isinstance(upload, np.ndarray)
            and (upload.shape, upload.dtype) == (shape, self.public.field.dtype)
        }
        if len(sound) < self.public.threshold:
            raise NotEnoughResultsError(
                f"{len(sound)} of {len(results)} uploads have the form that was asked for, and "
                f"decoding needs R = {self.public.threshold}"
            )
        uploads = np.stack(list(sound.values()))
        sums, wrong = code.decode_with_errors(uploads, tuple(sound), degree=2)
        corrupted = sorted({*wrong, *results} - (set(sound) - set(wrong)))
        if corrupted:
            self.record("corrected", clients=corrupted)
        return sums

    def give_up(self, why: str, parties: tuple[int, ...]) -> None:
        """Leave an attempt; the next round takes other rows or the same S: no row meets two."""
        missing = sorted(set(self.peers) - set(parties))
        self.record("given_up", why=why, missing=missing)
        self.given_up += 1
        if self.given_up >= self.public.config.max_attempts:
            raise NotEnoughResultsError(
                f"fedvs: round {self.round}: {why}, and {self.given_up} attempts in a row were "
                f"given up; missing: clients {missing}. Lower segments or privacy, or wait longer"
            )

    def train(self, batch: Batch, attempt: Attempt, embedding: np.ndarray) -> None:
        """Update W_0 and broadcast dL/dH (line 31); padded rows have no loss and no gradient."""
        samples = self.public.batches["train"].samples(batch.rows)
        loss, gradient = self.centre.step(embedding, samples, self.labels["train"])
        self.steps += 1
        self.summed, self.harmless, self.stepped = {}, (), self.round
        if self.public.config.absent == "last":
            self.latest |= dict.fromkeys(attempt.sharers, (self.round, attempt.sharers))
        self.broadcast("gradient", gradient)
        self.record(
            "round",
            step=self.steps,
            loss=loss,
            used=self.public.wanted,
            sharers=len(attempt.sharers),
            **({"filled": len(attempt.held), "how": "last model"} if attempt.held else {}),
        )

    async def infer(self) -> None:
        """Coded inference: the test rows' sums are decoded as in training, a few rows at a time."""
        batches = self.public.batches["test"]
        step = inference_step(batches.coded, batches.segments)
        done = len(self.test_scores) * step
        while done < batches.length:
            self.safe_point()
            rows = np.arange(done, min(done + step, batches.length), dtype=np.uint32)
            again = self.last_attempt()[1] if self.summed else None
            attempt = await self.attempt(Batch("test", rows), again)
            embedding = await self.decode(attempt)
            if embedding is not None:
                self.score(done // step, embedding)
                done += step
                self.summed = {}
        self.report_inference(step)

    def score(self, number: int, embedding: np.ndarray) -> None:
        """Keep the scores of a part of the test rows."""
        self.test_scores[number] = self.centre.scores(embedding)

    def report_inference(self, step: int) -> None:
        """Record what the coded scores are worth."""
        labels, scores = self.labels["test"], self.in_order(self.test_scores, step)
        self.record("inference", rows=len(labels), **measure(self.centre.task, scores, labels))

    def in_order(self, parts: Mapping[int, np.ndarray], step: int) -> np.ndarray:
        """Values of all test rows, in the order of the rows, from those of `step` rows a part."""
        batches = self.public.batches["test"]
        first = next(iter(parts.values()))
        values = np.empty((batches.rows, *first.shape[1:]), first.dtype)
        for number, part in parts.items():
            rows = np.arange(number * step, min((number + 1) * step, batches.length))
            samples = batches.samples(rows)
            values[samples[samples >= 0]] = part[samples >= 0]
        return values


def magnitude(field: PrimeField, elements: np.ndarray) -> np.ndarray:
    """|phi^-1(z)|: distance of each element to 0, as unsigned integers."""
    sizes: np.ndarray = np.minimum(elements, field.dtype.type(field.modulus) - elements)
    return sizes


def quantised_data(public: Parameters, features: np.ndarray, part: str) -> tuple[np.ndarray, int]:
    """X-bar of one client in K segments (lines 3-5), and its largest row sum of |X-bar|.

    Parameters
    ----------
    features : ndarray, (M, d), float32
    part : {"train", "test"}

    Returns
    -------
    segments : ndarray, (K, ceil(M/K), d D + 1), field elements
        Padded rows are all zero, the ones column included.
    row_sum : int
        max_i sum_j |X-bar_ij|; from 2^62 on it is rounded up.
    """
    powers = expand(features, public.config.degree)
    quantised = public.data_point.quantize(powers)
    sizes = magnitude(public.field, quantised)
    rough = float(sizes.sum(axis=1, dtype=np.float64).max())
    exact = rough < 2**62
    row_sum = int(sizes.sum(axis=1, dtype=np.uint64).max()) if exact else int(rough * (1 + 1e-9))
    return public.batches[part].lay_out(quantised), row_sum
