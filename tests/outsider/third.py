"""Programs by a third referee, each of an author who errs, and sound ones beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.verified import SERVER, World, concatenate
from tests.outsider.second import Program

P = 2**31 - 1
LEAKS: list[Program] = []
SOUND: list[Program] = []


def leak(coalition: set[int], name: str) -> Any:
    """A decorator: a program that leaks to a coalition by the message or output `name`."""
    return _kept(LEAKS, coalition, name)


def sound(coalition: set[int]) -> Any:
    """A decorator: a program that does not leak to a coalition."""
    return _kept(SOUND, coalition, "")


def _kept(into: list[Program], coalition: set[int], name: str) -> Any:
    def keep(make: Callable[[], World]) -> Callable[[], World]:
        into.append(Program(make.__name__, make, frozenset(coalition), (name,), make.__doc__ or ""))
        return make

    return keep


def begin(n: int) -> Any:
    """A world, its clients, its server, and the columns of each client."""
    world = World(P)
    columns = [world.secret(i, "columns", (4, 2)) for i in range(n)]
    return world, [world.party(i) for i in range(n)], world.party(SERVER), columns


@leak({SERVER, 1}, "up")
def helper_is_client() -> World:
    """The helper that has the seed is client 1, and pools with the server."""
    w, (a, b), _s, (x, y) = begin(2)
    k = a.key()
    kb = a.send(1, "seed", k)
    a.send(SERVER, "up", x + a.prf(k, ("m", 1), 4, 2))
    b.send(SERVER, "mask sum", b.prf(kb, ("m", 1), 4, 2) + y)
    return w


@leak({SERVER}, "retry")
def retry_same_label_other_payload() -> World:
    w, (a, _b), _s, (x, _y) = begin(2)
    k = a.key()
    a.send(1, "seed", k)
    m = a.prf(k, ("m", 1), 4, 2)
    a.send(SERVER, "up", x + m)
    a.send(SERVER, "retry", x.map(np.right_shift, 1) + m)
    return w


@leak({1, 2}, "share again")
def share_sent_to_two() -> World:
    w, (a, _b, _c, _d), _s, (x, *_) = begin(4)
    r1, r2 = a.uniform(4, 2), a.uniform(4, 2)
    sh = [x + t * r1 + t * t * r2 for t in (1, 2, 3)]
    a.send(1, "share", sh[0])
    a.send(2, "share", sh[1])
    a.send(3, "share", sh[2])
    a.send(1, "share again", sh[2])
    return w


@leak({1}, "share 2")
def shared_twice_other_randomness() -> World:
    """The same coefficient is taken in a second dealing."""
    w, (a, _b, _c), _s, (x, *_) = begin(3)
    r = a.uniform(4, 2)
    a.send(1, "share", x + r)
    a.send(1, "share 2", x + 2 * r)
    return w


@sound({1})
def shared_twice_fresh() -> World:
    w, (a, _b, _c), _s, (x, *_) = begin(3)
    for k in (1, 2):
        r = a.uniform(4, 2)
        a.send(1, "share", x + k * r)
    return w


@leak({SERVER}, "up")
def mask_degree() -> World:
    """The first and the last row have one mask."""
    w, (a, _b), _s, (x, _y) = begin(2)
    r = a.uniform(1, 2)
    a.send(SERVER, "up", x + concatenate([r, a.uniform(2, 2), r]))
    return w


@leak({SERVER}, "late")
def sum_over_few() -> World:
    """Masks with client 1, which is taken for absent, are opened; its upload comes late."""
    w, (a, b, c), _s, (x, y, z) = begin(3)
    ka = a.key()
    kb = b.key()
    kc = c.key()
    pub = {n: p.public_key(k) for n, p, k in ((0, a, ka), (1, b, kb), (2, c, kc))}
    for n, p in ((0, a), (1, b), (2, c)):
        for m in (0, 1, 2):
            if m != n:
                p.send(m, "pk", pub[n])
    ab = a.agree(ka, b.send(0, "pk2", pub[1]))
    ac = a.agree(ka, c.send(0, "pk2", pub[2]))
    ba = b.agree(kb, a.send(1, "pk2", pub[0]))
    bc = b.agree(kb, c.send(1, "pk2", pub[2]))
    ca = c.agree(kc, a.send(2, "pk2", pub[0]))
    cb = c.agree(kc, b.send(2, "pk2", pub[1]))

    def f(p, k):
        return p.prf(k, ("m", 1), 4, 2)

    a.send(SERVER, "up", x + f(a, ab) + f(a, ac))
    c.send(SERVER, "up", z - f(c, ca) + f(c, cb))
    a.send(SERVER, "unmask", f(a, ab))
    c.send(SERVER, "unmask", f(c, cb))
    w.output("sum", w.spec(x) + w.spec(z), to=[SERVER])
    b.send(SERVER, "late", y - f(b, ba) - f(b, bc))
    return w


@sound({SERVER})
def dropout_ok() -> World:
    w, (a, b, c), _s, (x, _y, z) = begin(3)
    ka = a.key()
    kb = b.key()
    kc = c.key()
    ab = a.agree(ka, b.send(0, "pk", b.public_key(kb)))
    ac = a.agree(ka, c.send(0, "pk", c.public_key(kc)))
    ca = c.agree(kc, a.send(2, "pk", a.public_key(ka)))
    cb = c.agree(kc, b.send(2, "pk", b.public_key(kb)))

    def f(p, k):
        return p.prf(k, ("m", 1), 4, 2)

    a.send(SERVER, "up", x + f(a, ab) + f(a, ac))
    c.send(SERVER, "up", z - f(c, ca) + f(c, cb))
    a.send(SERVER, "unmask", f(a, ab))
    c.send(SERVER, "unmask", f(c, cb))
    w.output("sum", w.spec(x) + w.spec(z), to=[SERVER])
    return w


@leak({SERVER}, "sum and first")
def output_includes_raw() -> World:
    """declared output concatenates the sum and one party's columns"""
    w, (a, b), _s, (x, y) = begin(2)
    a.send(SERVER, "up", x)
    b.send(SERVER, "up", y)
    w.output("sum and first", concatenate([w.spec(x) + w.spec(y), w.spec(x)]), to=[SERVER])
    return w


