"""What a party does beside its messages: events, order, times, waits, measures, its end."""

import random
import sys

import numpy as np
import pytest
import torch

from securevfl.audit.deviations import compare
from securevfl.audit.followed_runs import follow
from securevfl.audit.following import acts
from securevfl.audit.recording.recorder import record
from securevfl.audit.traffic.setting import ITSELF, Setting
from securevfl.audit.verdicts import Evidence, conclude
from securevfl.audit.verifiers.declaration import AS_DECLARED
from securevfl.engine.network import Sending, Wait
from securevfl.engine.party import SERVER, Party
from securevfl.errors import RunError
from securevfl.protocols.base.registry import get_protocol
from securevfl.protocols.fedvs.messages import Batch
from securevfl.testing.leaks import all_leaks, sound_variants
from securevfl.testing.leaks.planting import changed
from securevfl.testing.runs import make

ZOO = {one.name: one for one in (*all_leaks(), *sound_variants())}


def acts_of(name):
    one = ZOO[name]
    pytest.importorskip("tenseal") if one.protocol == "he_split" else None
    found = compare(record(make(one.make(), **one.options), followed=True))
    assert found.deviations == ()
    return found.acts


@pytest.mark.filterwarnings("ignore:steep")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("fedvs: an event whose name is a value", "it records ["),
        ("fedvs: a value in an event", "it records"),
        ("fedvs: columns in the log", "log: INFO securevfl.fedvs: client 0 starts with"),
        ("fedvs: a value on the screen", "it prints or logs screen: "),
        ("fedvs: a value in a warning", "it prints or logs warning: steep: "),
        ("fedvs: an order of shares by a spread", "it sends at another time or in another order"),
        ("secagg_split: a nanosecond later by a spread", "it sends at another time"),
        ("secagg_split: a value in a quiet log line", "log: DEBUG securevfl.training: at "),
        ("he_split: measures of other embeddings", "scores of the models on test rows"),
        ("dvfl: labels in the last digits of losses", "the server, round 28: it records"),
        ("fedonce: labels on the screen", "it prints or logs screen: "),
        ("secagg_split: a constant event", "it records"),
        ("fedvs: all half a second later", "it sends at another time"),
    ],
)
def test_what_the_librarys_party_does_not_do_is_told(name, words):
    assert words in acts_of(name)[0]


@pytest.mark.parametrize(
    "name",
    ["fedvs: a diary", "secagg_split: losses of another type", "fedvs: shares one by one"],
)
def test_what_others_cannot_see_is_nobodys_concern(name):
    assert acts_of(name) == ()


def planted(base, plant):
    return changed(base, lambda protocol, parties: plant(parties))()


def followed(cls, setting=ITSELF, **options):
    return follow(make(cls, rounds=6, **options), setting).comparison


def test_an_event_that_is_changed_afterwards_is_told():
    def plant(parties):
        server, kept = parties[SERVER], []
        record_, conclude_ = server.record, server.conclude

        def recording(name, **fields):
            kept.append(np.array(fields["loss"]))
            record_(name, **fields | {"loss": kept[-1]})

        def concluding(to=None):
            kept[0][...] = 7.0
            conclude_(to)

        server.record, server.conclude = recording, concluding

    assert "afterwards, it records" in followed(planted("split", plant)).acts[0]


def test_only_what_is_written_counts_while_a_party_is_brought_back():
    lives = []

    def plant(parties):
        lives.append(len(lives))
        server, collect = parties[SERVER], parties[SERVER].collect

        def collecting(kind, **more):
            if lives[-1] == 1:
                lives.append(2)
                sys.stdout.write("again")
            return collect(kind, **more)

        server.collect = collecting

    setting = Setting("resumed", resumed_in=3)
    assert followed("split", setting).acts == ()
    assert "screen: again" in followed(planted("split", plant), setting).acts[0]


@pytest.mark.parametrize("own", [True, False])
def test_an_error_that_ends_a_run_is_that_of_the_librarys_party(own, monkeypatch):
    """The library's server fails as well where its own code does."""
    cls = get_protocol("split")
    train = type(make("split").parties()[SERVER]).train

    def failing(server, *rest):
        if server.round == 3:
            raise RunError("split: it cannot go on")
        train(server, *rest)

    def plant(parties):
        server = parties[SERVER]
        server.train = lambda *rest: failing(server, *rest)

    if own:
        monkeypatch.setattr(type(make("split").parties()[SERVER]), "train", failing)
        assert followed(cls).acts == ()
    else:
        found = followed(planted("split", plant)).acts[0]
        assert "it ends by RunError: split: it cannot go on" in found


def test_another_wait_is_told():
    def plant(parties):
        server, collect = parties[SERVER], parties[SERVER].collect
        server.collect = lambda kind, **more: collect(kind, **more | {"timeout": 1e6})

    assert "it waits for something else" in followed(planted("split", plant)).acts[0]


