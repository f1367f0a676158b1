"""The verifier of influence: labels in what parties do where somebody is late or down."""

import pytest

from securevfl.audit.subject import Subject
from securevfl.audit.traffic import pairs
from securevfl.audit.traffic.pairs import UnequalError, label_traffic
from securevfl.audit.traffic.seen import Traffic
from securevfl.audit.verifiers.influence import Influence
from securevfl.audit.verify import judge
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.fedonce import Server
from securevfl.testing.runs import make
from tests.audit.few_settings import few

FILLED = {"absent": "zeros", "timeout": 1.0}

COLLECT = Server.collect


def claim_on_labels(made, who):
    return next(one for one in made.claims if (one.who, one.asset) == (who, "labels"))


def verdict(made, who="client"):
    subject = Subject(made, settings=few)
    return judge(claim_on_labels(made, who), subject, [Influence()])


def test_a_sound_method_has_the_same_traffic_in_all_settings():
    found = verdict(make("fedonce", **FILLED))
    assert found.verdict == "NO VIOLATION FOUND"
    assert "(a small run, resumed, clients late) have the same traffic for client" in found.words


def test_what_only_others_see_is_no_influence_on_a_party():
    subject = Subject(make("fedonce", **FILLED), settings=few)
    told, settings = label_traffic(subject, lambda key: False)
    assert told == ""
    assert settings == "a small run, resumed, clients late"


def test_runs_that_chance_makes_unequal_say_nothing(monkeypatch):
    times = iter(range(1, 10_000))

    async def sleeps(self, kind, **asked):
        await self.sleep(1e-6 * next(times))
        return await COLLECT(self, kind, **asked)

    monkeypatch.setattr(Server, "collect", sleeps)
    subject = Subject(make("fedonce", **FILLED), settings=few)
    with pytest.raises(UnequalError, match="differs between two runs with equal inputs"):
        label_traffic(subject)


@pytest.mark.parametrize("fresh", [False, True])
def test_control_messages_are_the_same_in_equal_runs_or_say_nothing(monkeypatch, fresh):
    """What differs by chance could hide what depends on labels: it is not left out."""
    labels, runs = [], []

    def traffic(protocol, setting):
        runs.append(protocol)
        labels.append(protocol.data.train_labels.tobytes())
        content = f"{labels.index(labels[-1])} {len(runs) * fresh}"
        return Traffic((), ((MessageKey("round", 1, -1, 0), content),), ())

    monkeypatch.setattr(pairs, "traffic_of", traffic)
    subject = Subject(make("fedonce", **FILLED), settings=lambda _: ())
    if fresh:
        with pytest.raises(UnequalError, match="the content of a control message"):
            label_traffic(subject)
    else:
        told, setting = label_traffic(subject)
        assert "the content of a control message" in told
        assert setting == "a small run"
