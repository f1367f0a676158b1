"""Real runs of a protocol that the verifiers ask for: chosen secrets, recorded or given tapes.

An `Arena` is a protocol that speaks as FedVS does (its clients draw through `uniform` and share by
a `LagrangeCode`), on data that the verifier made. Nothing of the protocol's code is replaced but
what the verifier must choose: models where they are given, and tapes where they are replayed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.audit import views
from securevfl.audit.proof import coupling
from securevfl.audit.proof.coupling import Secrets
from securevfl.audit.views import Tape, View
from securevfl.data.dataset import VerticalDataset
from securevfl.engine.conditions import NONE, Conditions
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.streams import keyed_stream
from securevfl.engine.transcript import Transcript
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode
from securevfl.models.polynomial_network import expand
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import make_config
from securevfl.runs.assembly import rules_of
from securevfl.runs.threads import one_thread

Models = Mapping[int, Mapping[int, np.ndarray]]

# What no secret depends on is small, so that thousands of runs take minutes.
QUICK = {"hidden": 2, "centre": "linear", "degree": 1, "data_bits": 6, "model_bits": 6}


def codes_shares(protocol: Protocol) -> bool:
    """Whether a protocol shares its data and models as FedVS does."""
    public = getattr(protocol, "public", None)
    return isinstance(getattr(public, "code", None), LagrangeCode)


def dataset(features: Sequence[np.ndarray]) -> VerticalDataset:
    """Two classes on the given columns, unscaled; the test rows are never used."""
    rows = len(features[0])
    labels = np.arange(rows) % 2
    return VerticalDataset.from_numpy(
        list(features),
        labels,
        test_features=[x[:2] for x in features],
        test_labels=labels[:2],
        scaling="none",
    )


@dataclass(frozen=True)
class Trial:
    """A recorded run.

    Attributes
    ----------
    protocol : Protocol
    transcript : Transcript
        With payloads.
    tapes : mapping of int to Tape
    models : mapping
        W-bar by client and round.
    data : mapping
        X-bar by client, (K, rows, columns).
    """

    protocol: Any
    transcript: Transcript
    tapes: Mapping[int, Tape]
    models: Models
    data: Mapping[int, np.ndarray]

    @property
    def code(self) -> LagrangeCode:
        """The public code."""
        code: LagrangeCode = self.protocol.public.code
        return code

    def view(self, coalition: Coalition) -> View:
        """What a coalition has at the end."""
        inputs = {n: (self.data[n], self.models[n]) for n in self.data}
        return views.cut(self.transcript, coalition, tapes=self.tapes, inputs=inputs)

    @functools.cached_property
    def whole(self) -> View:
        """All messages, in clear."""
        return views.cut(self.transcript, Coalition(outsider=True))

    @functools.cached_property
    def attempts(self) -> dict[int, tuple[np.ndarray, Any]]:
        """Rows B and the announced attempt (with S and D), by round."""
        opened = {r: batch.rows for (r, _, _), batch in self.whole.payloads("round").items()
                  if hasattr(batch, "rows")}  # fmt: skip
        named = {r: attempt for (r, _, _), attempt in self.whole.payloads("attempt").items()}
        return {r: (opened[r], named[r]) for r in named}

    def secrets(self, client: int) -> Secrets:
        """Secrets and share masks of a client, by the order in which it draws."""
        tape = self.tapes[client]
        V = {round: tape.at(round)[0] for round in self.models[client]}
        return Secrets(self.data[client], self.models[client], tape.at(0)[0], V)


class Arena:
    """A protocol on chosen secrets, to be run any number of times.

    Parameters
    ----------
    protocol : Protocol
        Made with ``secure=False``.
    models : mapping, optional
        W-bar by client and round, any field elements; where given, clients do not train, and the
        check of their own range, which an arbitrary model cannot pass, is left out.
    instead : mapping, optional
        Client to the client whose initial model and streams it has.
    conditions : Conditions
        Who is late, and when.
    """

    def __init__(
        self,
        protocol: Protocol,
        models: Models | None = None,
        instead: Mapping[int, int] | None = None,
        conditions: Conditions = NONE,
    ) -> None:
        if not codes_shares(protocol):
            raise ConfigurationError(
                f"trials: {protocol.name} does not share its data by a LagrangeCode"
            )
        self.protocol: Any = protocol
        self.models = models
        self.instead = dict(instead or {})
        self.conditions = conditions

    @functools.cached_property
    def data(self) -> dict[int, np.ndarray]:
        """X-bar by client: floor(2^lx x + 1/2) of the powers, in segments, as field elements."""
        public = self.protocol.public
        found = {}
        for n, columns in enumerate(self.protocol.data.train):
            powers = expand(columns, public.config.degree).astype(np.float64)
            rounded = np.floor(powers * 2**public.config.data_bits + 0.5).astype(np.int64)
            found[n] = public.field.reduce(public.batches["train"].lay_out(rounded))
        return found

    def run(self, tapes: Mapping[int, Tape] | None = None) -> Trial:
        """Run once, with fresh tapes or, for the clients that have one, with those given."""
        parties = self.protocol.parties()
        fresh = self.protocol.parties() if self.instead else {}
        used: dict[int, Tape] = {}
        models: dict[int, dict[int, np.ndarray]] = {}
        for n in self.protocol.peers():
            client = parties[n]
            if n in self.instead:
                client.network = fresh[self.instead[n]].network
                other = self.instead[n]
                client.stream = functools.partial(keyed_stream, self.protocol.seed, other)
                client.secret_stream = functools.partial(self.protocol.secrets.stream, other)
            if tapes is not None and n in tapes:
                views.replay(client, tapes[n])
            used[n] = views.record(client)
            models[n] = self._watch_models(client)
        transcript = Transcript(payloads=True)
        with one_thread():
            Simulation(
                parties,
                seed=self.protocol.seed,
                secrets=self.protocol.secrets,
                conditions=self.conditions,
                transcript=transcript,
                rules=rules_of(self.protocol),
            ).run()
        return Trial(self.protocol, transcript, used, models, self.data)

    def _watch_models(self, client: Any) -> dict[int, np.ndarray]:
        """Record the models that a client shares, after setting them where they are chosen."""
        kept: dict[int, np.ndarray] = {}
        own = client.quantised_model
        if self.models is not None:
            chosen = self.models[client.index]
            client.check_range = client.update = _nothing

            def own() -> np.ndarray:
                return chosen[client.round]

        def quantised_model() -> np.ndarray:
            kept[client.round] = own()
            return kept[client.round]

        client.quantised_model = quantised_model
        return kept


def _nothing(*_arguments: Any) -> None:
    """Do not train, and do not check a range."""


def arena(
    protocol: type[Protocol],
    features: Sequence[np.ndarray],
    models: Models | None = None,
    *,
    seed: int = 0,
    instead: Mapping[int, int] | None = None,
    conditions: Conditions = NONE,
    **options: Any,
) -> Arena:
    """Arena of a protocol's class on the given columns; every round takes all rows.

    Parameters
    ----------
    protocol : type of Protocol
    features : sequence of ndarray, (M, d_n)
    models, instead, conditions
        As for `Arena`.
    **options
        The protocol's; `QUICK` where they are not given.
    """
    known = {k: v for k, v in QUICK.items() if k in protocol.Config.model_fields}
    config = make_config(protocol, known | {"batch": len(features[0])} | options)
    return Arena(protocol(config, dataset(features), seed=seed), models, instead, conditions)


# -- the formula ---------------------------------------------------------------------------------


def departures(trial: Trial) -> Iterator[str]:
    """Where a run departs from what the proof is about, message by message.

    Every payload that carries a secret is computed anew from the secrets and tapes; every draw must
    be one that the proof counts as fresh and uniform; S and D must be large enough.
    """
    yield from _draws(trial)
    yield from _attempts(trial)
    yield from _shares(trial)
    yield from _uploads(trial)
    known = {"round", "shared", "attempt", "gradient", "train-data", "model", "mask", "embedding"}
    for message in trial.whole.messages:
        if message.kind not in known:
            yield f"a {message.kind!r} from {message.sender} to {message.receiver} is unknown"
        elif message.kind == "shared" and message.payload is not None:
            yield f"client {message.sender} tells the server more than that it shared"


def _coefficient_count(trial: Trial) -> int:
    return trial.code.segments + 2 * trial.code.privacy - 1


def _dealers(trial: Trial, round: int) -> tuple[int, ...]:
    dealers: tuple[int, ...] = trial.protocol.public.candidates(round)
    return dealers


def _draws(trial: Trial) -> Iterator[str]:
    """Z once, then V and, of dealers, rho's coefficients in every round."""
    T, h = trial.code.privacy, trial.protocol.config.width
    for n, tape in trial.tapes.items():
        rows, columns = trial.data[n].shape[1:]
        wanted = [(0, (T, rows, columns))]
        for round, (batch, _) in trial.attempts.items():
            wanted.append((round, (T, columns, h)))
            if n in _dealers(trial, round):
                wanted.append((round, (_coefficient_count(trial), len(batch), h)))
        drawn = [(r, d.shape) for r, d in zip(tape.rounds, tape.draws, strict=True)]
        if drawn != wanted:
            yield f"client {n} draws {drawn}, and the proof needs {wanted}"
        seen = [d.tobytes() for d in tape.draws]
        if len(set(seen)) < len(seen):
            yield f"client {n} draws the same mask twice"


