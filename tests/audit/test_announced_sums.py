"""Sums that break the rules of the proof are counted from the messages of a run."""

from dataclasses import replace

import numpy as np
import pytest

from securevfl.audit.announced_sums import AnnouncedSums
from securevfl.audit.followed_runs import follow
from securevfl.audit.recording.recorded_run import RecordedMessage, Snapshot
from securevfl.audit.settings import settings_of
from securevfl.audit.subject import Subject
from securevfl.audit.traffic.seen import differences, traffic_of
from securevfl.audit.traffic.setting import ITSELF
from securevfl.engine import wire
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.fedvs.algorithm import Client
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.protocols.fedvs.parameters import Parameters
from securevfl.protocols.fedvs.sums import SumLedger
from securevfl.testing.runs import make

FEDVS = {"rounds": 8, "batch": 20, "segments": 1}
ALL = (0, 1, 2, 3, 4, 5)


def sums(*rounds, steps=()):
    """Faults of a run of these (rows, sharers, uploads); T = K = 1."""
    one = AnnouncedSums(make("fedvs", **FEDVS))
    for number, (rows, sharers, uploads) in enumerate(rounds, 1):
        batch = Batch("train", np.array(rows, np.uint32))
        take(one, "round", number, -1, batch)
        take(one, "attempt", number, -1, Attempt(sharers))
        for sender in range(uploads):
            take(one, "embedding", number, sender, np.zeros(1))
        if number in steps:
            take(one, "gradient", number, -1, np.full(1, steps[number], np.float32))
    return list(one.faults())


def take(one, kind, round, sender, payload):
    key = MessageKey(kind, round, sender, 0 if sender < 0 else -1)
    one.take(RecordedMessage(key, wire.encode(payload), Snapshot({"once": {}})))


def test_sound_sums_have_no_fault():
    assert sums(([1], ALL, 6), ([2], ALL[1:], 6)) == []
    assert sums(([1], ALL, 6), ([1], ALL[::-1], 6)) == []  # the same models


@pytest.mark.parametrize("sharers", [(), (0,), (0, 1), (0, 0, 1)])
def test_too_few_sharers_are_a_fault(sharers):
    [fault] = sums(([1], sharers, 6))
    assert fault.startswith("round 1: a sum of")
    assert sums(([1], sharers, 1)) == []  # K + T - 1 uploads tell nothing


def test_a_row_in_two_sums_of_different_models_is_a_fault():
    two = ([1, 2], ALL, 6), ([2, 3], ALL[1:], 6)
    assert sums(*two) == ["rounds 1 and 2 sum 1 rows over different models"]
    assert sums(*two, steps={1: 0.5}) == []
    assert len(sums(*two, steps={1: 0.0})) == 1  # a gradient of zeros moves nothing


@pytest.mark.parametrize("name", ["attempts given up", "clients crash", "messages lost"])
def test_runs_of_fedvs_keep_the_rules(name):
    setting = next(s for s in settings_of(make("fedvs", **FEDVS)) if s.name == name)
    assert follow(make("fedvs", **FEDVS | dict(setting.options)), setting).sums == ()


def test_a_server_and_clients_that_admit_too_few_sharers_are_found(monkeypatch):
    """One statement that both share, changed in both: found by a run of the mutation study."""
    from securevfl.protocols.fedvs.parameters import Parameters

    monkeypatch.setattr(Parameters, "enough", lambda self, sharers: len(sharers) > 0)
    monkeypatch.setattr("securevfl.protocols.fedvs.algorithm.check_attempt", lambda *a: None)
    options = FEDVS | {"max_attempts": 50, "share_timeout": 1.0}
    runs = ((make("fedvs", **options | dict(setting.options)), setting)
            for setting in settings_of(make("fedvs", **options)))  # fmt: skip
    found = (one for made, setting in runs for one in follow(made, setting).sums)
    assert any("sharers, T = 1" in one for one in found)


