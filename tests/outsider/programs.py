"""Protocols as an honest author writes them: thirty with a mistake, twelve without.

Each function returns the world and the coalition. `leaks` says what leaks to whom; `shown` names
the messages of which the verdict's text must name one.
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.verified import SERVER, World, combination, concatenate

P = 2**31 - 1
Run = tuple[World, set[int]]


@dataclasses.dataclass(frozen=True)
class Program:
    """One protocol: `shown` is empty for a sound one."""

    run: Callable[[], Run]
    leaks: str = ""
    shown: tuple[str, ...] = ()


LEAKING: dict[str, Program] = {}
SOUND: dict[str, Program] = {}


def leaking(leaks: str, *shown: str) -> Any:
    """Register a protocol with a mistake."""

    def keep(run: Callable[[], Run]) -> Callable[[], Run]:
        LEAKING[run.__name__] = Program(run, leaks, shown)
        return run

    return keep


def sound(run: Callable[[], Run]) -> Callable[[], Run]:
    """Register a protocol without a mistake."""
    SOUND[run.__name__] = Program(run)
    return run


def parties(number: int, modulus: int = P) -> Any:
    """A world, its server and its clients."""
    world = World(modulus)
    return (world, world.party(SERVER), *[world.party(i) for i in range(number)])


def agreed(a: Any, i: int, b: Any, j: int) -> tuple[Any, Any]:
    """The key of two parties, as each has it; public keys go by the history, too."""
    mine, theirs = a.key(), b.key()
    to_b = a.send(j, "public key", a.public_key(mine))
    to_a = b.send(i, "public key", b.public_key(theirs))
    return a.agree(mine, to_a), b.agree(theirs, to_b)


def lagrange(points: list[int], at: int) -> list[int]:
    """Coefficients of values at `points` in the value at `at`."""
    out = []
    for j in points:
        top = bottom = 1
        for k in points:
            if k != j:
                top, bottom = top * (at - k) % P, bottom * (j - k) % P
        out.append(top * pow(bottom, -1, P) % P)
    return out


# ------------------------------------------------------------------------------ functions for `map`
def squared_norm(x: Any) -> Any:
    return np.array([sum(int(v) * int(v) for v in x.ravel()) % P])


def low_bits(x: Any) -> Any:
    return x % 256


def largest(x: Any) -> Any:
    return np.array([np.argmax(x[:, 0])])


def hashed(x: Any) -> Any:
    return np.array([zlib.crc32(str(int(v)).encode()) % P for v in x.ravel()]).reshape(x.shape)


def improved(loss: Any, best: Any) -> Any:
    return np.array([int(loss.ravel()[0] < best.ravel()[0])])


def matches(mine: Any, theirs: Any) -> Any:
    return np.array([len(set(mine.ravel().tolist()) & set(theirs.ravel().tolist()))])


def clipped_rows(x: Any, bound: float) -> Any:
    return np.array([int((np.linalg.norm(x, axis=1) > bound).sum())])


def relu(x: Any) -> Any:
    return np.where(x < P // 2, x, 0)


def gradient(h: Any, y: Any) -> Any:
    return (h - y) % P


def step_of(h: Any) -> Any:
    return (3 * h) % P


# -------------------------------------------------------------------------------------- 30 mistakes
@leaking("server: difference of the two columns, by one mask for both", "first", "second")
def mask_used_twice() -> Run:
    world, _, alice = parties(1)
    x = world.secret(0, "x", (4, 2))
    mask = alice.uniform(4, 1)
    alice.send(SERVER, "first", x[:, :1] + mask)
    alice.send(SERVER, "second", x[:, 1:] + mask)
    return world, {SERVER}


@leaking("server: change of x between rounds, as the label has no round", "upload")
def label_without_round() -> Run:
    world, _, alice, bob = parties(2)
    key_a, key_b = agreed(alice, 0, bob, 1)
    for t in range(2):
        world.round = t
        x, y = world.secret(0, f"x{t}", (3, 2)), world.secret(1, f"y{t}", (3, 2))
        alice.send(SERVER, "upload", x + alice.prf(key_a, "mask", 3, 2))
        bob.send(SERVER, "upload", y - bob.prf(key_b, "mask", 3, 2))
        world.output(f"sum{t}", world.spec(x) + world.spec(y), to=[SERVER])
    return world, {SERVER}


@leaking("server: row 2 under two weights, as masks go by the row and batches overlap", "batch")
def overlapping_batches() -> Run:
    world, _, alice = parties(1)
    x, masks = world.secret(0, "x", (4, 3)), alice.uniform(4, 2)
    for t, rows in enumerate(([0, 1, 2], [2, 3])):
        world.round = t
        weights = np.arange(6).reshape(3, 2) + t * np.eye(3, 2, dtype=int)
        alice.send(SERVER, "batch", x.rows(rows) @ weights + masks.rows(rows))
    return world, {SERVER}


@leaking("server: embedding minus loss, as both are masked with one label", "embedding", "loss")
def wrong_label() -> Run:
    world, _, alice, bob = parties(2)
    key_a, key_b = agreed(alice, 0, bob, 1)
    x, loss = world.secret(0, "x", (2, 2)), world.secret(0, "loss", (2, 2))
    y = world.secret(1, "y", (2, 2))
    alice.send(SERVER, "embedding", x + alice.prf(key_a, ("emb", 0), 2, 2))
    alice.send(SERVER, "loss", loss + alice.prf(key_a, ("emb", 0), 2, 2))
    bob.send(SERVER, "embedding", y - bob.prf(key_b, ("emb", 0), 2, 2))
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world, {SERVER}


@leaking("server: differences of rows, as one row of mask serves all", "up")
def broadcast_mask() -> Run:
    world, _, alice = parties(1)
    x, mask = world.secret(0, "x", (4, 3)), alice.uniform(1, 3)
    alice.send(SERVER, "up", x + np.ones((4, 1), dtype=int) @ mask)
    return world, {SERVER}


@leaking("server: the last column, which has no mask", "features")
def part_of_columns() -> Run:
    world, _, alice = parties(1)
    x, mask = world.secret(0, "x", (4, 3)), alice.uniform(4, 2)
    alice.send(SERVER, "features", concatenate([x[:, :2] + mask, x[:, 2:]], axis=1))
    return world, {SERVER}


@leaking("server: x, by the seed that is logged", "upload", "log")
def seed_in_the_log() -> Run:
    world, _, alice = parties(1)
    x, seed = world.secret(0, "x", (2, 2)), alice.key("seed")
    alice.send(SERVER, "upload", x + alice.prf(seed, 0, 2, 2))
    alice.record("log", {"name": "alice", "seed": seed})
    return world, {SERVER}


@leaking(
    "server: x0, as its key was opened for a dropped client and its upload came late",
    "late upload",
    "share",
)
def late_message_of_a_dropped_client() -> Run:
    world, _server, *clients = parties(3)
    x = [world.secret(i, f"x{i}", (3,)) for i in range(3)]
    seed = clients[0].key()
    held = clients[0].split_key(seed, 2, [1, 2, 3])
    got = {q: clients[0].send(q, "held share", held[q + 1]) for q in (1, 2)}
    for i in (1, 2):
        clients[i].send(SERVER, "share of the key", got[i])
    clients[0].send(SERVER, "late upload", x[0] + clients[0].prf(seed, "round 0", 3))
    return world, {SERVER}


@leaking("clients 1 and 2: the seed and with it x, as two shares open it", "share")
def threshold_off_by_one() -> Run:
    world, _, alice, *_ = parties(4)
    x, seed = world.secret(0, "x", (3,)), alice.key()
    shares = alice.split_key(seed, 2, [1, 2, 3])  # meant: more than two
    for q in (1, 2, 3):
        alice.send(q, "share", shares[q])
    alice.record("upload", x + alice.prf(seed, "x", 3))
    return world, {1, 2}


@leaking("client 1: segment x0, as its point is the point of the segment", "encoded")
def lagrange_point_on_data_point() -> Run:
    world, _, alice = parties(1)
    x = [world.secret(0, f"x{k}", (2, 2)) for k in range(2)]
    values = [*x, alice.uniform(2, 2)]
    for q in (1, 2, 3, 4):  # data are at 1 and 2, the mask is at 3
        by = lagrange([1, 2, 3], q + 0)
        alice.send(q, "encoded", combination(list(zip(by, values, strict=True))))
    return world, {1}


@leaking("clients 1 and 2: the secret, by two points of a line", "share")
def degree_too_low() -> Run:
    world, _, alice = parties(1)
    x, slope = world.secret(0, "x", (2,)), alice.uniform(2)
    for q in (1, 2, 3):
        alice.send(q, "share", x + slope * q)
    return world, {1, 2}


@leaking("server: the norm of x, for its scale", "scale")
def norm_told() -> Run:
    world, _, alice, bob = parties(2)
    x, y = world.secret(0, "x", (3,)), world.secret(1, "y", (3,))
    mask = alice.uniform(3)
    got = alice.send(1, "mask", mask)
    alice.send(SERVER, "scale", x.map(squared_norm, shape=(1,)))
    alice.send(SERVER, "upload", x + mask)
    bob.send(SERVER, "upload", y - got)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world, {SERVER}


@leaking("server: the size of the intersection; only its padded sum is declared", "size")
def size_of_the_intersection() -> Run:
    world, _, alice, bob = parties(2)
    ids, theirs = world.secret(0, "ids", (4,)), world.secret(1, "theirs", (4,))
    got = alice.send(1, "ids", ids)
    bob.send(SERVER, "size", got.map(matches, theirs, shape=(1,)))
    return world, {SERVER}


@leaking("server: the low bits of x, that rounding left", "residue")
def low_bits_in_clear() -> Run:
    world, _, alice = parties(1)
    x = world.secret(0, "x", (3,))
    alice.send(SERVER, "rounded", x - x.map(low_bits) + alice.uniform(3))
    alice.send(SERVER, "residue", x.map(low_bits))
    return world, {SERVER}


@leaking("server: which row is the largest", "chosen row")
def index_of_the_largest() -> Run:
    world, _, alice = parties(1)
    x = world.secret(0, "x", (4, 2))
    alice.send(SERVER, "chosen row", x.map(largest, shape=(1,)))
    alice.send(SERVER, "values", x + alice.uniform(4, 2))
    return world, {SERVER}


@leaking("server: x + y.T, as bob takes off the transposed mask", "upload")
def transposed_mask() -> Run:
    world, _, alice, bob = parties(2)
    x, y = world.secret(0, "x", (2, 2)), world.secret(1, "y", (2, 2))
    mask = alice.uniform(2, 2)
    got = alice.send(1, "mask", mask)
    alice.send(SERVER, "upload", x + mask)
    bob.send(SERVER, "upload", y - got.T)
    world.output("sum", world.spec(x) + world.spec(y), to=[SERVER])
    return world, {SERVER}


@leaking("client 1: x, by its shares of both tries, which are of one line", "try")
def retry_with_other_sharers() -> Run:
    world, _, alice = parties(1)
    x, slope = world.secret(0, "x", (3,)), alice.uniform(3)
    for t, cohort in enumerate(([1, 2, 3], [2, 1])):
        world.round = t
        for place, q in enumerate(cohort, start=1):
            alice.send(q, f"try {t}", x + slope.times(place))
    return world, {1}


@leaking("server: x2, as client 2 was left out when the masks were dealt", "upload")
def zero_sum_without_one() -> Run:
    world, _, *clients = parties(3)
    x = [world.secret(i, f"x{i}", (2,)) for i in range(3)]
    mask = clients[0].uniform(2)
    got = clients[0].send(1, "mask", mask)
    clients[0].send(SERVER, "upload", x[0] + mask)
    clients[1].send(SERVER, "upload", x[1] - got)
    clients[2].send(SERVER, "upload", x[2])
    total = world.spec(x[0]) + world.spec(x[1]) + world.spec(x[2])
    world.output("sum", total, to=[SERVER])
    return world, {SERVER}


@leaking("server: 2 x, as the tag's pad is the mask", "masked", "tag")
def key_for_two_purposes() -> Run:
    world, _, alice = parties(1)
    x, key = world.secret(0, "x", (4,)), alice.key()
    alice.send(SERVER, "masked", x + alice.prf(key, 0, 4))
    alice.send(SERVER, "tag", 3 * x + alice.prf(key, 0, 4))
    return world, {SERVER}


@leaking("client 1: ids, by guessing what was hashed", "blinded ids")
def hash_of_ids() -> Run:
    world, _, alice = parties(1)
    ids = world.secret(0, "ids", (5,))
    alice.send(1, "blinded ids", ids.map(hashed))
    return world, {1}


@leaking("server: the update of the last round, which is sent as it is", "last update")
def last_round_without_mask() -> Run:
    world, _, alice, bob = parties(2)
    key_a, key_b = agreed(alice, 0, bob, 1)
    for t in range(3):
        world.round = t
        x, y = world.secret(0, f"x{t}", (2,)), world.secret(1, f"y{t}", (2,))
        if t < 2:
            alice.send(SERVER, "update", x + alice.prf(key_a, t, 2))
            bob.send(SERVER, "update", y - bob.prf(key_b, t, 2))
        else:
            alice.send(SERVER, "last update", x)
            bob.send(SERVER, "last update", y)
        world.output(f"sum{t}", world.spec(x) + world.spec(y), to=[SERVER])
    return world, {SERVER}


@leaking("server: the sum, that is declared for client 0 alone", "upload")
def output_for_the_wrong_party() -> Run:
    world, _, alice, bob = parties(2)
    x, y = world.secret(0, "x", (2,)), world.secret(1, "y", (2,))
    mask = alice.uniform(2)
    got = alice.send(1, "mask", mask)
    alice.send(SERVER, "upload", x + mask)
    bob.send(SERVER, "upload", y - got)
    world.output("sum", world.spec(x) + world.spec(y), to=[0])
    return world, {SERVER}


@leaking("client 1: x - z, as one triple serves two products", "opened")
def triple_used_twice() -> Run:
    world, dealer, alice, _ = parties(2)
    x, z = world.secret(0, "x", (2, 2)), world.secret(0, "z", (2, 2))
    a = dealer.send(0, "triple", dealer.uniform(2, 2, name="a"))
    alice.send(1, "opened", x - a)
    alice.send(1, "opened", z - a)
    return world, {1}


@leaking("server: how many rows were clipped, beside the noised sum", "clipped")
def clipping_count() -> Run:
    world, _, alice = parties(1)
    x = world.secret(0, "x", (8, 2), real=True)
    alice.send(SERVER, "noised", alice.gaussian(x.clip(1.0), 2.0))
    alice.send(SERVER, "clipped", x.map(clipped_rows, 1.0, shape=(1,)))
    return world, {SERVER}


@leaking("server and all: x, by the mask that the checkpoint keeps", "checkpoint", "upload")
def mask_in_a_checkpoint() -> Run:
    world, _, alice = parties(1)
    x, mask = world.secret(0, "x", (2, 3)), alice.uniform(2, 3)
    alice.send(SERVER, "upload", x + mask)
    alice.record("checkpoint", {"round": 0, "state": [mask]})
    return world, {SERVER}


@leaking("clients: whether the loss fell, by when the server stops", "stop")
def early_stopping() -> Run:
    world, server, *_ = parties(2)
    for t in range(2):
        world.round = t
        loss, best = world.secret(SERVER, f"loss{t}", (1,)), world.secret(SERVER, f"best{t}", (1,))
        server.record("stop", loss.map(improved, best, shape=(1,)))
    return world, {0, 1}


@leaking("server: the high bits of x, as the mask has eight bits", "upload")
def mask_of_eight_bits() -> Run:
    world, _, alice = parties(1)
    x = world.secret(0, "x", (3,))
    alice.send(SERVER, "upload", x + alice.uniform(3).map(low_bits))
    return world, {SERVER}


@leaking("server: where x is zero, as it is blinded by a factor", "blinded")
def factor_as_mask() -> Run:
    world, _, alice = parties(1)
    x, factor = world.secret(0, "x", (3,)), alice.uniform(3)
    alice.send(SERVER, "blinded", x * factor)
    return world, {SERVER}


@leaking("server: x2, as the sum was taken with and without client 2", "upload")
def two_cohorts() -> Run:
    world, _, *clients = parties(3)
    x = [world.secret(i, f"x{i}", (2,)) for i in range(3)]
    for t, cohort in enumerate(([0, 1, 2], [0, 1])):
        world.round = t
        masks = [clients[0].uniform(2) for _ in cohort[1:]]
        got = [clients[0].send(j, "mask", m) for j, m in zip(cohort[1:], masks, strict=True)]
        clients[0].send(SERVER, "upload", x[0] + combination([(1, m) for m in masks]))
        for j, m in zip(cohort[1:], got, strict=True):
            clients[j].send(SERVER, "upload", x[j] - m)
    world.output("sum", world.spec(x[0]) + world.spec(x[1]) + world.spec(x[2]), to=[SERVER])
    return world, {SERVER}


@leaking("server: every summand, as the ciphertexts are under its own key", "sealed")
def sealed_for_the_wrong_holder() -> Run:
    world, server, *clients = parties(2)
    x = [world.secret(i, f"x{i}", (2,)) for i in range(2)]
    first = clients[0].send(SERVER, "sealed", clients[0].encrypt(x[0], SERVER))
    second = clients[1].send(SERVER, "sealed", clients[1].encrypt(x[1], SERVER))
    server.record("sum", server.decrypt(first + second))
    world.output("sum", world.spec(x[0]) + world.spec(x[1]))
    return world, {SERVER}


# ----------------------------------------------------------------------------------------- 12 sound
@sound
def pairwise_masks_of_three() -> Run:
    """Two rounds of masked sums; client 2 is with the server."""
    world, _, *clients = parties(3)
    keys: dict[tuple[int, int], Any] = {}
    for i in range(3):
        for j in range(i + 1, 3):
            keys[i, j], keys[j, i] = agreed(clients[i], i, clients[j], j)
    for t in range(2):
        world.round = t
        x = [world.secret(i, f"x{i}/{t}", (2, 2)) for i in range(3)]
        for i in range(3):
            up = x[i]
            for j in set(range(3)) - {i}:
                mask = clients[i].prf(keys[i, j], ("round", t), 2, 2)
                up = up + mask if i < j else up - mask
            clients[i].send(SERVER, "upload", up)
        world.output(f"sum{t}", world.spec(x[0]) + world.spec(x[1]) + world.spec(x[2]), to=[SERVER])
    return world, {SERVER, 2}


@sound
def shamir_of_degree_two() -> Run:
    """Two of four clients see two points of a parabola."""
    world, _, alice = parties(1)
    x, a, b = world.secret(0, "x", (2, 2)), alice.uniform(2, 2), alice.uniform(2, 2)
    for q in (1, 2, 3, 4):
        alice.send(q, "share", x + q * a + q * q * b)
    return world, {2, 4}


@sound
def lagrange_coded_segments() -> Run:
    """K = 2 segments and T = 2 masks, at points apart from the data's; two clients collude."""
    world, _, alice = parties(1)
    segments = [world.secret(0, f"x{k}", (2, 2)) for k in range(2)]
    values = [*segments, alice.uniform(2, 2), alice.uniform(2, 2)]
    for q in (1, 2, 3, 4, 5):
        by = lagrange([1, 2, 3, 4], q + 10)
        alice.send(q, "encoded", combination(list(zip(by, values, strict=True))))
    return world, {2, 5}