def _attempts(trial: Trial) -> Iterator[str]:
    """One (B, S, D) in each round, of enough sharers and dealers."""
    T = trial.code.privacy
    for kind in ("round", "attempt"):
        named: dict[int, Any] = {}
        for (round, _, receiver), payload in trial.whole.payloads(kind).items():
            if not views.same(named.setdefault(round, payload), payload):
                yield f"round {round}: client {receiver} is told another {kind} than others"
    for round, (_, attempt) in trial.attempts.items():
        if not trial.protocol.config.masked:
            continue
        dealers = set(attempt.dealers) & set(_dealers(trial, round))
        if len(dealers) <= T or len(set(attempt.sharers)) < T + 2:
            yield f"round {round}: {len(dealers)} dealers and {len(attempt.sharers)} sharers"


def _shares(trial: Trial) -> Iterator[str]:
    code, field = trial.code, trial.code.field
    powers = _powers(trial)
    for n in trial.data:
        own = trial.secrets(n)
        wanted = {("train-data", 0): code.encode(own.data, masks=own.data_masks)}
        for round, model in own.models.items():
            encoded = code.encode_constant(model, masks=own.model_masks[round])
            wanted["model", round] = encoded
            if n in _dealers(trial, round):
                rho = trial.tapes[n].at(round)[1]
                wanted["mask", round] = field.matmul(powers, rho.reshape(len(rho), -1)).reshape(
                    -1, *rho.shape[1:]
                )
        for kind in ("train-data", "model", "mask"):
            for (round, sender, receiver), payload in trial.whole.payloads(kind).items():
                shares = wanted.get((kind, round))
                if sender == n and (
                    shares is None or not np.array_equal(payload, shares[receiver])
                ):
                    yield f"round {round}: the {kind} from {sender} to {receiver}"


