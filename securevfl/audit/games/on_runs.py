"""Statistical tests on real runs of a protocol: secrets, views and statistics.

Every test makes its own small instance with the K, T and prime that are asked for and the fewest
clients that these allow. In the games secret 0 is all zero and secret 1 is not, and both have the
same sums, because features, or models but for their bias, are zero in both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from securevfl.audit import statistical as st
from securevfl.audit.games import guessing
from securevfl.audit.games.upload_residues import at_data_points, divided, unwanted
from securevfl.audit.recorded_runs import CodedRun, Models, RunFactory, run_factory
from securevfl.audit.statistical import LEVEL, Outcome
from securevfl.field import LagrangeCode, PrimeField
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.protocol import Protocol

_ROUNDS = 2
_GRID = 64  # features are multiples of 1/64, exact with 6 bits


@dataclass(frozen=True)
class Size:
    """Sizes of the instances that the tests create.

    Attributes
    ----------
    segments, privacy, prime : int
        K, T and p, as in the configuration that is verified.
    options : mapping
        Further options of the protocol, such as ``masked=False``.
    rounds : int
        Guesses of each game.
    """

    segments: int = 1
    privacy: int = 1
    prime: int = 2**31 - 1
    options: Mapping[str, Any] | None = None
    rounds: int = 40

    @property
    def parties(self) -> int:
        """Smallest number of clients: R to decode, and T + 2 for masks."""
        return max(2 * (self.segments + self.privacy - 1) + 1, self.privacy + 2)

    @property
    def coalition(self) -> tuple[int, ...]:
        """Colluding clients: the first T."""
        return tuple(range(self.privacy))


class DistinguishingGame:
    """Two run factories, one for each secret of a distinguishing game: all zero, and nonzero.

    Parameters
    ----------
    protocol : type of Protocol
    size : Size
    about : {"features", "model", "any model"}
        What secret 1 has that is not zero. A model is 0 on the column of ones, so that its sums are
        zero as well where features are; "any model" comes with features, and its sums are not.
    rows, width : int
        |B| and h.
    """

    def __init__(
        self, protocol: type[Protocol], size: Size, about: str, *, rows: int = 3, width: int = 2
    ) -> None:
        stream = np.random.Generator(np.random.Philox(7))
        N, shape = size.parties, (rows * size.segments, 1)
        options = {
            "segments": size.segments,
            "privacy": size.privacy,
            "prime": size.prime,
            "rounds": _ROUNDS,
            "width": width,
            **(size.options or {}),
        }
        zero = [np.zeros(shape) for _ in range(N)]
        some = [stream.integers(0, _GRID, shape) / _GRID for _ in range(N)]
        models = _models(size, N, width, about, stream)
        self.factories: tuple[RunFactory, RunFactory] = (
            run_factory(protocol, zero, _models(size, N, width, "features", stream), **options),
            run_factory(protocol, zero if about == "model" else some, models, **options),
        )

    @property
    def field(self) -> PrimeField:
        """The prime field F_p."""
        return self.factories[0].protocol.code.field

    def run(self, bit: int) -> CodedRun:
        """Run once with secret 0 or secret 1."""
        return self.factories[bit].run()


def _models(size: Size, N: int, width: int, about: str, stream: np.random.Generator) -> Models:
    """Models W-bar by client and round: zero, uniform except the bias, or uniform."""
    dtype = np.dtype(np.uint32 if size.prime < 2**32 else np.uint64)
    free = {"features": 0, "model": 1, "any model": 2}[about]

    def one() -> np.ndarray:
        model = np.zeros((2, width), dtype)
        model[:free] = stream.integers(0, size.prime, (free, width))
        return model

    return {n: {r: one() for r in range(1, _ROUNDS + 1)} for n in range(N)}


# -- statistics of a run -------------------------------------------------------------------------


def share_vector(recorded: CodedRun, clients: tuple[int, ...]) -> np.ndarray:
    """All shares that the coalition holds of the first two honest clients."""
    view = recorded.view(Coalition(clients=clients))
    honest = [n for n in recorded.data if n not in clients][:2]
    parts = [
        payload.reshape(-1)
        for kind in ("train-data", "model")
        for (_, sender, receiver), payload in sorted(view.payloads(kind).items())
        if sender in honest and receiver in clients
    ]
    return np.concatenate(parts)


def uploads(recorded: CodedRun, round: int, aligned: bool = True) -> dict[int, np.ndarray]:
    """Uploads of a round by client; `aligned` sorts their rows into the order of the data."""
    rows, _ = recorded.attempts[round]
    order = np.argsort(rows) if aligned else np.arange(len(rows))
    view = recorded.view(Coalition(server=True))
    return {n: upload[order] for n, upload in view.one_per_sender("embedding", round, -1).items()}


def upload_blocks(recorded: CodedRun, aligned: bool = True) -> np.ndarray:
    """Each attempt's uploads less the sums: coefficients, then values at betas."""
    code = recorded.code
    found = [
        unwanted(code, uploads(recorded, round, aligned)) for round in sorted(recorded.attempts)
    ]
    return np.stack([np.concatenate([c, at_data_points(code, c)]) for c in found])