@leak({SERVER}, "up")
def output_to_wrong_party() -> World:
    w, (a, _b, _c), _s, (x, y, _z) = begin(3)
    a.send(SERVER, "up", x)
    w.output("sum", w.spec(x) + w.spec(y), to=[2])
    return w


@leak({SERVER}, "missing")
def nan_mask_sent() -> World:
    """which entries are missing is sent in the clear as a field 0/1 array"""
    w, (a, _b), _s, (x, _y) = begin(2)
    a.send(SERVER, "up", x + a.uniform(4, 2))
    a.send(SERVER, "missing", x.map(np.sign))
    return w


@leak({SERVER}, "validation")
def validation_loss() -> World:
    """loss on validation rows by each client, not declared"""
    w, (a, _b), _s, (x, _y) = begin(2)
    a.send(SERVER, "up", x + a.uniform(4, 2))
    a.record("validation", x.map(np.bitwise_and, 7))
    return w


@leak({SERVER}, "predict")
def predictions_reveal() -> World:
    """prediction: masks of training reused under the same label for test rows"""
    w, (a, b), _s, (x, y) = begin(2)
    k = a.key()
    kb = a.send(1, "seed", k)
    t = w.secret(0, "test columns", (4, 2))
    u = w.secret(1, "test columns", (4, 2))
    a.send(SERVER, "up", x + a.prf(k, ("m", 1), 4, 2))
    b.send(SERVER, "up", y - b.prf(kb, ("m", 1), 4, 2))
    a.send(SERVER, "predict", t + a.prf(k, ("m", 1), 4, 2))
    b.send(SERVER, "predict", u - b.prf(kb, ("m", 1), 4, 2))
    w.output("sum", w.spec(x) + w.spec(y), to=[SERVER])
    w.output("test sum", w.spec(t) + w.spec(u), to=[SERVER])
    return w


