"""Programs that leak, by a referee who broke an earlier prover (A1 to A20): none may be PROVED.

Most are mistakes that an honest author makes. A `FlowError` on the way is as good a refusal.
"""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from securevfl.verified import SERVER, FlowError, World, combination, decide
from securevfl.verified.check import check
from tests.verified.leaks import agrees

P31 = 2**31 - 1


def start(shape=(4, 2), modulus=P31):
    """A world with two clients and a server, and an input x of client 0."""
    world = World(modulus)
    alice, bob, server = world.party(0), world.party(1), world.party(SERVER)
    x = world.secret(0, "x", shape)
    return SimpleNamespace(world=world, alice=alice, bob=bob, server=server, x=x)


def centred(s):
    """(x - 128) v + r and x v + r: their difference is 128 1 v."""
    v, r = s.world.secret(0, "v", (2, 3)), s.alice.uniform(4, 3)
    s.alice.send(SERVER, "a", (s.x - np.full((4, 2), 128)) @ v + r)
    s.alice.send(SERVER, "b", s.x @ v + r)


def swapped_rows(s):
    r = s.alice.uniform(4, 2)
    s.alice.send(SERVER, "a", r + s.x.rows([0, 2, 1, 3]) - s.x)
    s.alice.send(SERVER, "b", (r - s.x).rows([0]))


def square(x):
    return (x.astype(object) ** 2 % P31).astype(x.dtype)


def double(x):
    return (2 * x.astype(object) % P31).astype(x.dtype)


def negative(x):
    return ((P31 - x.astype(object)) % P31).astype(x.dtype)


def weighed(x, table):
    return (x.astype(object) * int(table.sum()) % P31).astype(x.dtype)


def plus_one_squared(s):
    s.alice.send(SERVER, "a", (s.x + 1).map(square) - s.x.map(square))


def seed_is_a_tape(s):
    seed = s.alice.uniform(1, 1)
    s.alice.send(SERVER, "a", s.x + s.alice.prf(seed, "m", 4, 2))
    s.alice.send(SERVER, "seed", seed)


def seed_is_shared(s):
    """T + 1 shares of a key that masks x are opened."""
    key = s.alice.key()
    shares = s.alice.split_key(key, 2, [1, 2, 3])
    s.alice.send(SERVER, "a", s.x + s.alice.prf(key, "m", 4, 2))
    s.alice.send(SERVER, "s1", shares[1])
    s.alice.send(SERVER, "s3", shares[3])


def seed_is_a_label(s):
    s.alice.send(SERVER, "a", s.alice.prf(s.x, "check value", 4, 2))


def keyed_ids(s):
    """Identifiers under a key that the server made."""
    key = s.server.send(0, "salt", s.server.key())
    s.alice.send(SERVER, "ids", s.x + s.alice.prf(key, "id", 4, 2))


def keyed_ids_of_inputs(s):
    key = s.server.send(0, "salt", s.server.key())
    s.alice.send(SERVER, "ids", s.alice.prf(key, s.x, 4, 2))


def equal_ids(s):
    """Keyed identifiers of two clients: equal ones show."""
    y = s.world.secret(1, "y", (4, 2))
    key = s.alice.key()
    there = s.alice.send(1, "key", key)
    s.alice.send(SERVER, "ids", s.x.map(_hashed, key))
    s.bob.send(SERVER, "ids", y.map(_hashed, there))


def _hashed(x, key):
    return x


def list_in_map(s):
    got = s.server.send(0, "g", s.server.uniform(4, 2))
    s.alice.send(SERVER, "delta", got.map(np.add, [s.x]))


def dictionary_in_map(s):
    got = s.server.send(0, "g", s.server.uniform(4, 2))
    s.alice.send(SERVER, "delta", got.map(np.add, {"x": s.x}))


def half(s):
    s.alice.send(SERVER, "half", s.x.times(0.5))


def half_by_product(s):
    s.alice.send(SERVER, "half", 0.5 * s.x)


def to_all(s):
    s.alice.send("all", "x", s.x)


