"""The attacks of the matrix by name: this library's, and those of installed packages."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

import numpy as np

from securevfl.audit.attack_matrix import held_shares
from securevfl.audit.attack_matrix.observation import Table
from securevfl.audit.attack_matrix.setting import AttackCase, AttackSettings
from securevfl.audit.attacks import (
    feature_reconstruction,
    label_inference,
    model_stealing,
    sum_equations,
    sums,
)
from securevfl.audit.attacks.outcome import NoView, Outcome
from securevfl.audit.games import Size, play_ranks
from securevfl.audit.recorded_runs import RunFactory, codes_shares
from securevfl.audit.share_recovery import pool_shares, recover_by_server
from securevfl.engine.streams import Secrets, SecretSeed
from securevfl.errors import RunError
from securevfl.field import FixedPoint, LagrangeCode
from securevfl.models.polynomial_network import PolynomialNetwork
from securevfl.plugins import Registry

P31 = 2**31 - 1
_GRID_BITS = 20  # of the grid to which solved rows are rounded, where the clients have none
_MOST_COLUMNS = 200  # of all clients; solving for more over F_p takes minutes
_DECODED = "combinations of segments decoded exactly"
Result = Outcome | NoView


# -- labels ----------------------------------------------------------------------------------------


def _gradients(case: AttackCase, *, first: bool) -> tuple[Table, str] | NoView:
    """The client's gradients, or else its shares of the steps that stand for them."""
    seen = case.observed
    own = seen.first_gradients if first else seen.gradients
    if isinstance(own, Table):
        return own, ""
    shares = seen.gradient_shares(case.client, newest=not first)
    return shares if isinstance(shares, NoView) else (shares, "on the holder's shares of steps; ")


def gradient_norm(case: AttackCase) -> Result:
    """By the length of late gradients; two classes."""
    seen = _gradients(case, first=False)
    if isinstance(seen, NoView):
        return seen
    table, note = seen
    return _noted(
        label_inference.gradient_norm(table.values, case.labels(table), case.stream), note
    )


def gradient_clusters(case: AttackCase) -> Result:
    """By the sign, or the cluster, of the directions of early gradients."""
    seen = _gradients(case, first=True)
    if isinstance(seen, NoView):
        return seen
    table, note = seen
    labels, stream = case.labels(table), case.stream
    if case.data.num_classes == 2:
        return _noted(label_inference.gradient_sign(table.values, labels, stream), note)
    known = label_inference.known_rows(labels, case.settings.labels, stream)
    classes = case.data.num_classes
    found = label_inference.gradient_clusters(table.values, labels, known, classes, stream)
    return _noted(found, note)


def gradient_directions(case: AttackCase) -> Result:
    """By the nearest mean direction of known rows, of early gradients."""
    seen = _gradients(case, first=True)
    return seen if isinstance(seen, NoView) else _noted(_directions(case, seen[0]), seen[1])


def _directions(case: AttackCase, table: Table) -> Outcome:
    labels, stream = case.labels(table), case.stream
    known = label_inference.known_rows(labels, case.settings.labels, stream)
    classes = case.data.num_classes
    return label_inference.gradient_directions(table.values, labels, known, classes, stream)


def gradient_directions_pooled(case: AttackCase) -> Result:
    """The same of steps that T + 1 holders decode; chance is the same of T holders' shares."""
    code = held_shares.code_of(case.observed)
    if isinstance(code, NoView):
        return code
    holders = held_shares.keenest(code)
    table = held_shares.pooled_steps(case.observed, holders)
    if isinstance(table, NoView):
        return table
    return _noted(_directions(case, table), f"{len(holders)} holders decode the steps; ")