@sound({SERVER})
def predictions_fresh() -> World:
    w, (a, b), _s, (x, y) = begin(2)
    k = a.key()
    kb = a.send(1, "seed", k)
    t = w.secret(0, "test columns", (4, 2))
    u = w.secret(1, "test columns", (4, 2))
    a.send(SERVER, "up", x + a.prf(k, ("m", 1), 4, 2))
    b.send(SERVER, "up", y - b.prf(kb, ("m", 1), 4, 2))
    a.send(SERVER, "predict", t + a.prf(k, ("p", 1), 4, 2))
    b.send(SERVER, "predict", u - b.prf(kb, ("p", 1), 4, 2))
    w.output("sum", w.spec(x) + w.spec(y), to=[SERVER])
    w.output("test sum", w.spec(t) + w.spec(u), to=[SERVER])
    return w


@leak({SERVER}, "sum 2")
def test_row_is_train_row() -> World:
    """overlapping batches of different sharers: differences of declared sums"""
    w, (_a, _b, _c), _s, (x, y, z) = begin(3)
    S = w.spec
    w.output("sum 1", S(x) + S(y) + S(z), to=[SERVER])
    w.output("sum 2", S(y)[[1, 2]] + S(z)[[1, 2]], to=[SERVER])
    return w


@leak({SERVER}, "mean")
def noise_part_only() -> World:
    w, (a, _b), _s, _ = begin(2)
    v = w.input(0, "columns", np.ones((4, 2), np.float32), "real")
    n = a.gaussian(v.clip(1.0), 2.0)
    a.send(SERVER, "up", n)
    a.send(SERVER, "mean", v.map(np.mean, shape=()))
    return w


@leak({SERVER}, "noise")
def noise_subtracted() -> World:
    """residual of noise sent for debugging"""
    w, (a, _b), _s, _ = begin(2)
    v = w.input(0, "columns", np.ones((4, 2), np.float32), "real")
    c = v.clip(1.0)
    n = a.gaussian(c, 2.0)
    a.send(SERVER, "up", n)
    a.send(SERVER, "noise", n.map(np.subtract, c))
    return w


@leak({SERVER, 1}, "m")
def coalition_T1() -> World:
    w, (a, _b, _c), _s, (x, _y, _z) = begin(3)
    m = a.uniform(4, 2)
    a.send(1, "m", m)
    a.send(SERVER, "up", x + m)
    return w


@leak({1}, "go on")
def early_stop() -> World:
    w, (a, _b), s, (x, _y) = begin(2)
    v = a.send(SERVER, "loss", x)
    s.send(1, "go on", v.map(np.sign))
    return w


@leak({SERVER}, "xR")
def tape_as_matrix() -> World:
    """random projection instead of a mask: R public to the server"""
    w, (a, _b), _s, (x, _y) = begin(2)
    R = a.uniform(2, 2)
    a.send(SERVER, "R", R)
    a.send(SERVER, "xR", x @ R)
    return w


@leak({SERVER}, "xR")
def projection_hidden() -> World:
    """x R with R secret and square: the zero rows and equal rows show"""
    w, (a, _b), _s, (x, _y) = begin(2)
    a.send(SERVER, "xR", x @ a.uniform(2, 2))
    return w


@leak({SERVER}, "up")
def mult_mask() -> World:
    """multiplicative mask without excluding 0"""
    w, (a, _b), _s, (x, _y) = begin(2)
    r = a.uniform(4, 2)
    a.send(SERVER, "up", x * r)
    return w


@leak({SERVER}, "up")
def mask_mod_other() -> World:
    """mask reduced below 2^16 before it is added"""
    w, (a, _b), _s, (x, _y) = begin(2)
    a.send(SERVER, "up", x + a.uniform(4, 2).map(np.bitwise_and, 0xFFFF))
    return w


@leak({1}, "d2")
def beaver_reuse() -> World:
    """one Beaver triple for two products"""
    w, (a, _b), _s, (x, _y) = begin(2)
    t = w.secret(0, "more columns", (4, 2))
    A = a.uniform(4, 2)
    a.send(1, "d", x - A)
    a.send(1, "d2", t - A)
    return w


