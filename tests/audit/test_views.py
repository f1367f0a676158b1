"""Views: what a coalition sees of a real run, and nothing else."""

import dataclasses

import numpy as np
import pytest

from securevfl.audit import views
from securevfl.audit.recorded_runs import run_factory
from securevfl.engine.transcript import Transcript
from securevfl.errors import ConfigurationError
from securevfl.privacy.coalition import Coalition
from securevfl.protocols.base.registry import get_protocol


@pytest.fixture(scope="module")
def recorded():
    rng = np.random.default_rng(0)
    features = [rng.random((4, 2)) for _ in range(4)]
    return run_factory(get_protocol("fedvs"), features, rounds=2, width=3, prime=2**31 - 1).run()


def test_the_server_sees_no_share(recorded):
    seen = recorded.view(Coalition(server=True))
    assert {m.kind for m in seen.messages} == {
        "round",
        "shared",
        "attempt",
        "embedding",
        "gradient",
    }
    assert seen.tapes == {}
    assert sorted(seen.one_per_sender("embedding", 2, -1)) == [0, 1, 2, 3]
    assert seen.rounds("embedding") == [1, 2]


def test_clients_see_what_is_sent_to_them_and_their_own(recorded):
    seen = recorded.view(Coalition(clients=(1, 3)))
    assert {tuple(sorted((m.sender, m.receiver))) for m in seen.messages if m.kind == "model"} == {
        (0, 1),
        (1, 2),
        (1, 3),
        (0, 3),
        (2, 3),
    }
    assert set(seen.tapes) == set(seen.inputs) == {1, 3}
    assert sorted(seen.one_per_sender("train-data", 0, 1)) == [0, 2, 3]


def test_an_outsider_sees_every_message(recorded):
    seen = views.cut(recorded.transcript, Coalition(outsider=True))
    assert len(seen.messages) == recorded.transcript.messages
    assert not seen.tapes
    assert not seen.inputs


def test_uploads_without_the_server(recorded):
    seen = recorded.view(Coalition(uploads=(2,)))
    assert {(m.kind, m.sender) for m in seen.messages} == {("embedding", 2)}


def test_views_of_two_runs_differ_and_a_view_equals_itself(recorded):
    again = run_factory(get_protocol("fedvs"), recorded.protocol.data.train, rounds=2, width=3,
                  prime=2**31 - 1).run()  # fmt: skip
    coalition = Coalition(server=True, clients=(0,))
    assert list(recorded.view(coalition).differences(recorded.view(coalition))) == []
    words = " ".join(recorded.view(coalition).differences(again.view(coalition)))
    assert "embedding" in words
    assert "tapes of party 0" in words


@pytest.mark.parametrize("time", ["sent", "arrived"])
def test_a_message_at_another_time_is_another_view(recorded, time):
    seen = recorded.view(Coalition(server=True))
    *others, last = seen.messages
    later = dataclasses.replace(last, **{time: getattr(last, time) + 1})
    other = dataclasses.replace(seen, messages=(*others, later))
    [found] = seen.differences(other)
    assert found == f"messages {last.envelope} and {later.envelope}"


@pytest.mark.parametrize(
    ("text", "members"),
    [
        ("server", (-1,)),
        ("server + client 2", (-1, 2)),
        ("clients 0, 3", (0, 3)),
        ("outsider", ()),
        ("uploads 0, 1", ()),
    ],
)
def test_coalitions_in_words(text, members):
    parsed = Coalition.parse(text)
    assert parsed.members == members
    assert str(parsed) == text


@pytest.mark.parametrize("text", ["", "servers", "client", "server 1", "clients 0 + nobody"])
def test_words_that_are_no_coalition(text):
    with pytest.raises(ConfigurationError, match="is not 'server'"):
        Coalition.parse(text)


def test_a_transcript_without_payloads_is_refused():
    with pytest.raises(ConfigurationError, match="kept no payloads"):
        views.cut(Transcript(), Coalition(server=True))


def test_sameness_is_of_bits_and_types():
    assert views.same({"a": [1, np.arange(2)]}, {"a": [1, np.arange(2)]})
    assert not views.same(np.arange(2), np.arange(2.0))
    assert not views.same([1], (1,))
    assert not views.same({"a": 1}, {"b": 1})
