"""Values in the clear are found under whatever name and in whatever form they are sent."""

import os

import numpy as np
import pytest

from securevfl import load_dataset
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.plaintext import PlainHistory, Plaintext, _Needles
from securevfl.data import VerticalDataset
from securevfl.engine.party import SERVER
from securevfl.protocols.base.messages import MessageSpec
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import make
from securevfl.verified import bare_of

SMALL = {"rounds": 4, "batch": 20}


def telling(value, name="fedvs"):
    """A method that declares a message "note", and whose client 1 sends `value` of itself in it."""
    base = get_protocol(name)

    def parties(self):
        made = base.parties(self)
        client, send = made[1], made[1].send

        def sending(to, kind, payload, **more):
            send(to, kind, payload, **more)
            if kind == "embedding":
                send(SERVER, "note", value(client))

        client.send = sending
        return made

    def messages(self):
        return (*base.messages.fget(self), MessageSpec("note", "client", "server", "control"))

    more = {"parties": parties, "messages": property(messages), "__doc__": "Planted leak."}
    return type("Telling", (base,), more)


ROWS = np.random.default_rng(5).permutation(60)[:20]
NOISE = np.random.default_rng(6).standard_normal((20, 5)).astype(np.float32)


def features(client):
    held = bare_of(client.features)
    return held["train"] if isinstance(held, dict) else held


FORMS = {
    "rows": lambda c: features(c)[:40],
    "a column": lambda c: np.ascontiguousarray(features(c)[:, 2]),
    "64 bits": lambda c: features(c).astype(np.float64),
    "a few values": lambda c: np.ascontiguousarray(features(c)[5:13, 2]),
    "in a tuple": lambda c: (1, np.ascontiguousarray(features(c).T)),
}
OF_SOME_ROWS = {
    "a column of some rows": lambda c: np.ascontiguousarray(features(c)[ROWS, 2]),
    "two columns of some rows": lambda c: features(c)[ROWS][:, [0, 3]].astype(np.float64),
    "some rows, turned": lambda c: np.ascontiguousarray(features(c)[ROWS].T),
    "beside other numbers": lambda c: np.hstack([NOISE, features(c)[ROWS, 1:2], NOISE]),
}


def found(cls, who="server", about="features", data=None, **options):
    subject = Subject(make(cls, data, **SMALL | options))
    claim = next(c for c in subject.protocol.claims if (c.who, c.asset) == (who, about))
    assert Plaintext().applies(claim, subject.protocol)
    [evidence] = Plaintext().examine(claim, subject, seed=0, level=1e-7)
    return evidence


@pytest.mark.parametrize("name", ["fedvs"])
@pytest.mark.parametrize("form", FORMS)
def test_features_in_the_clear_are_found(name, form):
    evidence = found(telling(FORMS[form], name))
    assert evidence.effect == "accuses"
    assert "'note' from 1 to -1 holds features of client 1" in evidence.text


@pytest.mark.parametrize("name", ["fedvs"])
@pytest.mark.parametrize("form", OF_SOME_ROWS)
def test_features_of_some_rows_are_found_in_any_order_and_choice_of_columns(name, form):
    data = load_dataset("breast-cancer", parties=4)
    evidence = found(telling(OF_SOME_ROWS[form], name), data=data)
    assert "'note' from 1 to -1 holds features of client 1" in evidence.text


def test_a_column_of_few_values_is_found_at_the_rows_that_were_named():
    """Pixels have 17 values, which occur anywhere; at the rows of the batch they tell."""

    def value(client):
        rows = client.batch_rows
        return np.ascontiguousarray(features(client)[np.maximum(rows, 0), 2])

    cls = telling(value)
    parties = cls.parties

    def noting(self):
        made = parties(self)
        client, checked = made[1], made[1].checked

        def and_note(batch, attempt):
            client.batch_rows = batch.rows.astype(np.int64)
            return checked(batch, attempt)

        client.checked = and_note
        return made

    cls.parties = noting
    assert "'note' from 1 to -1 holds features of client 1" in found(cls).text


@pytest.mark.parametrize("name", ["fedvs"])
def test_sound_methods_are_not_blamed_on_columns_of_many_values(name):
    assert found(name, data=load_dataset("breast-cancer", parties=4)).effect == "supports"


def test_weights_are_found():
    evidence = found(telling(lambda c: bare_of(c.network).values), about="model")
    assert evidence.effect == "accuses"


def test_those_that_do_not_see_it_are_not_told():
    assert found(telling(FORMS["rows"]), who="T clients").effect == "supports"


@pytest.mark.parametrize("name", ["fedvs"])
@pytest.mark.parametrize("about", ["features", "model"])
def test_sound_methods_are_not_blamed(name, about):
    evidence = found(name, about=about)
    assert evidence.effect == "supports"
    assert "no " + about in evidence.text


def test_stretches_are_found_wherever_they_begin_and_not_where_a_byte_is_missing():
    stream = np.random.default_rng(3)
    stretches = [stream.bytes(length) for length in (8, 48, 96) for _ in range(20)]
    looked = _Needles({0: stretches[::2], 1: stretches[1::2]})
    for place, one in enumerate(stretches):
        for begin in range(9):
            before, after = stream.bytes(begin), stream.bytes(5)
            assert looked.within(before + one + after) == {place % 2}
            assert looked.within(before + one) == {place % 2}
            assert looked.within(before + one[:-1]) == set()
    assert looked.within(b"") == looked.within(bytes(7)) == set()
    assert looked.within(stretches[0] + stretches[1]) == {0, 1}
    assert _Needles({0: []}).within(stretches[0]) == set()


@pytest.mark.parametrize("leaks", [False, True])
@pytest.mark.parametrize("name", ["fedvs"])
def test_columns_in_the_history_forbid_a_good_verdict(name, leaks):
    """Also beside a number that differs in every run, and in an event that may tell of data."""
    base = get_protocol(name)

    def parties(self):
        made = base.parties(self)
        client, send = made[1], made[1].send
        own = features(client)

        def sending(to, kind, payload, **more):
            send(to, kind, payload, **more)
            if kind == "embedding":
                row = own[:3].ravel().tolist() if leaks else []
                client.record("clipped", weights=[3, *row], ticket=os.urandom(4).hex())

        client.send = sending
        return made

    cls = type("Telling", (base,), {"parties": parties, "__doc__": "Planted leak."})
    columns = [np.random.default_rng(n).normal(size=(90, 6)) for n in range(4)]
    data = VerticalDataset.from_numpy(columns, np.arange(90) % 2)
    made = make(cls, data, **SMALL)
    claim = next(one for one in made.claims if PlainHistory().applies(one, made))
    found = list(PlainHistory().examine(claim, Subject(made), seed=0, level=1e-6))
    assert [(one.bearing, "'clipped' of party 1 holds features" in one.text) for one in found] == [
        ("gap", True)
    ] * leaks
