"""The bijections of the proof on recorded runs: other secrets, moved draws, and the same view.

The proof is that of docs/coded-split-proof.md. A coalition C of at most T holders is enlarged to a
set A of T. With M_A the mask columns of the Lagrange matrix at A's points, A_A its data columns and
L_A their row sums, the draws that give other secrets (X', W', Gbar') the same view are

    Z' = Z + M_A^-1 A_A (X - X')          V' = V + M_A^-1 L_A (W - W')
    U': those with which A's shares of Gbar' are those of Gbar         where the server is honest
    digests of steps: those of the first run                           where it is, too
    streams for a label of keys that nobody in A holds: + x            where it is not

with s = (psi - psi') / (P prod_{a in A} (z - alpha_a)), psi being the results without masks, and x
a solution of sum_B prod_{b in B, not in A} (z - alpha_b) x_B(z) = s over the blocks B that contain
A. Labels
are free where the server is honest. Where it is in the coalition, the sums must be equal: here all
honest owners' columns are exchanged among them, with the weights that belong to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit.keyed.keystreams import Place, stream_of
from securevfl.audit.keyed.runs import Change, Draws, KeyedRun, Seen, known_to, record_keyed
from securevfl.audit.proof.linear_algebra import independent_rows, solve_left
from securevfl.audit.tapes import Tape
from securevfl.engine import wire
from securevfl.engine.party import SERVER
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.prss import derive
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.shared_models import Integers, SharedModels

Remake = Callable[[Mapping[int, np.ndarray], "np.ndarray | None"], SharedModels]

_SHARE = b"share"  # label of the elements that a seed stands for


@dataclass(frozen=True)
class Coupled:
    """Two runs with other secrets, and how a coalition's views of them differ.

    Attributes
    ----------
    coalition : Coalition
    difference : str
        The first difference; empty where the views are identical.
    control : str
        The first difference where the draws are not moved, so that the comparison is seen to be
        able to fail.
    messages, nbytes : int
        Messages of the view, and bytes in them.
    steps_differ : bool
        Whether the server dealt other steps.
    """

    coalition: Coalition
    difference: str
    control: str
    messages: int
    nbytes: int
    steps_differ: bool


def enlarged(protocol: SharedModels, clients: Sequence[int]) -> tuple[int, ...]:
    """A: the coalition's holders, and the lowest others up to T."""
    others = [n for n in range(protocol.code.parties) if n not in clients]
    return tuple(sorted([*clients, *others][: protocol.code.privacy]))


# -- other secrets --------------------------------------------------------------------------------


def exchanged(protocol: SharedModels, honest: Sequence[int], seed: int) -> Other:
    """Honest owners' columns, exchanged at random among them all, with the weights of each."""
    parties: Mapping[int, Any] = protocol.parties()
    stream = np.random.Generator(np.random.Philox(seed))
    widths = [next(iter(parties[n].features.values())).shape[1] for n in honest]
    order = stream.permutation(sum(widths))
    turned = np.roll(stream.permutation(len(honest)), 1)  # whose weights of the column of ones
    cuts = np.cumsum(widths)[:-1]
    data = {
        part: np.split(_side_by_side(parties, honest, part)[:, order], cuts, axis=1)
        for part in parties[honest[0]].features
    }
    weights = [parties[n].weights for n in honest]
    powers = [w[:-1].reshape(-1, d, w.shape[1]) for w, d in zip(weights, widths, strict=True)]
    moved = np.split(np.concatenate(powers, axis=1)[:, order], cuts, axis=1)
    given = {}
    for place, n in enumerate(honest):
        flat = moved[place].reshape(-1, moved[place].shape[2])
        own = np.concatenate([flat, weights[turned[place]][-1:]])
        given[n] = ({part: np.ascontiguousarray(x[place]) for part, x in data.items()}, own)
    return Other(given)


def _side_by_side(parties: Mapping[int, Any], owners: Sequence[int], part: str) -> np.ndarray:
    return np.concatenate([parties[n].features[part] for n in owners], axis=1)