def _powers(trial: Trial) -> np.ndarray:
    """alpha^i for the coefficients that the proof needs."""
    field = trial.code.field
    alphas = field.elements(list(trial.code.alphas))
    return np.stack([field.power(alphas, i) for i in range(_coefficient_count(trial))], axis=1)


def _terms(round: int, attempt: Any) -> dict[int, int]:
    """Clients in the sum of an attempt, and the round of the model with which each is in it."""
    return dict.fromkeys(attempt.sharers, round) | dict(attempt.held)


def _uploads(trial: Trial) -> Iterator[str]:
    """Y = psi + P sum rho at the sender's point; one upload a round."""
    code, field = trial.code, trial.code.field
    for round, (batch, attempt) in trial.attempts.items():
        terms = _terms(round, attempt)
        wanted = coupling.psi(code, {n: trial.secrets(n) for n in terms}, terms, batch)
        if trial.protocol.config.masked:
            rhos = [trial.tapes[j].at(round)[1] for j in attempt.dealers]
            total = functools.reduce(field.add, rhos)
            values = field.matmul(_powers(trial), total.reshape(len(total), -1))
            hidden = field.multiply(code.vanishing[:, None], values)
            wanted = field.add(wanted, hidden.reshape(wanted.shape))
        sent = [m for m in trial.whole.messages if m.kind == "embedding" and m.round == round]
        if len({m.sender for m in sent}) < len(sent):
            yield f"round {round}: a client uploads twice"
        for message in sent:
            if not np.array_equal(message.payload, wanted[message.sender]):
                yield f"round {round}: the upload of client {message.sender}"


