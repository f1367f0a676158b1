"""Decoded sums equal an integer twin's, whoever answers, is late, crashes or comes back."""

from dataclasses import replace

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.engine import wire
from securevfl.engine.conditions import Conditions, Delay
from securevfl.engine.faults import Chain, Faults, Outage
from securevfl.engine.party import SERVER
from securevfl.errors import NotEnoughResultsError, RangeError
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.decoding import decode_sums
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of
from securevfl.verified.values import wrapped
from tests.protocols.coded_split.twin import check_against_twin, watched

DIGITS = load_dataset("digits", parties=8)
SMALL = {"rounds": 12, "batch": 16, "width": 5, "hidden": 6, "client_lr": 16.0}
P61, P40, P31 = 2**61 - 1, 2**40 - 87, 2**31 - 1
# (N, K, T) of the issue; owners are 8, but for the 28 of one column or two each.
SIZES = {
    "8,1,1": {},
    "8,2,1": {"segments": 2},
    "11,2,2": {"segments": 2, "privacy": 2, "helpers": 3},
    "28,4,1": {"segments": 4},
}
FAULTS = Faults({"client": Chain(0.1, 0.6), "link": Chain(0.05, 0.7)}, first=2, tick=0.5)


def data(name, rows=103):
    return (DIGITS if name != "28,4,1" else load_dataset("digits", parties=28)).subset(rows, 21)


@pytest.mark.parametrize("name", SIZES)
def test_decoded_sums_are_the_twins_with_stragglers(name):
    outcome = simulate(watched(CodedSplit), data(name), **SMALL, **SIZES[name])
    check_against_twin(outcome, rounds=SMALL["rounds"])


@pytest.mark.parametrize("name", SIZES)
def test_decoded_sums_are_the_twins_with_crashes_losses_and_catch_up(name):
    options = {**SMALL, **SIZES[name], "ask_timeout": 2.0}
    outcome = simulate(watched(CodedSplit), data(name), faults=FAULTS, **options)
    check_against_twin(outcome, rounds=SMALL["rounds"])
    names = [event.name for event in outcome.events]
    assert "up" in names
    assert "lost" in names
    plain = simulate(watched(CodedSplit), data(name), **options)
    assert outcome.losses == plain.losses  # nothing decoded depends on who answered


@pytest.mark.parametrize(("fault", "rejoin"), [(0.5, 0.3), (0.3, 0.1)])
def test_links_that_are_cut_for_long_delay_a_run_and_change_no_number(fault, rejoin):
    """Fewer than R links are up in some round; no party is down, and holders send again."""
    links = Faults({"link": Chain(fault, rejoin)}, first=2)
    options = {**SMALL, "secure": True, "ask_timeout": 1.5}
    outcome = simulate(watched(CodedSplit), data("8,1,1"), faults=links, **options)
    check_against_twin(outcome, rounds=SMALL["rounds"])
    plain = simulate(watched(CodedSplit), data("8,1,1"), **options)
    assert outcome.losses == plain.losses
    measured = [
        next(event.fields for event in one.events if event.name == "inference")
        for one in (outcome, plain)
    ]
    assert measured[0] == measured[1]
    lost = [event.fields["kind"] for event in outcome.events if event.name == "lost"]
    assert {"embedding", "lacks", "deal"} <= set(lost)


@pytest.mark.parametrize(
    ("prime", "data_bits", "gradient_bits"),
    [(P31, 6, 8), (P40, 8, 14), (2**50 - 2**14 + 1, 8, 20), (P61, 10, 20)],
)
def test_decoded_sums_are_the_twins_at_all_four_primes(prime, data_bits, gradient_bits):
    bits = {"prime": prime, "data_bits": data_bits, "gradient_bits": gradient_bits}
    outcome = simulate(watched(CodedSplit), data("8,1,1"), **SMALL, **bits)
    check_against_twin(outcome, rounds=SMALL["rounds"])
    assert not [event for event in outcome.events if event.name == "shrunk"]