def to_two(s):
    s.alice.send((SERVER, 1), "x", s.x)


def masked_output(s):
    r = s.alice.uniform(4, 2)
    gradient = (s.x + r).map(double)
    s.world.output("G", s.world.spec(gradient))
    s.alice.send(SERVER, "a", gradient)
    s.alice.send(SERVER, "b", r)


def output_with_a_tape(s):
    r = s.alice.uniform(4, 2)
    s.world.output("sum", s.world.spec(s.x + r))
    s.alice.send(SERVER, "a", s.x + r)
    s.alice.send(SERVER, "b", r)


def negative_rows(s):
    r = s.alice.uniform(4, 2)
    s.alice.send(SERVER, "u", s.x.rows([0, 1]) + r.rows([0, 1]))
    s.alice.send(SERVER, "u", s.x.rows([2, 3]) + r.rows([-4, -3]))


def mask_of_rows(s):
    r = s.alice.uniform(4, 2)
    some = np.array([True, False, True, False])
    s.alice.send(SERVER, "u", s.x[some] + r[some])
    s.alice.send(SERVER, "v", s.x.rows([1, 3]) + r.rows([1, 2]))


def noise_and_more(s):
    h = s.world.secret(0, "h", (4, 2), real=True)
    s.alice.send(SERVER, "u", s.alice.gaussian(h.clip(1.0), 2.0) + h)


def noise_beside_it(s):
    h = s.world.secret(0, "h", (4, 2), real=True)
    released = s.alice.gaussian(h.clip(1.0), 2.0)
    s.alice.send(SERVER, "u", released.map(np.add, h))


def no_noise(s):
    h = s.world.secret(0, "h", (4, 2), real=True)
    s.alice.send(SERVER, "u", s.alice.gaussian(h.clip(1e9), 0.0))


def hardly_any_noise(s):
    h = s.world.secret(0, "h", (4, 2), real=True)
    s.alice.send(SERVER, "u", s.alice.gaussian(h.clip(1e9), 1e-9))


def noise_of_a_stranger(s):
    h = s.world.secret(0, "h", (4, 2), real=True)
    s.server.send(1, "u", s.server.gaussian(h.clip(1.0), 2.0))


def stream_of_a_stranger(s):
    key = s.alice.key()
    s.bob.send(SERVER, "u", s.bob.prf(key, "m", 4, 2))


def cipher_of_a_stranger(s):
    cipher = s.alice.encrypt(s.x, 1)
    s.bob.send(SERVER, "opened", s.bob.decrypt(cipher))


def agreed_by_a_stranger(s):
    own = s.alice.key()
    public = s.alice.public_key(own)
    s.bob.send(SERVER, "u", s.bob.prf(s.bob.agree(own, public), "m", 4, 2))


@dataclasses.dataclass
class Parcel:
    rows: object


def in_a_dataclass(s):
    s.alice.send(SERVER, "x", Parcel(s.x))


def in_a_set(s):
    s.alice.send(SERVER, "x", {s.x})


def in_values_of_a_dictionary(s):
    s.alice.send(SERVER, "x", {"x": s.x}.values())


def in_a_generator(s):
    s.alice.send(SERVER, "x", (one for one in [s.x]))


def in_an_array_of_objects(s):
    array = np.empty(1, object)
    array[0] = s.x
    s.alice.send(SERVER, "x", array)


def long_arguments(s):
    one, other = np.zeros(5000, np.int64), np.zeros(5000, np.int64)
    other[2500] = 1
    s.alice.send(SERVER, "x", s.x.map(weighed, one + 3) - s.x.map(weighed, other + 3))


def columns(s):
    s.alice.send(SERVER, "x", s.x.T.rows([0]) - s.x.T.rows([1]))


def key_of_data(s):
    s.alice.send(SERVER, "u", s.x + s.alice.prf(s.x.map(square), "m", 4, 2))


def public_key_of_data(s):
    s.alice.send(SERVER, "u", s.alice.public_key(s.x))