def coalition_blocks(
    recorded: CodedRun, clients: tuple[int, ...], *, with_keys: bool
) -> np.ndarray:
    """Views of server and clients in every attempt, less the parts that sums and shares explain.

    With the points beta_1..K and alpha_C as a basis, F_n = sum_k X_k a_k + sum_c s_c b_c and
    G_n = W a + sum_c g_c b_c, a = sum_k a_k. Uploads less sum_k U_k a_k a, less the products of
    shares s_c g_c' vanish at all these points; their quotient is what remains. With keys, the part
    of the masks that the coalition has keys for is taken away before.
    """
    found = [
        _quotient(recorded, clients, round, with_keys=with_keys)
        for round in sorted(recorded.attempts)
    ]
    code = recorded.code
    return np.stack([np.concatenate([c, at_data_points(code, c)]) for c in found])


def _quotient(
    recorded: CodedRun, clients: tuple[int, ...], round: int, *, with_keys: bool
) -> np.ndarray:
    code, field = recorded.code, recorded.code.field
    seen = uploads(recorded, round)
    parties = sorted(seen)
    values = np.stack([seen[n] for n in parties])
    view = recorded.view(Coalition(server=True, clients=clients))
    known = known_part(code, parties, clients, values, *own_shares(recorded, view, clients, round))
    rest = field.subtract(values, known)
    if with_keys and recorded.protocol.masked:
        rest = field.subtract(rest, _known_masks(recorded, clients, parties, round))
    return divided(code, parties, rest, clients)


def own_shares(
    recorded: CodedRun, view: Any, clients: tuple[int, ...], round: int
) -> tuple[np.ndarray, np.ndarray]:
    """The coalition's shares of all clients' data and models at its points, side by side.

    Returns
    -------
    data : ndarray, (c, |B|, all columns)
    models : ndarray, (c, all columns, h)
    """
    code = recorded.code
    rows, attempt = recorded.attempts[round]
    order = np.sort(rows)
    own = {c: recorded.secrets(c) for c in clients}
    data, models = [], []
    for c in clients:
        F = view.one_per_sender("train-data", 0, c)
        G = view.one_per_sender("model", round, c)
        for m, mine in own.items():  # a client's shares for its friends and itself, from its tape
            F[m] = code.encode(mine.data, masks=mine.data_masks)[c]
            G[m] = code.encode_constant(mine.models[round], masks=mine.model_masks[round])[c]
        data.append(np.concatenate([F[n][order] for n in attempt.sharers], axis=1))
        models.append(np.concatenate([G[n] for n in attempt.sharers]))
    return np.stack(data), np.stack(models)


