"""One story for all: two stories are evidence, one story is none, and the order counts."""

import itertools
import os

import numpy as np
import pytest

from securevfl.active.history import (
    HISTORY,
    History,
    Told,
    is_shared,
    next_life,
    quorum_of,
    results_for_one_story,
    two_stories,
)
from securevfl.active.judge import judge
from securevfl.active.statements import Signer, Statement, Subject, digest
from securevfl.errors import ConfigurationError

SERVER = -1
RUN = b"run"


@pytest.fixture
def server():
    return Signer.from_bytes(os.urandom(32))


def story(signer, *told, life=1, start=bytes(16)):
    """The server's statement after these rounds."""
    history = History(RUN)
    for one in told:
        history.advance(life, one)
    subject = Subject(RUN, life, start, SERVER, HISTORY, history.step)
    return signer.state(subject, history.link)


def round_of(step, *, rows=b"rows", sharers=(0, 1, 2), gradient=b"g" * 32):
    return Told(step, rows, sharers, gradient)


@pytest.mark.parametrize(
    "other",
    [
        round_of(2, rows=b"other rows"),
        round_of(2, sharers=(0, 1)),
        round_of(2, gradient=digest("gradient", b"another")),
        round_of(2, gradient=bytes(32)),
    ],
)
def test_two_stories_of_a_round_name_the_server(server, other):
    keys = {SERVER: server.public}
    own = story(server, round_of(1), round_of(2))
    lied = story(server, round_of(1), other)
    evidence = two_stories(own, [own, lied], keys)
    assert judge(evidence, keys).party == SERVER
    # A story that went apart is apart for ever.
    later = [story(server, round_of(1), second, round_of(3)) for second in (round_of(2), other)]
    assert judge(two_stories(later[0], later[1:], keys), keys).party == SERVER


def test_one_story_names_nobody(server):
    keys = {SERVER: server.public}
    own, same = (story(server, round_of(1), round_of(2)) for _ in range(2))
    assert two_stories(own, [same], keys) is None
    assert is_shared(own.subject, own.content, same, keys)
    assert two_stories(own, [story(server, round_of(1))], keys) is None  # another round


def test_who_says_a_false_link_names_nobody_and_has_not_shared(server):
    """A client that alters the link cannot sign it: its share counts as not received."""
    keys = {SERVER: server.public}
    own = story(server, round_of(1))
    false = Statement(own.subject, bytes(32), own.signature)
    assert two_stories(own, [false], keys) is None
    assert not is_shared(own.subject, own.content, false, keys)


def test_a_restored_folder_begins_another_start_and_convicts_nobody(server):
    """Both starts have one life: the random bytes of a start keep their statements apart."""
    keys = {SERVER: server.public}
    before = story(server, round_of(1), start=os.urandom(16))
    after = story(server, round_of(1, sharers=(0, 1)), start=os.urandom(16))
    assert two_stories(before, [after], keys) is None


def test_rounds_cannot_be_left_out():
    history = History(RUN)
    history.advance(1, round_of(1))
    with pytest.raises(ConfigurationError, match="round 3 cannot follow round 1"):
        history.advance(1, round_of(3))
    assert History(RUN, history.link, 1).advance(1, round_of(2)) == history.advance(1, round_of(2))


def test_the_order_of_rounds_counts():
    """With XOR two stories of each of 254 rounds can be joined to one label; a chain cannot."""
    pairs = [(round_of(t, gradient=digest("a", bytes([t]))),
              round_of(t, gradient=digest("b", bytes([t])))) for t in range(1, 9)]  # fmt: skip
    links = set()
    for chosen in itertools.product((0, 1), repeat=8):
        history = History(RUN)
        for pair, which in zip(pairs, chosen, strict=True):
            history.advance(1, pair[which])
        links.add(history.link)
    assert len(links) == 256


def rank(rows, p):
    """Rank of a matrix over F_p, in Python integers."""
    rows, found = [list(row) for row in rows], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column] % p), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        inverse = pow(rows[found][column], -1, p)
        rows[found] = [x * inverse % p for x in rows[found]]
        for i, row in enumerate(rows):
            if i != found and row[column]:
                rows[i] = [(x - row[column] * y) % p for x, y in zip(row, rows[found], strict=True)]
        found += 1
    return found


def relations(N, K, T, R, honest):
    """Relations among honest uploads of one story that hold whatever the masks are.

    An upload is psi(alpha) + P(alpha) rho(alpha); P vanishes at the K data points, and rho has
    R - K uniform coefficients, of which T helpers know their own values.
    """
    p = 10007
    data, points = range(1, K + 1), range(K + T + 1, K + T + N + 1)

    def row(alpha):
        product = 1
        for beta in data:
            product = product * (alpha - beta) % p
        return [product * pow(alpha, i, p) % p for i in range(R - K)]

    helpers = [row(alpha) for alpha in points[:T]]
    uploads = [row(alpha) for alpha in points[T : T + honest]]
    return honest - (rank(helpers + uploads, p) - rank(helpers, p))


SIZES = [(8, 1, 1), (8, 2, 1), (10, 2, 1), (12, 2, 2), (9, 1, 1)]


@pytest.mark.parametrize(("N", "K", "T"), SIZES)
def test_of_two_stories_one_tells_nothing_at_this_number_of_results(N, K, T):
    R = results_for_one_story(2 * (K + T - 1) + 1, N, K, T)
    assert 2 * (K + T - 1) + 1 <= R <= N
    for some in range(N - T + 1):
        assert min(relations(N, K, T, R, n) for n in (some, N - T - some)) == 0


@pytest.mark.parametrize(("N", "K", "T"), [(8, 1, 1), (8, 2, 1), (9, 1, 1)])
def test_two_stories_both_tell_at_the_threshold_of_decoding(N, K, T):
    R = 2 * (K + T - 1) + 1
    assert results_for_one_story(R, N, K, T) > R
    half = (N - T) // 2
    assert min(relations(N, K, T, R, n) for n in (half, N - T - half)) > 0


@pytest.mark.parametrize(("N", "T"), [(4, 1), (8, 1), (28, 4), (9, 2)])
def test_two_quorums_have_an_honest_holder_in_common(N, T):
    q = quorum_of(N, T)
    assert 2 * q - N > T
    assert 2 * (q - 1) - N <= T


def test_lives_rise_by_what_a_quorum_signed():
    assert next_life([0, 0, 0], 3) == 1
    assert next_life([2, 1, 0], 3) == 3
    with pytest.raises(ConfigurationError, match="3 holders have signed, and 2 have answered"):
        next_life([1, 1], 3)


def test_statements_are_about_their_whole_subject(server):
    keys = {SERVER: server.public}
    own = story(server, round_of(1))
    for name, value in (("run", b"x"), ("life", 2), ("step", 2), ("signer", 0), ("kind", "k")):
        subject = Subject(**{**own.subject.__dict__, name: value})
        assert not Statement(subject, own.content, own.signature).is_valid(keys | {0: b"k" * 32})


def test_a_signing_key_has_32_bytes():
    with pytest.raises(ConfigurationError, match="has 32 bytes, and not 31"):
        Signer.from_bytes(bytes(31))
    assert np.frombuffer(Signer.from_bytes(bytes(32)).public, np.uint8).shape == (32,)
