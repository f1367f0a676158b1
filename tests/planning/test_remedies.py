"""What a plan proposes where no straggler is tolerated, and that its prices are right."""

from __future__ import annotations

import pytest

from securevfl.planning.forecast import Forecast, plan
from tests.cli.calls import call

SMALL = {"rows": 200, "features": 14, "width": 8, "batch": 32, "rounds": 10}


def changes(found: Forecast) -> list[str]:
    return [f"{remedy.protocol} {remedy.options}" for remedy in found.remedies]


def test_a_plan_with_room_has_no_remedies():
    assert plan(parties=5, **SMALL).remedies == ()


@pytest.mark.parametrize(
    ("asked", "proposed"),
    [
        ({"parties": 3}, ["coded_split --helpers 2"]),
        ({"parties": 7, "privacy": 3}, ["fedvs --privacy 2", "coded_split --helpers 4"]),
        ({"parties": 5, "segments": 2}, ["fedvs --segments 1", "coded_split --helpers 3"]),
        ({"parties": 5, "tolerate_corrupt": 1}, ["fedvs --tolerate-corrupt 0"]),
        ({"parties": 4, "protocol": "coded_split"}, ["coded_split --helpers 1"]),
    ],
)
def test_what_would_tolerate_a_straggler_is_proposed(asked, proposed):
    found = plan(**asked, **SMALL)
    assert found.best.tolerated == 0
    assert changes(found)[: len(proposed)] == proposed
    assert all(remedy.tolerated >= 1 and remedy.price for remedy in found.remedies)


@pytest.mark.parametrize(
    ("asked", "changed"),
    [
        ({"privacy": 3, "prime": 2**61 - 1}, {"privacy": 2, "segments": 1, "prime": 2**61 - 1}),
        ({"privacy": 3}, {"protocol": "coded_split", "privacy": 3, "helpers": 4, "segments": 1}),
    ],
)
def test_the_price_is_that_of_the_changed_plan(asked, changed):
    found = plan(parties=7, **asked, **SMALL)
    name = changed.get("protocol", "fedvs")
    (remedy,) = [one for one in found.remedies if one.protocol == name]
    best = plan(parties=7, **changed, **SMALL).best
    assert remedy.bytes == best.bytes
    assert remedy.round_seconds == pytest.approx(best.round_seconds, rel=0.02)
    assert remedy.tolerated == best.tolerated


def test_helpers_are_the_least_number_that_leaves_room():
    found = plan(parties=3, **SMALL)
    with_one_fewer = plan(parties=3, protocol="coded_split", helpers=1, segments=1, **SMALL)
    assert changes(found) == ["coded_split --helpers 2"]
    assert with_one_fewer.best.tolerated == 0


def test_where_helpers_are_planned_or_proposed_the_plan_says_whom_they_count_with():
    words = "A helper that an owner or the server runs counts with it: at K = 1 and T = "
    for asked in (
        {"parties": 3},
        {"parties": 7, "privacy": 3},
        {"parties": 8, "protocol": "coded_split", "helpers": 1, "segments": 1},
    ):
        found = plan(**asked, **SMALL)
        assert found.warnings[0].startswith(f"{words}{found.privacy} an owner")
    for asked in ({"parties": 8}, {"parties": 8, "protocol": "coded_split", "conditions": "none"}):
        assert words not in " ".join(plan(**asked, segments=1, **SMALL).warnings)


def test_the_command_shows_the_notice_and_the_prices(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = call("plan", "--rows", "200", "--features", "14", "--parties", "3", "--rounds", "10")
    words = " ".join(shown.stdout.split())
    assert "no straggler is tolerated: each round waits for the uploads of all R = N = 3" in words
    assert "coded_split --helpers 2" in words
    assert "as planned" in words
    assert "warning: A helper that an owner or the server runs counts with it" in words
    assert "no straggler" not in call("plan", "--rows", "200", "--features", "14").stdout