# -- the bijection of the proof, run -------------------------------------------------------------


@dataclass(frozen=True)
class Coupled:
    """Two runs with different secrets, and how their views differ.

    Attributes
    ----------
    coalition : Coalition
    differences : tuple of str
        Empty where the views are identical.
    messages, elements : int
        Messages of the view, and field elements in them.
    moved : int
        Elements of tapes that the two runs do not share.
    """

    coalition: Coalition
    differences: tuple[str, ...]
    messages: int
    elements: int
    moved: int = field(default=0)


def couple(first: Arena, second: Arena, coalition: Coalition, one: Trial | None = None) -> Coupled:
    """Run the second arena on the tapes with which its view must be that of the first.

    Parameters
    ----------
    first, second : Arena
        Same configuration, and secrets with equal sums over the clients outside the coalition.
    coalition : Coalition
        At most T clients, with or without the server.
    one : Trial, optional
        Run of the first, if there is one already.
    """
    before = first.run() if one is None else one
    tapes = moved_tapes(before, second, coalition)
    after = second.run(tapes)
    views_of = before.view(coalition), after.view(coalition)
    elements = sum(m.payload.size for m in views_of[0].messages if hasattr(m.payload, "size"))
    moved = sum(
        int((d != e).sum())
        for n in tapes
        for d, e in zip(before.tapes[n].draws, tapes[n].draws, strict=True)
    )
    differences = tuple(views_of[0].differences(views_of[1]))
    return Coupled(coalition, differences, len(views_of[0].messages), elements, moved)


def moved_tapes(before: Trial, second: Arena, coalition: Coalition) -> dict[int, Tape]:
    """Tapes of the bijection: Z', V' of the honest clients and rho' of one honest dealer."""
    code, field = before.code, before.code.field
    models = _models_of(before, second)
    moved, tapes = {}, {}
    for n in before.data:
        moved[n] = own = before.secrets(n)
        if n not in coalition.clients:
            moved[n] = coupling.move(code, coalition.clients, own, second.data[n], models[n])
        tapes[n] = _rewritten(before.tapes[n], moved[n])
    if not coalition.server:  # no sums are seen, so they need not be equal
        return tapes
    for round, (rows, attempt) in before.attempts.items():
        honest = [j for j in attempt.dealers if j not in coalition.clients]
        if not honest:
            continue
        terms = _terms(round, attempt)
        psi = coupling.psi(code, {n: before.secrets(n) for n in terms}, terms, rows)
        other = coupling.psi(code, moved, terms, rows)
        q = coupling.correction(code, psi, other)
        tape = tapes[honest[0]]
        place = [i for i, r in enumerate(tape.rounds) if r == round][1]
        tape.draws[place] = field.add(tape.draws[place], q)
    return tapes


def _models_of(before: Trial, second: Arena) -> Models:
    """W-bar' of the second arena: chosen ones, or those of the clients that it puts in place."""
    if second.models is not None:
        return second.models
    return {n: before.models[second.instead.get(n, n)] for n in before.models}


def _rewritten(tape: Tape, secrets: Secrets) -> Tape:
    draws, before = list(tape.draws), 0
    draws[0] = secrets.data_masks
    for place, round in enumerate(tape.rounds):
        if round > before:  # the first draw of a round is V
            draws[place] = secrets.model_masks[round]
        before = max(before, round)
    return Tape(draws, list(tape.rounds))