def known_part(
    code: LagrangeCode,
    parties: list[int],
    clients: tuple[int, ...],
    values: np.ndarray,
    data: np.ndarray,
    models: np.ndarray,
) -> np.ndarray:
    """Part of the uploads that server and coalition know without honest secrets.

    sum_k U_k a_k a + sum_c,c' s_c g_c' b_c b_c' at the given parties' points, by the basis of
    `securevfl.audit.attacks.recovery`: the wanted sums, and products of the coalition's own shares.
    """
    from securevfl.field.lagrange import interpolation_matrix

    field, K = code.field, code.segments
    sums = code.decode(values, parties, degree=2)
    nodes = [*code.betas[:K], *(code.alphas[c] for c in clients)]
    basis = interpolation_matrix(field, nodes, [code.alphas[n] for n in parties])
    a = field.matmul(basis[:, :K], np.ones(K, field.dtype))
    wanted = field.matmul(field.multiply(basis[:, :K], a[:, None]), sums.reshape(K, -1))
    F = field.matmul(basis[:, K:], data.reshape(len(clients), -1))
    G = field.matmul(basis[:, K:], models.reshape(len(clients), -1))
    products = field.matmul(F.reshape(-1, *data.shape[1:]), G.reshape(-1, *models.shape[1:]))
    return field.add(wanted.reshape(products.shape), products)


def _known_masks(
    recorded: CodedRun, clients: tuple[int, ...], parties: list[int], round: int
) -> np.ndarray:
    """Masks from the keys that coalition members hold, at the given parties' points."""
    code, field = recorded.code, recorded.code.field
    order = np.argsort(recorded.attempts[round][0])
    values = recorded.mask_values(round, clients)[parties]
    hidden: np.ndarray = field.multiply(code.vanishing[parties][:, None, None], values)
    return hidden[:, order]


# -- the tests -----------------------------------------------------------------------------------


def equality(
    protocol: type[Protocol], size: Size, about: str = "features", level: float = LEVEL
) -> Outcome:
    """Test "E": no share of T clients equals the sender's segment or model at its place."""
    recorded = DistinguishingGame(protocol, size, "any model", rows=40, width=8).run(1)
    pairs = list(_plaintexts(recorded, size.coalition, about))
    return _named("equality", size, st.equality(recorded.code.field, pairs, level=level))


def _plaintexts(
    recorded: CodedRun, clients: tuple[int, ...], about: str
) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    view = recorded.view(Coalition(clients=clients))
    for (_, sender, receiver), share in view.payloads("train-data").items():
        for k, segment in enumerate(recorded.data[sender]):
            if about == "features":
                yield f"data of {sender} at {receiver}, segment {k}", share, segment
    for (round, sender, receiver), share in view.payloads("model").items():
        if about == "model":
            yield f"model of {sender} at {receiver}", share, recorded.models[sender][round]


def uniformity(
    protocol: type[Protocol], size: Size, about: str = "features", level: float = LEVEL
) -> Outcome:
    """Test "U": shares, uploads of a run on zeros, and masks known from T shares are uniform."""
    recorded = DistinguishingGame(protocol, size, about, rows=160, width=200).run(0)
    code, field, C = recorded.code, recorded.code.field, size.coalition
    view = recorded.view(Coalition(server=True, clients=C))
    messages: dict[str, np.ndarray] = {}
    for kind in ("train-data", "model", "embedding"):
        for (round, sender, receiver), payload in view.payloads(kind).items():
            if sender not in C:
                messages[f"{kind} {round} {sender} {receiver}"] = payload
    # Data are zero here, so the shares of C are their T masks times a matrix: the masks follow.
    if all(code.vanishing[list(C)]):
        inverse = field.inv(code.mask_matrix[list(C)])
        for sender in (n for n in recorded.data if n not in C):
            shares = np.stack([view.one_per_sender("train-data", 0, c)[sender] for c in C])
            messages[f"masks of {sender}"] = field.matmul(inverse, shares.reshape(len(C), -1))
    return _named("uniformity", size, st.uniformity(field, messages, level=level))