@sound({1})
def beaver() -> World:
    w, (a, b), s, (x, y) = begin(2)
    A = s.uniform(4, 2)
    B = s.uniform(4, 2)
    A0 = s.uniform(4, 2)
    B0 = s.uniform(4, 2)
    C = s.uniform(4, 2)
    a0 = s.send(0, "A0", A0)
    s.send(1, "A1", A - A0)
    b0 = s.send(0, "B0", B0)
    s.send(1, "B1", B - B0)
    s.send(0, "C0", C)
    s.send(1, "C1", A * B - C)
    x0 = a.uniform(4, 2)
    a.send(1, "x1", x - x0)
    y1 = b.uniform(4, 2)
    y0 = b.send(0, "y0", y - y1)
    a.send(1, "d0", x0 - a0)
    a.send(1, "e0", y0 - b0)
    return w


@sound({SERVER})
def ring() -> World:
    w, (a, b, c), _s, (x, y, z) = begin(3)
    r = a.uniform(4, 2)
    t = a.send(1, "1", x + r)
    u = b.send(2, "2", t + y)
    v = c.send(0, "3", u + z)
    a.send(SERVER, "sum", v - r)
    w.output("sum", w.spec(x) + w.spec(y) + w.spec(z), to=[SERVER])
    return w


@sound({1})
def ring1() -> World:
    return ring()


@leak({0, 2}, "2")
def ring_neighbours() -> World:
    return ring()


@sound({SERVER, 2})
def shamir_ok() -> World:
    w, (a, b, c, d), _s, (x, y, _z, _u) = begin(4)
    r = a.uniform(4, 2)
    q = b.uniform(4, 2)
    S = {}
    for t in (1, 2, 3):
        S[t] = (a.send(t, "share", x + t * r), b.send(t, "share", y + t * q))
    for t, p in ((1, b), (2, c), (3, d)):
        p.send(SERVER, "added", S[t][0] + S[t][1])
    w.output("sum", w.spec(x) + w.spec(y), to=[SERVER])
    return w


@sound({SERVER})
def zero_sharing() -> World:
    w, (a, b, c), _s, (x, y, z) = begin(3)
    k = [a.key(), b.key(), c.key()]
    k0 = a.send(1, "k", k[0])
    k1 = b.send(2, "k", k[1])
    k2 = c.send(0, "k", k[2])

    def f(p, k, r):
        return p.prf(k, ("z", r), 4, 2)

    for r in (1, 2):
        a.send(SERVER, "up", r * x + f(a, k[0], r) - f(a, k2, r))
        b.send(SERVER, "up", r * y + f(b, k[1], r) - f(b, k0, r))
        c.send(SERVER, "up", r * z + f(c, k[2], r) - f(c, k1, r))
    w.output("sum", w.spec(x) + w.spec(y) + w.spec(z), to=[SERVER])
    return w


@sound({SERVER})
def matrix_masked() -> World:
    w, (a, _b), _s, (x, _y) = begin(2)
    r = a.uniform(4, 3)
    M = np.array([[1, 2, 3], [4, 5, 6]], np.uint64)
    a.send(SERVER, "up", x @ M + r)
    return w


@sound({SERVER})
def two_servers() -> World:
    w, (a, b), _s, (x, y) = begin(2)
    r = a.uniform(4, 2)
    m = a.send(1, "half", r)
    a.send(SERVER, "half", x - r)
    q = b.uniform(4, 2)
    b.send(SERVER, "half", y - q)
    b.send(SERVER, "other", m + q)
    w.output("sum", w.spec(x) + w.spec(y), to=[SERVER])
    return w


@sound({SERVER})
def dp_sound() -> World:
    w, (a, _b), _s, _ = begin(2)
    v = w.input(0, "columns", np.ones((4, 2), np.float32), "real")
    n = a.gaussian(v.clip(1.0), 2.0)
    a.send(SERVER, "up", n)
    a.send(SERVER, "mean", n.map(np.mean, shape=()))
    return w
