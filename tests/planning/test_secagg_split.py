"""The forecast of masked sums: bytes, messages and times of its runs, at any quorum."""

import pytest

import securevfl as svfl
from securevfl.engine.conditions import NONE, Conditions, Delay
from securevfl.engine.network import SERVER
from securevfl.errors import ConfigurationError
from securevfl.planning.levels import levels_of
from securevfl.planning.message_bytes import sent_bytes, sent_messages
from securevfl.planning.message_times import expected_times
from securevfl.protocols.secagg_split import SecAggSplit
from tests.planning.test_message_times import data, outline_of

N = 5
TINY = {"rounds": 4, "width": 3, "hidden": 16, "batch": 8, "degree": 1, "quorum": N}
LEVELS = ("semi-honest", "covert")


def slow(parties, **more):
    """Delays of each client, in no order."""
    return Conditions(
        name="constant",
        uploads=tuple(Delay(0.0, 0.1 * (7 * n % parties)) for n in range(parties)),
        share_factor=0.5,
        bandwidth=1e5,
        compute="modelled",
        seconds_per_multiply_add=1e-4,
        **more,
    )


SLOW = slow(N)


@pytest.mark.parametrize(
    ("options", "sealed"),
    [
        ({"security": "covert"}, True),
        ({"security": "covert", "prime": 2**31 - 1, "bits": 8, "segments": 2}, False),
        ({"consistency": True, "threshold": 4}, True),
        ({}, False),
    ],
)
def test_bytes_of_every_party_messages_and_times_are_those_of_a_run(options, sealed):
    run = svfl.run("secagg_split", data(N), conditions=SLOW, sealed=sealed, **TINY, **options)
    columns, outline = run.transcript.columns(), outline_of(run)
    own = columns["sender"] == columns["receiver"]
    measured = {n: int(columns["bytes"][columns["sender"] == n].sum()) for n in (SERVER, *range(N))}
    assert sent_bytes(outline, N, sealed=sealed).total == measured
    assert sent_messages(outline, N) == int((~own).sum())
    found = expected_times(outline, SLOW, N, sealed=sealed, runs=2, rounds=4)
    assert found.total == pytest.approx(run.virtual_seconds, abs=1e-7)


@pytest.mark.parametrize(
    ("parties", "options", "survivors"),
    [
        (9, {}, 6),
        (9, {"security": "covert"}, 6),
        (10, {"security": "covert"}, 7),  # cohorts of 4, 3 and 3, of which 2 are first
        (6, {"cohorts": 0, "consistency": True, "quorum": 5}, 5),
    ],
)
@pytest.mark.parametrize("down", [None, 1e5])
def test_with_late_uploads_too_bytes_messages_and_times_are_those_of_a_run(
    parties, options, survivors, down
):
    more = {"delay_mode": "occupies", "downlinks": (down,) * parties} if down else {}
    under, options = slow(parties, **more), TINY | {"quorum": None} | options
    run = svfl.run("secagg_split", data(parties), conditions=under, **options)
    columns, outline = run.transcript.columns(), outline_of(run)
    assert columns["kind"].tolist().count("opening") == survivors * TINY["rounds"]
    own = columns["sender"] == columns["receiver"]
    found = sent_bytes(outline, parties, sealed=True).total
    assert sum(found.values()) == run.transcript.bytes
    assert found[SERVER] == columns["bytes"][columns["sender"] == SERVER].sum()
    assert sent_messages(outline, parties) == int((~own).sum())
    times = expected_times(outline, under, parties, sealed=True, runs=2, rounds=4)
    assert times.total == pytest.approx(run.virtual_seconds, abs=1e-7)


def test_so_many_may_lose_a_round_whoever_is_late():
    """Of cohorts of 4, 3 and 3, where 7 are to survive: one, and no two of two cohorts."""
    how = {"parties": 10, "rows": 30, "features": 10, "conditions": NONE, **TINY}
    found = svfl.plan(protocol="secagg_split", **how | {"quorum": 7})
    assert {one.tolerated for one in found.levels} == {0}
    found = svfl.plan(protocol="secagg_split", **how | {"quorum": 6})
    assert {one.tolerated for one in found.levels} == {1} == {found.best.tolerated}


def test_a_plan_shows_the_price_of_covert():
    how = {"parties": N, "rows": 30, "features": 9, "conditions": NONE}
    found = svfl.plan(protocol="secagg_split", **how, **TINY)
    prices = {one.name: one for one in found.levels}
    assert tuple(prices) == LEVELS
    run = svfl.run("secagg_split", data(N), conditions="none", security="covert", **TINY)
    made = outline_of(run)
    shape = (sent_messages(made, N), run.transcript.bytes)
    again = levels_of(SecAggSplit, found.shape, {**TINY}, sealed=True)[1]
    assert (prices["covert"].messages, prices["covert"].bytes) == shape
    assert (again.messages, again.bytes) == shape
    assert prices["semi-honest"].bytes == found.best.bytes < prices["covert"].bytes


def test_who_shares_by_chance_is_not_planned():
    with pytest.raises(ConfigurationError, match=r"chance.*leave out timeouts"):
        svfl.plan(protocol="secagg_split", parties=N, rows=30, features=9, share_timeout=1.0)