def test_a_sending_is_told_by_its_receivers_and_not_by_the_number_of_calls():
    party = Party(0, range(3))
    whole = [*acts.sendings(Sending(party, (1, 2), "embedding", [0, 0], 4))]
    parts = [Sending(party, (to,), "embedding", [0], 4) for to in (1, 2)]
    assert whole == [one for part in parts for one in acts.sendings(part)]
    [later] = acts.sendings(Sending(party, (1,), "embedding", [0], 4, 1e-9))
    assert acts.difference([later], whole[:1]) == later.describe()
    assert acts.difference([], whole).startswith("it leaves out what the library's does")
    assert acts.difference(whole, []) == whole[0].describe()
    assert acts.difference(whole, list(whole)) == ""
    party.epoch = 1
    assert [*acts.sendings(parts[0])] != whole[:1]


def test_waits_differ_in_whatever_ends_them():
    first = Wait(("a",), 1, 2, frozenset((0, 1)), None, False, 1)
    others = [
        Wait(("b",), 1, 2, frozenset((0, 1)), None, False, 1),
        Wait(("a",), 1, 1, frozenset((0, 1)), None, False, 1),
        Wait(("a",), 1, 2, frozenset((0, 2)), None, False, 1),
        Wait(("a",), 1, 2, frozenset((0, 1)), 3.0, False, 1),
        Wait(("a",), 1, 2, frozenset((0, 1)), None, True, 1),
        None,
    ]
    assert len({acts.waiting(one, ["a"]) for one in (first, *others)}) == 1 + len(others)
    assert acts.waiting(first, ["a"]) != acts.waiting(first, ["b"])


def test_texts_are_those_of_a_file():
    assert acts.text_of({"a": np.float64(0.1)}) == acts.text_of({"a": 0.1})
    assert acts.text_of({"a": 0.1}) != acts.text_of({"a": 0.1 + 1e-16})
    assert acts.text_of({"a": 1, "b": 2}) != acts.text_of({"b": 2, "a": 1})
    assert "object at" in acts.text_of(object())
    looped = []
    looped.append(looped)
    assert acts.text_of(looped) == "[[...]]"


def test_nothing_speaks_for_a_claim_while_something_leaves_that_nobody_looked_at():
    proof = Evidence("a", "supports", "a theorem", "proof")
    channel = Evidence("b", "silent", "an event", "channel")
    assert conclude(AS_DECLARED, [proof]).verdict == "PROVED"
    assert conclude(AS_DECLARED, [proof, channel]).verdict == "NOT TESTED"
    against = Evidence("c", "accuses", "a column", "demonstration", 0.0)
    assert conclude(AS_DECLARED, [proof, channel, against]).verdict == "VIOLATED"


class Told(np.ndarray):
    """An array that carries more than its numbers."""


def with_attribute(value):
    vars(value)["told"] = 1
    return value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.zeros(3).view(Told), np.zeros(3)),
        ([{"rows": np.zeros(3).view(Told)}], [{"rows": np.zeros(3)}]),
        (with_attribute(np.zeros(3).view(Told)), np.zeros(3).view(Told)),
        (with_attribute(Batch("train", np.zeros(3))), Batch("train", np.zeros(3))),
        (type("Kind", (str,), {})("model"), "model"),
    ],
)
def test_what_a_payload_carries_beside_its_content_is_part_of_its_form(one, other):
    assert acts.form(one) != acts.form(other)


def test_what_an_object_has_computed_is_no_part_of_its_form():
    one, other = (Batch("train", np.zeros(3, np.uint32)) for _ in range(2))
    assert one.meets(one)  # which keeps the rows as a set
    assert acts.form(one) == acts.form(other)


def of_payload(payload):
    [found] = acts.sendings(Sending(Party(0, range(3)), (1,), "embedding", [payload], 4))
    return found


@pytest.mark.parametrize(
    ("longer", "shorter"),
    [
        (np.arange(6)[:3], np.arange(3)),
        ([{"rows": np.arange(6)[:3]}], [{"rows": np.arange(3)}]),
        (np.frombuffer(bytes(range(8)))[:0], np.arange(0.0)),
        (torch.arange(6)[:3].numpy(), torch.arange(3).numpy()),
    ],
)
def test_a_part_of_a_longer_array_carries_the_rest_of_it(longer, shorter):
    whole, part = of_payload(longer), of_payload(shorter)
    assert "it sends a part of a longer array" in acts.difference([whole], [part])
    assert acts.difference([part], [whole]) == ""  # less is sent than by the library
    assert acts.difference([whole], [of_payload(longer)]) == ""


def test_the_rest_must_be_the_librarys_too():
    one, other = np.arange(6), np.array([0, 1, 2, 7, 7, 7])
    assert "longer" in acts.difference([of_payload(other[:3])], [of_payload(one[:3])])
    assert acts.difference([of_payload(one.reshape(2, 3))], [of_payload(other)]) == ""


def test_labels_behind_an_array_are_told():
    assert "a part of a longer array" in acts_of("fedonce: labels behind an array")[0]
    assert acts_of("fedonce: copies") == ()


def test_a_state_of_the_process_that_a_step_changes_is_told():
    def plant(parties):
        server, conclude = parties[SERVER], parties[SERVER].conclude

        def concluding(to=None):
            random.seed(server.steps)
            conclude(to)

        server.conclude = concluding

    before = random.getstate()
    try:
        assert (
            "state of the process: Python's generator" in followed(planted("split", plant)).acts[0]
        )
    finally:
        random.setstate(before)
    assert followed("split").acts == ()
