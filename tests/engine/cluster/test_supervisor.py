"""The supervisor: rounds that a server must not announce again, and parties that do not answer."""

from types import SimpleNamespace

import pytest

from securevfl.engine.cluster import supervisor
from securevfl.engine.cluster.supervisor import Cluster
from securevfl.engine.network import Event
from securevfl.engine.realtime.assignment import PartyAssignment
from securevfl.errors import ConfigurationError, RunError, SecureVFLError

pytest.importorskip("ray")


@pytest.mark.parametrize(("status_round", "events", "floor"), [(4, [], 4), (3, [5], 5), (0, [], 2)])
def test_the_floor_is_the_newest_round_that_anybody_is_in(status_round, events, floor):
    """A server killed inside round 4 has recorded nothing of it, and its clients are in it."""
    told = [Event(0, 1, round, "clipped", {}) for round in events]
    state = SimpleNamespace(round=status_round, failed="")
    report = SimpleNamespace(status=state, events=told, messages=0, bytes=0, process=1)
    cluster = object.__new__(Cluster)
    cluster._floor = 2
    cluster._ray = SimpleNamespace(get=lambda reference: report)
    heard = []
    cluster._on_event = heard.append
    cluster._take_report(1, SimpleNamespace(poll="reference"))
    assert cluster._floor == floor
    assert heard == told


class SilentRay:
    """Ray whose actors never answer but those in `answered`; it notes whom it was asked to end."""

    def __init__(self):
        self.killed, self.answered = [], []

    def wait(self, references, *, num_returns=1, timeout):
        ready = [one for one in references if one in self.answered]
        return ready, [one for one in references if one not in ready]

    def kill(self, actor, *, no_restart):
        self.killed.append((actor, no_restart))


def silent_cluster(monkeypatch, *, setup_done=True):
    """A cluster with one party, asked at second 0, and its clock."""
    clock = [0.0]
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: clock[0])
    cluster = object.__new__(Cluster)
    cluster.answer, cluster._floor, cluster._moved = 30.0, 4, 0.0
    cluster._before, cluster._zero = 0, None
    cluster._ray, cluster._most, heard = SilentRay(), -1, []
    cluster.assignment = SimpleNamespace(folder="folder")
    cluster._spares, cluster._go_back, cluster._fallen = (lambda gone: False), None, {}
    cluster._on_event = heard.append
    status = SimpleNamespace(setup_done=setup_done, round=4)
    record = supervisor._ActorRecord("actor", poll="a reference", status=status)
    cluster._records = {2: record}
    return cluster, record, clock, heard


def test_a_party_that_does_not_answer_in_time_is_down_and_its_process_is_ended(monkeypatch):
    cluster, _, clock, heard = silent_cluster(monkeypatch)
    clock[0] = 30.0
    cluster._check_silence()
    assert not heard
    clock[0] = 30.1
    cluster._check_silence()
    assert [(event.name, event.party, event.fields["why"]) for event in heard] == [
        ("down", 2, "no answer for 30 s")
    ]
    assert cluster._ray.killed == [("actor", False)]
    cluster._check_silence()
    assert len(heard) == 1


def test_a_party_whose_process_cannot_be_ended_is_lost_for_good(monkeypatch):
    """Its machine cannot be reached; the others go on, or the run ends as after a death."""
    cluster, record, clock, heard = silent_cluster(monkeypatch)
    for clock[0] in (31.0, 62.0):
        cluster._check_silence()
    assert [event.fields["for good"] for event in heard] == [False, True]
    assert record.lost
    assert cluster._ray.killed[-1] == ("actor", True)


def test_a_party_that_is_silent_again_and_again_is_not_started_for_ever(monkeypatch):
    cluster, record, clock, heard = silent_cluster(monkeypatch)
    for clock[0] in (31.0, 62.0, 93.0, 124.0):
        cluster._check_silence()
        record.ending, record.asked = False, clock[0]  # it came back, and was asked again
    assert [event.fields["for good"] for event in heard] == [False, False, False, True]


