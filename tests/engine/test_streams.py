import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from securevfl.engine.streams import (
    Composed,
    ForeignSecretError,
    OwnEntropy,
    SecretSeed,
    WithPlaceholders,
    keyed_stream,
)

arguments = st.tuples(
    st.integers(0, 2**70),
    st.integers(-1, 100),
    st.text(max_size=10),
    st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple),
)


def draw(arguments, size=4):
    seed, entity, name, keys = arguments
    return keyed_stream(seed, entity, name, *keys).integers(0, 2**63, size).tolist()


@given(arguments, arguments)
def test_equal_arguments_draw_alike_and_others_do_not(first, second):
    assert draw(first) == draw(first)
    assert (draw(first) == draw(second)) == (first == second)


def test_neighbouring_keys_are_distinct():
    near = [
        (seed, entity, name, keys)
        for seed in (0, 1, 2**32)
        for entity in (-1, 0, 1)
        for name in ("", "a", "b")
        for keys in ((), (0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0))
    ]
    assert len({tuple(draw(each)) for each in near}) == len(near)


def test_streams_do_not_depend_on_the_order_of_their_use():
    forward = [draw((5, n, "delay", (n,))) for n in range(20)]
    backward = [draw((5, n, "delay", (n,))) for n in reversed(range(20))]
    assert forward == backward[::-1]


def test_keys_that_numpy_would_confuse_are_refused():
    for key in (2**32, -1):
        with pytest.raises(ValueError, match="2\\^32"):
            keyed_stream(0, 0, "x", key)


def test_global_generators_are_neither_read_nor_moved():
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    draw((0, 0, "x", ()))
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_another_process_draws_the_same():
    code = (
        "from securevfl.engine.streams import keyed_stream as k;"
        "print(k(7, 3, 'délai', 1, 2).integers(0, 2**63, 4).tolist())"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert shown.strip() == str(draw((7, 3, "délai", (1, 2))))


def test_values_are_pinned_so_that_old_runs_can_be_repeated():
    assert draw((1, 2, "init", (3,)), 2) == [2090424821225652693, 7945238659356793733]


# -- secret streams ------------------------------------------------------------------------------

purposes = st.tuples(
    st.binary(min_size=32, max_size=32),
    st.text(max_size=10),
    st.lists(st.integers(0, 2**32 - 1), max_size=4).map(tuple),
)


def secret(source, index, name, *keys, size=4):
    return source.stream(index, name, *keys).integers(0, 2**63, size).tolist()


@given(arguments)
def test_a_secret_seed_draws_what_the_seed_draws(arguments):
    seed, entity, name, keys = arguments
    assert secret(SecretSeed(seed), entity, name, *keys) == draw(arguments)


@given(purposes, purposes)
def test_own_entropy_draws_alike_for_equal_purposes_only(first, second):
    def own(purpose):
        entropy, name, keys = purpose
        return secret(OwnEntropy(3, entropy), 3, name, *keys)

    assert own(first) == own(first)
    assert (own(first) == own(second)) == (first == second)


def test_purposes_whose_bytes_are_alike_draw_apart():
    own = OwnEntropy(0, bytes(32))
    key = int.from_bytes(b"abcd", "big")
    assert secret(own, 0, "x", key) != secret(own, 0, "xabcd")
    assert secret(own, 0, "", key, 0) != secret(own, 0, "abcd", 0)


def test_the_key_of_a_stream_is_hkdf_sha256_of_entropy_and_purpose():
    """RFC 5869 by hand: extract with a salt of zeros, one block of expand."""
    import hashlib
    import hmac

    entropy = bytes(range(32))
    info = b"securevfl secret stream 1" + b"\0\0\0\4init" + b"\0\0\0\7"
    extracted = hmac.new(bytes(32), entropy, hashlib.sha256).digest()
    key = hmac.new(extracted, info + b"\1", hashlib.sha256).digest()[:16]
    wanted = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))
    found = OwnEntropy(5, entropy).stream(5, "init", 7)
    assert (found.integers(0, 2**63, 8) == wanted.integers(0, 2**63, 8)).all()


def test_another_partys_stream_is_refused():
    own = OwnEntropy.draw(2)
    with pytest.raises(ForeignSecretError, match="party 2 asked for the one of party 0"):
        own.stream(0, "init")
    with pytest.raises(ForeignSecretError, match=r"party 1 is not among those of \[-1, 2\]"):
        Composed({2: own, -1: OwnEntropy.draw(-1)}).stream(1, "init")


def test_a_composition_draws_what_each_party_draws():
    both = Composed.draw(0, 1)
    for n in (0, 1):
        assert secret(both, n, "init", 4) == secret(both.parts[n], n, "init", 4)
    assert secret(both, 0, "init") != secret(both, 1, "init")


def test_placeholders_stand_for_others_and_repeat_nothing():
    own = OwnEntropy.draw(0)
    source = WithPlaceholders(own)
    assert secret(source, 0, "init") == secret(own, 0, "init")
    assert secret(source, 1, "init") != secret(source, 1, "init")


def test_entropy_is_new_each_time_of_the_right_size_and_in_no_text():
    one, two = OwnEntropy.draw(0), OwnEntropy.draw(0)
    assert one.entropy != two.entropy
    assert len(one.entropy) == 32
    assert repr(one) == "OwnEntropy(index=0)"
    with pytest.raises(ValueError, match="16 bytes were given, it takes 32"):
        OwnEntropy(0, bytes(16))
    with pytest.raises(ValueError, match="2\\^32"):
        one.stream(0, "x", 2**32)