@sound
def product_by_a_triple() -> Run:
    """Beaver: the dealer gives shares of a, b and a @ b; the server gets shares of x @ y."""
    world, _, alice, bob, dealer = parties(3)
    x, y = world.secret(0, "x", (2, 2)), world.secret(1, "y", (2, 2))
    a, b, r = (dealer.uniform(2, 2) for _ in range(3))
    a_got = dealer.send(0, "a", a)
    b_got = dealer.send(1, "b", b)
    c_alice, c_bob = dealer.send(0, "c", a @ b - r), dealer.send(1, "c", r)
    d = alice.send(1, "d", x - a_got)
    e = bob.send(0, "e", y - b_got)
    # x @ y = d @ y + a @ e + a @ b; bob has the first summand, alice the second
    alice.send(SERVER, "product", a_got @ e + c_alice)
    bob.send(SERVER, "product", d @ y + c_bob)
    world.output("product", world.spec(x) @ world.spec(y), to=[SERVER])
    return world, {SERVER}


@sound
def mask_by_an_invertible_matrix() -> Run:
    """The mask is mixed by a public matrix of determinant 1, and one mask of two is shown."""
    world, _, alice = parties(1)
    x, r, s = world.secret(0, "x", (3, 2)), alice.uniform(3, 2), alice.uniform(3, 2)
    mixed = np.array([[1, 2, 3], [0, 1, 4], [0, 0, 1]]) @ r
    alice.send(SERVER, "upload", x + mixed + s)
    alice.send(SERVER, "mask", s)
    return world, {SERVER}