def replaced(protocol: SharedModels, honest: Sequence[int], seed: int) -> Other:
    """Random columns and weights of honest owners, and other labels at the server."""
    parties: Mapping[int, Any] = protocol.parties()
    stream = np.random.Generator(np.random.Philox(seed))
    given = {}
    for n in honest:
        own, weights = parties[n].features, parties[n].weights
        high = max(float(np.abs(x).max()) for x in own.values()) or 1.0
        data = {part: (high * stream.random(x.shape)).astype(x.dtype) for part, x in own.items()}
        given[n] = data, (0.2 * stream.uniform(-1, 1, weights.shape)).astype(weights.dtype)
    labels = {part: other_labels(y, stream) for part, y in parties[SERVER].labels.items()}
    return Other(given, labels)


def other_labels(labels: np.ndarray, stream: np.random.Generator) -> np.ndarray:
    """Labels of the same kind: other ones, in other numbers of each class."""
    if labels.dtype.kind == "f":
        turned = (labels.min() + labels.max() - labels) * stream.uniform(0.5, 0.9)
        return stream.permutation(turned).astype(labels.dtype)
    classes = np.unique(labels)
    shares = stream.dirichlet(np.ones(len(classes)))
    drawn: np.ndarray = stream.choice(classes, len(labels), p=shares).astype(labels.dtype)
    return drawn


@dataclass(frozen=True)
class Other:
    """Other secrets of honest parties.

    Attributes
    ----------
    owners : mapping
        Prepared columns by part, and weights, of each owner that has others.
    labels : mapping or None
        Labels by part, where they are others.
    """

    owners: Mapping[int, tuple[Mapping[str, np.ndarray], np.ndarray]]
    labels: Mapping[str, np.ndarray] | None = None

    def __call__(self, parties: Mapping[int, Any]) -> None:
        """Give them to those of the parties that have others."""
        for n, (features, weights) in self.owners.items():
            if n in parties:
                parties[n].features, parties[n].weights = features, weights
        if self.labels is not None and SERVER in parties:
            parties[SERVER].labels = self.labels

    def remade(self, make: Remake) -> SharedModels:
        """The protocol on data that has them from the beginning, so that every party is made so."""
        columns = {n: features["train"] for n, (features, _) in self.owners.items()}
        return make(columns, None if self.labels is None else self.labels["train"])


# -- moved draws ----------------------------------------------------------------------------------


def moved_elements(
    before: KeyedRun, after: Mapping[int, Integers], A: Sequence[int]
) -> dict[int, Tape]:
    """Z' and V' of each owner: those with which A holds the same shares."""
    code, field = before.protocol.code, before.protocol.code.field
    inverse = field.inv(code.mask_matrix[list(A)])
    onto_data = field.matmul(inverse, code.data_matrix[list(A)])
    onto_model = field.matmul(onto_data, np.ones((code.segments, 1), field.dtype))

    def moved(masks: np.ndarray, onto: np.ndarray, one: np.ndarray, other: np.ndarray) -> Any:
        change = field.subtract(one, other).reshape(onto.shape[1], -1)
        return field.add(masks, field.matmul(onto, change).reshape(masks.shape))

    tapes = {}
    for n, own in before.integers.items():
        tape, other = before.run.tapes[n], after[n]
        draws = [
            moved(Z, onto_data, own.data[part], other.data[part])
            for part, Z in zip(own.data, tape.draws, strict=False)
        ]
        draws.append(moved(tape.draws[len(draws)], onto_model, own.model, other.model))
        tapes[n] = Tape(draws, list(tape.rounds[: len(draws)]))
    return tapes


