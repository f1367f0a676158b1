"""Theorem 1 on recorded runs: other secrets, draws moved by its bijection, and the same view.

The proof is on the page docs/coded-split-proof.md. Two holders crash in each run and come back.
"""

import numpy as np
import pytest

from securevfl.audit.keyed.coupling import couple, enlarged, first_difference
from securevfl.audit.keyed.moved_draws import Shares, moved_elements, quotient
from securevfl.audit.keyed.other_secrets import exchanged
from securevfl.audit.keyed.runs import record_keyed
from securevfl.data import load_dataset
from securevfl.errors import ConfigurationError
from securevfl.field.prss import mask_streams
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.coded_split import CodedSplit
from securevfl.testing.runs import make

DIGITS = load_dataset("digits", parties=8).subset(37, 10)
OPTIONS = {"rounds": 4, "batch": 12, "width": 3, "hidden": 5, "lr": 0.05}
OPTIONS |= {"data_bits": 6, "gradient_bits": 8}
P31, P50, P61 = 2**31 - 1, 2**50 - 2**14 + 1, 2**61 - 1
# (K, T, helpers), the coalition (owners are 0 to 7), p and options.
CASES = [
    ((1, 1, 0), (0,), P31, {}),
    ((1, 1, 0), (5,), P61, {"prepare": "scale"}),
    ((2, 1, 1), (8,), P31, {"secure": True}),
    ((1, 2, 1), (0, 1), P50, {"degree": 2}),
    ((1, 2, 1), (3,), P31, {}),
    ((2, 2, 3), (2, 9), P31, {}),
    ((2, 2, 3), (9, 10), P50, {"tolerate_corrupt": 0}),
    ((2, 2, 3), (0, 7), P61, {"secure": True}),
    ((3, 1, 3), (4,), P50, {"rounding": "stochastic"}),
    ((3, 2, 6), (1, 13), P61, {}),
]


def recorded(shape, prime, options):
    K, T, helpers = shape
    given = OPTIONS | {"segments": K, "privacy": T, "helpers": helpers, "prime": prime} | options
    made = make(CodedSplit, DIGITS, **given)
    restarted = (0, made.code.parties - 1)
    return record_keyed(made, restarted=restarted), restarted


@pytest.mark.parametrize(("shape", "C", "prime", "options"), CASES)
def test_t_holders_see_the_same_for_other_data_models_and_labels(shape, C, prime, options):
    before, restarted = recorded(shape, prime, options)
    found = couple(before, Coalition(clients=C), restarted=restarted)
    assert found.difference == ""
    assert found.control.startswith("the content of ")
    assert found.steps_differ
    assert found.messages > 30
    restarts = {m.key for m in before.run.messages if m.key.kind == "lacks"}
    assert {key.sender for key in restarts} == set(restarted)


@pytest.mark.parametrize(("shape", "C", "prime", "options"), CASES)
def test_server_and_t_holders_see_the_same_when_owners_exchange_columns(shape, C, prime, options):
    before, restarted = recorded(shape, prime, options)
    found = couple(before, Coalition(server=True, clients=C), restarted=restarted)
    assert found.difference == ""
    assert found.control.startswith("the content of 'embedding' of round 1")
    assert not found.steps_differ  # for the sums are equal


def test_the_server_alone_is_a_coalition_too():
    before, restarted = recorded((1, 1, 0), P31, {"release": True})
    found = couple(before, Coalition(server=True), restarted=restarted)
    assert (found.difference, bool(found.control)) == ("", True)


def test_with_released_models_their_owner_sees_other_labels():
    before, restarted = recorded((1, 1, 0), P31, {"release": True})
    found = couple(before, Coalition(clients=(2,)), restarted=restarted, control=False)
    assert "'release'" in found.difference


@pytest.mark.parametrize(("shape", "C", "prime", "options"), CASES[3:6])
def test_one_stream_fewer_would_not_do(shape, C, prime, options):
    before, _ = recorded(shape, prime, options)
    made, A = before.protocol, enlarged(before.protocol, C)
    parties = made.parties()
    exchanged(made, [n for n in range(8) if n not in C], 3)(parties)
    after = {n: made.integers(parties[n]) for n in range(8)}
    tapes = moved_elements(before, after, A)
    one = Shares.of(made, before.integers, before.run.tapes)
    two = Shares.of(made, after, tapes)
    rows = made.use_of(1).rows
    assert np.array_equal(one.data["train"][list(A)], two.data["train"][list(A)])
    for shares in (one, two):
        shares.step(rows, before.dealt[1])
    use = made.use_of(2)
    psi = [shares.results("train", use.rows) for shares in (one, two)]
    change = made.code.field.subtract(*psi)
    u = mask_streams(made.code, 3)
    assert quotient(made, A, change, u)[-1].any()
    with pytest.raises(ConfigurationError, match="differ in what the coalition is given"):
        quotient(made, A, change, u - 1)


def test_a_difference_is_named():
    one = [(("deal", 1, -1, 2), (3, 4, 5), b"x")]
    assert first_difference(one, one) == ""
    assert "content of 'deal'" in first_difference(one, [(one[0][0], (3, 4, 5), b"y")])
    assert "timed otherwise" in first_difference(one, [(one[0][0], (3, 4, 6), b"x")])
    assert first_difference(one, []) == "1 and 0 messages"