def test_silence_before_the_first_round_ends_the_run_after_ten_times_as_long(monkeypatch):
    cluster, _, clock, _ = silent_cluster(monkeypatch, setup_done=False)
    clock[0] = 299.0
    cluster._check_silence()
    clock[0] = 301.0
    with pytest.raises(RunError, match=r"party 2 did not answer within 300 s.*answer_timeout"):
        cluster._check_silence()


def test_a_start_that_a_party_does_not_answer_ends_in_an_error_that_names_it(monkeypatch):
    cluster, *_ = silent_cluster(monkeypatch)
    with pytest.raises(RunError, match="party 1, party 3 did not answer within 300 s"):
        cluster._answers({3: "one", 1: "another"})


def test_states_are_those_of_the_parties_that_answer(monkeypatch):
    """The driver waited here without end, though the server was done."""
    cluster, record, _, heard = silent_cluster(monkeypatch)
    record.actor = SimpleNamespace(models=SimpleNamespace(remote=lambda: "models"))
    assert cluster.states() == {}
    assert [event.name for event in heard] == ["down"]


def test_a_result_without_the_model_of_a_lost_party_is_refused(monkeypatch):
    cluster, record, *_ = silent_cluster(monkeypatch)
    record.lost = True
    with pytest.raises(RunError, match=r"party 2 did not come back.*Resume the run"):
        cluster._collect()


def test_a_result_that_needs_no_model_of_a_lost_party_is_the_others(monkeypatch):
    cluster, record, *_ = silent_cluster(monkeypatch)
    record.lost, asked = True, []
    cluster._spares = lambda gone: asked.append(list(gone)) or True
    ended = cluster._collect()
    assert (ended.states, ended.transcripts) == ({}, {})
    assert asked == [[2]]


def test_a_party_whose_answer_the_driver_had_no_time_to_take_is_not_silent(monkeypatch):
    """The driver evaluates models itself, which may take minutes; or it was stopped."""
    cluster, _, clock, heard = silent_cluster(monkeypatch)
    cluster._ray.answered = ["a reference"]
    clock[0] = 500.0
    cluster._check_silence()
    assert not heard


def test_a_party_that_is_lost_is_not_asked_for_again(monkeypatch):
    cluster, record, clock, _ = silent_cluster(monkeypatch)
    for clock[0] in (31.0, 62.0):
        cluster._check_silence()
    cluster._ray.answered = ["a reference"]  # its failure, when Ray learns of it at last
    cluster._poll_all()
    assert record.lost


def test_a_party_that_dies_while_it_is_made_ends_the_run_in_one_line(monkeypatch):
    from ray.exceptions import ActorDiedError

    def died(_reference):
        raise ActorDiedError

    cluster, *_ = silent_cluster(monkeypatch)
    cluster._ray.answered, cluster._ray.get = ["one"], died
    with pytest.raises(RunError, match="party 3 died before it had set up"):
        cluster._answers({3: "one"})


def test_a_party_that_dies_while_all_go_back_is_waited_for(monkeypatch):
    """For a minute: then the run ends in an error, and its folder can be resumed."""
    cluster, record, clock, heard = silent_cluster(monkeypatch)
    cluster._go_back, cluster._signature = (lambda kept: 3), None
    cluster._fell(2)
    monkeypatch.setattr(supervisor.time, "sleep", lambda seconds: clock.append(clock.pop() + 25))
    answers = iter([supervisor.DiedError(2), {2: [3]}])

    def rounds(self):
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(Cluster, "rounds", rounds)
    begun = []
    monkeypatch.setattr(Cluster, "_begin_all", lambda self, *how: begun.append((how, self._floor)))
    cluster._all_go_back()
    assert begun == [((True, 3), 3)]  # a server that goes back announces round 4 once more
    told = [("down", 4), ("down", 3), ("up", 3)]  # the history forgets the first: it is of round 4
    assert [(event.name, event.round) for event in heard] == told
    assert (record.poll, record.status, cluster._fallen) == (None, None, {})
    answers = iter([supervisor.DiedError(2)] * 9)
    with pytest.raises(RunError, match="party 2 died before it had set up"):
        cluster._all_go_back()
    assert len(list(answers)) == 5


