"""Schedules: a claim is proved where it is in all of them, and a certificate has steps for each."""

from __future__ import annotations

import copy
import functools
import json

import pytest

import securevfl.verified.traced.proofs as proofs
from securevfl.verified.schedules import UNDISTURBED, usual
from securevfl.verified.traced.proofs import Traced, check_certificate, lines, prove_protocol
from tests.verified.leaks import agrees
from tests.verified.some import DOWN, Few, GivesUp, SameRows, SomeSum, TapeAgain

BACK = [
    f"client 3 goes down {when}, and comes back"
    for when in ("within round 1", "before round 2", "within round 2")
]
DOWNS = "client 0 is late in every round", "client 0 is down from round 2 on", DOWN
LEAKS = {
    "a sum of the same rows": (SameRows, "server", *DOWNS),
    "a tape in a checkpoint": (TapeAgain, "client 0", *BACK),
}


def proof_of(monkeypatch, cls, *names):
    """Under all schedules, or the undisturbed one and those that are named."""

    class Some(cls):
        __module__ = cls.__module__  # rules are looked at in its source

        def schedules(self):
            found = super().schedules()
            some = [one for one in found if one.name in names]
            assert len(some) == len(names)
            return (UNDISTURBED, *some) if names else found

    monkeypatch.setattr(proofs, "get_protocol", lambda _: Some)
    return prove_protocol(Traced("some", {}), fresh=False)


@pytest.fixture
def prove(monkeypatch):
    return functools.partial(proof_of, monkeypatch)


@functools.cache
def certificate_of_few():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proofs, "get_protocol", lambda _: Few)
        return prove_protocol(Traced("some", {}), fresh=False).certificate()


@pytest.fixture
def accepted(monkeypatch, tmp_path):
    """A certificate of two schedules, and answers of the check on a changed one."""
    whole = certificate_of_few()
    monkeypatch.setattr(proofs, "get_protocol", lambda _: Few)

    def answers(change=lambda read: None):
        read = copy.deepcopy(whole)
        change(read)
        path = tmp_path / "certificate.json"
        path.write_text(json.dumps(read))
        return check_certificate(path)

    return answers


def verdicts(proof):
    return {v.claim: v.verdict for v in proof.verdicts}


def test_schedules_of_those_who_wait_and_of_those_who_go_on():
    assert len(usual(4, waits=False)) == 30
    assert len(usual(8, waits=False)) == 33
    names = [one.name for one in usual(4, waits=True)]
    assert len(set(names)) == len(names) == 7
    assert "clients 1, 2, 3 upload nothing in round 1" in {s.name for s in usual(4, waits=False)}


def test_a_sum_of_those_who_are_there_is_proved_under_all_schedules(prove):
    proof = prove(SomeSum)
    assert set(verdicts(proof).values()) == {"PROVED"}
    assert proof.verdicts[0].scope.startswith("PROVED for these batches, shapes and schedules (30)")
    assert len(set(proof.traces.values())) > 10
    assert not proof.ended
    assert any(DOWN in line for line in lines(proof))


def test_a_sum_of_the_same_rows_fails_where_a_client_is_down(prove):
    proof = prove(SameRows, *DOWNS)
    found = {v.claim: v for v in proof.verdicts}
    assert found["client 0"].verdict == "PROVED"
    assert found["server"].verdict == "NOT PROVED"
    assert found["server"].text.startswith("where client 0 is down from round 2 on: outputs")
    agrees("schedules", "a sum of the same rows", "NOT PROVED", found["server"].text)
    counted = [line for line in lines(proof) if line.startswith("Not counted: ")]
    assert len(counted) == 1
    assert "of real numbers" in counted[0]
    assert "p = 2, 3 or 5" in counted[0]


def test_a_tape_in_a_checkpoint_fails_where_a_client_comes_back(prove):
    found = {v.claim: v for v in prove(TapeAgain, *BACK).verdicts}
    assert found["client 0"].verdict == "VIOLATED"
    assert found["client 0"].text.startswith("where client 3 goes down within round 2, and comes")
    # It knows its own tape; where all parties come back, the others' are used again as well.
    assert found["client 3"].verdict == "VIOLATED"
    assert found["client 3"].text.startswith("all parties go down within round 2, and come back: ")
    agrees("schedules", "a tape in a checkpoint", "VIOLATED", found["client 0"].text)


def test_a_certificate_holds_the_steps_of_each_schedule(accepted):
    assert set(accepted().values()) == {None}
    assert len(accepted()) == 9


def test_a_certificate_that_lacks_a_schedule_is_refused(accepted):
    assert all(accepted(lambda read: read["schedules"].pop(DOWN)).values())


def test_a_certificate_of_a_schedule_that_the_protocol_has_not_is_refused(accepted):
    def more(read):
        read["schedules"]["nobody comes"] = read["schedules"][DOWN]

    assert all("no schedule" in why for why in accepted(more).values())


def test_a_certificate_whose_schedules_change_places_is_refused(accepted):
    def swapped(read):
        one, other = read["schedules"].values()
        read["schedules"] = {UNDISTURBED.name: other, DOWN: one}

    assert all("another one" in why for why in accepted(swapped).values())


def test_a_certificate_without_steps_of_one_schedule_is_refused(accepted):
    def without(read):
        read["proofs"][read["schedules"][DOWN]] = []

    def one_less(read):
        for claim in read["proofs"][read["schedules"][DOWN]]:
            claim["steps"] = claim["steps"][1:]

    def of_the_other(read):
        steps = read["proofs"][read["schedules"][UNDISTURBED.name]]
        read["proofs"][read["schedules"][DOWN]] = steps

    assert all(f"where {DOWN}: no proof" == why for why in accepted(without).values())
    for change in (one_less, of_the_other):
        why = accepted(change)
        assert why[-1,], change.__name__
        assert why[0,], change.__name__


def test_a_certificate_with_a_stronger_verdict_than_its_schedules_is_refused(accepted):
    def other(read):
        for claim in read["claims"]:
            claim["verdict"], claim["releases"] = "DP", 3

    assert all("its verdict is another one: PROVED" in why for why in accepted(other).values())


def test_a_run_that_ends_in_an_error_is_named_and_not_claimed(prove, tmp_path):
    proof = prove(GivesUp, "clients 0, 1, 2 upload nothing in round 1", DOWN)
    assert set(proof.ended.values()) == {"given up"}
    assert not set(proof.ended) & set(proof.traces)
    assert any("No schedule of these: clients 0, 1, 2 upload nothing" in x for x in lines(proof))
    path, read = tmp_path / "certificate.json", proof.certificate()
    path.write_text(json.dumps(read))
    assert set(check_certificate(path).values()) == {None}
    read["schedules"][next(iter(proof.ended))] = proof.traces[UNDISTURBED.name]
    path.write_text(json.dumps(read))
    assert all("the run ends in an error" in why for why in check_certificate(path).values())