def doubled_key(s):
    key = s.alice.key()
    s.alice.send(SERVER, "u", s.x + s.alice.prf(2 * key, "m", 4, 2))


def key_as_a_mask(s):
    s.alice.send(SERVER, "u", s.x + s.alice.key())


def real_and_field(s):
    h = s.world.secret(0, "h", (4, 2), real=True)
    s.alice.send(SERVER, "u", h + s.alice.uniform(4, 2))


def inside_and_outside(s):
    r = s.alice.uniform(6, 2)
    s.alice.send(SERVER, "u", s.x.map(_masked_elsewhere, r) + r.rows([0, 1, 2, 3]))


def _masked_elsewhere(x, r):
    return ((x.astype(object) - r[:4].astype(object)) % P31).astype(x.dtype)


GENERATOR = np.random.default_rng(3)


def dropout(x):
    return GENERATOR.permutation(x.reshape(-1)).reshape(x.shape)


def chance_in_map(s):
    s.alice.send(SERVER, "u", s.x.map(dropout) - s.x.map(dropout))


CALLS: list[int] = []


def third_time(x):
    """The same twice, and then something else."""
    CALLS.append(1)
    return x if len(CALLS) % 4 < 2 else double(x)


def state_in_map(s):
    s.alice.send(SERVER, "u", s.x.map(third_time) - s.x.map(third_time))


def two_functions_of_one_name(s):
    """The difference of two functions that are both called f."""
    s.alice.send(SERVER, "u", s.x.map(_named_f(1)) - s.x.map(_named_f(2)))


def _named_f(which):
    if which == 1:

        def f(x):
            return square(x)
    else:

        def f(x):
            return double(x)

    return f


def closure_in_map(s):
    y = s.world.secret(1, "y", (4, 2))
    s.alice.send(SERVER, "u", s.x.map(lambda x: x + y._value))


def overlapping_batches(s):
    """FedVS's sums on batches {0..3} of clients 0 to 5 and {3..6} of clients 1 to 5."""
    world = World(P31)
    X = [world.secret(n, f"X{n}", (8, 2)) for n in range(6)]
    W = [world.secret(n, f"W{n}", (2, 1)) for n in range(6)]
    first = sum(world.spec(X[n].rows([0, 1, 2, 3]) @ W[n]) for n in range(6))
    second = sum(world.spec(X[n].rows([3, 4, 5, 6]) @ W[n]) for n in range(1, 6))
    world.output("first", first)
    world.output("second", second)
    world.party(SERVER)
    s.world = world


def output_of_one(s):
    s.world.output("x", s.world.spec(s.x))
    s.alice.send(SERVER, "x", s.x)


def keys_in_a_circle(s):
    """x + prf(k1), with k1 under prf(k2) and k2 under prf(k1)."""
    one, two = s.alice.key(), s.alice.key()
    a = s.alice.split_key(one, 1, [1])[1]  # the key itself, as field elements
    b = s.alice.split_key(two, 1, [1])[1]
    s.alice.send(SERVER, "a", a + s.alice.prf(two, "wrap", *a.shape))
    s.alice.send(SERVER, "b", b + s.alice.prf(one, "wrap", *b.shape))
    s.alice.send(SERVER, "x", s.x + s.alice.prf(one, "m", 4, 2))


def key_under_itself(s):
    key = s.alice.key()
    limbs = s.alice.split_key(key, 1, [1])[1]
    s.alice.send(SERVER, "a", limbs + s.alice.prf(key, "wrap", *limbs.shape))
    s.alice.send(SERVER, "x", s.x + s.alice.prf(key, "m", 4, 2))


def moved_stream_in_a_function(s):
    m, r = s.alice.prf(s.alice.key(), "m", 4, 2), s.alice.uniform(4, 2)
    s.alice.send(SERVER, "a", s.x + m - r)
    s.alice.send(SERVER, "b", m.map(negative) + r)


def two_shapes_of_a_stream(s):
    key = s.alice.key()
    s.alice.send(SERVER, "a", s.x + s.alice.prf(key, "m", 4, 2))
    s.alice.send(SERVER, "b", s.alice.prf(key, "m", 2, 2))