@pytest.mark.parametrize(
    "more",
    [
        {"prepare": "scale"},
        {"rounding": "stochastic"},
        {"degree": 1},
        {"client_weight_decay": 0.02},
    ],
)
def test_decoded_sums_are_the_twins_with_other_options(more):
    outcome = simulate(watched(CodedSplit), data("8,1,1"), **SMALL, **more)
    check_against_twin(outcome, rounds=SMALL["rounds"])


@pytest.mark.parametrize("name", ["8,1,1", "8,2,1", "11,2,2"])
def test_any_r_uploads_decode_alike_and_fewer_are_a_clear_error(name):
    outcome = simulate(CodedSplit, data(name), payloads=True, **SMALL, **SIZES[name])
    public, sent = outcome.protocol.public, outcome.simulation.transcript
    columns = sent.columns()
    stream, shape = np.random.default_rng(0), (outcome.protocol.batch_rows, SMALL["width"])
    server = outcome.parties[SERVER]
    for t in (1, 2, SMALL["rounds"]):
        uploads = {
            int(columns["sender"][row]): wrapped(payload, ("field", public.field), None, None, None)
            for row, payload in enumerate(sent.payloads)
            if columns["kind"][row] == "embedding" and columns["round"][row] == t
        }
        assert len(uploads) == public.code.parties
        found = []
        for _ in range(4):
            some = sorted(stream.permutation(list(uploads))[: public.threshold].tolist())
            found.append(decode_sums(server, public, {j: uploads[j] for j in some}, shape)[0])
        assert all((bare_of(one) == bare_of(found[0])).all() for one in found)
        fewer = {j: uploads[j] for j in list(uploads)[: public.threshold - 1]}
        with pytest.raises(NotEnoughResultsError, match=f"= {public.threshold} results, got"):
            decode_sums(server, public, fewer, shape)


def test_a_request_that_all_links_lose_is_sent_again_when_holders_ask():
    cut = Faults(outages=tuple(Outage((n, SERVER), rounds=(13, 15)) for n in range(8)))
    options = {**SMALL, "secure": True, "ask_timeout": 1.5}
    outcome = simulate(CodedSplit, data("8,1,1"), faults=cut, **options)
    lost = [event.fields["kind"] for event in outcome.events if event.name == "lost"]
    assert lost.count("request") == 8
    assert [event.name for event in outcome.events].count("inference") == 1


def test_too_few_holders_end_the_run_with_their_names():
    gone = Faults(outages=tuple(Outage(n, rounds=(3, 99)) for n in (1, 3, 4, 6, 7)))
    with pytest.raises(NotEnoughResultsError, match=r"R \+ 2A = 4 uploads .* party 1, party 3"):
        simulate(CodedSplit, data("8,1,1"), faults=gone, result_timeout=60.0, **SMALL)


def test_owners_may_leave_once_everything_is_shared():
    gone = Faults(outages=tuple(Outage(n, rounds=(2, 99)) for n in range(8)))
    options = {**SMALL, "helpers": 4}
    plain = simulate(watched(CodedSplit), data("8,1,1"), **options)
    left = simulate(watched(CodedSplit), data("8,1,1"), faults=gone, **options)
    assert left.losses == plain.losses
    assert all(event.fields["used"] == 4 for event in left.events if event.name == "round")


def test_a_server_that_crashes_rolls_forward_and_deals_the_same_bytes():
    away = Faults(outages=(Outage(SERVER, rounds=(4, 6)), Outage(SERVER, seconds=(3.0, 4.0))))
    plain = simulate(CodedSplit, data("8,1,1"), payloads=True, **SMALL)
    options = {**SMALL, "ask_timeout": 1.0}
    back = simulate(watched(CodedSplit), data("8,1,1"), faults=away, payloads=True, **options)
    check_against_twin(back)
    assert back.losses == plain.losses
    told = {event.fields["step"]: event.fields for event in back.events if event.name == "again"}
    first = {event.fields["step"]: event for event in back.events if event.name == "round"}
    assert told  # a history that missed these rows can have them
    for step, fields in told.items():
        assert fields["loss"] == first[step].fields["loss"]
        assert fields["time"] == first[step].time / 1e9
    sent, seen = back.simulation.transcript, {}
    columns = sent.columns()
    for row, payload in enumerate(sent.payloads):
        kind = str(columns["kind"][row])
        key = (kind, *(int(columns[name][row]) for name in ("round", "sender", "receiver")))
        if kind in ("deal", "seed", "embedding"):
            seen.setdefault(key, []).append(wire.encode(payload))
    again = [copies for copies in seen.values() if len(copies) > 1]
    assert again
    assert all(len(set(copies)) == 1 for copies in again)