@dataclass
class Shares:
    """Shares of all holders, computed from secrets and masks: what psi is of.

    Attributes
    ----------
    protocol : SharedModels
    data : dict
        F(alpha_j) of all owners by part, (N, rows, d).
    model : ndarray, (N, d, h)
        W(alpha_j) of all owners.
    """

    protocol: SharedModels
    data: dict[str, np.ndarray]
    model: np.ndarray

    @classmethod
    def of(
        cls, protocol: SharedModels, secrets: Mapping[int, Integers], tapes: Mapping[int, Tape]
    ) -> Shares:
        """Shares before the first step."""
        code, owners = protocol.code, range(protocol.owners)
        parts = list(secrets[0].data)
        data = {
            part: np.concatenate(
                [code.encode(secrets[n].data[part], masks=tapes[n].draws[place]) for n in owners],
                axis=2,
            )
            for place, part in enumerate(parts)
        }
        models = [
            code.encode_constant(secrets[n].model, masks=tapes[n].draws[len(parts)]) for n in owners
        ]
        return cls(protocol, data, np.concatenate(models, axis=1))

    def step(self, rows: np.ndarray, dealt: Sequence[np.ndarray]) -> None:
        """W(alpha_j) += F^(B)(alpha_j)^T Gamma(alpha_j)."""
        field, F = self.protocol.code.field, self.data["train"]
        moved = [field.matmul(f[rows].T, share) for f, share in zip(F, dealt, strict=True)]
        self.model = field.add(self.model, np.stack(moved))

    def results(self, part: str, rows: np.ndarray) -> np.ndarray:
        """psi at all holders' points, (N, |B|, h)."""
        field, F = self.protocol.code.field, self.data[part]
        every = [field.matmul(f[rows], w) for f, w in zip(F, self.model, strict=True)]
        return np.stack(every)


def moved_streams(
    before: KeyedRun,
    after: Mapping[int, Integers],
    tapes: Mapping[int, Tape],
    A: Sequence[int],
) -> dict[Place, np.ndarray]:
    """Streams of the keys that nobody in A holds, which together make s more."""
    protocol, code = before.protocol, before.protocol.code
    unknown = protocol.result_degree * (code.size - 1) - code.size + 1
    one = Shares.of(protocol, before.integers, before.run.tapes)
    two = Shares.of(protocol, after, tapes)
    found: dict[Place, np.ndarray] = {}
    steps = 0
    for use, label in before.uses().values():
        while steps < use.steps:
            steps += 1
            rows = protocol.use_of(steps).rows
            for shares in (one, two):
                shares.step(rows, before.dealt[steps])
        change = code.field.subtract(
            one.results(use.part, use.rows), two.results(use.part, use.rows)
        )
        for place, added in spread(protocol, A, quotient(protocol, A, change, unknown)).items():
            key = before.keys[place]
            own = stream_of(code.field.modulus, key, label, added.size, code.field.dtype)
            found[key, label] = code.field.add(own, added.reshape(-1))
    return found


def spread(protocol: SharedModels, A: Sequence[int], s: np.ndarray) -> dict[int, np.ndarray]:
    """Polynomials x_B, by key of a block B that contains A, with sum_B x_B prod (z - alpha_b) = s.

    The products are over the members of B that are not in A. Of all solutions it is the one whose
    coefficients are zero but for the first u independent ones, so it is linear in s.

    Parameters
    ----------
    protocol : SharedModels
    A : sequence of int
    s : ndarray, (u, ...)
        Coefficients.

    Raises
    ------
    ConfigurationError
        Where the keys that nobody in A holds do not span what they must.
    """
    field, u, places = protocol.code.field, len(s), list[int]()
    columns = [np.zeros((u, 0), field.dtype)]
    for key, B in enumerate(protocol.prss.blocks):
        if set(A) <= set(B):
            columns.append(_multiples(protocol.code, sorted(set(B) - set(A)), u))
            places += [key] * columns[-1].shape[1]
    matrix = np.concatenate(columns, axis=1)
    first = independent_rows(field, np.ascontiguousarray(matrix.T))
    solved = solve_left(field, matrix[:, first], s.reshape(u, -1)) if len(first) == u else None
    if solved is None:
        raise ConfigurationError(
            f"coupling: the keys that holders {tuple(A)} lack span {len(first)} of {u} dimensions"
        )
    found = np.zeros((len(places), solved.shape[1]), field.dtype)
    found[first] = solved
    of = np.array(places)
    return {key: found[of == key].reshape(-1, *s.shape[1:]) for key in dict.fromkeys(places)}


