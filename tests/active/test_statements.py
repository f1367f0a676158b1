"""Statements are about their whole subject; quorums have an honest holder in common."""

import dataclasses
import os

import pytest

from securevfl.active.dealing import Dealt
from securevfl.active.judge import TwoStories, judge
from securevfl.active.statements import Statement, Subject
from securevfl.protocols.coded_split.covert import quorum_of
from tests.active.signing import Signer

SUBJECT = Subject(b"run", 0, bytes(32), 4, "step", 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [("run", b"x"), ("start", b"y"), ("step", 2), ("signer", 0), ("kind", "k")],
)
def test_a_statement_is_about_its_whole_subject(name, value):
    signer = Signer(os.urandom(32))
    own = signer.state(SUBJECT, b"content")
    other = dataclasses.replace(SUBJECT, **{name: value})
    keys = {4: signer.public, 0: signer.public}
    assert own.is_valid(keys)
    assert not Statement(other, own.content, own.signature).is_valid(keys)
    assert judge(TwoStories(own, signer.state(other, b"other content")), keys) is None


def test_two_lives_of_one_start_name_the_signer_and_two_starts_nobody():
    signer = Signer(os.urandom(32))
    keys = {4: signer.public}
    one = signer.state(SUBJECT, b"content")
    other = dataclasses.replace(SUBJECT, life=2)
    assert not Statement(other, one.content, one.signature).is_valid(keys)
    found = judge(TwoStories(one, signer.state(other, b"content")), keys)
    assert (found.party, "life 0 and 2" in found.why) == (4, True)
    restored = dataclasses.replace(other, start=b"y")
    assert judge(TwoStories(one, signer.state(restored, b"other content")), keys) is None


def test_two_contents_of_one_subject_name_the_signer_and_a_forged_one_names_nobody():
    signer = Signer(os.urandom(32))
    keys = {4: signer.public}
    one, other = signer.state(SUBJECT, b"one"), signer.state(SUBJECT, b"other")
    assert judge(TwoStories(one, other), keys).party == 4
    assert judge(TwoStories(one, one), keys) is None
    forged = dataclasses.replace(other, signature=one.signature)
    assert judge(TwoStories(one, forged), keys) is None
    assert judge(TwoStories(one, other), {}) is None


@pytest.mark.parametrize(("N", "T"), [(4, 1), (8, 1), (28, 4), (9, 2)])
def test_two_quorums_have_an_honest_holder_in_common(N, T):
    q = quorum_of(N, T)
    assert 2 * q - N > T
    assert 2 * (q - 1) - N <= T


def test_a_dealing_that_goes_on_with_other_dealings_names_the_dealer():
    signer = Signer(os.urandom(32))
    keys = {4: signer.public}
    first = Dealt(2, *(bytes([n]) * 32 for n in range(5)))
    honest = Dealt(2, *(bytes([n]) * 32 for n in range(4)), first.after)
    other = dataclasses.replace(honest, before=bytes(32))
    later = dataclasses.replace(SUBJECT, step=2)
    one = signer.state(SUBJECT, first.encoded())
    assert judge(TwoStories(one, signer.state(later, honest.encoded())), keys) is None
    found = judge(TwoStories(one, signer.state(later, other.encoded())), keys)
    assert found.party == 4
    assert "goes on with other steps" in found.why
    restarted = dataclasses.replace(later, start=b"y")
    assert judge(TwoStories(one, signer.state(restarted, other.encoded())), keys) is None
    skipped = dataclasses.replace(later, step=3)
    assert judge(TwoStories(one, signer.state(skipped, other.encoded())), keys) is None
    loose = [dataclasses.replace(each, kind="model") for each in (SUBJECT, later)]
    one, following = map(signer.state, loose, (first.encoded(), other.encoded()))
    assert judge(TwoStories(one, following), keys) is None  # no chain is kept of this kind