def model_completion(case: AttackCase) -> Result:
    """By a head on the client's own trained network.

    A holder that has no network has shares of all of them: it uses its own share of the joint
    embedding, beside its columns.
    """
    own = np.asarray(case.data.train[case.client])
    trained, untrained = _embedded(case, own), _embedded(case, own, trained=False)
    without, note = {"raw columns": own}, ""
    if untrained is not None:
        without = {"untrained network": untrained, **without}
    if trained is None:
        share = held_shares.own_share(case.observed, case.client)
        if share is None:
            return NoView("the client has no bottom network of its own")
        trained = np.concatenate([own, share], axis=1)
        note = "on the holder's share of H, and its columns; "
    if case.data.task == "regression":
        return NoView("labels of a regression are not inferred")
    labels, stream = case.data.train_labels, case.stream
    known = label_inference.known_rows(labels, case.settings.labels, stream)
    classes = case.data.num_classes
    found = label_inference.model_completion(trained, without, labels, known, classes, stream)
    return _noted(found, note)


# -- features and models ---------------------------------------------------------------------------


def _seen(case: AttackCase) -> tuple[Table, str] | NoView:
    """Single embeddings, or else the uploads that stand for them."""
    single = case.observed.embeddings
    if isinstance(single, Table):
        return single, ""
    uploads = case.observed.uploads
    if isinstance(uploads, Table):
        return uploads, "on all clients' uploads; "
    return NoView(f"{single.reason}, and {uploads.reason}")


def _noted(found: Outcome, note: str) -> Outcome:
    return replace(found, note=note + found.note)


def inversion(case: AttackCase) -> Result:
    """A network from embeddings, or from uploads, to the client's columns."""
    seen = _seen(case)
    if isinstance(seen, NoView):
        return seen
    table, note = seen
    known, columns = case.auxiliary(len(table.rows)), case.columns(table)
    return _noted(feature_reconstruction.inversion(table.values, columns, known, case.stream), note)


def inversion_of_sums(case: AttackCase) -> Result:
    """A network from joint embeddings to the client's columns."""
    table = case.observed.joint
    if isinstance(table, NoView):
        return table
    known, columns = case.auxiliary(len(table.rows)), case.columns(table)
    return feature_reconstruction.inversion(table.values, columns, known, case.stream)


def equality_solving(case: AttackCase) -> Result:
    """From the first embedding, the client's initial weights being known."""
    first = case.observed.first_embedding()
    if isinstance(first, NoView):
        return first
    parties = case.observed.protocol.parties()
    network = case.network(parties[case.client], case.observed.protocol)
    if network is None:
        return NoView("the client's network is not polynomial, so there is nothing linear to solve")
    rows, values = first
    columns = case.data.train[case.client][rows]
    return feature_reconstruction.equality_solving(
        values, [network.values], [columns], network.degree, case.stream, bounds=case.bounds
    )


class _Replica:
    """Copy of a client's network, as somebody has it who knows, or guesses, its secret choices."""

    def __init__(self, party: Any, secrets: Secrets, network: PolynomialNetwork) -> None:
        self._index, self._secrets = party.index, secrets
        self.network = network
        # FedVS, and split learning on its rounded numbers, round the weights for each batch.
        holder = getattr(party, "rounding", None) or getattr(party, "public", None)
        self._point: FixedPoint | None = getattr(holder, "model_point", None)

    def weights(self, step: int) -> np.ndarray:
        """Weights of a step, rounded where the client rounds them."""
        values: np.ndarray = self.network.values
        if self._point is None:
            return values
        stream = self._secrets.stream(self._index, "rounding", step + 1)
        return self._point.round(values, rng=stream) * 2.0**-self._point.bits

    def update(self, rows: np.ndarray, gradient: np.ndarray) -> None:
        """The client's own step."""
        self.network.update(rows, gradient)


def equality_solving_of_sums(case: AttackCase) -> Result:
    """From joint embeddings, all clients' secret choices being known (their secret seed)."""
    return solve_sums(case)


def equality_solving_without_seed(case: AttackCase) -> Result:
    """The same with choices that the server draws itself, for it does not know the clients'."""
    return solve_sums(case, SecretSeed(int(case.stream.integers(2**31))))


