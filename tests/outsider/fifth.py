"""Programs of a fifth referee, who read the authors' pages and not the prover.

`LEAKS` are honest mistakes: each leaks to the coalition beside it, and `where` is the word of its
verdict that a reader needs. `SOUND` are right protocols, with the verdict on each coalition.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from securevfl.field import PrimeField
from securevfl.verified import SERVER, World, combination, concatenate

P = 2**31 - 1
FIELD = PrimeField(P)


@dataclass(frozen=True)
class Leak:
    """A program, the coalition that learns too much, and the word that points at the mistake.

    `epsilon` is the least true one of a table's row at delta = 1e-5, where noise hides something.
    """

    make: Callable[[], World]
    coalition: frozenset[int]
    where: str
    epsilon: float

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.make.__name__


@dataclass(frozen=True)
class Sound:
    """A sound program, and the verdict that it deserves by coalition."""

    make: Callable[[], World]
    verdicts: dict[frozenset[int], str]

    @property
    def name(self) -> str:
        """Name of the program."""
        return self.make.__name__


LEAKS: list[Leak] = []
SOUND: list[Sound] = []


def leaks(*coalition: int, where: str, epsilon: float = np.inf) -> Any:
    """Register a leaking program."""

    def register(make: Callable[[], World]) -> Callable[[], World]:
        LEAKS.append(Leak(make, frozenset(coalition), where, epsilon))
        return make

    return register


def sound(**verdicts: str) -> Any:
    """Register a sound program: `s01="PROVED"` is the server with clients 0 and 1."""

    def register(make: Callable[[], World]) -> Callable[[], World]:
        of = {
            frozenset(SERVER if c == "s" else int(c) for c in name.strip("_")): verdict
            for name, verdict in verdicts.items()
        }
        SOUND.append(Sound(make, of))
        return make

    return register


# Functions that parties run at home.


def quantised(x: np.ndarray) -> np.ndarray:
    """Fixed point, 10 binary places."""
    return np.rint(x * 1024).astype(np.int64) % P


def error(x: np.ndarray) -> np.ndarray:
    """What rounding dropped."""
    return x - np.rint(x * 1024) / 1024


def standardised(x: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and variance 1."""
    return (x - x.mean(0)) / (x.std(0) + 1e-6)


def moving_average(x: np.ndarray) -> np.ndarray:
    """Mean of each row and the rows before and after it."""
    return (x + np.roll(x, 1, 0) + np.roll(x, -1, 0)) / 3


def halves(x: np.ndarray) -> np.ndarray:
    """Each row alone, scaled."""
    return x / 2


def twice(x: np.ndarray) -> np.ndarray:
    """Each row two times, as for augmentation."""
    return np.repeat(x, 2, axis=0)


def norms(x: np.ndarray) -> np.ndarray:
    """Norm of each row."""
    return np.linalg.norm(x, axis=1)