def test_a_party_that_was_started_anew_since_it_was_made_has_died(monkeypatch):
    """Its new process takes what it is asked, but has no party: the run ended in AssertionError."""
    cluster, record, *_ = silent_cluster(monkeypatch)
    monkeypatch.setattr(Cluster, "_make_all", lambda *_: {2: SimpleNamespace(epoch=3)})
    record.actor = SimpleNamespace(
        add_peers=SimpleNamespace(remote=lambda *_: "connected"),
        go=SimpleNamespace(remote=lambda origin: "gone"),
    )
    cluster._ray.answered = ["connected", "gone"]
    cluster._ray.get = {"connected": None, "gone": False}.get
    with pytest.raises(supervisor.DiedError) as died:
        cluster._begin_all(True, 3)
    assert died.value.party == 2
    cluster._ray.get = {"connected": None, "gone": True}.get
    cluster._begin_all(True, 3)


def test_one_that_waits_for_all_to_go_back_is_down_once(monkeypatch):
    """Another one's new process may take longer; its own has no party to report of."""
    cluster, record, _, heard = silent_cluster(monkeypatch)
    cluster._go_back, record.poll = (lambda kept: 3), None
    record.actor = SimpleNamespace(claim=SimpleNamespace(remote=lambda: "claimed"))
    cluster._went_down(2, record)
    assert cluster._anybody_is_away()
    cluster._ray.answered, cluster._ray.get = [record.begin], lambda reference: [1, 2, 3]
    for _ in range(3):
        cluster._poll_all()
    assert not cluster._anybody_is_away()
    assert [event.name for event in heard] == ["down"]
    assert (record.restarts, record.poll) == (1, None)


def test_one_that_came_back_may_die_before_it_has_answered(monkeypatch):
    """A resumed run ended with advice to start it again."""
    cluster, record, *_ = silent_cluster(monkeypatch)
    record.status, record.came_back, cluster._later = None, True, None
    record.actor = SimpleNamespace(begin=SimpleNamespace(remote=lambda *_, **__: "begun"))
    cluster._went_down(2, record)
    assert record.begin == "begun"


def test_what_fails_in_an_actor_is_told_without_the_lines_of_ray(monkeypatch):
    """A full disk ended a resume with a page of terminal colours, actor numbers and paths."""
    from ray.exceptions import RayTaskError

    cluster, *_ = silent_cluster(monkeypatch)
    for cause, said in (
        (OSError(28, "No space left on device"), r"party 3 could not use its folder: .* Make room"),
        (ConfigurationError("cluster: another key"), r"^cluster: another key$"),
        (ZeroDivisionError("by zero"), r"^cluster: party 3: ZeroDivisionError: by zero$"),
    ):

        def failed(_reference, cause=cause):
            raise RayTaskError("begin", "lines", cause)

        cluster._ray.answered, cluster._ray.get = ["one"], failed
        with pytest.raises(SecureVFLError, match=said):
            cluster._answers({3: "one"})


def test_actors_take_an_assignment_of_the_same_parties_only(monkeypatch):
    cluster, record, *_ = silent_cluster(monkeypatch)
    first = cluster.assignment = PartyAssignment(None, "split", "a", (2,), 0)
    cluster._ray.put = lambda assignment: ("put", assignment)
    with pytest.raises(ConfigurationError, match=r"actors are of 1 parties, and split .* has 2"):
        cluster.assign(PartyAssignment(None, "split", "b", (1, 2), 0), spares=cluster._spares)
    assert cluster.assignment is first
    assert cluster._records == {2: record}
    second = PartyAssignment(None, "split", "b", (2,), 0)
    cluster.assign(second, spares=cluster._spares)
    assert cluster._later == ("put", second)
    assert cluster._records == {2: supervisor._ActorRecord("actor")}  # and nothing of its past


def test_a_party_without_checkpoints_never_comes_back(monkeypatch):
    """Actors that align tables could be started again, for the training that follows."""
    cluster, record, _, heard = silent_cluster(monkeypatch)
    cluster.assignment = SimpleNamespace(folder=None)
    cluster._went_down(2, record)
    assert [event.fields["for good"] for event in heard] == [True]
    assert cluster._ray.killed == [("actor", True)]