def _multiples(code: LagrangeCode, roots: Sequence[int], size: int) -> np.ndarray:
    """Coefficients of prod (z - alpha_b) z^e below degree `size`, one polynomial a column."""
    p, product = code.field.modulus, [1]
    for b in roots:
        shifted = zip([0, *product], [*product, 0], strict=True)
        product = [(x - code.alphas[b] * y) % p for x, y in shifted]
    columns = np.zeros((size, size - len(roots)), code.field.dtype)
    for e in range(size - len(roots)):
        columns[e : e + len(product), e] = product
    return columns


def quotient(
    protocol: SharedModels, A: Sequence[int], change: np.ndarray, streams: int
) -> np.ndarray:
    """Coefficients of s = change / (P prod_{a in A} (z - alpha_a)), (u, |B|, h).

    Raises
    ------
    ConfigurationError
        Where there is no such polynomial of degree below u: sums, or shares of A, are not equal.
    """
    code, field = protocol.code, protocol.code.field
    rest = [j for j in range(code.parties) if j not in A]
    flat = change.reshape(code.parties, -1)
    factors = [
        int(code.vanishing[j]) * math.prod(code.alphas[j] - code.alphas[a] for a in A) for j in rest
    ]
    scale = field.reciprocal(field.reduce(np.array(factors, object)))
    powers = field.power(
        field.elements([code.alphas[j] for j in rest])[:, None], np.arange(streams)
    )
    found = solve_left(field, powers, field.multiply(scale[:, None], flat[rest]))
    if found is None or flat[list(A)].any():
        raise ConfigurationError("coupling: the two secrets differ in what the coalition is given")
    return found.reshape(streams, *change.shape[1:])


class MovedDeals:
    """Answers of the pseudo-random function with which A's shares of other steps are the old ones.

    The server's own code deals. The digests of steps, and the seeds of holders in A, are those of
    the first run, and another holder's seed stands for the share that the polynomial through the
    new step and A's old shares has at its point.

    Parameters
    ----------
    before : KeyedRun
    A : sequence of int

    Attributes
    ----------
    streams : dict
        Elements by seed and label; it grows while the server deals.
    """

    def __init__(self, before: KeyedRun, A: Sequence[int]) -> None:
        server, self.A = before.server, tuple(A)
        self.streams: dict[Place, np.ndarray] = {}
        self._code, self._dealt, self._secret = before.protocol.code, before.dealt, server.secret
        self._seeds = {
            t: server.dealing.seeds(server.secret, t, step) for t, step in before.steps.items()
        }
        self._digests = before.own_digests
        self._server: Any = None

    def watching(self, change: Change) -> Change:
        """The change of parties, which also says who the server is whose deals are moved."""

        def both(parties: Mapping[int, Any]) -> None:
            change(parties)
            self._server = parties.get(SERVER, self._server)

        return both

    def seeds(self, key: bytes, label: bytes) -> bytes | None:
        """The seed of a holder for a step, or the step's digest; None for what is neither."""
        if key != self._secret:
            return None
        kind, number, holder = wire.decode(label)[:3]
        if kind == "digest":
            told: bytes = self._digests[number]
            return told
        if holder in self.A:
            old: bytes = self._seeds[number][holder]
            return old
        seed = derive(key, label)
        self.streams[seed, _SHARE] = self._share(number, holder)
        return seed

    def _share(self, number: int, holder: int) -> np.ndarray:
        """Value at a holder's point of the polynomial through a step and A's old shares."""
        code, field = self._code, self._code.field
        step = field.reduce(self._server.dealt(number).astype(np.int64))
        through = np.concatenate([step, *(self._dealt[number][a][None] for a in self.A)])
        points = [*code.betas[: code.segments], *(code.alphas[a] for a in self.A)]
        onto = interpolation_matrix(field, points, [code.alphas[holder]])
        share: np.ndarray = field.matmul(onto, through.reshape(len(points), -1))
        return share.reshape(-1)