def relu(x: np.ndarray) -> np.ndarray:
    """Positive part of signed residues."""
    return np.where(x > P // 2, 0, x)


def mean_of(x: np.ndarray) -> np.ndarray:
    """Signed residues, halved."""
    return np.where(x > P // 2, x - P, x) / 2.0


def first(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Meant as the sum of both; an index is wrong."""
    return sum([x, y][0] for _ in (x, y)) % P


def side_by_side(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Joint embedding."""
    return np.concatenate([x, y], axis=1)


def gradient_of(total: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """dL/dH of a squared loss."""
    return np.where(total > P // 2, total - P, total) / 1024 - labels[:, None]


def validation(x: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Number of right guesses."""
    return np.array(((x.sum(1) > 0) == labels).sum(), float)


def residual(labels: np.ndarray) -> np.ndarray:
    """Labels about their mean."""
    return labels - labels.mean()


def three(world: World, shape: tuple[int, ...] = (4, 2)) -> tuple[Any, ...]:
    """Clients 0 to 2, the server, and an input of each client."""
    clients = [world.party(i) for i in range(3)]
    inputs = [world.secret(i, f"x{i}", shape) for i in range(3)]
    return clients, world.party(SERVER), inputs


def total_of(world: World, inputs: list[Any]) -> Any:
    """Declared sum."""
    return combination([(1, world.spec(x)) for x in inputs])


# --- leaks: masks ---------------------------------------------------------------------------


@leaks(SERVER, 1, where="up")
def two_servers_one_tape() -> World:
    """Two epochs of shares for two servers; the tape was drawn before the loop over epochs."""
    world = World(P)
    alice, helper = world.party(0), world.party(1)
    epochs = [world.secret(0, f"epoch {e}", (4, 2)) for e in range(2)]
    other = [world.secret(2, f"epoch {e}", (4, 2)) for e in range(2)]
    carol = world.party(2)
    mask, masks = alice.uniform(4, 2), []
    for e, x in enumerate(epochs):
        world.round = e + 1
        got = [alice.send(1, "half", mask)]
        alice.send(SERVER, "up", x - mask)
        blind = carol.uniform(4, 2)
        got.append(carol.send(1, "half", blind))
        carol.send(SERVER, "up", other[e] - blind)
        masks.append(helper.send(SERVER, "rest", got[0] + got[1]))
        world.output(f"sum {e}", world.spec(x) + world.spec(other[e]), to=[SERVER])
    return world


@leaks(SERVER, where="up")
def pad_by_epoch_rows() -> World:
    """Masks are stored by row; the second epoch visits the rows again, after a step."""
    world = World(P)
    clients, _server, _ = three(world)
    pads = clients[0].uniform(6, 2)
    held = clients[0].send(1, "pads", pads)
    for e in range(2):
        world.round = e + 1
        rows = np.array([[0, 1, 2], [2, 4, 5]][e])
        x, y = world.secret(0, f"h{e}", (3, 2)), world.secret(1, f"g{e}", (3, 2))
        clients[0].send(SERVER, "up", x + pads.rows(rows))
        clients[1].send(SERVER, "up", y - held.rows(rows))
        world.output(f"sum {e}", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="up")
def one_mask_a_row() -> World:
    """The mask has one column, and is spread over all columns by a public row of ones."""
    world = World(P)
    (a, b, _), _, (x, y, _) = three(world)
    mask = a.uniform(4, 1) @ np.ones((1, 2), int)
    got = a.send(1, "mask", mask)
    a.send(SERVER, "up", x + mask)
    b.send(SERVER, "up", y - got)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="up")
def mixing_matrix_is_singular() -> World:
    """Masks are mixed by [[1, 2], [2, 1]], which has an inverse over the reals and none mod 3."""
    world = World(3)
    a, b = world.party(0), world.party(1)
    x, y = world.secret(0, "x", (2, 1)), world.secret(1, "y", (2, 1))
    mask = np.array([[1, 2], [2, 1]]) @ a.uniform(2, 1)
    got = a.send(1, "mask", mask)
    a.send(SERVER, "up", x + mask)
    b.send(SERVER, "up", y - got)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="up")
def rescaled_by_the_characteristic() -> World:
    """Bits, masks of bits times 2^k to align them with fixed point: in F_2 that is 0."""
    world = World(2)
    a, b = world.party(0), world.party(1)
    x, y = world.secret(0, "x", (3,)), world.secret(1, "y", (3,))
    mask = a.uniform(3)
    got = a.send(1, "mask", mask)
    a.send(SERVER, "up", x + 4 * mask)
    b.send(SERVER, "up", y - 4 * got)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="scaled")
def rebased_without_the_mask() -> World:
    """On re-basing a client sends its state at twice the scale; the mask keeps its own."""
    world = World(P)
    (a, b, _), _, (x, y, _) = three(world)
    mask = a.uniform(4, 2)
    got = a.send(1, "mask", mask)
    a.send(SERVER, "up", x + mask)
    b.send(SERVER, "up", y - got)
    world.round = 2
    a.send(SERVER, "scaled", 2 * x + mask)
    b.send(SERVER, "scaled", 2 * y - got)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(0, where="share")
def points_from_zero() -> World:
    """Shamir shares at the parties' own numbers: party 0 has the polynomial at 0."""
    world = World(P)
    _clients, _, _ = three(world)
    dealer, secret = world.party(3), world.secret(3, "x", (4, 2))
    slope = dealer.uniform(4, 2)
    for j in range(3):
        dealer.send(j, "share", secret + j * slope)
    return world


@leaks(0, 1, where="share")
def degree_one_for_two() -> World:
    """Polynomials of degree 1 against T = 2."""
    world = World(P)
    dealer, secret = world.party(3), world.secret(3, "x", (4, 2))
    slope = dealer.uniform(4, 2)
    for j in range(3):
        dealer.send(j, "share", secret + (j + 1) * slope)
    return world


@leaks(0, 1, where="share")
def powers_with_one_coefficient() -> World:
    """Degree 2, but both coefficients are one tape: `sum(r * a**k for k in (1, 2))`."""
    world = World(P)
    dealer, secret = world.party(3), world.secret(3, "x", (4, 2))
    r = dealer.uniform(4, 2)
    for j in range(4):
        dealer.send(j, "share", secret + ((j + 1) + (j + 1) ** 2) * r)
    return world


@leaks(SERVER, 0, 2, where="up")
def sparse_ring_of_four() -> World:
    """Pairwise masks with ring neighbours only; the claim is of T = 2."""
    world = World(P)
    clients = [world.party(i) for i in range(4)]
    inputs = [world.secret(i, f"x{i}", (3, 2)) for i in range(4)]
    masks = [c.uniform(3, 2) for c in clients]
    got = [clients[i].send((i + 1) % 4, "mask", masks[i]) for i in range(4)]
    for i, c in enumerate(clients):
        c.send(SERVER, "up", inputs[i] + masks[i] - got[i - 1])
    world.output("sum", total_of(world, inputs), to=[SERVER])
    return world


@leaks(SERVER, where="late")
def late_after_recovery() -> World:
    """Client 2 is late, the others open its masks, and then its upload arrives all the same."""
    world = World(P)
    clients, _server, inputs = three(world)
    keys = [c.key() for c in clients]
    public = {
        (i, j): clients[i].send(j, "public", clients[i].public_key(keys[i]))
        for i in range(3)
        for j in range(3)
        if i != j
    }
    masks = {
        (i, j): clients[i].prf(clients[i].agree(keys[i], public[j, i]), ("pair", 1), 4, 2)
        for i, j in public
    }
    masked = [
        inputs[i] + combination([(1 if j < i else -1, masks[i, j]) for j in range(3) if j != i])
        for i in range(3)
    ]
    for i in (0, 1):
        clients[i].send(SERVER, "up", masked[i])
        clients[i].send(SERVER, "recovery", masks[i, 2])
    clients[2].send(SERVER, "late", masked[2])
    world.output("sum", total_of(world, inputs[:2]), to=[SERVER])
    return world


@leaks(SERVER, where="up")
def label_without_round() -> World:
    """A joiner of round 2 forced new labels, (who, kind); the round fell out of them."""
    world = World(P)
    clients, _server, _ = three(world)
    a, b, _ = clients
    own = [a.key(), b.key()]
    left = a.agree(own[0], b.send(0, "public", b.public_key(own[1])))
    right = b.agree(own[1], a.send(1, "public", a.public_key(own[0])))
    for r in (1, 2):
        world.round = r
        x, y = world.secret(0, f"x{r}", (2, 2)), world.secret(1, f"y{r}", (2, 2))
        a.send(SERVER, "up", x + a.prf(left, ("mask", "0-1"), 2, 2))
        b.send(SERVER, "up", y - b.prf(right, ("mask", "0-1"), 2, 2))
        world.output(f"sum {r}", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="up")
def labels_that_collide() -> World:
    """Label f"{block}{round}": block 1 of round 11 and block 11 of round 1 are one stream."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    key = a.key()
    got = a.send(1, "key", key)
    for block, r in ((11, 1), (1, 11)):
        world.round = r
        x, y = world.secret(0, f"x{block}.{r}", (2, 2)), world.secret(1, f"y{block}.{r}", (2, 2))
        a.send(SERVER, "up", x + a.prf(key, f"{block}{r}", 2, 2))
        b.send(SERVER, "up", y - b.prf(got, f"{block}{r}", 2, 2))
        world.output(f"sum {block} {r}", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="up")
def mask_of_the_party_numbers() -> World:
    """The seed of a pair's mask is made of the two numbers, which everybody knows."""
    world = World(P)
    (a, b, _), _, (x, y, _) = three(world)
    mask = np.random.default_rng([0, 1]).integers(0, P, (4, 2))
    a.send(SERVER, "up", x + mask)
    b.send(SERVER, "up", y - mask)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, 1, where="reluctant")
def mask_through_relu() -> World:
    """Bob is to unmask a ReLU, and gets the ReLU of the mask; with him the server knows half."""
    world = World(P)
    (a, _b, _), _, (x, _y, _) = three(world)
    mask = a.uniform(4, 2)
    a.send(SERVER, "up", x.map(relu) + mask)
    a.send(1, "reluctant", mask.map(relu))
    return world


@leaks(SERVER, 1, 2, where="piece")
def key_threshold_too_low() -> World:
    """A key is split among three with threshold T in place of T + 1; T = 2."""
    world = World(P)
    _clients, _server, _inputs = three(world)
    dealer, secret = world.party(3), world.secret(3, "x", (4, 2))
    key = dealer.key()
    for j, piece in dealer.split_key(key, 2, [1, 2, 3]).items():
        dealer.send(j - 1, "piece", piece)
    dealer.send(SERVER, "up", secret + dealer.expand(key, 4, 2))
    return world


@leaks(SERVER, where="key backup")
def key_left_in_the_checkpoint() -> World:
    """For a resume the key is kept at the server."""
    world = World(P)
    (a, b, _), _, (x, y, _) = three(world)
    key = a.key()
    got = a.send(1, "key", key)
    a.send(SERVER, "up", x + a.prf(key, 1, 4, 2))
    b.send(SERVER, "up", y - b.prf(got, 1, 4, 2))
    a.send(SERVER, "key backup", a.derived_key(key, "backup"))
    a.send(SERVER, "key backup", key)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="row")
def equal_rows_have_equal_tags() -> World:
    """Two owners match rows by keyed tags at the server, which sees who has equal rows."""
    world = World(P)
    (a, b, _), _, _ = three(world)
    key = a.key()
    got = a.send(1, "key", key)
    mine, theirs = world.secret(0, "id0", (1,)), world.secret(1, "id1", (1,))
    a.send(SERVER, "row", a.tag(key, "row", of=[mine]))
    b.send(SERVER, "row", b.tag(got, "row", of=[theirs]))
    return world


@leaks(SERVER, where="row")
def own_rows_have_equal_tags() -> World:
    """One owner tags its rows under one label, so that the server sees which are equal."""
    world = World(P)
    a = world.party(0)
    key = a.key()
    x = world.secret(0, "ids", (2,))
    for i in range(2):
        a.send(SERVER, "row", a.tag(key, "row", of=[x[[i]]]))
    return world


@leaks(SERVER, where="key")
def commitment_whose_key_is_shown() -> World:
    """A tag as commitment; in round 2 the key is opened, and the input stays secret, they say."""
    world = World(P)
    (a, _, _), _, (x, _, _) = three(world)
    key = a.key()
    a.send(SERVER, "commitment", a.tag(key, "x", of=[x]))
    world.round = 2
    a.send(SERVER, "key", key)
    return world


@leaks(1, where="sum")
def holder_gets_one_ciphertext() -> World:
    """The server is to forward the sum of ciphertexts; the running variable is the last one."""
    world = World(P)
    clients, server, inputs = three(world)
    world_in = [clients[i].send(SERVER, "sealed", clients[i].encrypt(inputs[i], 1)) for i in (0, 2)]
    forwarded = server.send(1, "sum", world_in[-1])
    clients[1].send(SERVER, "opened", clients[1].decrypt(forwarded) + inputs[1])
    world.output("sum", total_of(world, inputs), to=[SERVER, 1])
    return world


@leaks(0, where="gradient")
def label_beside_the_gradient() -> World:
    """A field of debugging: the batch's labels beside a gradient."""
    world = World(P)
    clients, server, inputs = three(world)
    labels = world.secret(SERVER, "labels", np.array([0.0, 1, 1, 0]), real=True)
    masks = [clients[0].uniform(4, 2), clients[1].uniform(4, 2)]
    ups = [
        clients[0].send(SERVER, "up", inputs[0] + masks[0]),
        clients[1].send(SERVER, "up", inputs[1] + masks[1]),
        clients[2].send(
            SERVER,
            "up",
            inputs[2] - clients[0].send(2, "m", masks[0]) - clients[1].send(2, "m", masks[1]),
        ),
    ]
    total = ups[0] + ups[1] + ups[2]
    gradient = total.map(gradient_of, labels, real=True)
    spec = total_of(world, inputs)
    world.output("sum", spec, to=[SERVER])
    world.output("gradient", spec.map(gradient_of, world.spec(labels), real=True))
    for i in range(3):
        server.send(i, "gradient", {"dH": gradient, "label of batch": labels.map(residual)})
    return world


@leaks(SERVER, where="error")
def rounding_error_is_reported() -> World:
    """Error feedback: what rounding dropped goes to the server in the clear."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x = world.secret(0, "x", np.array([[0.1, 0.2], [0.3, 0.4]]), real=True)
    y = world.secret(1, "y", np.array([[0.5, 0.2], [0.3, 0.1]]), real=True)
    qx, qy = x.map(quantised, field=FIELD), y.map(quantised, field=FIELD)
    mask = a.uniform(2, 2)
    got = a.send(1, "mask", mask)
    a.send(SERVER, "up", qx + mask)
    b.send(SERVER, "up", qy - got)
    a.send(SERVER, "error", x.map(error))
    world.output(
        "sum",
        world.spec(x).map(quantised, field=FIELD) + world.spec(y).map(quantised, field=FIELD),
        to=[SERVER],
    )
    return world


# --- leaks: outputs -------------------------------------------------------------------------


@leaks(SERVER, where="fix")
def difference_by_a_function() -> World:
    """The server gets the sum of three, and as a 'pair mean' half the sum of two of them."""
    world = World(P)
    clients, _server, inputs = three(world)
    m = clients[0].uniform(4, 2)
    n = clients[1].uniform(4, 2)
    m2, n2 = clients[0].send(1, "m", m), clients[1].send(2, "n", n)
    [
        clients[0].send(SERVER, "up", inputs[0] + m),
        clients[1].send(SERVER, "up", inputs[1] - m2 + n),
    ]
    clients[2].send(SERVER, "up", inputs[2] - n2)
    clients[1].send(SERVER, "fix", n)
    spec = total_of(world, inputs)
    world.output("sum", spec, to=[SERVER])
    world.output("pair mean", total_of(world, inputs[:2]).map(mean_of, real=True), to=[SERVER])
    return world


@leaks(SERVER, where="mean")
def difference_of_declared_functions() -> World:
    """The same with messages that are right: a holder computes and sends both outputs."""
    world = World(P)
    clients, _server, inputs = three(world)
    holder = world.party(3)
    got = [clients[i].send(3, "x", inputs[i]) for i in range(3)]
    holder.send(SERVER, "sum", got[0] + got[1] + got[2])
    holder.send(SERVER, "mean", (got[0] + got[1]).map(mean_of, real=True))
    spec = total_of(world, inputs)
    world.output("sum", spec, to=[SERVER])
    world.output("pair mean", total_of(world, inputs[:2]).map(mean_of, real=True), to=[SERVER])
    return world


@leaks(SERVER, where="joint")
def output_of_the_wrong_index() -> World:
    """A declared sum by a function whose index is wrong: it is twice the first embedding."""
    world = World(P)
    clients, _server, inputs = three(world)
    holder = world.party(3)
    got = [clients[i].send(3, "x", inputs[i]) for i in range(2)]
    holder.send(SERVER, "joint", got[0].map(first, got[1]))
    world.output("joint", world.spec(inputs[0]).map(first, world.spec(inputs[1])), to=[SERVER])
    return world


@leaks(SERVER, where="joint")
def output_side_by_side() -> World:
    """The declared joint embedding is a concatenation, which hides nothing of either."""
    world = World(P)
    clients, _server, inputs = three(world)
    holder = world.party(3)
    got = [clients[i].send(3, "x", inputs[i]) for i in range(2)]
    holder.send(SERVER, "joint", got[0].map(side_by_side, got[1], shape=(4, 4)))
    world.output(
        "joint",
        world.spec(inputs[0]).map(side_by_side, world.spec(inputs[1]), shape=(4, 4)),
        to=[SERVER],
    )
    return world


@leaks(SERVER, where="joint")
def output_concatenated() -> World:
    """The same by `concatenate`."""
    world = World(P)
    clients, _server, inputs = three(world)
    holder = world.party(3)
    got = [clients[i].send(3, "x", inputs[i]) for i in range(2)]
    holder.send(SERVER, "joint", concatenate([got[0], got[1]]))
    world.output("joint", concatenate([world.spec(inputs[0]), world.spec(inputs[1])]), to=[SERVER])
    return world


@leaks(SERVER, 1, where="gram")
def gram_with_a_colluder() -> World:
    """X'Y is declared to the server; with the owner of Y it gives linear equations on X."""
    world = World(P)
    a, b, holder = world.party(0), world.party(1), world.party(3)
    x, y = world.secret(0, "x", (2, 2)), world.secret(1, "y", (2, 2))
    gx, gy = a.send(3, "x", x), b.send(3, "y", y)
    holder.send(SERVER, "gram", gx.T @ gy)
    world.output("gram", world.spec(x).T @ world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, 1, where="product")
def product_with_a_colluder() -> World:
    """The same with elementwise products."""
    world = World(P)
    a, b, holder = world.party(0), world.party(1), world.party(3)
    x, y = world.secret(0, "x", (2, 2)), world.secret(1, "y", (2, 2))
    gx, gy = a.send(3, "x", x), b.send(3, "y", y)
    holder.send(SERVER, "product", gx * gy)
    world.output("product", world.spec(x) * world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="sum 2")
def survivors_differ() -> World:
    """Client 2 is late in round 2, and the rows and the models are those of round 1."""
    world = World(P)
    clients, _server, inputs = three(world)
    holder = world.party(3)
    got = [clients[i].send(3, "x", inputs[i]) for i in range(3)]
    for r, there in ((1, (0, 1, 2)), (2, (0, 1))):
        world.round = r
        holder.send(SERVER, "sum", combination([(r, got[i]) for i in there]))
        world.output(
            f"sum {r}", combination([(r, world.spec(inputs[i])) for i in there]), to=[SERVER]
        )
    return world


@leaks(0, where="total")
def output_to_the_wrong_party() -> World:
    """The sum is for the server, and is broadcast."""
    world = World(P)
    clients, server, inputs = three(world)
    a, b, _c = clients
    m = a.uniform(4, 2)
    got = a.send(1, "m", m)
    ups = [a.send(SERVER, "up", inputs[0] + m), b.send(SERVER, "up", inputs[1] - got)]
    for i in range(3):
        server.send(i, "total", ups[0] + ups[1])
    world.output("sum", total_of(world, inputs[:2]), to=[SERVER])
    return world


# --- leaks: noise ---------------------------------------------------------------------------


def table(world: World, owner: int, name: str = "x", rows: int = 4) -> Any:
    """Real columns of a party."""
    numbers = np.linspace(-1, 1, 2 * rows).reshape(rows, 2)
    return world.secret(owner, name, numbers, real=True)


@leaks(SERVER, where="standardised", epsilon=8.385)
def standardised_before_the_clip() -> World:
    """Columns are standardised over all rows, clipped and noised: one record moves all rows."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    a.send(SERVER, "noisy", a.gaussian(x.map(standardised).clip(1.0), 2.0))
    return world


@leaks(SERVER, where="noisy", epsilon=8.385)
def averages_before_the_clip() -> World:
    """Moving averages: a record is in three rows of what is clipped."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    a.send(SERVER, "noisy", a.gaussian(x.map(moving_average).clip(1.0), 2.0))
    return world


@leaks(SERVER, where="noisy", epsilon=6.572)
def augmented_before_the_clip() -> World:
    """Each record is there twice; row numbers are those of the augmented table."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    doubled = x.map(twice, shape=(8, 2)).clip(1.0)
    a.send(SERVER, "noisy", a.gaussian(doubled, 2.0, rows=np.arange(8)))
    return world


@leaks(SERVER, where="noisy", epsilon=8.385)
def charged_once_by_minus_one() -> World:
    """To charge a record once, numbers of records that had a release before are set to -1."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    clipped = x.clip(1.0)
    for r in range(3):
        world.round = r + 1
        rows = np.arange(4) if r == 0 else np.full(4, -1)
        a.send(SERVER, "noisy", a.gaussian(clipped, 2.0, name=f"release {r}", rows=rows))
    return world


@leaks(SERVER, where="noisy", epsilon=8.385)
def numbered_by_position() -> World:
    """Row numbers go on with the round, as if no record came twice; all do."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    clipped = x.clip(1.0)
    for r in range(3):
        world.round = r + 1
        rows = np.arange(4) + 4 * r
        a.send(SERVER, "noisy", a.gaussian(clipped, 2.0, name=f"release {r}", rows=rows))
    return world


@leaks(SERVER, where="norm")
def norms_beside_the_noise() -> World:
    """Norms before the clip, sent to choose a better bound."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    a.send(SERVER, "noisy", a.gaussian(x.clip(1.0), 2.0))
    a.send(SERVER, "norms", x.map(norms, shape=(4,)))
    return world


@leaks(SERVER, where="noisy")
def noise_of_a_public_seed() -> World:
    """Reproducible noise."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    a.send(SERVER, "noisy", a.gaussian(x.clip(1.0), 2.0, seed=b"seed of the study"))
    return world


@leaks(0, where="check")
def exact_validation_of_noisy_labels() -> World:
    """Labels are randomised, and the accuracy on the true ones is told."""
    world = World(P)
    server = world.party(SERVER)
    labels = world.secret(SERVER, "labels", np.array([0, 1, 1, 0]), real=True)
    server.send(0, "noisy", server.randomised(labels, 2, 1.0))
    server.send(0, "check", labels.map(residual))
    return world


@leaks(0, where="labels", epsilon=2.0)
def each_label_twice() -> World:
    """Labels of the augmented table are randomised one by one: two draws for one person."""
    world = World(P)
    server = world.party(SERVER)
    labels = world.secret(SERVER, "labels", np.array([0, 1, 1, 0]), real=True)
    server.send(0, "noisy", server.randomised(labels.map(twice, shape=(8,)), 2, 1.0))
    return world


@leaks(SERVER, where="second")
def noisy_and_masked_with_one_tape() -> World:
    """Distributed noise under masks; the retry draws noise anew and keeps the mask."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x, y = table(world, 0), table(world, 1, "y")
    mask = a.uniform(4, 2)
    got = a.send(1, "mask", mask)
    a.send(
        SERVER, "first", a.gaussian(x.clip(1.0), 2.0, name="a").map(quantised, field=FIELD) + mask
    )
    b.send(
        SERVER, "first", b.gaussian(y.clip(1.0), 2.0, name="b").map(quantised, field=FIELD) - got
    )
    total = world.released(0, "a").map(quantised, field=FIELD) + world.released(1, "b").map(
        quantised, field=FIELD
    )
    world.output("sum", total, to=[SERVER])
    a.send(SERVER, "second", x.map(quantised, field=FIELD) + mask)
    return world


# --- sound ----------------------------------------------------------------------------------


@sound(s="DP", _1="PROVED", _0="PROVED")
def noise_under_masks() -> World:
    """Two owners add noise at home, and masks hide the two noisy tables but for their sum."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x, y = table(world, 0), table(world, 1, "y")
    key = a.key()
    got = a.send(1, "key", key)
    for r in (1, 2):
        world.round = r
        noisy = [
            a.gaussian(x.clip(1.0), 2.0, name=f"a{r}").map(quantised, field=FIELD),
            b.gaussian(y.clip(1.0), 2.0, name=f"b{r}").map(quantised, field=FIELD),
        ]
        a.send(SERVER, "up", noisy[0] + a.prf(key, ("mask", r), 4, 2))
        b.send(SERVER, "up", noisy[1] - b.prf(got, ("mask", r), 4, 2))
        parts = [
            world.released(i, f"{n}{r}").map(quantised, field=FIELD)
            for i, n in ((0, "a"), (1, "b"))
        ]
        world.output(f"sum {r}", parts[0] + parts[1], to=[SERVER])
    return world


@sound(_0="PROVED", _01="PROVED", s="PROVED", s0="PROVED")
def shamir_sum() -> World:
    """Five clients, polynomials of degree 2, T = 2; the server interpolates the sum."""
    world = World(P)
    clients = [world.party(i) for i in range(5)]
    inputs = [world.secret(i, f"x{i}", (2, 2)) for i in range(5)]
    got: dict[int, list[Any]] = {j: [] for j in range(5)}
    for i, c in enumerate(clients):
        u, v = c.uniform(2, 2), c.uniform(2, 2)
        for j in range(5):
            a = j + 1
            share = inputs[i] + a * u + a * a * v
            got[j].append(share if j == i else c.send(j, "share", share))
    for j, c in enumerate(clients):
        c.send(SERVER, "sum of shares", combination([(1, s) for s in got[j]]))
    world.output("sum", total_of(world, inputs), to=[SERVER])
    return world


def _pair_masks(
    world: World,
    clients: list[Any],
    r: int,
    there: list[int],
    keys: dict[Any, Any],
    shape: tuple[int, ...],
) -> dict[int, Any]:
    """Sum of a client's pair masks of a round."""
    return {
        i: combination(
            [
                (1 if j < i else -1, clients[i].prf(keys[i, j], ("mask", r), *shape))
                for j in there
                if j != i
            ]
        )
        for i in there
    }


def _agreed(clients: list[Any], members: list[int], own: dict[int, Any]) -> dict[Any, Any]:
    """A key of each ordered pair."""
    public = {
        (i, j): clients[i].send(j, "public", clients[i].public_key(own[i]))
        for i in members for j in members if i != j
    }  # fmt: skip
    return {(j, i): clients[j].agree(own[j], public[i, j]) for i, j in public}


@sound(s="PROVED", _0="PROVED", s0="PROVED", s3="PROVED")
def joiner_of_round_two() -> World:
    """Pairwise masks among three; a fourth client joins in round 2, and agrees keys then."""
    world = World(P)
    clients = [world.party(i) for i in range(4)]
    own = {i: clients[i].key() for i in range(4)}
    keys: dict[Any, Any] = {}
    for r, there in ((1, [0, 1, 2]), (2, [0, 1, 2, 3])):
        world.round = r
        if r == 1:
            keys = _agreed(clients, there, own)
        else:
            for i in (0, 1, 2):
                theirs = clients[i].send(3, "public", clients[i].public_key(own[i]))
                mine = clients[3].send(i, "public", clients[3].public_key(own[3]))
                keys[3, i] = clients[3].agree(own[3], theirs)
                keys[i, 3] = clients[i].agree(own[i], mine)
        inputs = {i: world.secret(i, f"x{i} round {r}", (2, 2)) for i in there}
        masks = _pair_masks(world, clients, r, there, keys, (2, 2))
        for i in there:
            clients[i].send(SERVER, "up", inputs[i] + masks[i])
        world.output(f"sum {r}", total_of(world, list(inputs.values())), to=[SERVER])
    return world


@sound(s="PROVED", s2="PROVED", _12="PROVED")
def self_mask_and_dropout() -> World:
    """Bonawitz et al. with three clients; client 2 drops out after sharing, before uploading."""
    world = World(P)
    clients, _server, inputs = three(world, (2, 2))
    own = {i: clients[i].key(f"s{i}") for i in range(3)}
    seeds = {i: clients[i].key(f"b{i}") for i in range(3)}
    held: dict[Any, Any] = {}
    for i in range(3):
        for what, key in (("b", seeds[i]), ("s", own[i])):
            for j, piece in clients[i].split_key(key, 2, [1, 2, 3]).items():
                held[what, i, j - 1] = (
                    piece if j - 1 == i else clients[i].send(j - 1, f"piece {what}", piece)
                )
    public = {
        (i, j): clients[i].send(j, "public", clients[i].public_key(own[i]))
        for i in range(3)
        for j in (0, 1, 2, SERVER)
        if i != j
    }
    for i in (0, 1):
        pairs = [
            (1 if j < i else -1, clients[i].expand(clients[i].agree(own[i], public[j, i]), 2, 2))
            for j in range(3) if j != i
        ]  # fmt: skip
        clients[i].send(
            SERVER, "up", inputs[i] + clients[i].expand(seeds[i], 2, 2) + combination(pairs)
        )
    for j in (0, 1):
        for i in (0, 1):
            clients[j].send(SERVER, "open seed", held["b", i, j])
        clients[j].send(SERVER, "open key", held["s", 2, j])
    world.output("sum", total_of(world, inputs[:2]), to=[SERVER])
    return world


@sound(s="PROVED", _0="PROVED", _2="PROVED")
def sealed_relay() -> World:
    """Ciphertexts for client 1 go by the server, which adds them; client 1 blinds its answer."""
    world = World(P)
    clients, server, inputs = three(world)
    blind = clients[0].uniform(4, 2)
    sealed = [
        clients[0].send(SERVER, "sealed", clients[0].encrypt(inputs[0] + blind, 1)),
        clients[2].send(SERVER, "sealed", clients[2].encrypt(inputs[2], 1)),
    ]
    got = server.send(1, "sum", sealed[0] + sealed[1])
    answer = clients[1].decrypt(got) + inputs[1]
    back = clients[1].send(0, "blind total", answer)
    clients[0].send(SERVER, "total", back - blind)
    world.output("sum", total_of(world, inputs), to=[SERVER, 0])
    return world


@sound(_1="PROVED", _2="PROVED", _0="PROVED", s="PROVED")
def ring_sum() -> World:
    """A running total goes around, under the initiator's mask; round 2 has weights."""
    world = World(P)
    clients, _server, inputs = three(world)
    for r, w in ((1, (1, 1, 1)), (2, (3, 2, 2))):
        world.round = r
        xs = inputs if r == 1 else [world.secret(i, f"y{i}", (4, 2)) for i in range(3)]
        mask = clients[0].uniform(4, 2)
        run = clients[0].send(1, "running", w[0] * xs[0] + mask)
        run = clients[1].send(2, "running", run + w[1] * xs[1])
        run = clients[2].send(0, "running", run + w[2] * xs[2])
        clients[0].send(SERVER, "total", run - mask)
        spec = combination([(w[i], world.spec(xs[i])) for i in range(3)])
        world.output(f"total {r}", spec, to=[SERVER, 0])
    return world


@sound(_0="PROVED", _1="PROVED", s="PROVED", _2="PROVED")
def beaver_matrix_product() -> World:
    """X of party 0 times Y of party 1 for the server, with a triple of dealer 2."""
    world = World(P)
    a, b, dealer = (world.party(i) for i in range(3))
    x, y = world.secret(0, "x", (2, 2)), world.secret(1, "y", (2, 2))
    A, B, c0 = dealer.uniform(2, 2), dealer.uniform(2, 2), dealer.uniform(2, 2)
    mine, theirs = dealer.send(0, "A", A), dealer.send(1, "B", B)
    z0, z1 = dealer.send(0, "c", c0), dealer.send(1, "c", A @ B - c0)
    e = a.send(1, "E", x - mine)  # both open their masked factors
    f = b.send(0, "F", y - theirs)
    # XY = (E + A)(F + B) = E Y + A F + AB
    a.send(SERVER, "half", mine @ f + z0)
    b.send(SERVER, "half", e @ y + z1)
    world.output("product", world.spec(x) @ world.spec(y), to=[SERVER])
    return world


@sound(s="PROVED", _0="DP", _01="DP")
def labels_noised_embeddings_masked() -> World:
    """Two claims: embeddings perfect but for sums, labels by randomised response."""
    world = World(P)
    clients, server, _ = three(world)
    labels = world.secret(SERVER, "labels", np.array([0, 1, 1, 0]), real=True)
    noisy = server.randomised(labels, 2, 1.5)
    given = [server.send(i, "labels", noisy) for i in range(3)]
    inputs = [world.secret(i, f"h{i}", (4, 2)) for i in range(3)]
    masks = [clients[0].uniform(4, 2), clients[1].uniform(4, 2)]
    last = inputs[2]
    for i in (0, 1):
        last = last - clients[i].send(2, "mask", masks[i])
        clients[i].send(SERVER, "up", inputs[i] + masks[i])
    clients[2].send(SERVER, "up", last)
    world.output("sum", total_of(world, inputs), to=[SERVER])
    assert len(given) == 3
    return world


@sound(s="PROVED", _0="PROVED", _1="PROVED", _02="PROVED")
def refreshed_shares() -> World:
    """Shares of two holders are refreshed by zero-sharings each round, then opened as a sum."""
    world = World(P)
    owner, other = world.party(2), world.party(3)
    h0, h1 = world.party(0), world.party(1)
    x, y = world.secret(2, "x", (3, 2)), world.secret(3, "y", (3, 2))
    s0: Any = 0
    s1: Any = 0
    for who, value in ((owner, x), (other, y)):
        mask = who.uniform(3, 2)
        s0 = who.send(0, "share", mask) + s0
        s1 = who.send(1, "share", value - mask) + s1
    for r in (1, 2):
        world.round = r
        zero = h0.uniform(3, 2)
        s1 = s1 + h0.send(1, "zero", zero)
        s0 = s0 - zero
    h0.send(SERVER, "opened", s0)
    h1.send(SERVER, "opened", s1)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@sound(s="PROVED", _1="PROVED", _0="PROVED", s1="PROVED")
def public_matrix_outsourced() -> World:
    """The server multiplies by a public matrix what it cannot read, for three owners."""
    world = World(P)
    a, b, server = world.party(0), world.party(1), world.party(SERVER)
    public = np.array([[1, 2, 0, 0], [0, 1, 2, 3], [1, 1, 1, 1]])
    c = world.party(2)
    x, y, z = (world.secret(i, n, (4, 2)) for i, n in enumerate("xyz"))
    mask = a.uniform(4, 2)
    back = server.send(0, "P x", public @ a.send(SERVER, "x", x + mask))
    mine = back - public @ mask
    blinds = b.uniform(3, 2), c.uniform(3, 2)
    first_part = b.send(0, "blind", public @ y + blinds[0])
    second_part = c.send(0, "blind", public @ z + blinds[1])
    blind_sum = a.send(1, "blind sum", mine + first_part + second_part)
    total = b.send(2, "half blind", blind_sum - blinds[0])
    c.send(0, "sum", total - blinds[1])
    spec = public @ (world.spec(x) + world.spec(y) + world.spec(z))
    world.output("P (x + y + z)", spec, to=[0, 2])
    return world


@sound(s="PROVED", _0="PROVED", _2="PROVED")
def stale_uploads() -> World:
    """Asynchronous arrival: client 2 answers every other round; sums are weighted by age."""
    world = World(P)
    clients, _server, _ = three(world)
    old = world.secret(2, "h2", (3, 2))
    blind = clients[2].uniform(3, 2)
    half = clients[2].send(0, "half", blind)
    held = clients[2].send(1, "half", old - blind)
    for r in (1, 2):
        world.round = r
        xs = [world.secret(i, f"h{i} {r}", (3, 2)) for i in (0, 1)]
        mask = clients[0].uniform(3, 2)
        got = clients[0].send(1, "mask", mask)
        clients[0].send(SERVER, "up", xs[0] + (3 - r) * half + mask)
        clients[1].send(SERVER, "up", xs[1] + (3 - r) * held - got)
        spec = combination(
            [(1, world.spec(xs[0])), (1, world.spec(xs[1])), (3 - r, world.spec(old))]
        )
        world.output(f"sum {r}", spec, to=[SERVER])
    return world


@sound(s="PROVED", _0="PROVED", s0="PROVED")
def lot_of_rows_and_gradient() -> World:
    """Batches by public lot; embeddings at home, sums masked; the gradient is an output."""
    world = World(P)
    clients, server, _ = three(world)
    labels = world.secret(SERVER, "labels", np.array([0.0, 1, 1, 0, 1, 0]), real=True)
    columns = [
        world.secret(i, f"columns {i}", np.ones((6, 2)) * (i + 1) / 8, real=True) for i in range(3)
    ]
    own = {i: clients[i].key() for i in range(3)}
    keys = _agreed(clients, [0, 1, 2], own)
    lot = np.random.default_rng(7)
    for r in (1, 2):
        world.round = r
        batch = lot.choice(6, 3, replace=False)
        server.send(0, "batch", batch)
        masks = _pair_masks(world, clients, r, [0, 1, 2], keys, (3, 2))
        ups = [
            clients[i].send(
                SERVER, "up", columns[i].map(embedded, batch, shape=(3, 2), field=FIELD) + masks[i]
            )
            for i in range(3)
        ]
        total = ups[0] + ups[1] + ups[2]
        gradient = total.map(gradient_at, labels, batch, real=True)
        spec = combination(
            [(1, world.spec(c).map(embedded, batch, shape=(3, 2), field=FIELD)) for c in columns]
        )
        world.output(f"sum {r}", spec, to=[SERVER])
        world.output(f"gradient {r}", spec.map(gradient_at, world.spec(labels), batch, real=True))
        for i in range(3):
            server.send(i, "gradient", gradient)
    return world


def embedded(x: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Rows of a batch in fixed point."""
    return np.rint(np.tanh(x[batch]) * 1024).astype(np.int64) % P


def gradient_at(total: np.ndarray, labels: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """dL/dH on a batch."""
    return gradient_of(total, labels[batch])


# --- leaks: keys, products, and small things that authors leave in ---------------------------


def low_bits(x: np.ndarray) -> np.ndarray:
    """A mask of 16 bits."""
    return x % 2**16


def zeros_like(x: np.ndarray) -> np.ndarray:
    """Zeros."""
    return np.zeros(x.shape)


def added(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sum."""
    return x + y


def largest(x: np.ndarray) -> np.ndarray:
    """Largest magnitude."""
    return np.array(np.abs(x).max())


def scaled(x: np.ndarray, by: np.ndarray) -> np.ndarray:
    """Fixed point of x / by."""
    return np.rint(x / by * 1024).astype(np.int64) % P


def is_present(x: np.ndarray) -> np.ndarray:
    """1 for entries that are no padding."""
    return (x != 0).astype(np.int64)


@leaks(SERVER, where="up")
def one_key_for_all_rounds() -> World:
    """Keys are agreed anew each round, from the same key pairs and for no named use."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    own = a.key(), b.key()
    for r in (1, 2):
        world.round = r
        left = a.agree(own[0], b.send(0, "public", b.public_key(own[1])))
        right = b.agree(own[1], a.send(1, "public", a.public_key(own[0])))
        x, y = world.secret(0, f"x{r}", (2, 2)), world.secret(1, f"y{r}", (2, 2))
        a.send(SERVER, "up", x + a.expand(left, 2, 2))
        b.send(SERVER, "up", y - b.expand(right, 2, 2))
        world.output(f"sum {r}", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, 2, where="welcome")
def joiner_gets_the_first_key() -> World:
    """Keys of rounds form a chain; who joins in round 2 is sent its beginning."""
    world = World(P)
    a, b, c = (world.party(i) for i in range(3))
    key = a.key()
    got = a.send(1, "key", key)
    chain = [[a.derived_key(key, "round 1")], [b.derived_key(got, "round 1")]]
    for r in (1, 2):
        world.round = r
        x, y = world.secret(0, f"x{r}", (2, 2)), world.secret(1, f"y{r}", (2, 2))
        a.send(SERVER, "up", x + a.prf(chain[0][-1], "mask", 2, 2))
        b.send(SERVER, "up", y - b.prf(chain[1][-1], "mask", 2, 2))
        world.output(f"sum {r}", world.spec(x) + world.spec(y), to=[SERVER])
        chain[0].append(a.derived_key(chain[0][-1], "next"))
        chain[1].append(b.derived_key(chain[1][-1], "next"))
    a.send(2, "welcome", chain[0][0])
    assert c is not None
    return world


@leaks(SERVER, where="up")
def short_mask() -> World:
    """The mask has 16 bits, and the numbers more."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x, y = world.secret(0, "x", (4, 2)), world.secret(1, "y", (4, 2))
    mask = a.uniform(4, 2).map(low_bits)
    got = a.send(1, "mask", mask)
    a.send(SERVER, "up", x + mask)
    b.send(SERVER, "up", y - got)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="up")
def padding_has_no_mask() -> World:
    """Only rows that are no padding get a mask, so the server sees which are."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x, y = world.secret(0, "x", (4, 2)), world.secret(1, "y", (4, 2))
    mask = a.uniform(4, 2)
    got = a.send(1, "mask", mask)
    a.send(SERVER, "up", x + x.map(is_present) * mask)
    b.send(SERVER, "up", y - got)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="blinded")
def multiplicative_blinding() -> World:
    """Entries times uniform ones: zeros stay zeros."""
    world = World(P)
    a = world.party(0)
    x = world.secret(0, "x", (4, 2))
    a.send(SERVER, "blinded", x * a.uniform(4, 2))
    return world


@leaks(SERVER, where="blinded")
def random_matrix_times_data() -> World:
    """A uniform matrix times the data, which keeps its kernel."""
    world = World(P)
    a = world.party(0)
    x = world.secret(0, "x", (2, 2))
    a.send(SERVER, "blinded", a.uniform(2, 2) @ x)
    return world


@leaks(SERVER, where="E")
def dealer_is_the_server() -> World:
    """The server deals the triple, and relays the opened factors."""
    world = World(P)
    a, b, server = world.party(0), world.party(1), world.party(SERVER)
    x, y = world.secret(0, "x", (2, 2)), world.secret(1, "y", (2, 2))
    A, B, c0 = server.uniform(2, 2), server.uniform(2, 2), server.uniform(2, 2)
    mine, theirs = server.send(0, "A", A), server.send(1, "B", B)
    z0, z1 = server.send(0, "c", c0), server.send(1, "c", A @ B - c0)
    e = server.send(1, "E", a.send(SERVER, "E", x - mine))
    f = server.send(0, "F", b.send(SERVER, "F", y - theirs))
    a.send(SERVER, "half", mine @ f + z0)
    b.send(SERVER, "half", e @ y + z1)
    world.output("product", world.spec(x) @ world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="product of shares")
def product_of_shares_opened() -> World:
    """Holders multiply their shares of X and Y, and open without a sharing of zero."""
    world = World(P)
    holders = [world.party(j) for j in range(3)]
    left, right = world.party(3), world.party(4)
    x, y = world.secret(3, "x", (2, 2)), world.secret(4, "y", (2, 2))
    f, g = left.uniform(2, 2), right.uniform(2, 2)
    for j, holder in enumerate(holders):
        s = left.send(j, "share x", x + (j + 1) * f)
        t = right.send(j, "share y", y + (j + 1) * g)
        holder.send(SERVER, "product of shares", s @ t)
    world.output("product", world.spec(x) @ world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, 0, where="sum")
def noise_of_one_for_two() -> World:
    """One owner's noise is to protect both tables; with that owner the server has the other's."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x, y = table(world, 0), table(world, 1, "y")
    noisy = a.send(1, "noisy", a.gaussian(x.clip(1.0), 2.0, name="a").map(quantised, field=FIELD))
    b.send(SERVER, "sum", noisy + y.map(quantised, field=FIELD))
    spec = world.released(0, "a").map(quantised, field=FIELD)
    world.output("sum", spec + world.spec(y).map(quantised, field=FIELD), to=[SERVER])
    world.output("noisy", spec, to=[1])
    return world


@leaks(SERVER, where="noisy")
def noise_drawn_from_zeros() -> World:
    """Noise is drawn as the release of zeros, and added to rows that were never clipped."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    noise = a.gaussian(x.map(zeros_like).clip(1.0), 2.0)
    a.send(SERVER, "noisy", x.map(added, noise))
    return world


@leaks(SERVER, where="sum")
def alone_on_every_output() -> World:
    """`alone=True` was put on both sums, to be rid of a message: they differ by one client."""
    world = World(P)
    clients, _server, inputs = three(world)
    holder = world.party(3)
    got = [clients[i].send(3, "x", inputs[i]) for i in range(3)]
    for r, there in ((1, (0, 1, 2)), (2, (0, 1))):
        world.round = r
        holder.send(SERVER, "sum", combination([(1, got[i]) for i in there]))
        spec = combination([(1, world.spec(inputs[i])) for i in there])
        world.output(f"sum {r}", spec, to=[SERVER], alone=True)
    return world


@leaks(SERVER, where="total")
def together_meant_each() -> World:
    """The sum is for the server and client 1 *together*; each gets it."""
    world = World(P)
    clients, _server, inputs = three(world)
    holder = world.party(3)
    total = clients[0].send(3, "x", inputs[0]) + clients[1].send(3, "x", inputs[1])
    holder.send(SERVER, "total", total)
    holder.send(1, "total", total)
    world.output("sum", total_of(world, inputs[:2]), to=[SERVER, 1], together=True)
    return world


@leaks(1, where="norm")
def recorded_norm() -> World:
    """A line of the history for the plot of norms."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x = table(world, 0)
    a.record("norm", x.map(norms, shape=(4,)))
    a.send(SERVER, "up", x.map(quantised, field=FIELD) + a.uniform(4, 2))
    assert b is not None
    return world


@leaks(SERVER, where="scale")
def scaled_by_the_common_largest() -> World:
    """All owners scale by the largest magnitude, which goes around in the clear."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x, y = table(world, 0), table(world, 1, "y")
    scale = a.send(1, "scale", x.map(largest, shape=()))
    a.send(SERVER, "scale", x.map(largest, shape=()))
    mask = a.uniform(4, 2)
    got = a.send(1, "mask", mask)
    a.send(SERVER, "up", x.map(scaled, x.map(largest, shape=()), field=FIELD) + mask)
    b.send(SERVER, "up", y.map(scaled, scale, field=FIELD) - got)
    top = world.spec(x).map(largest, shape=())
    world.output("scale", top, to=[1], alone=True)
    total = world.spec(x).map(scaled, top, field=FIELD) + world.spec(y).map(
        scaled, top, field=FIELD
    )
    world.output("sum", total, to=[SERVER])
    return world


@leaks(SERVER, where="up")
def mean_of_a_group_of_one() -> World:
    """Sums by group, in which the last group has one client."""
    world = World(P)
    clients, _server, inputs = three(world)
    m = clients[0].uniform(4, 2)
    got = clients[0].send(1, "m", m)
    clients[0].send(SERVER, "up", inputs[0] + m)
    clients[1].send(SERVER, "up", inputs[1] - got)
    clients[2].send(SERVER, "up", inputs[2] + 0 * clients[2].uniform(4, 2))
    world.output("sum of group 0", total_of(world, inputs[:2]), to=[SERVER])
    return world


@leaks(SERVER, where="sizes")
def intersection_size_of_each_pair() -> World:
    """A joint size is declared; the size of each pair is sent as well."""
    world = World(P)
    clients, _server, inputs = three(world)
    holder = world.party(3)
    got = [clients[i].send(3, "ids", inputs[i]) for i in range(3)]
    holder.send(SERVER, "size", got[0].map(overlap3, got[1], got[2], shape=(), real=True))
    holder.send(SERVER, "sizes", got[0].map(overlap, got[1], shape=(), real=True))
    spec = [world.spec(x) for x in inputs]
    world.output("size", spec[0].map(overlap3, spec[1], spec[2], shape=(), real=True), to=[SERVER])
    return world


def overlap(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Number of common entries."""
    return np.array(float(len(np.intersect1d(x, y))))


def overlap3(x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Number of entries that all three have."""
    return np.array(float(len(np.intersect1d(np.intersect1d(x, y), z))))


@leaks(SERVER, where="gradient")
def inverse_of_a_function() -> World:
    """The declared sum, and half of each term's difference to it, by a function at a holder."""
    world = World(P)
    clients, _server, inputs = three(world)
    holder = world.party(3)
    got = [clients[i].send(3, "x", inputs[i]) for i in range(3)]
    total = got[0] + got[1] + got[2]
    holder.send(SERVER, "sum", total)
    holder.send(SERVER, "gradient", total.map(less, got[2], real=True))
    spec = total_of(world, inputs)
    world.output("sum", spec, to=[SERVER])
    world.output("gradient", spec.map(less, world.spec(inputs[2]), real=True), to=[SERVER])
    return world


def less(total: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Total without x."""
    rest = (total - x) % P
    return np.where(rest > P // 2, rest - P, rest) / 2.0


@sound(s="DP")
def records_in_two_tables() -> World:
    """All rows are charged for the first release, and those of other numbers for the second."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    a.send(SERVER, "noisy", a.gaussian(x.map(halves).clip(1.0), 2.0, name="visits 1"))
    a.send(
        SERVER,
        "noisy",
        a.gaussian(x.map(reversed_rows).clip(1.0), 2.0, name="visits 2", rows=np.arange(4, 8)),
    )
    return world


def reversed_rows(x: np.ndarray) -> np.ndarray:
    """Rows in reverse."""
    return x[::-1].copy()


@sound(_0="DP")
def labels_randomised_each_epoch() -> World:
    """Labels are randomised twice, the second time in another order: epsilon is 2."""
    world = World(P)
    server = world.party(SERVER)
    labels = world.secret(SERVER, "labels", np.array([0, 1, 1, 0]), real=True)
    server.send(0, "labels", server.randomised(labels, 2, 1.0, name="labels"))
    server.send(
        0, "labels", server.randomised(labels.map(shifted), 2, 1.0, name="labels of epoch 2")
    )
    return world


def shifted(labels: np.ndarray) -> np.ndarray:
    """Next rows' labels, as targets of a forecast."""
    return np.roll(labels, -1)


def take_rows(x: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """Rows of a batch."""
    return x[batch]


def column(x: np.ndarray) -> np.ndarray:
    """All numbers as one column."""
    return x.reshape(-1, 1)


# --- leaks: keys of others, signatures, row numbers ------------------------------------------


def text_of(x: np.ndarray) -> bytes:
    """Statement that is signed."""
    return b"upload " + x.tobytes()


@leaks(SERVER, where="up")
def agreed_with_the_relay() -> World:
    """Public keys go by the server; client 0 takes the relay's own key for client 1's."""
    world = World(P)
    a, b, server = world.party(0), world.party(1), world.party(SERVER)
    own, relay = (a.key(), b.key()), server.key()
    of_server = server.send(0, "public", server.public_key(relay))
    b.send(SERVER, "public", b.public_key(own[1]))
    server.agree(relay, a.send(SERVER, "public", a.public_key(own[0])))
    x = world.secret(0, "x", (4, 2))
    a.send(SERVER, "up", x + a.expand(a.agree(own[0], of_server), 4, 2))
    return world


@leaks(SERVER, where="open")
def both_openings_of_one_client() -> World:
    """A client that was late is taken for lost and for a survivor: both of its secrets open."""
    world = World(P)
    clients, _server, inputs = three(world, (2, 2))
    own = {i: clients[i].key(f"s{i}") for i in range(3)}
    seeds = {i: clients[i].key(f"b{i}") for i in range(3)}
    held: dict[Any, Any] = {}
    for i in range(3):
        for what, key in (("b", seeds[i]), ("s", own[i])):
            for j, piece in clients[i].split_key(key, 2, [1, 2, 3]).items():
                mine = j - 1 == i
                held[what, i, j - 1] = piece if mine else clients[i].send(j - 1, "piece", piece)
    public = {
        (i, j): clients[i].send(j, "public", clients[i].public_key(own[i]))
        for i in range(3) for j in (0, 1, 2, SERVER) if i != j
    }  # fmt: skip
    for i in range(3):
        pairs = [
            (1 if j < i else -1, clients[i].expand(clients[i].agree(own[i], public[j, i]), 2, 2))
            for j in range(3) if j != i
        ]  # fmt: skip
        own_mask = clients[i].expand(seeds[i], 2, 2)
        clients[i].send(SERVER, "up", inputs[i] + own_mask + combination(pairs))
    for j in (0, 1):
        for i in range(3):
            clients[j].send(SERVER, "open seed", held["b", i, j])
        clients[j].send(SERVER, "open key", held["s", 2, j])
    world.output("sum", total_of(world, inputs), to=[SERVER])
    return world


@leaks(SERVER, where="signature")
def signature_of_the_plain_upload() -> World:
    """The upload is masked, and the signature is on what it masks."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x, y = world.secret(0, "x", (4, 2)), world.secret(1, "y", (4, 2))
    mask, key = a.uniform(4, 2), a.key()
    got = a.send(1, "mask", mask)
    a.send(SERVER, "verifying key", a.verifying_key(key))
    a.send(SERVER, "up", x + mask)
    a.send(SERVER, "signature", a.sign(key, text_of, x))
    b.send(SERVER, "up", y - got)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world


@leaks(SERVER, where="noisy", epsilon=6.572)
def rows_of_the_batch_before() -> World:
    """Row numbers are those of this round's batch, and the rows those of the first one."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    batches = [np.array([0, 1]), np.array([2, 3])]
    for r, batch in enumerate(batches):
        world.round = r + 1
        taken = x.map(take_rows, batches[0], shape=(2, 2)).clip(1.0)
        a.send(SERVER, "noisy", a.gaussian(taken, 2.0, name=f"release {r}", rows=batch))
    return world


@leaks(SERVER, where="noisy", epsilon=6.572)
def entries_clipped_one_by_one() -> World:
    """Each number of a record is clipped to C alone, so a record's norm is up to C sqrt(d)."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    a.send(SERVER, "noisy", a.gaussian(x.map(column, shape=(8, 1)).clip(1.0), 2.0))
    return world


@leaks(SERVER, where="square")
def difference_by_a_square() -> World:
    """The sum of three clients, and the second moment of two of them."""
    world = World(P)
    clients, _server, inputs = three(world)
    holder = world.party(3)
    got = [clients[i].send(3, "x", inputs[i]) for i in range(3)]
    holder.send(SERVER, "sum", got[0] + got[1] + got[2])
    holder.send(SERVER, "square", (got[0] + got[1]) * (got[0] + got[1]))
    pair = total_of(world, inputs[:2])
    world.output("sum", total_of(world, inputs), to=[SERVER])
    world.output("square", pair * pair, to=[SERVER])
    return world


@leaks(SERVER, where="weighted")
def product_and_product_plus() -> World:
    """XY is declared, and 2XY + X as 'weighted': their difference is X."""
    world = World(P)
    a, b, holder, _ = world.party(0), world.party(1), world.party(3), world.party(SERVER)
    x, y = world.secret(0, "x", (2, 2)), world.secret(1, "y", (2, 2))
    gx, gy = a.send(3, "x", x), b.send(3, "y", y)
    holder.send(SERVER, "product", gx @ gy)
    holder.send(SERVER, "weighted", 2 * gx @ gy + gx)
    sx, sy = world.spec(x), world.spec(y)
    world.output("product", sx @ sy, to=[SERVER])
    world.output("weighted", 2 * sx @ sy + sx, to=[SERVER])
    return world


@leaks(0, where="points")
def points_that_wrap() -> World:
    """Six holders in F_5: the fifth one's point is 0."""
    world = World(5)
    dealer, secret = world.party(6), world.secret(6, "x", (2,))
    slope = dealer.uniform(2)
    for j in range(6):
        world.party(j)
        dealer.send(j, "points", secret + (5 - j) * slope)
    return world


@leaks(SERVER, where="gradient")
def per_row_gradients_of_a_sum() -> World:
    """The mean gradient is declared to all; single clients' products with it go to the server."""
    world = World(P)
    clients, _server, inputs = three(world, (2, 2))
    holder = world.party(3)
    got = [clients[i].send(3, "x", inputs[i]) for i in range(3)]
    total = got[0] + got[1] + got[2]
    holder.send(SERVER, "sum", total)
    for i in (0, 1):
        holder.send(SERVER, "gradient", got[i].T @ total)
    specs = [world.spec(x) for x in inputs]
    spec = specs[0] + specs[1] + specs[2]
    world.output("sum", spec, to=[SERVER])
    world.output("gradient", specs[0].T @ spec + specs[1].T @ spec, to=[SERVER])
    return world


@sound(s="PROVED", _0="PROVED", s2="PROVED")
def joiner_gets_a_later_key() -> World:
    """A chain of round keys between clients 0 and 1; who joins in round 2 gets that round's key."""
    world = World(P)
    a, b, c = (world.party(i) for i in range(3))
    key = a.key()
    chain = [a.derived_key(key, "round 1")]
    other = [b.derived_key(a.send(1, "key", key), "round 1")]
    for r in (1, 2):
        world.round = r
        x, y = world.secret(0, f"x{r}", (2, 2)), world.secret(1, f"y{r}", (2, 2))
        up = a.send(SERVER, "up", x + a.prf(chain[-1], "mask", 2, 2))
        b.send(SERVER, "up", y - b.prf(other[-1], "mask", 2, 2))
        world.output(f"sum {r}", world.spec(x) + world.spec(y), to=[SERVER])
        chain.append(a.derived_key(chain[-1], "next"))
        other.append(b.derived_key(other[-1], "next"))
    a.send(2, "welcome", chain[-1])
    assert up is not None
    assert c is not None
    return world


@sound(s="DP", s1="DP", _1="PROVED")
def epochs_of_noisy_batches() -> World:
    """Each record is released once an epoch, under its own number; three epochs."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x = table(world, 0)
    lot = np.random.default_rng(3)
    for epoch in range(3):
        order = lot.permutation(4)
        for k in range(2):
            world.round += 1
            batch = order[2 * k : 2 * k + 2]
            taken = x.map(take_rows, batch, shape=(2, 2)).clip(1.0)
            a.send(SERVER, "noisy", a.gaussian(taken, 2.0, name=f"{epoch} {k}", rows=batch))
    b.send(SERVER, "hello", "ready")
    return world


# --- leaks: two mechanisms, metrics beside noise ---------------------------------------------


def guesses(x: np.ndarray, y: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Number of right guesses on both tables."""
    return np.array(((x.sum(1) + y.sum(1) > 0) == labels).sum(), float)


def by_label(labels: np.ndarray) -> np.ndarray:
    """One-hot rows."""
    return np.eye(2)[labels.astype(int)]


@leaks(0, where="labels", epsilon=5.935)
def labels_by_two_mechanisms() -> World:
    """Labels by randomised response, and their one-hot rows by Gaussian noise: both cost."""
    world = World(P)
    server, a = world.party(SERVER), world.party(0)
    labels = world.secret(SERVER, "labels", np.array([0, 1, 1, 0]), real=True)
    server.send(0, "labels", server.randomised(labels, 2, 3.0))
    server.send(0, "rows", server.gaussian(labels.map(by_label, shape=(4, 2)).clip(1.0), 2.0))
    assert a is not None
    return world


@leaks(SERVER, where="accuracy")
def exact_accuracy_beside_noise() -> World:
    """Tables are noised; the exact accuracy on the clean ones is a declared output."""
    world = World(P)
    a, b, holder, server = world.party(0), world.party(1), world.party(3), world.party(SERVER)
    x, y = table(world, 0), table(world, 1, "y")
    labels = world.secret(SERVER, "labels", np.array([0, 1, 1, 0]), real=True)
    a.send(SERVER, "noisy", a.gaussian(x.clip(1.0), 2.0, name="a"))
    b.send(SERVER, "noisy", b.gaussian(y.clip(1.0), 2.0, name="b"))
    gx, gy, gl = a.send(3, "x", x), b.send(3, "y", y), server.send(3, "l", labels)
    holder.send(SERVER, "accuracy", gx.map(guesses, gy, gl, shape=()))
    spec = world.spec(x).map(guesses, world.spec(y), world.spec(labels), shape=())
    world.output("accuracy", spec, to=[SERVER])
    return world


@leaks(SERVER, where="unnumbered", epsilon=4.377)
def all_rows_unnumbered() -> World:
    """Every row has the number -1, as in a table without identifiers."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    a.send(SERVER, "unnumbered", a.gaussian(x.clip(1.0), 2.0, rows=np.full(4, -1)))
    return world


@leaks(SERVER, where="bias")
def noise_taken_off_again() -> World:
    """The owner corrects the bias of its noise: the correction is exact, masked, and summed."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x, y = table(world, 0), table(world, 1, "y")
    noisy = a.gaussian(x.clip(1.0), 2.0, name="a")
    a.send(SERVER, "noisy", noisy)
    q, other = x.map(bias, noisy, field=FIELD), y.map(quantised, field=FIELD)
    mask = a.uniform(4, 2)
    got = a.send(1, "mask", mask)
    a.send(SERVER, "denoised", q + mask)
    b.send(SERVER, "denoised", 0 * other - got)
    spec = world.spec(x).map(bias, world.released(0, "a"), field=FIELD)
    world.output("bias", spec + 0 * world.spec(y).map(quantised, field=FIELD), to=[SERVER])
    return world


def bias(x: np.ndarray, noisy: np.ndarray) -> np.ndarray:
    """What noise added, in fixed point."""
    return np.rint((noisy - x) * 1024).astype(np.int64) % P


@leaks(SERVER, 1, where="count")
def ballots_modulo_two() -> World:
    """Votes in F_2 times a public weight 2 for the last one: its mask and vote are 0; with 1."""
    world = World(2)
    clients = [world.party(i) for i in range(3)]
    votes = [world.secret(i, f"v{i}", (2,)) for i in range(3)]
    masks = clients[0].uniform(2), clients[1].uniform(2)
    g0, g1 = clients[0].send(2, "mask", masks[0]), clients[1].send(2, "mask", masks[1])
    clients[0].send(SERVER, "vote", votes[0] + masks[0])
    clients[1].send(SERVER, "vote", votes[1] + masks[1])
    clients[2].send(SERVER, "vote", 2 * votes[2] - g0 - g1)
    spec = [world.spec(v) for v in votes]
    world.output("count", spec[0] + spec[1] + 2 * spec[2], to=[SERVER])
    return world


# --- leaks: releases by two parties, and outputs beside them ----------------------------------


@leaks(SERVER, where="noisy", epsilon=6.572)
def two_releasers_of_one_table() -> World:
    """Client 0 sends its table with noise, and its helper, who has it, another noisy copy."""
    world = World(P)
    a, helper = world.party(0), world.party(1)
    x = table(world, 0)
    got = a.send(1, "copy", x)
    a.send(SERVER, "noisy", a.gaussian(x.clip(1.0), 2.0, name="first"))
    helper.send(SERVER, "noisy", helper.gaussian(got.clip(1.0), 2.0, name="second"))
    return world


@leaks(SERVER, where="norm")
def exact_norm_alone_beside_noise() -> World:
    """The norms of rows are declared for the server, with `alone`, beside noisy rows."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    a.send(SERVER, "noisy", a.gaussian(x.clip(1.0), 2.0))
    a.send(SERVER, "norm", x.map(norms, shape=(4,)))
    world.output("norm", world.spec(x).map(norms, shape=(4,)), to=[SERVER], alone=True)
    return world


@leaks(0, where="labels", epsilon=2.0)
def labels_by_two_parties() -> World:
    """Two servers have the labels, and each tells them by randomised response of its own."""
    world = World(P)
    server, second, a = world.party(SERVER), world.party(1), world.party(0)
    labels = world.secret(SERVER, "labels", np.array([0, 1, 1, 0]), real=True)
    copy = server.send(1, "copy", labels)
    server.send(0, "labels", server.randomised(labels, 2, 1.0, name="first"))
    second.send(0, "labels", second.randomised(copy, 2, 1.0, name="second"))
    assert a is not None
    return world


@sound(s="DP")
def one_mask_for_two_noisy_uploads() -> World:
    """A retry draws noise anew under the old mask: both releases are seen, and paid."""
    world = World(P)
    a, b = world.party(0), world.party(1)
    x, y = table(world, 0), table(world, 1, "y")
    mask = a.uniform(4, 2)
    got = a.send(1, "mask", mask)
    for r in (1, 2):
        world.round = r
        noisy = a.gaussian(x.clip(1.0), 2.0, name=f"a{r}").map(quantised, field=FIELD)
        other = b.gaussian(y.clip(1.0), 2.0, name=f"b{r}").map(quantised, field=FIELD)
        a.send(SERVER, "up", noisy + mask)
        b.send(SERVER, "up", other - got)
        parts = [
            world.released(i, f"{n}{r}").map(quantised, field=FIELD) for i, n in enumerate("ab")
        ]
        world.output(f"sum {r}", parts[0] + parts[1], to=[SERVER])
    return world


@leaks(SERVER, where="moment", epsilon=6.572)
def moments_released_by_row_and_by_table() -> World:
    """Rows with noise, and the column sums as a row of another number, in which every record is."""
    world = World(P)
    a = world.party(0)
    x = table(world, 0)
    a.send(SERVER, "noisy", a.gaussian(x.clip(1.0), 2.0, rows=np.arange(4)))
    sums = x.map(column_sums, shape=(1, 2)).clip(1.0)
    a.send(SERVER, "moment", a.gaussian(sums, 2.0, name="moment", rows=np.array([99])))
    return world


def column_sums(x: np.ndarray) -> np.ndarray:
    """Sums of columns, as one row."""
    return x.sum(0, keepdims=True)


@leaks(SERVER, where="visits")
def standardised_visits_beside_a_longer_table() -> World:
    """The first table is sent row by row, and the shorter one of visits standardised."""
    world = World(P)
    a = world.party(0)
    x, visits = table(world, 0, rows=8), table(world, 0, "visits")
    a.send(SERVER, "noisy", a.gaussian(x.clip(1.0), 2.0, rows=np.arange(8)))
    rows = visits.map(standardised).clip(1.0)
    a.send(SERVER, "visits", a.gaussian(rows, 2.0, name="visits", rows=np.arange(8, 12)))
    return world


@leaks(SERVER, where="noisy")
def standardised_in_small_units() -> World:
    """Standardised rows in units of 1e-8, with bound and noise in the same units."""
    world = World(P)
    a = world.party(0)
    rows = table(world, 0).map(standardised_small).clip(1e-8)
    a.send(SERVER, "noisy", a.gaussian(rows, 2e-8, rows=np.arange(4)))
    return world


def standardised_small(x: np.ndarray) -> np.ndarray:
    """Columns of mean 0 and standard deviation 1e-8."""
    return standardised(x) * 1e-8


@leaks(SERVER, where="noisy", epsilon=6.572)
def samples_numbered_by_position() -> World:
    """Batches of 20 of 400 rows are drawn, and numbered on, so that no number comes twice."""
    world = World(P)
    a = world.party(0)
    x, lot = table(world, 0, rows=400), np.random.default_rng(1)
    for r in range(6):
        world.round = r + 1
        taken = x.map(take_rows, lot.choice(400, 20, replace=False), shape=(20, 2)).clip(1.0)
        rows = np.arange(20) + 20 * r
        a.send(SERVER, "noisy", a.gaussian(taken, 2.0, name=f"release {r}", rows=rows))
    return world


@leaks(SERVER, where="weights")
def noise_on_rows_of_weights() -> World:
    """Rows of trained weights are clipped and noised as if each were a record."""
    world = World(P)
    a = world.party(0)
    x, network = table(world, 0), world.input(0, "network", [0.0], "model")
    network.step(trained, x)
    rows = network.call(weights_of, shape=(1, 2)).clip(1.0)
    a.send(SERVER, "weights", a.gaussian(rows, 2.0, rows=np.arange(1)))
    return world


def trained(network: list[float], x: np.ndarray) -> None:
    """Put the mean of the first column into a model."""
    network[0] += float(x[:, 0].mean())


def weights_of(network: list[float]) -> np.ndarray:
    """Weights as a row."""
    return np.array([[network[0], 1.0]])


@leaks(0, where="encoded")
def mean_of_outcomes_in_each_row() -> World:
    """A category is replaced by the mean outcome; no input's name says that outcomes are labels."""
    world = World(P)
    server = world.party(SERVER)
    assert world.party(0)
    categories, outcomes = table(world, SERVER, "columns"), table(world, SERVER, "outcomes")
    rows = categories.map(encoded, outcomes).clip(1.0)
    server.send(0, "encoded", server.gaussian(rows, 2.0, rows=np.arange(4)))
    return world


def encoded(categories: np.ndarray, outcomes: np.ndarray) -> np.ndarray:
    """The mean outcome, in each row."""
    return 0 * categories + outcomes.mean(0)


# --- the page's protocol, as authors change it -------------------------------------------------

_PAGE = Path(__file__).parents[2] / "docs" / "own-protocol.md"


@dataclass(frozen=True)
class Changed:
    """Edits of the page's shared_sum.py, the verdict on server + client 0, and a word of it."""

    name: str
    edits: tuple[tuple[str, str], ...]
    verdict: str
    where: str

    def source(self) -> str:
        """The module."""
        found = re.search(
            r"<!-- file: shared_sum.py -->\n```python\n(.*?)```", _PAGE.read_text(), re.DOTALL
        )
        assert found is not None
        text = found[1]
        for old, new in self.edits:
            assert old in text, old
            text = text.replace(old, new, 1)
        return text


_TRAIN = "    async def train"
_SENT = '        self.share("share", self.cut(x))  # share j to client j\n'
_SCALE = (
    "        return announcement, share, upload, gradient",
    '        scale = MessageSpec("scale", "client", "server", "scale", count=in_rounds)\n'
    "        return announcement, share, upload, gradient, scale",
)
_IMPORT = ("MessageSpec, SummedClient", "MessageSpec, SummedClient, in_rounds, in_setup")
_UPLOAD = (
    _SENT
    + '        shares = await self.collect("share", senders=self.peers)\n'
    + '        self.send(SERVER, "embedding", sum(shares.values()))\n'
)


def init(line: str) -> tuple[str, str]:
    """A constructor with a line more."""
    head = "    def __init__(self, *given: Any) -> None:\n        super().__init__(*given)\n"
    return _TRAIN, f"{head}        {line}\n\n{_TRAIN}"


_KEYS = (
    _IMPORT,
    init("self.keys: dict[int, Any] = {}"),
    (
        'protected = {**SummedClient.protected, "share": "field"}',
        'protected = {**SummedClient.protected, "public key": "public key"}\n'
        '    kept = (*SummedClient.kept, "keys")',
    ),
    (_UPLOAD, '        self.send(SERVER, "embedding", x + self.mask(x.shape))\n'),
    (
        "    def cut(",
        '''    async def setup(self) -> None:
        """Agree a key with each other client."""
        own = self.key()
        others = [j for j in self.peers if j != self.index]
        for j in others:
            self.send(j, "public key", self.public_key(own))
        theirs = await self.collect("public key", senders=others, round=0)
        self.keys = {j: self.agree(own, theirs[j]) for j in others}

    def mask(self, shape: tuple[int, ...]) -> Any:
        """Masks with the others, each added by one of two and subtracted by the other."""
        masks = {j: self.prf(k, ("mask", self.round), *shape) for j, k in self.keys.items()}
        return sum(m if j < self.index else 0 - m for j, m in masks.items())

    def cut(''',
    ),
    (
        '        share = replace(upload, kind="share", receiver="client", row_by_row=False)\n'
        "        return announcement, share, upload, gradient",
        '        public = MessageSpec("public key", "client", "client", "key", count=in_setup)\n'
        "        return public, announcement, upload, gradient",
    ),
)

CHANGED = [
    Changed(
        "a_common_scale_from_raw_columns",
        (
            _IMPORT,
            _SCALE,
            init("self.largest = float(np.abs(given[3]).max())"),
            (_SENT, f'        self.send(SERVER, "scale", self.largest)\n{_SENT}'),
        ),
        "NOT PROVED",
        "scale of round 1 from party 0 to the server is public, and changes",
    ),
    Changed(
        "a_count_of_blank_entries",
        (
            _IMPORT,
            _SCALE,
            init("self.table = np.asarray(given[3])"),
            (
                _SENT,
                '        self.send(SERVER, "scale", int((self.table[samples] > 0).sum()))\n'
                + _SENT,
            ),
        ),
        "NOT PROVED",
        "scale of round 1 from party 0 to the server is public, and changes",
    ),
    Changed(
        "shares_made_once",
        (
            init("self.masks: dict[int, Any] = {}"),
            (
                "        shares = "
                "{j: self.uniform(*x.shape) for j in self.peers if j != self.index}\n",
                "        if not self.masks:\n"
                "            self.masks = "
                "{j: self.uniform(*x.shape) for j in self.peers if j != self.index}\n"
                "        shares = dict(self.masks)\n",
            ),
        ),
        "VIOLATED",
        "embedding of round 2",
    ),
    Changed(
        "an_opened_size",
        (
            (
                "class Client(",
                'def size(x: np.ndarray) -> np.ndarray:\n    """Number of entries."""\n'
                "    return np.array((x != 0).sum(), float)\n\n\nclass Client(",
            ),
            (
                _SENT,
                '        if self.opened(x.map(size, shape=(), real=True), "size") < 1:\n'
                f"            x = 0 * x\n{_SENT}",
            ),
        ),
        "NOT PROVED",
        "size",
    ),
    Changed("pairwise_masks_of_the_page", _KEYS, "PROVED", ""),
    Changed(
        "a_percentile_at_home",
        (
            (
                "class Client(",
                'def spread(x: np.ndarray) -> np.ndarray:\n    """Range of the middle half."""\n'
                "    return np.percentile(x, 75) - np.percentile(x, 25)\n\n\nclass Client(",
            ),
            init("self.spread = self.features.map(spread, shape=())  # for the client's own plot"),
        ),
        "PROVED",
        "",
    ),
    Changed(
        "masks_by_a_counter",
        (
            *_KEYS,
            ('("mask", self.round)', '("mask", self.count)'),
            ("        masks = {j", "        self.count += 1\n        masks = {j"),
            (
                "        self.keys: dict[int, Any] = {}\n",
                "        self.keys: dict[int, Any] = {}\n        self.count = 0\n",
            ),
        ),
        "VIOLATED",
        "embedding of round",
    ),
]
