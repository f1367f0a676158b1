"""Followed runs: the configuration itself, and its settings, against the declaration."""

import pytest

from securevfl.audit.followed_runs import follow
from securevfl.audit.recording.recorder import record
from securevfl.audit.settings import settings_of
from securevfl.audit.subject import Subject
from securevfl.audit.traffic.setting import ITSELF, Setting
from securevfl.data import load_dataset
from securevfl.engine.faults import Chain, Faults
from securevfl.engine.party import ANNOUNCE, STOP, Party
from securevfl.testing.runs import make, tiny_data
from tests.zoo import all_leaks


@pytest.mark.parametrize("name", ["split", "cvfl"])
def test_sound_runs_of_other_methods_are_as_declared_in_their_settings(name):
    """Those of coded_split are, with states, in test_reference."""
    for setting in settings_of(make(name, rounds=6)):
        found = follow(make(name, rounds=6, **dict(setting.options)), setting)
        assert found.comparison.deviations == (), setting.name
        assert found.comparison.messages > 20


def with_settings(cls, *words):
    """Settings of a method that have one of the words in their name."""
    found = [one for one in settings_of(make(cls)) if any(word in one.name for word in words)]
    return [(one, make(cls, **dict(one.options))) for one in found]


@pytest.mark.parametrize("name", ["dvfl"])
def test_methods_without_timeouts_have_crashes_and_lost_messages(name):
    found = with_settings(name, "crash", "lost")
    assert len(found) == 4
    for setting, protocol in found:
        comparison = follow(protocol, setting).comparison
        assert comparison.deviations == (), setting.name


@pytest.mark.parametrize("name", ["fedvs", "dvfl", "cvfl"])
def test_an_end_that_is_announced_twice_is_found(name, monkeypatch):
    """Its formula says "stop" in every round after the last one, so the number tells nothing."""
    once = Party.broadcast

    def twice(party, kind, payload, to=None):
        once(party, kind, payload, to)
        if STOP in (kind, payload if isinstance(payload, str) else ""):
            party.round += 1
            once(party, kind, payload, to)

    monkeypatch.setattr(Party, "broadcast", twice)
    found = follow(make(name), ITSELF).comparison.deviations
    assert {one.key.kind for one in found} <= {ANNOUNCE, STOP}
    assert any("the end was announced" in one.what for one in found)


@pytest.mark.parametrize("name", ["split"])
def test_a_round_number_that_is_left_out_is_found(name, monkeypatch):
    """What depends on the number, such as the rows, is that of the number that was announced."""
    safe_point = Party.safe_point

    def skip(party):
        party.round += party.round == 3
        safe_point(party)

    monkeypatch.setattr(Party, "safe_point", skip)
    found = follow(make(name, rounds=6), ITSELF).comparison.deviations
    assert {(one.key.round, one.what) for one in found} == {(5, "the round before it was 3")}


def test_a_server_of_fedonce_that_crashed_asks_again_and_is_not_blamed():
    crashes = Setting("server crashes", faults=Faults({"server": Chain(0.5, 0.9)}, first=2))
    found = follow(make("fedonce", batch=7), crashes)
    assert found.rounds > 1 + -(-tiny_data().rows // 7)  # rounds came again
    assert found.comparison.deviations == ()


def test_a_state_before_a_step_is_that_of_another_count():
    run = record(make("vafl", rounds=6))
    gradients = [m for m in run.messages if m.key.kind == "gradient"]
    first, *later = gradients
    assert run.state_before(first.key, "steps") is None
    for before, message in zip(gradients, later, strict=False):
        assert run.state_before(message.key, "steps") is before.state.kept
        assert run.state(message.key)["steps"] == before.state.kept["steps"] + 1


def test_a_setting_without_disturbance_is_none():
    assert not ITSELF.disturbed
    assert not Setting("resumed", resumed_in=4).disturbed
    assert tiny_data().parties == 6


def test_columns_in_the_clear_are_found_where_small_runs_have_none():
    """A researcher's protocol sends rows in large batches only; no formula of ours explains it."""
    [leak] = [one for one in all_leaks() if one.name == "masked_sum: rows of large batches"]
    subject = Subject(make(leak.make(), load_dataset("digits", parties=4), **leak.options))
    assert follow(subject.instance(), ITSELF).comparison.clear == ()
    (key, client), *_ = follow(subject.instance(whole=True), ITSELF).comparison.clear
    assert (key.kind, key.sender, key.round) == ("progress", client, 1)
    sound = Subject(make(leak.sound, load_dataset("digits", parties=4), **leak.options))
    assert follow(sound.instance(whole=True), ITSELF).comparison.clear == ()