def shape_by_values(s):
    y = s.world.secret(0, "y", np.array([[1], [0], [3], [4]]))
    s.alice.send(SERVER, "a", y.map(_positive, shape=(2, 1)) + s.alice.uniform(2, 1))


def _positive(x):
    return x[x[:, 0] > 0]


def branch(s):
    if s.x.map(square):
        s.alice.send(SERVER, "note", 1)


def another_sends_it(s):
    s.bob.send(SERVER, "x", s.x)


def same_tape_twice(s):
    r, y = s.alice.uniform(4, 2), s.world.secret(0, "y", (4, 2))
    s.alice.send(SERVER, "a", s.x + r)
    s.alice.send(SERVER, "b", y + r)


def in_the_history(s):
    s.alice.record("norm", s.x.map(square))


LEAKS = [
    *(swapped_rows, centred, plus_one_squared, seed_is_a_tape, seed_is_shared, seed_is_a_label),
    *(keyed_ids, keyed_ids_of_inputs, equal_ids, list_in_map, dictionary_in_map, half),
    *(half_by_product, to_all, to_two, masked_output, output_with_a_tape, negative_rows),
    *(mask_of_rows, noise_and_more, noise_beside_it, no_noise, hardly_any_noise),
    *(noise_of_a_stranger, stream_of_a_stranger, cipher_of_a_stranger, agreed_by_a_stranger),
    *(in_a_dataclass, in_a_set, in_values_of_a_dictionary, in_a_generator),
    *(in_an_array_of_objects, long_arguments, columns, key_of_data, public_key_of_data),
    *(doubled_key, key_as_a_mask, real_and_field, inside_and_outside, chance_in_map, state_in_map),
    *(two_functions_of_one_name, closure_in_map, overlapping_batches, output_of_one),
    *(keys_in_a_circle, key_under_itself, moved_stream_in_a_function, two_shapes_of_a_stream),
    *(shape_by_values, branch, another_sends_it, same_tape_twice, in_the_history),
]
VIOLATED = {
    *(swapped_rows, centred, plus_one_squared, seed_is_shared, keyed_ids, in_a_dataclass),
    *(columns, same_tape_twice, in_the_history, two_functions_of_one_name, long_arguments),
    *(mask_of_rows, negative_rows),
}


def verdict_of(leak):
    s = start()
    try:
        leak(s)
    except FlowError as error:
        return "TYPE", str(error)
    found = decide(s.world, {SERVER})
    return found.verdict, found.text


@pytest.mark.parametrize("leak", LEAKS, ids=lambda leak: leak.__name__)
def test_a_leak_is_not_proved(leak):
    verdict, text = verdict_of(leak)
    assert verdict in ("TYPE", "NOT PROVED", "VIOLATED"), (verdict, text)
    agrees("referee", leak.__name__, verdict, text)
    if leak in VIOLATED:
        assert verdict == "VIOLATED", text


def test_the_combination_that_leaks_is_named():
    s = start()
    mask, y = s.alice.uniform(4, 2), s.world.secret(0, "y", (4, 2))
    s.alice.send(SERVER, "first", s.x + mask)
    s.alice.send(SERVER, "second", y + 2 * mask)
    found = decide(s.world, {SERVER})
    assert found.verdict == "VIOLATED"
    assert "first of round 0" in found.text
    assert "second of round 0" in found.text


def test_combination_takes_pairs():
    s = start()
    assert combination([(1, s.x), (2, s.x)]).shape == (4, 2)


def test_each_output_is_looked_at_for_what_was_drawn():
    world = World(7)
    alice = world.party(0)
    x, tape = world.secret(0, "x", (1,)), alice.uniform(1)
    world.output("x", world.spec(x))
    assert check(world, {SERVER}, world.outputs, []) == (None, 0)
    world.output("x again", world.spec(x) + world.spec(tape))
    assert "no function of inputs" in str(check(world, {SERVER}, world.outputs, [])[0])
