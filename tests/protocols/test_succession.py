"""States that follow from those before, and those that do not."""

from securevfl.audit.deviations import compare
from securevfl.audit.recording.recorder import record
from securevfl.protocols.base.succession import successor
from securevfl.testing.runs import make
from tests.zoo import all_leaks, sound_variants

LEAKS = {one.name: one for one in all_leaks()}


def follow(states, *, punctual, step=lambda round, state: state + 1):
    memory = {}
    return [
        successor(memory, round, found, lambda: 10, step, punctual=punctual)
        for round, found in states
    ]


def test_a_state_that_follows_is_given_back():
    assert follow([(1, 10), (2, 11), (3, 12)], punctual=True) == [10, 11, 12]


def test_of_another_state_the_one_that_follows_is_given():
    assert follow([(1, 99)], punctual=True) == [10]
    assert follow([(1, 10), (2, 10)], punctual=True) == [10, 11]


def test_a_party_that_may_be_late_may_miss_steps_and_go_back():
    assert follow([(1, 10), (2, 10), (3, 11), (4, 10)], punctual=False) == [10, 10, 11, 10]
    assert follow([(1, 10), (2, 7)], punctual=False) == [10, 11]


def test_weights_that_no_training_made_are_seen():
    assert compare(record(make(LEAKS["fedvs: rows in the place of weights"].make()))).deviations


def test_sound_weights_follow_also_after_pre_training():
    assert not compare(record(make("fedvs"))).deviations
    options = {"pretrain": "full", "pretrain_epochs": 2}
    found = compare(record(make("fedvs", **options)))
    assert not found.deviations
    assert not found.without_formula


def test_the_servers_model_steps_once_a_round_though_each_gradient_asks_for_the_step():
    """A formula of a renamed message is not made once for all receivers."""
    (renamed,) = (one for one in sound_variants() if one.name == "fedvs: renamed uploads")
    found = compare(record(make(renamed.make())))
    assert not found.deviations
