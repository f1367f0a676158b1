"""Acts of parties from their making to their end, which are in no step of a run."""

import pytest

from securevfl.audit.following.lives import acts_of_lives
from securevfl.audit.subject import Subject
from securevfl.audit.verdicts import conclude
from securevfl.audit.verifiers.specification import Specification
from securevfl.testing.leaks import all_leaks, sound_variants
from securevfl.testing.runs import make

ZOO = {one.name: one for one in (*all_leaks(), *sound_variants())}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedonce: labels in a file when parties are made", "a file is written"),
        ("fedonce: labels on the screen when parties are made", "screen: "),
        ("fedonce: labels when an object is forgotten", "a file is written"),
        ("fedonce: labels through a map of memory", "mmap.__new__"),
        ("fedonce: labels as the seed of Python's generator", "Python's generator"),
        ("dvfl: labels in a setting of the process", "the timeout of sockets"),
    ],
)
def test_what_is_done_outside_of_steps_is_told(name, words):
    with ZOO[name].around():
        made = make(ZOO[name].make())
        assert any(words in one for one in acts_of_lives(made))
        if "generator" in words:  # which it has set already
            assert any(words in one for one in acts_of_lives(made))


@pytest.mark.parametrize("name", ["fedonce: copies", "fedonce: parties made backwards",
                                  "dvfl: collects garbage"])  # fmt: skip
def test_sound_classes_of_others_do_no_more_than_the_librarys(name):
    assert acts_of_lives(make(ZOO[name].make())) == []


def test_such_acts_leave_a_claim_untested():
    one = ZOO["fedonce: labels when an object is forgotten"]
    with one.around():
        subject = Subject(make(one.make()))
        claim = next(c for c in subject.protocol.claims if c.asset == "labels")
        found = list(Specification().examine(claim, subject, seed=0, level=1e-7))
    assert [e.bearing for e in found] == ["channel", "unread"]
    assert conclude(claim, found).verdict == "NOT TESTED"