def test_steps_of_fewer_than_t_plus_2_clients_are_found(monkeypatch):
    made = make("fedvs", **FEDVS)
    assert follow(made, ITSELF).sums == ()
    update = Client.update

    def in_turns(self, batch, attempt, gradient):
        turn = self.round < 4 or self.round % 6 == self.index
        return update(self, batch, attempt, gradient) if turn else True

    monkeypatch.setattr(Client, "update", in_turns)
    found = follow(make("fedvs", **FEDVS), ITSELF).sums
    assert found[0].startswith("round 4: 1 of 6 clients moved entry 0")


def scripted(name, **options):
    """Faults of the sums of a scripted setting."""
    subject = Subject(make("fedvs", **FEDVS | options), settings=lambda _: ())
    setting = next(one for one in settings_of(subject.protocol) if one.name == name)
    made = subject.instance(options=setting.options, multiple=setting.multiple)
    return follow(made, setting).sums


def test_a_server_that_forgets_late_uploads_sums_their_rows_over_others(monkeypatch):
    name, report = "uploads late, others down", SumLedger.report
    assert scripted(name) == ()
    monkeypatch.setattr(SumLedger, "report", lambda self, n, uploaded: report(self, n, ()))
    [fault] = scripted(name)
    assert fault == "rounds 1 and 3 sum 101 rows over different models"


def test_sums_of_too_few_sharers_are_asked_for_where_few_share_in_time(monkeypatch):
    name = "few share in time"
    assert scripted(name, privacy=2) == ()
    monkeypatch.setattr(Parameters, "enough", lambda self, sharers: len(sharers) > 2)
    assert "round 1: a sum of 3 sharers, T = 2" in scripted(name, privacy=2)


def test_batches_of_scripted_settings_leave_no_rows_over():
    """With K = 2 a row over of 101 would be the next batch, which nobody had asked for before."""
    name = "uploads late, others down"
    setting = next(
        s for s in settings_of(make("fedvs", **FEDVS | {"segments": 2})) if s.name == name
    )
    assert setting.multiple == 2


def test_a_client_that_forgets_what_it_uploaded_before_a_crash_is_found(monkeypatch):
    """Rounds of an earlier incarnation that the server has not called settled."""
    name = "uploads late, all come back, some down"
    assert scripted(name) == ()

    def forgets(self, attempt):
        self.forget([n for n in self.sums if n < self.incarnation])

    monkeypatch.setattr(SumLedger, "hear_of_attempt", forgets)
    assert any("over different models" in fault for fault in scripted(name))


def test_a_server_that_takes_one_report_for_all_is_found(monkeypatch):
    """Clients that lack a share say that they did not upload; the server forgets who did."""
    name = "uploads late, others lack a share"
    assert scripted(name) == ()

    def report(self, client, uploaded):
        for round in self.uploaders:
            if round not in uploaded:
                self.uploaders[round] = ()

    monkeypatch.setattr(SumLedger, "report", report)
    assert any("over different models" in fault for fault in scripted(name))


def test_clients_that_do_not_name_rounds_since_their_checkpoint_are_found(monkeypatch):
    """Their notes of uploads are lost with a crash, and the server asks for the rows again."""
    name = "uploads late, all come back without their notes, some down"
    assert scripted(name) == scripted(name, segments=2) == ()
    monkeypatch.setattr(SumLedger, "come_back", lambda self, round: None)
    for segments in (1, 2):
        faults = scripted(name, segments=segments)
        assert any("over different models" in fault for fault in faults)
    assert scripted("uploads late, all come back, some down") == ()  # notes are enough


def test_traffic_is_compared_with_that_of_runs_which_lose_notes_as_well():
    subject = Subject(make("fedvs", masked=False, **FEDVS), settings=lambda _: ())
    [setting] = [one for one in settings_of(subject.protocol) if one.loses_notes]
    runs = [subject.instance(options=setting.options, multiple=setting.multiple) for _ in range(3)]
    followed = follow(runs[0], setting).traffic
    assert not list(differences(followed, traffic_of(runs[1], setting)))
    kept = traffic_of(runs[2], replace(setting, loses_notes=False))
    assert list(differences(followed, kept))
