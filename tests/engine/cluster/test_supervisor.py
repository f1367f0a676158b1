"""Which rounds a server that comes back on a cluster must not announce."""

from types import SimpleNamespace

import pytest

from securevfl.engine.cluster.supervisor import Cluster
from securevfl.engine.network import Event

pytest.importorskip("ray")


@pytest.mark.parametrize(("status_round", "events", "floor"), [(4, [], 4), (3, [5], 5), (0, [], 2)])
def test_the_floor_is_the_newest_round_that_anybody_is_in(status_round, events, floor):
    """A server killed inside round 4 has recorded nothing of it, and its clients are in it."""
    told = [Event(0, 1, round, "clipped", {}) for round in events]
    state = SimpleNamespace(round=status_round, failed="")
    report = SimpleNamespace(status=state, events=told, messages=0, bytes=0, process=1)
    cluster = object.__new__(Cluster)
    cluster._floor = 2
    cluster._ray = SimpleNamespace(get=lambda reference: report)
    heard = []
    cluster._take_report(1, SimpleNamespace(poll="reference"), heard.append)
    assert cluster._floor == floor
    assert heard == told
