"""Faults by rounds: scripts count the server's, and answers may be lost by draws of their own.

In VAFL and CVFL clients begin rounds of their own, a fraction of the server's.
"""

import pytest

import securevfl as svfl

DELAYS = {"upload_mean": 0.1, "share_factor": 0}
SMALL = {"batch": 32, "width": 8, "hidden": 8, "conditions": DELAYS, "sealed": False}


def run(protocol, faults, **options):
    data = svfl.load_dataset("digits", parties=4).subset(160, 20)
    return svfl.run(protocol, data, faults=faults, **SMALL, **options)


@pytest.mark.parametrize(
    ("protocol", "options"), [("vafl", {"timeout": 0.5}), ("cvfl", {"patience": 0.5})]
)
def test_an_outage_in_rounds_strikes_in_the_rounds_of_the_history(protocol, options):
    made = run(protocol, {"outage": [{"party": 1, "rounds": [5, 9]}]}, rounds=15, **options)
    assert [row["round"] for row in made.history] == list(range(1, 16))
    (down,), (up,) = ([e for e in made.events if e["event"] == name] for name in ("down", "up"))
    over = [row["time"] for row in made.history]
    assert over[3] <= down["time"] < over[4]  # four rounds were over
    assert over[7] <= up["time"] < over[8]
    late = run(protocol, {"outage": [{"party": 1, "rounds": [50, 60]}]}, rounds=15, **options)
    assert not [e for e in late.events if e["event"] == "down"]


def test_an_embedding_may_arrive_and_its_gradient_be_lost():
    chain = {"fault": 0.3, "rejoin": 0.5}
    options = {"stragglers": "zeros", "timeout": 5.0, "rounds": 40}
    for role, why in (("link", "the link is down"), ("client", "does not hear it")):
        lost = {}
        for backward in (False, True):
            made = run("split", {role: chain, "backward": backward}, **options)
            gone = [e for e in made.events if e["event"] == "lost"]
            uploads = {(e["party"], e["of_round"]) for e in gone if e["kind"] == "embedding"}
            lost[backward] = [
                e for e in gone
                if e["kind"] == "gradient" and (e["to"], e["of_round"]) not in uploads
                and why in e["why"]
            ]  # fmt: skip
        assert not lost[False]
        assert len(lost[True]) > 5
