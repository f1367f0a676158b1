"""The server's range bound: nothing ever wraps, and holders see nothing of it."""

import copy
import dataclasses
import math
import sys
from fractions import Fraction

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.errors import WouldOverflowError
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.bounds import RangeBound
from securevfl.protocols.coded_split.parameters import choose_prime
from securevfl.protocols.coded_split.quantisation import whole_rows
from securevfl.protocols.coded_split.server import Server
from securevfl.protocols.coded_split.steps import Steps
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from tests.protocols.coded_split.twin import check_against_twin, watched

DIGITS = load_dataset("digits", parties=8).subset(103, 21)
SMALL = {"rounds": 12, "batch": 16, "width": 5, "hidden": 6}
OPTIONS = {"batch": 128, "width": 64, "degree": 2, "client_lr": 4.0}
P31 = 2**31 - 1


def shrunk(outcome):
    return [event for event in outcome.events if event.name == "shrunk"]


def test_a_prime_too_small_ends_in_the_shrink_event_and_never_in_a_wrong_value():
    options = {**SMALL, "prime": P31, "data_bits": 7, "gradient_bits": 8, "client_lr": 4000.0}
    outcome = simulate(watched(CodedSplit), DIGITS, **options)
    found = shrunk(outcome)
    assert found
    assert all(event.party == -1 and event.fields["bits"] >= 1 for event in found)
    assert "larger prime" in found[0].fields["why"]
    largest = check_against_twin(outcome, rounds=SMALL["rounds"])
    assert largest > 2**20  # steps were dealt all the same
    roomy = simulate(watched(CodedSplit), DIGITS, **{**options, "prime": 2**61 - 1})
    assert not shrunk(roomy)


def test_the_bound_on_first_sums_is_rounded_once():
    """Hence it is the same in every Python: sum() of floats compensates from 3.12 on only."""
    options = {"degree": 1, "data_bits": 10, "gradient_bits": 20, "prime": 2**61 - 1}
    widths = (8, 8, 34, 5, 21, 30, 9, 37, 17, 22, 20)
    public = dataclasses.replace(make(CodedSplit, DIGITS, **options).public, widths=widths)
    unit = (1 + 2.0**-20) * 2**30
    parts = [math.sqrt(d * 4**10) * (unit + math.sqrt(d) / 2) for d in public.sizes]
    exact = float(sum(map(Fraction, parts)))
    assert public.largest_first_sum == math.ceil(exact * (1 + 1e-9))


def test_holders_learn_nothing_of_a_shrunk_step():
    options = {**SMALL, "prime": P31, "data_bits": 7, "gradient_bits": 8, "client_lr": 4000.0}
    one = simulate(CodedSplit, DIGITS, **options).simulation.transcript
    options["client_lr"] = 0.5
    other = simulate(CodedSplit, DIGITS, **options).simulation.transcript
    for name in ("kind", "round", "sender", "receiver", "bytes", "sent", "arrived"):
        assert (one.columns()[name] == other.columns()[name]).all()


def test_first_sums_without_room_are_refused_before_the_run():
    with pytest.raises(WouldOverflowError, match=r"first sums can reach .* \(p-1\)/2 = 1.074e\+09"):
        make(CodedSplit, DIGITS, prime=P31)


@pytest.mark.parametrize("more", [{}, {"secure": True}])
def test_steps_are_admitted_up_to_the_last_unit_and_not_beyond(more):
    bound = RangeBound.of(make(CodedSplit, DIGITS, **SMALL, **more).public)
    K, h = bound.spent.shape
    room = (bound.limit - bound.worst) // bound.square
    step = np.zeros((K, 2, h))
    step[:, 0] = room - 1
    step[:, 1] = -1
    admitted, bits = bound.admit(step)
    assert (admitted == step).all()
    assert bits == 0
    assert (bound.limit - bound.worst < bound.square).all()
    admitted, bits = bound.admit(np.full((K, 2, h), 7.0))
    assert not admitted.any()
    assert bits >= 1
    assert (bound.worst <= bound.limit).all()


def admitted_by_column(bound, step):
    """Line 8 in plain numbers, column by column."""
    K, _, h = step.shape
    found, room = np.zeros(step.shape, np.int64), (bound.limit - bound.worst) // bound.square
    for k in range(K):
        for c in range(h):
            column, most = [int(one) for one in step[k, :, c]], int(room[k, c])
            asked = sum(map(abs, column))
            factor = most / asked * (1 - 1e-9) if asked > most else 1
            found[k, :, c] = [int(one * factor) for one in column]
    return found


@pytest.mark.parametrize("scale", [1e3, 1e8, 1e15, 1e20])
def test_columns_are_shrunk_as_they_are_one_by_one(scale):
    bound = RangeBound.of(make(CodedSplit, DIGITS, segments=2, helpers=1, **SMALL).public)
    K, h = bound.spent.shape
    step = np.rint(np.random.default_rng(0).standard_normal((K, 9, h)) * scale)
    step[:, :, 1:3] = np.sign(step[:, :, 1:3])
    wanted = admitted_by_column(bound, step)
    admitted, bits = bound.admit(step)
    assert (admitted == wanted).all()
    assert (bits > 0) == (wanted != step).any()