@sound
def double_mask_and_late_message() -> Run:
    """Client 0 dropped: its pair key is opened. Its own mask keeps its late message hidden."""
    world, _, *clients = parties(3)
    x = [world.secret(i, f"x{i}", (2,)) for i in range(3)]
    pair = clients[0].key("pair")
    held = clients[0].split_key(pair, 2, [1, 2, 3])
    own = clients[0].key("own")
    kept = clients[0].split_key(own, 2, [1, 2, 3])
    got = {i: clients[0].send(i, "held", (held[i], kept[i])) for i in (1, 2)}
    for i in (1, 2):
        clients[i].send(SERVER, "share of the pair key", got[i][0])
    late = x[0] + clients[0].prf(pair, "pair", 2) + clients[0].prf(own, "own", 2)
    clients[0].send(SERVER, "late upload", late)
    return world, {SERVER, 2}


@sound
def sum_of_ciphertexts() -> Run:
    """The server adds ciphertexts for client 1, who opens the sum alone."""
    world, server, alice, bob, carol = parties(3)
    x, z = world.secret(0, "x", (2,)), world.secret(2, "z", (2,))
    first = alice.send(SERVER, "sealed", alice.encrypt(x, 1))
    second = carol.send(SERVER, "sealed", carol.encrypt(z, 1))
    got = server.send(1, "sealed sum", first + second)
    bob.send(0, "sum", bob.decrypt(got))
    world.output("sum", world.spec(x) + world.spec(z), to=[0, 1])
    return world, {1}


