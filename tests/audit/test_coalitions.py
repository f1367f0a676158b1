"""Adversaries of claims as parties of a protocol."""

import pytest

from securevfl.audit.coalitions import coalitions_of, may_see
from securevfl.privacy.adversary import Adversary
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.messages import MessageKey
from securevfl.testing.runs import make


@pytest.mark.parametrize(
    ("name", "options", "phrase", "first", "count"),
    [
        ("split", {}, "server", Coalition(server=True), 1),
        ("split", {}, "client", Coalition(clients=(0,)), 6),
        ("secagg_split", {"privacy": 2}, "server + T clients", Coalition(True, (0, 1)), 1),
        ("he_split", {}, "server + key holder", Coalition(True, (0,)), 1),
        ("he_split", {}, "server + T clients without the key holder", Coalition(True, (1,)), 1),
        ("cvfl", {"active": 2}, "active parties", Coalition(clients=(0, 1)), 1),
        ("cvfl", {}, "active parties", Coalition(clients=(0,)), 6),
        ("dvfl", {}, "host", Coalition(clients=(6,)), 2),
        ("dvfl", {}, "owner", Coalition(server=True), 1),
    ],
)
def test_an_adversary_is_some_parties(name, options, phrase, first, count):
    found = coalitions_of(Adversary.parse(phrase), make(name, **options))
    assert (found[0], len(found)) == (first, count)


def test_a_role_that_nobody_has_is_no_coalition():
    assert coalitions_of(Adversary(role="stranger"), make("split")) == []


def test_a_message_is_seen_by_its_receiver():
    made = make("he_split")
    to_server, to_client = MessageKey("sum", 1, 2, -1), MessageKey("sum", 1, -1, 0)
    for phrase, seen in {
        "server": (True, False),
        "T clients": (False, True),
        "server + T clients": (True, True),
        "key holder": (False, True),
        "outsider": (False, False),
    }.items():
        against = Adversary.parse(phrase)
        assert (may_see(against, made, to_server), may_see(against, made, to_client)) == seen