def solve_sums(case: AttackCase, guessed: Secrets | None = None) -> Result:
    """Rows from joint embeddings, by the clients' secret choices or by guessed ones."""
    opening = case.opening
    if isinstance(opening, NoView):
        return opening
    made, steps = opening
    secrets = guessed or made.secrets
    copy = case.protocol()
    copy.secrets = secrets
    fresh = copy.parties()
    known = [fresh[n] for n in range(case.data.parties)]
    networks = [network for party in known if (network := case.network(party, copy)) is not None]
    if len(networks) < len(known):
        return NoView("the clients' networks are not polynomial")
    first = networks[0]
    if steps[0].joint.shape[1] != first.values.shape[1]:
        return NoView("the server joins embeddings otherwise than by their mean")
    return sum_equations.equality_solving_of_sums(
        steps,
        [_Replica(party, secrets, network) for party, network in zip(known, networks, strict=True)],
        case.data.train,
        first.degree,
        case.stream,
        bounds=case.bounds,
        grid=2.0 ** -getattr(made.config, "data_bits", _GRID_BITS),
        starts=case.settings.starts,
    )


def stealing(case: AttackCase) -> Result:
    """A surrogate of the client's network, from embeddings or uploads of known rows."""
    seen = _seen(case)
    if isinstance(seen, NoView):
        return seen
    table, note = seen
    known, columns = case.auxiliary(len(table.rows)), case.columns(table)
    if note:
        # What the client's own uploads of other rows are, is all that a copy can be held to.
        left = label_inference.attacked(len(columns), known)
        width = table.values.shape[1] // len(case.observed.protocol.peers())
        own = table.values[:, case.client * width : (case.client + 1) * width]
        fresh, truth, seen_ = columns[left], own[left], own[known]
        note = "on the client's uploads; "
    else:
        fresh = case.data.test[case.client]
        truth, seen_ = _embedded(case, fresh), table.values[known]
    return _noted(model_stealing.steal(columns[known], seen_, fresh, truth, case.stream), note)


def _embedded(case: AttackCase, rows: np.ndarray, *, trained: bool = True) -> Any:
    """What the client's network makes of rows, clipped where the protocol does; None if none."""
    protocol = case.observed.protocol
    parties = case.observed.parties if trained else protocol.parties()
    return protocol.embed(parties[case.client], rows)


# -- sums ------------------------------------------------------------------------------------------


def span_of_sums(case: AttackCase) -> Result:
    """Whether the clients' columns lie in the span of the sums."""
    found = case.sums
    return found if isinstance(found, NoView) else sums.span_exactness(*found, case.stream)


def completion_of_sums(case: AttackCase) -> Result:
    """All rows from as many known ones as the sums have rank, and one more."""
    found = case.sums
    if isinstance(found, NoView):
        return found
    joint, columns = found
    rank = sums.basis(joint, columns.shape[1] + 1).shape[1]
    known = case.stream.permutation(len(joint))[: rank + 1]
    return sums.completion(joint, known, columns, case.stream)


def binary_columns(case: AttackCase) -> Result:
    """Columns of two values by lattice reduction."""
    found = case.sums
    if isinstance(found, NoView):
        return found
    outcome = sums.binary_recovery(*found, case.stream)
    return NoView("no client has a column of two values") if outcome is None else outcome


# -- coalitions against shares ---------------------------------------------------------------------


def _held(case: AttackCase, code: LagrangeCode, size: int) -> Result:
    """The same of holders, whose shares are of all clients' data."""
    holders = held_shares.coalition(code, size)
    if isinstance(holders, NoView):
        return holders
    known = held_shares.pooled_data(case.observed, holders)
    within = held_shares.pooled_data(case.observed, holders[: code.privacy])
    part = len(known.matrix) / code.segments
    if len(known.matrix) == code.segments and held_shares.elements_read(case.observed, holders) < 1:
        raise RunError("the shares decode to something else than the data")
    return Outcome(
        _DECODED,
        part,
        len(within.matrix) / code.segments,
        part,
        part,
        code.segments,
        note=f"{size} holders, T = {code.privacy}, K = {code.segments}; chance is T holders",
    )


