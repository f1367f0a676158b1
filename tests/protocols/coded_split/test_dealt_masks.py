"""Masks that T + 1 holders deal: the same sums, whoever is late or away, and the same bytes."""

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.engine.faults import Chain, Faults, Outage
from securevfl.errors import ConfigurationError, NotEnoughResultsError, ProtocolError
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.terms import check_mask
from securevfl.testing.runs import make, resume_from, simulate, state_at
from tests.protocols.coded_split.twin import check_against_twin, watched

DIGITS = load_dataset("digits", parties=8).subset(103, 21)
SMALL = {"rounds": 12, "batch": 16, "width": 5, "hidden": 6, "client_lr": 16.0, "masks": "dealt"}
SIZES = {
    "8,1,1": {},
    "8,2,1": {"segments": 2},
    "11,2,2": {"segments": 2, "privacy": 2, "helpers": 3, "secure": True},
}
FAULTS = Faults({"client": Chain(0.1, 0.6), "link": Chain(0.05, 0.7)}, first=2, tick=0.5)


@pytest.mark.parametrize("name", SIZES)
def test_sums_are_the_twins_with_crashes_losses_and_catch_up(name):
    options = {**SMALL, **SIZES[name], "ask_timeout": 2.0}
    outcome = simulate(watched(CodedSplit), DIGITS, faults=FAULTS, **options)
    check_against_twin(outcome, rounds=SMALL["rounds"])
    lost = {event.fields["kind"] for event in outcome.events if event.name == "lost"}
    assert "mask" in lost
    keyed = simulate(CodedSplit, DIGITS, **{**options, "masks": "keys"})
    assert outcome.losses == keyed.losses


def test_a_dealer_that_comes_back_deals_the_same_masks():
    away = Faults(outages=(Outage(0, rounds=(4, 6)), Outage(1, seconds=(3.0, 4.0))))
    options = {**SMALL, "ask_timeout": 1.0}
    outcome = simulate(watched(CodedSplit), DIGITS, faults=away, payloads=True, **options)
    check_against_twin(outcome)
    sent, seen, again = outcome.simulation.transcript, {}, 0
    columns = sent.columns()
    for row, payload in enumerate(sent.payloads):
        if columns["kind"][row] == "mask":
            key = tuple(int(columns[name][row]) for name in ("round", "sender", "receiver"))
            digest, value = seen.setdefault(key, payload)
            again += value is not payload[1]
            assert digest == payload[0]
            np.testing.assert_array_equal(value, payload[1])
    assert again > 0


def test_a_dealer_that_is_lost_ends_the_run_with_the_names_of_those_who_wait():
    gone = Faults(outages=(Outage(1, rounds=(3, 99)),))
    with pytest.raises(NotEnoughResultsError, match=r"R \+ 2A = 4 uploads .* party 1, party 3"):
        simulate(CodedSplit, DIGITS, faults=gone, result_timeout=60.0, **SMALL)


@pytest.mark.parametrize("name", ["8,1,1", "11,2,2"])
def test_a_run_that_is_cut_and_resumed_equals_the_unbroken_one(name):
    options = {**SMALL, **SIZES[name]}
    whole = simulate(CodedSplit, DIGITS, **options)
    instants = len(np.unique(whole.simulation.transcript.columns()["arrived"]))
    for part in (3, 2):
        saved, events = state_at(CodedSplit, DIGITS, instants // part, **options)
        again = resume_from(CodedSplit, DIGITS, saved, events, **options)
        assert again.fingerprint() == whole.fingerprint()


def test_masks_are_dealt_where_keys_would_be_too_many():
    many = load_dataset("digits", parties=28)
    made = make(CodedSplit, many, privacy=5)
    assert (made.prss.by_dealers, list(made.prss.dealers)) == (True, [0, 1, 2, 3, 4, 5])
    assert made.prss.seeded == 15  # m = 2K + 3T - 2
    assert not make(CodedSplit, many, privacy=3).prss.by_dealers
    with pytest.raises(ConfigurationError, match="98280 sets of T parties"):
        make(CodedSplit, many, privacy=5, masks="keys")
    with pytest.raises(ConfigurationError, match="dealt masks have one"):
        make(CodedSplit, DIGITS, masks="dealt", release=True)


def test_a_mask_of_another_form_sender_or_receiver_is_refused():
    made = make(CodedSplit, DIGITS, **SMALL)
    public, holder = made.public, made.parties()[3]
    value = np.zeros((16, 5), public.field.dtype)

    def checked(receiver, sender, round, payload):
        return check_mask(public, receiver, sender, round, holder._arrived("mask", payload))

    assert checked(3, 1, 2, (bytes(32), value))[0].shape == (4,)
    for receiver, sender, round, payload in [
        (2, 1, 2, (bytes(32), value)),  # has keys
        (3, 2, 2, (bytes(32), value)),  # is no dealer
        (3, 1, 13, (bytes(32), value)),  # no such upload
        (3, 1, 2, (bytes(31), value)),
        (3, 1, 2, value),
        (3, 1, 2, (bytes(32), value[:-1])),
        (3, 1, 2, (bytes(32), value + np.array(public.field.modulus, value.dtype))),
    ]:
        with pytest.raises(ProtocolError, match="'mask' of round"):
            checked(receiver, sender, round, payload)