def test_wrong_uploads_are_named_and_corrected():
    options = {**SMALL, "tolerate_corrupt": 1}

    class Liar(watched(CodedSplit)):
        """Holder 2 uploads noise."""

        def parties(self):
            made = super().parties()
            upload, public = made[2].send, self.public

            def send(to, kind, payload, **more):
                noise = public.field.random(payload.shape) if kind == "embedding" else payload
                upload(to, kind, noise, **more)

            made[2].send = send
            return made

    outcome = simulate(Liar, data("8,1,1"), **options)
    check_against_twin(outcome, rounds=SMALL["rounds"])
    found = [event.fields["clients"] for event in outcome.events if event.name == "corrected"]
    assert found
    assert all(clients == [2] for clients in found)


class TellsOther(CodedSplit):
    """Every other holder is told another digest of step 2."""

    def new_server(self):
        server = super().new_server()
        send = server.send

        def sending(to, kind, payload, *, round=None, **more):
            if kind in ("deal", "seed") and round == 2 and to % 2:
                payload = bare_of(payload[0])[::-1].copy().tobytes(), payload[1]
            send(to, kind, payload, round=round, **more)

        server.send = sending
        return server


def test_uploads_that_were_masked_after_different_steps_end_the_run_by_an_error():
    """No number comes of them: 80 entries are all in range with probability below 2^-80."""
    with pytest.raises(RangeError, match=r"round 3: \d+ of 80 decoded sums are beyond the range"):
        simulate(TellsOther, data("8,1,1"), **SMALL)


def test_a_slow_holder_leaves_out_what_was_decided_while_it_was_busy():
    """Holders 5 to 7 need 0.45 s for an upload, in which the others make several rounds."""
    slow = Conditions(
        uploads=tuple(Delay(0.0, 0.45 if n > 4 else 0.1) for n in range(8)), delay_mode="occupies"
    )
    outcome = simulate(watched(CodedSplit), data("8,1,1"), conditions=slow, **SMALL)
    check_against_twin(outcome, rounds=SMALL["rounds"])
    columns = outcome.simulation.transcript.columns()
    uploads = {
        n: columns["round"][(columns["kind"] == "embedding") & (columns["sender"] == n)].tolist()
        for n in range(8)
    }
    assert uploads[0] == list(range(1, 13))
    assert all(uploads[n] == [1, 5, 9] for n in (5, 6, 7))
    latency = replace(slow, delay_mode="latency")
    plain = simulate(CodedSplit, data("8,1,1"), conditions=latency, **SMALL)
    assert plain.losses == outcome.losses
    assert (plain.simulation.transcript.columns()["kind"] == "embedding").sum() == 8 * 12


def test_one_life_uploads_every_label_once():
    outcome = simulate(CodedSplit, data("8,1,1"), payloads=True, **SMALL)
    columns = outcome.simulation.transcript.columns()
    labels = [
        (int(columns["sender"][row]), int(columns["round"][row]))
        for row in range(len(columns["kind"]))
        if columns["kind"][row] == "embedding"
    ]
    assert len(labels) == len(set(labels)) == 8 * SMALL["rounds"]


def test_the_run_says_its_numbers():
    made = make(CodedSplit, data("8,1,1"), rounds=3)
    assert made.describe()["R"] == 4
    assert made.describe()["p"] == 2**50 - 2**14 + 1