def short_values(case: AttackCase) -> Result:
    """T + 1 holders solve for all clients' data, whose values are short, by lattice reduction."""
    code = held_shares.code_of(case.observed)
    if isinstance(code, NoView):
        return code
    holders = held_shares.keenest(code)
    found = held_shares.elements_read(case.observed, holders)
    within = held_shares.elements_read(case.observed, holders[: code.privacy])
    elements = held_shares.true_data(case.observed).size
    note = f"holders {holders}, K = {code.segments}; chance is T holders"
    return Outcome("elements of data found", found, within, found, found, elements, note=note)


def _pooled(case: AttackCase, extra: Callable[[LagrangeCode], int]) -> Result:
    held = held_shares.code_of(case.observed)
    if not isinstance(held, NoView):
        return _held(case, held, extra(held))
    trial = case.shares
    if isinstance(trial, NoView):
        return trial
    code = trial.code
    size, victim = extra(code), code.parties - 1
    if size > victim:
        return NoView(f"{size} of {code.parties} clients leave no victim")
    pooled = pool_shares(trial, tuple(range(size)), victim)
    within = pool_shares(trial, tuple(range(code.privacy)), victim)
    if not (pooled.exact and within.exact):
        raise RunError("the shares decode to something else than the theory says")
    part = pooled.combinations / code.segments
    return Outcome(
        _DECODED,
        part,
        within.combinations / code.segments,
        part,
        part,
        code.segments,
        note=f"{size} clients, T = {code.privacy}, K = {code.segments}; chance is T clients; the "
        f"model is {'' if pooled.model else 'not '}decoded",
    )


def shares_above(case: AttackCase) -> Result:
    """T + 1 clients pool their shares of another client's data."""
    return _pooled(case, lambda code: code.privacy + 1)


def shares_all(case: AttackCase) -> Result:
    """K + T clients pool their shares of another client's data."""
    return _pooled(case, lambda code: code.size)


def rank_game(case: AttackCase) -> Result:
    """The server guesses which of two secrets with equal sums a run had, by ranks of uploads."""
    protocol: Any = case.protocol()
    if not codes_shares(protocol):
        return _no_equations(case)
    code, count = protocol.public.code, case.settings.games
    masked = {"masked": protocol.config.masked} if hasattr(protocol.config, "masked") else {}
    size = Size(code.segments, code.privacy, P31, masked, rounds=count)
    right = play_ranks(type(protocol), size, stream=case.stream).right
    low, high = wilson(right, count)
    return Outcome("right guesses", right / count, 0.5, low, high, count, note=f"p = {P31}")


def _no_equations(case: AttackCase) -> NoView:
    """Why linear algebra on uploads is not tried."""
    if case.observed.holders:
        return NoView(
            "written for products of shares without masks of their own; here masks span all that "
            "the sums leave open, which is checked by their ranks (docs/coded-split.md)"
        )
    return NoView("its clients hold no shares of each other's data")


def wilson(right: int, count: int) -> tuple[float, float]:
    """95 % interval of a proportion (E. B. Wilson, 1927)."""
    z = 1.959964
    centre = (right + z * z / 2) / (count + z * z)
    half = z * math.sqrt(right * (count - right) / count + z * z / 4) / (count + z * z)
    return centre - half, centre + half


