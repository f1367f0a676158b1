"""The check of endurance finds protocols that end, wait or decode wrongly where others go on."""

import pytest

from securevfl.protocols.base import decoding
from securevfl.protocols.fedvs.algorithm import Server
from securevfl.protocols.fedvs.messages import Attempt
from securevfl.testing.endurance_checks import check_endurance


def test_a_server_that_waits_for_the_last_result_is_found(monkeypatch):
    collect = Server.collect

    def patient(self, kind, *, timeout=None, **asked):
        return collect(self, kind, timeout=None if kind == "embedding" else timeout, **asked)

    monkeypatch.setattr(Server, "collect", patient)
    with pytest.raises(AssertionError, match="one round very late: the last step came after 10"):
        check_endurance("fedvs")


def test_clients_that_refuse_the_same_sum_again_are_found(monkeypatch):
    monkeypatch.setattr(Attempt, "same_sum", lambda self, other: False)
    with pytest.raises(AssertionError, match="the run ended: fedvs: round 50"):
        check_endurance("fedvs")


def test_wrong_uploads_that_are_not_corrected_are_found(monkeypatch):
    decode = decoding.decode_results

    def first(*given, corrected, **more):
        return decode(*given, corrected=False, **more)

    monkeypatch.setattr("securevfl.protocols.fedvs.algorithm.decode_results", first)
    with pytest.raises(AssertionError, match="wrong uploads: the losses are not those without"):
        check_endurance("fedvs")


def test_protocols_that_wait_or_give_up_are_not_held_to_it():
    check_endurance("split")
    check_endurance("he_split")
