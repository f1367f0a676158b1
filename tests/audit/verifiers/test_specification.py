"""What a class changes of what it is held against keeps it from being endorsed."""

from dataclasses import replace

import pytest
import torch

from securevfl.audit.following.library import library_base
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.specification import Specification, own_words
from securevfl.field import LagrangeCode
from securevfl.models import user_code
from securevfl.privacy.claims import Claim
from securevfl.protocols.base.protocol import Protocol
from securevfl.protocols.base.registry import find_protocols, get_protocol
from securevfl.testing.runs import make


@pytest.fixture(autouse=True)
def no_code_of_users(monkeypatch):
    """Forget classes that tests before, in the same process, passed as networks of their own."""
    monkeypatch.setattr(user_code, "_GIVEN", {})


BASE = get_protocol("fedvs")


def changed(**attributes):
    return type("Changed", (BASE,), {"__doc__": "A change of FedVS.", **attributes})


def own_code(self, *arguments, **options):
    BASE.__init__(self, *arguments, **options)

    class Code(LagrangeCode):
        """A code of one's own."""

    code = self.public.code
    made = Code(code.field, parties=code.parties, segments=code.segments, privacy=code.privacy)
    self.public = replace(self.public, code=made)


def patched_code(self, *arguments, **options):
    BASE.__init__(self, *arguments, **options)
    code = self.public.code
    encode = code.encode_constant
    object.__setattr__(code, "encode_constant", lambda *a, **k: encode(*a, **k))


class Pretender(BASE):
    """A class that says it is the library's."""

    def quantised_columns(self):
        """Columns of its own."""
        return {n: 0 * one for n, one in super().quantised_columns().items()}


Pretender.__module__ = BASE.__module__


@pytest.mark.parametrize("name", sorted(find_protocols()))
def test_methods_of_the_library_are_its_own(name):
    if name == "he_split":
        pytest.importorskip("tenseal")
    assert own_words(Subject(make(name))) == ""


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (changed(claims=property(lambda self: BASE.claims.fget(self))), "Changed.claims"),
        (changed(messages=property(lambda self: BASE.messages.fget(self))), "Changed.messages"),
        (changed(ideal_output=lambda self, secrets, key: None), "Changed.ideal_output"),
        (changed(predictors=lambda self, parties, features: {}), "Changed.predictors"),
        (changed(fault_options={}), "Changed.fault_options"),
        (changed(small_options={"rounds": 1}), "Changed.small_options"),
        (changed(network=BASE.network, extra=1), "Changed.extra"),
        (changed(__init__=own_code), "public.code is a "),
        (changed(__init__=patched_code), "public.code.encode_constant"),
        (Pretender, "Pretender.quantised_columns"),
    ],
)
def test_what_is_changed_is_named(cls, words):
    subject = Subject(make(cls))
    assert words in own_words(subject)
    claim = next(c for c in subject.protocol.claims if c.strength == "perfect")
    [found] = Specification().examine(claim, subject, seed=0, level=1e-7)
    assert (found.effect, found.bearing) == ("silent", "unread")


def test_a_class_may_make_its_parties_in_its_own_way():
    assert own_words(Subject(make(changed(parties=lambda self: BASE.parties(self))))) == ""


def evidence_of(protocol, who="server"):
    claim = next(c for c in protocol.claims if (c.who, c.strength) == (who, "perfect"))
    return list(Specification().examine(claim, Subject(protocol), seed=0, level=1e-7))


def test_code_of_others_that_parties_run_is_not_endorsed():
    [found] = evidence_of(make(changed(parties=lambda self: BASE.parties(self))))
    assert found.bearing == "unread"
    assert "code that is not the library's and that was not read (Changed.parties)" in found.text


def test_a_class_of_another_name_and_nothing_else_is_endorsed():
    [found] = evidence_of(make(changed(name="my-fedvs")))
    assert (found.effect, found.bearing) == ("silent", "test")


class OwnCentre(torch.nn.Linear):
    """The server's own model."""

    def __init__(self, width, outputs):
        super().__init__(width, outputs)


@pytest.mark.parametrize(("who", "bearing"), [("server", "test"), ("T clients", "unread")])
def test_the_servers_own_model_counts_where_it_is_not_the_adversary(who, bearing):
    [found] = evidence_of(make("fedvs", own_centre=OwnCentre), who)
    assert found.bearing == bearing


def other_claims(strength):
    base = get_protocol("split")
    claim = Claim("server", "features", strength, "of its own")
    attributes = {"claims": (claim,), "__doc__": "Split learning."}
    subject = Subject(make(type("Claiming", (base,), attributes)))
    return [one.bearing for one in Specification().examine(claim, subject, seed=0, level=1e-7)]


def test_a_claim_where_the_library_says_none_is_nothing_that_was_tested():
    assert other_claims("computational") == ["unread", "channel"]


@pytest.mark.parametrize(
    ("labels", "bearings"), [(True, ["unread", "channel"]), (False, ["unread"])]
)
def test_a_description_that_changes_with_labels_is_nothing_that_was_tested(labels, bearings):
    base = get_protocol("fedonce")

    def describe(self):
        told = int(self.data.train_labels[0]) if labels else 3
        return base.describe(self) | {"told": told}

    protocol = make(type("Telling", (base,), {"describe": describe, "__doc__": "FedOnce."}))
    claim = next(one for one in protocol.claims if one.asset == "labels")
    found = Specification().examine(claim, Subject(protocol), seed=0, level=1e-7)
    assert [one.bearing for one in found] == bearings


def test_a_protocol_that_is_made_of_no_method_of_the_library_has_no_base():
    alone = type("Alone", (Protocol,), {"__doc__": "A protocol of another."})
    assert library_base(object.__new__(type("Made", (BASE,), {}))) is BASE
    alone.__abstractmethods__ = frozenset()
    assert library_base(object.__new__(alone)) is None