def server_and_clients(case: AttackCase) -> Result:
    """The server and T clients solve for all data and models, by linear algebra over F_p."""
    if not codes_shares(case.protocol()):
        return _no_equations(case)
    columns = sum(case.data.widths) + case.data.parties
    if columns > _MOST_COLUMNS:
        return NoView(
            f"not run: {columns} columns are solved for over F_p, {_MOST_COLUMNS} at most here"
        )
    code = case.protocol().public.code  # type: ignore[attr-defined]
    h = 64
    options: Mapping[str, Any] = {
        "prime": P31,
        "data_bits": 8,
        "model_bits": 8,
        "weight_bound": 4.0,
        "degree": 1,
        "width": h,
        "rounds": math.ceil(columns / h) + 2,
        "tolerate_corrupt": 0,
    }
    data = case.data.subset(min(case.data.rows, (columns + 20) * code.segments))
    made = case.protocol(data, **options, batch=data.rows)
    found = recover_by_server(RunFactory(made).run(), tuple(range(code.privacy)))
    return Outcome(
        "elements of data recovered exactly",
        found.data,
        0.0,
        found.data,
        found.data,
        found.elements,
        note=f"{'models' if found.models == 1 else 'no models'} recovered; "
        f"the equations have {'a' if found.explained else 'no'} solution",
    )


@runtime_checkable
class Attack(Protocol):
    """An attempt of one adversary to recover one asset from what it has seen.

    An entry point of the group ``securevfl.attacks`` names an object with these members, under the
    attack's name.
    """

    @property
    def name(self) -> str:
        """Row of the matrix."""

    @property
    def against(self) -> str:
        """The adversary: "client", "server", "server + T clients"."""

    @property
    def asset(self) -> str:
        """What it tries to recover: "labels", "features" or "model"."""

    def run(self, seen: AttackCase, settings: AttackSettings) -> Result:
        """Attack one run.

        Parameters
        ----------
        seen : AttackCase
            What the run showed (`AttackCase.observed`), and a stream of the attacker's own choices.
        settings : AttackSettings
            What all attackers have besides their views.

        Returns
        -------
        Outcome or NoView
            A `RunError` counts as a failure of the attack, not as a lack of a view.
        """


@dataclass(frozen=True)
class BuiltIn:
    """An attack of this library: the description of a function."""

    name: str
    against: str
    asset: str
    attempt: Callable[[AttackCase], Result]

    def run(self, seen: AttackCase, settings: AttackSettings) -> Result:
        """Attack one run; `settings` are those of the case."""
        return self.attempt(seen)


_BUILT_IN = (
    BuiltIn("gradient norm", "client", "labels", gradient_norm),
    BuiltIn("gradient clusters", "client", "labels", gradient_clusters),
    BuiltIn("gradient directions", "client", "labels", gradient_directions),
    BuiltIn("model completion", "client", "labels", model_completion),
    BuiltIn(
        "gradient directions, T + 1 clients",
        "T + 1 clients",
        "labels",
        gradient_directions_pooled,
    ),
    BuiltIn("model stealing", "server", "model", stealing),
    BuiltIn("inversion", "server", "features", inversion),
    BuiltIn("equality solving", "server", "features", equality_solving),
    BuiltIn("inversion of sums", "server", "features", inversion_of_sums),
    BuiltIn("equality solving of sums", "server", "features", equality_solving_of_sums),
    BuiltIn(
        "equality solving of sums, secret seed unknown",
        "server",
        "features",
        equality_solving_without_seed,
    ),
    BuiltIn("span of sums", "server", "features", span_of_sums),
    BuiltIn("completion of sums", "server", "features", completion_of_sums),
    BuiltIn("binary columns of sums", "server", "features", binary_columns),
    BuiltIn("rank of uploads", "server", "features", rank_game),
    BuiltIn("server + T clients", "server + T clients", "features", server_and_clients),
    BuiltIn("shares of T + 1 clients", "T + 1 clients", "features", shares_above),
    BuiltIn("shares of K + T clients", "K + T clients", "features", shares_all),
    BuiltIn("short values of T + 1 clients", "T + 1 clients", "features", short_values),
)

ATTACKS: Registry[Attack] = Registry(
    "securevfl.attacks",
    "attack",
    lambda: {attack.name: attack for attack in _BUILT_IN},
    lambda thing: isinstance(thing, Attack),
    lambda attack: attack.name,
)