@sound
def ring_sum() -> Run:
    """The sum goes round under one mask; client 0 takes it off, and tells the sum."""
    world, _, *clients = parties(4)
    x = [world.secret(i, f"x{i}", (2,)) for i in range(4)]
    mask = clients[0].uniform(2)
    running = clients[0].send(1, "running", x[0] + mask)
    for i in (1, 2, 3):
        running = clients[i].send((i + 1) % 4, "running", running + x[i])
    clients[0].record("sum", running - mask)
    total = combination([(1, world.spec(value)) for value in x])
    world.output("sum", total)
    return world, {2}


@sound
def masked_activation() -> Run:
    """A function of x is summed with y under a mask, and repeated as it was."""
    world, _, alice, bob = parties(2)
    x, y = world.secret(0, "x", (3,)), world.secret(1, "y", (3,))
    mask = alice.uniform(3)
    got = alice.send(1, "mask", mask)
    up = x.map(relu) + mask
    for _ in range(2):  # the first was lost, and is sent again
        alice.send(SERVER, "upload", up)
    bob.send(SERVER, "upload", y - got)
    world.output("sum", world.spec(x).map(relu) + world.spec(y), to=[SERVER])
    return world, {SERVER}


@sound
def sum_of_the_mask_told() -> Run:
    """The server gets the masks' column sums, hence those of x, which are declared."""
    world, _, alice = parties(1)
    x, mask = world.secret(0, "x", (4, 2)), alice.uniform(4, 2)
    alice.send(SERVER, "upload", x + mask)
    alice.send(SERVER, "mask sums", mask.sum(axis=0))
    world.output("column sums", world.spec(x).sum(axis=0), to=[SERVER], alone=True)
    return world, {SERVER}


@sound
def refreshed_shares() -> Run:
    """Proactive sharing: a share of each epoch, and the difference is a share of zero."""
    world, _, alice = parties(1)
    x, slope, more = world.secret(0, "x", (2,)), alice.uniform(2), alice.uniform(2)
    for q in (1, 2, 3):
        alice.send(q, "first epoch", x + q * slope)
        alice.send(q, "refresh", q * more)
    return world, {3}


@sound
def function_of_the_output() -> Run:
    """The server learns h, which is declared for all, and sends a step that follows from it."""
    world, server, alice, bob, _ = parties(3)
    x, y = world.secret(0, "x", (2, 2)), world.secret(1, "y", (2, 2))
    key_a, key_b = agreed(alice, 0, bob, 1)
    weights = np.array([[1, 2], [3, 4]])
    first = alice.send(SERVER, "part", x @ weights + alice.prf(key_a, 0, 2, 2))
    second = bob.send(SERVER, "part", y @ weights - bob.prf(key_b, 0, 2, 2))
    server.send(2, "step", (first + second).map(step_of))
    world.output("h", (world.spec(x) + world.spec(y)) @ weights)
    return world, {2}
