"""Draws that give other secrets the same view: masks, streams of keys, and deals of steps.

In the letters of the proof, which `securevfl.audit.keyed.coupling` shows: A is a set of T holders.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.audit.keyed.keystreams import Place, stream_of
from securevfl.audit.keyed.runs import Change, KeyedRun
from securevfl.audit.proof.linear_algebra import independent_rows, solve_left
from securevfl.audit.tapes import Tape
from securevfl.engine import wire
from securevfl.engine.party import SERVER
from securevfl.errors import ConfigurationError
from securevfl.field import LagrangeCode
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.prss import derive
from securevfl.protocols.base.shared_models import Integers, SharedModels

_SHARE = b"share"  # label of the elements that a seed stands for


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