def test_the_work_of_a_deal_does_not_depend_on_how_many_columns_are_shrunk():
    """A loop over those that would wrap told holders their number by the time of a deal."""
    first = RangeBound.of(make(CodedSplit, DIGITS, **SMALL).public)
    K, h = first.spent.shape
    lines, found = [], []

    def follow(frame, event, _):
        if frame.f_code is not RangeBound.admit.__code__:
            return None
        lines.append(event)
        return follow

    for count in (0, 1, h):
        step = np.ones((K, 2, h))
        step[:, :, :count] = 2.0**60
        bound, before = copy.deepcopy(first), sys.gettrace()
        lines.clear()
        sys.settrace(follow)
        try:
            admitted, _ = bound.admit(step)
        finally:
            sys.settrace(before)
        assert (admitted != step).any(axis=(0, 1)).sum() == count
        found.append(len(lines))
    assert found[0] == found[1] == found[2] > 0


def test_a_decoded_row_begins_anew_where_rows_come_by_turns_and_not_where_any_may_come():
    public = make(CodedSplit, DIGITS, **SMALL).public
    rows = np.arange(public.batches["train"].length)
    for rolling, made in ((True, public), (False, make(CodedSplit, DIGITS, secure=True).public)):
        bound = RangeBound.of(made)
        K, h = bound.spent.shape
        before = bound.worst.copy()
        bound.admit(np.ones((K, len(rows), h)))
        bound.decoded(rows, np.zeros((K, len(rows), h), np.int64))
        assert (bound.worst < before).all() == rolling
        assert bound.lasting == bound.first + bound.square * len(rows)


def test_rows_keep_to_the_norm_that_the_bound_counts_on():
    public = make(CodedSplit, DIGITS, **SMALL).public
    width = public.widths[0]
    stream = np.random.default_rng(0)
    far = (stream.standard_normal((50, width)) * 40).astype(np.float32)
    inside = stream.random((50, width), np.float32)
    full = np.ones((1, width), np.float32)
    whole = [whole_rows(public, 0, rows) for rows in (far, inside, full)]
    squares = [(rows**2).sum(axis=1) for rows in whole]
    assert all((square <= public.norms_squared[0]).all() for square in squares)
    assert squares[0].min() > 0.98 * public.norms_squared[0]
    assert (
        whole[1]
        == public.data_point.round(np.hstack([inside, inside**2, full[:, :1].repeat(50, 0)]))
    ).all()
    assert (whole[2] == 2**public.config.data_bits).all()


def test_scaled_columns_keep_to_their_norm():
    data = load_dataset("breast-cancer", parties=4)
    made = make(CodedSplit, data, prepare="scale")
    for n, rows in enumerate(data.train):
        prepared = made.preparation(n).apply(rows)
        assert np.abs(prepared).max() <= 5 / np.sqrt(rows.shape[1]) * (1 + 1e-6)
        assert abs(prepared.mean()) < 0.02
        whole = whole_rows(made.public, n, prepared)
        assert ((whole**2).sum(axis=1) <= made.public.norms_squared[n]).all()


@pytest.mark.parametrize(
    ("more", "prime"),
    [
        ({"data_bits": 6, "gradient_bits": 8}, P31),
        ({}, 2**50 - 2**14 + 1),
        ({"secure": True}, 2**50 - 2**14 + 1),
        ({"client_lr": 30.0}, 2**50 - 2**14 + 1),
        ({"data_bits": 10, "gradient_bits": 20}, 2**50 - 2**14 + 1),
        ({"data_bits": 12, "gradient_bits": 20}, 2**61 - 1),
        ({"data_bits": 26, "gradient_bits": 40}, 2**61 - 1),
        ({"prime": 97}, 97),
        ({"batch": 32}, 2**50 - 2**14 + 1),
        ({"prime": 2**40 - 87}, 2**40 - 87),
        ({"batch": 8}, 2**50 - 2**14 + 1),
    ],
)
def test_the_prime_is_the_smallest_with_room(more, prime):
    config = CodedSplit.Config(**OPTIONS | more)
    assert choose_prime(config, (8,) * 8, 1348) == prime


def test_wider_tables_and_longer_epochs_need_a_larger_prime():
    """On handwritten the bound was measured at 2^39.2, and 2^40-87 would have shrunk steps."""
    config = CodedSplit.Config(**OPTIONS | {"batch": 32})
    assert choose_prime(config, (216, 76, 64, 6, 240, 47), 1200) == 2**50 - 2**14 + 1


def test_the_residual_is_of_the_rounding_alone_and_keeps_nothing_that_the_range_rule_cut():
    """What was cut is lost: kept, it would be asked for again in each round, and add up."""
    errors, lost = [], []

    class Noting(Steps):
        """Steps that compare the residual with what was rounded and what is dealt."""

        def __init__(self, *own):
            super().__init__(*own)
            admit = self.bound.admit

            def admitting(rounded):
                dealt, bits = admit(rounded)
                lost.append(np.abs(rounded - dealt).max())
                errors.append(np.abs(self.residual).max())
                return dealt, bits

            self.bound.admit = admitting

    class Noted(CodedSplit):
        """coded_split with these."""

        def new_server(self):
            plain, steps = super().new_server(), Noting(self.public, self.rounding_stream)
            own = bare_of(plain.centre), bare_of(plain.labels)
            return Server(plain.peers, plain.public, *own, steps)

    options = {**SMALL, "prime": P31, "data_bits": 7, "gradient_bits": 8, "client_lr": 4000.0}
    outcome = simulate(Noted, DIGITS, **options)
    assert shrunk(outcome)
    assert min(lost) > 100  # units, where rounding leaves half a unit at most
    assert len(errors) == SMALL["rounds"]
    assert 0 < max(errors) <= 0.5