def share_span(
    protocol: type[Protocol], size: Size, about: str = "features", level: float = LEVEL
) -> Outcome:
    """Game "A" (`span_game`) on the shares of T clients."""
    game, C = DistinguishingGame(protocol, size, about), size.coalition

    def sample(bit: int) -> np.ndarray:
        return share_vector(game.run(bit), C)

    played = guessing.span_game(game.field, sample, rounds=size.rounds)
    return _named("span, clients", size, played.outcome(level))


def upload_span(
    protocol: type[Protocol], size: Size, about: str = "features", level: float = LEVEL
) -> Outcome:
    """Game "A" (`span_game`) on uploads less the sums; secret 0 is all zero."""
    game = DistinguishingGame(protocol, size, about)

    def sample(bit: int) -> np.ndarray:
        return upload_blocks(game.run(bit)).reshape(-1)

    played = guessing.span_game(game.field, sample, rounds=size.rounds)
    return _named("span, server", size, played.outcome(level))


def upload_ranks(
    protocol: type[Protocol], size: Size, about: str = "features", level: float = LEVEL
) -> Outcome:
    """Game "B" (`rank_game`) on uploads less the sums, and on their differences."""
    return _named("ranks, server", size, play_ranks(protocol, size, about).outcome(level))


def coalition_ranks(
    protocol: type[Protocol], size: Size, about: str = "features", level: float = LEVEL
) -> Outcome:
    """Game "B" (`rank_game`) of server and T clients, on what their shares do not explain."""
    played = play_ranks(protocol, size, about, size.coalition)
    return _named("ranks, server + clients", size, played.outcome(level))


def play_ranks(
    protocol: type[Protocol],
    size: Size,
    about: str = "features",
    clients: tuple[int, ...] = (),
    stream: np.random.Generator | None = None,
) -> guessing.Played:
    """Game "B" (`rank_game`) of the server, or of the server with `clients`."""
    game = DistinguishingGame(protocol, size, about)

    def statistic(bit: int) -> tuple[int, ...]:
        recorded = game.run(bit)
        if clients:
            # Masks that do not follow the formula are not taken away by it, and may be none.
            both = [coalition_blocks(recorded, clients, with_keys=one) for one in (True, False)]
            return guessing.block_ranks(game.field, both[0]) + guessing.block_ranks(
                game.field, both[1]
            )
        # As uploaded, equal masks of two attempts cancel; in the order of the data, equal rows do.
        as_sent, aligned = (upload_blocks(recorded, order) for order in (False, True))
        return guessing.block_ranks(game.field, as_sent) + guessing.block_ranks(game.field, aligned)

    return guessing.rank_game(statistic, rounds=size.rounds, stream=stream)


def upload_two_sample(
    protocol: type[Protocol], size: Size, about: str = "features", level: float = LEVEL
) -> Outcome:
    """Kolmogorov-Smirnov test of each coordinate of the uploads, between runs of two secrets."""
    game = DistinguishingGame(protocol, size, about)
    samples = [
        np.stack([upload_blocks(game.run(bit)).reshape(-1) for _ in range(size.rounds)])
        for bit in (0, 1)
    ]
    return _named("two samples", size, st.two_sample(*samples, level=level))


def _named(name: str, size: Size, outcome: Outcome) -> Outcome:
    return replace(outcome, test=name, detail=f"p = {size.prime}: {outcome.detail}")


Test = Callable[..., Outcome]

TESTS: dict[str, Test] = {
    "equality": equality,
    "uniformity": uniformity,
    "span, clients": share_span,
    "span, server": upload_span,
    "ranks, server": upload_ranks,
    "ranks, server + clients": coalition_ranks,
    "two samples": upload_two_sample,
}