# -- the two couplings ----------------------------------------------------------------------------


def couple(
    before: KeyedRun,
    coalition: Coalition,
    *,
    seed: int = 0,
    restarted: Sequence[int] = (),
    control: bool = True,
    remake: Remake | None = None,
) -> Coupled:
    """Run a protocol with other secrets of honest parties, and compare the coalition's views.

    With the server every honest owner's columns and weights are exchanged, so that the sums are
    equal ("exchange"). Without it every honest owner has other columns and weights, and the server
    other labels ("labels").

    Parameters
    ----------
    before : KeyedRun
        The first run.
    coalition : Coalition
        At most T holders, with or without the server.
    seed : int
        Of the other secrets.
    restarted : sequence of int
        Holders that were restarted in the first run.
    control : bool
        Whether the second run is also made with draws that are not moved.
    remake : callable, optional
        Makes the protocol on other training columns of some owners and other training labels. So
        what a class does with the data before parties begin is moved as well.
    """
    protocol, clients = before.protocol, coalition.clients
    A = enlarged(protocol, clients)
    honest = [n for n in range(protocol.owners) if n not in clients]
    other = (exchanged if coalition.server else replaced)(protocol, honest, seed)
    parties = protocol.parties()
    other(parties)
    after = {n: protocol.integers(parties[n]) for n in range(protocol.owners)}
    same = [n for n in honest if _equal(before.integers[n], after[n])]
    if same:
        raise ConfigurationError(f"coupling: owners {same} have the same secrets in both runs")
    tapes = moved_elements(before, after, A)
    change: Change = other
    if coalition.server:
        streams = moved_streams(before, after, tapes, A)
        moved = Draws(tapes, before.secrets, streams)
        unmoved = Draws(tapes, before.secrets)
    else:
        deals = MovedDeals(before, A)
        moved = Draws(tapes, before.secrets, deals.streams, deals.seeds)
        unmoved, change = Draws(before.run.tapes, before.secrets), deals.watching(other)
    again = protocol if remake is None else other.remade(remake)
    second = record_keyed(again, change=change, draws=moved, restarted=restarted)
    seen = before.view(coalition.members)
    differs = first_difference(seen, second.view(coalition.members))
    for n in coalition.members if not differs else ():
        if known_to(before.run.parties[n]) != known_to(second.run.parties[n]):
            differs = f"what party {n} holds at the end, though its messages are the same,"
    other_view = "not looked at"
    if control:
        third = record_keyed(again, change=other, draws=unmoved, restarted=restarted)
        other_view = first_difference(seen, third.view(coalition.members))
    first, other_steps = before.steps, second.steps
    return Coupled(
        coalition,
        differs,
        other_view,
        len(seen),
        sum(len(one[2]) for one in seen),
        any(
            not np.array_equal(one, other_steps[t]) for t, one in first.items() if t in other_steps
        ),
    )


def _equal(one: Integers, two: Integers) -> bool:
    """Whether an owner has the same columns or the same weights."""
    data = all(np.array_equal(x, two.data[part]) for part, x in one.data.items())
    return data or np.array_equal(one.model, two.model)


def first_difference(one: Sequence[Seen], other: Sequence[Seen]) -> str:
    """First difference of two views, in words; empty where they are equal to the last bit."""
    for ours, theirs in zip(one, other, strict=False):
        if ours[:2] != theirs[:2]:
            return f"message {_named(ours)} is followed or timed otherwise: {_named(theirs)}"
        if ours[2] != theirs[2]:
            return f"the content of {_named(ours)}"
    if len(one) != len(other):
        return f"{len(one)} and {len(other)} messages"
    return ""


def _named(seen: Seen) -> str:
    kind, round, sender, receiver = seen[0]
    return f"{kind!r} of round {round} from {sender} to {receiver}"
