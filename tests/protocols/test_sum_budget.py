"""The budget of sums: no row is in more decoded sums than its unknowns allow, whoever asks."""

import os

import numpy as np
import pytest

from securevfl.data import VerticalDataset
from securevfl.engine.conditions import NONE
from securevfl.engine.faults import faults_from
from securevfl.engine.party import SERVER
from securevfl.engine.party_state import ahead, restore, snapshot
from securevfl.errors import ConfigurationError, PrivacyError, SecureVFLError
from securevfl.protocols.fedvs.messages import Batch
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of

METHODS = ("fedvs", "coded_split")
OPTIONS = {"width": 2, "batch": 10, "hidden": 4, "sum_budget": 1.0}
PARTIES, COLUMNS, ROWS = 5, 2, 40  # 10 unknowns: 4 visits, 16 rounds of 10 rows


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    rows = [rng.random((ROWS + 10, COLUMNS)) for _ in range(PARTIES)]
    labels = (sum(x.sum(1) for x in rows) > PARTIES).astype(int)
    return VerticalDataset.from_numpy(
        [x[:ROWS] for x in rows],
        labels[:ROWS],
        test_features=[x[ROWS:] for x in rows],
        test_labels=labels[ROWS:],
        scaling="none",
    )


def visits_of(outcome):
    """How often each training row was in a decoded sum, by the server's steps."""
    layout = outcome.protocol.train_layout()
    rounds = [e.round for e in outcome.events if e.name == "round"]
    return np.bincount(np.concatenate([layout.draw(t) for t in rounds]), minlength=layout.length)


@pytest.mark.parametrize("method", METHODS)
def test_run_ends_where_the_budget_ends(method, data):
    outcome = simulate(method, data, conditions=NONE, defaults={}, rounds=50, **OPTIONS)
    assert len(outcome.losses) == 16
    assert visits_of(outcome).tolist() == [4] * ROWS
    (event,) = [e for e in outcome.events if e.name == "sum_budget"]
    told = event.fields
    assert (told["visits"], told["equations"], told["unknowns"]) == (4, 8, 10)


@pytest.mark.parametrize("method", METHODS)
def test_training_is_that_without_a_budget_until_then(method, data):
    options = OPTIONS | {"rounds": 16}
    with_budget = simulate(method, data, conditions=NONE, defaults={}, **options)
    free = options | {"sum_budget": 0.0}
    without = simulate(method, data, conditions=NONE, defaults={}, **free)
    assert with_budget.losses == without.losses


@pytest.mark.parametrize("method", METHODS)
def test_constant_columns_are_no_unknowns(method, data):
    train = [np.c_[x, np.full(ROWS, 0.5)] for x in data.train]
    more = VerticalDataset.from_numpy(
        train, data.train_labels, test_features=train, test_labels=data.train_labels, scaling="none"
    )
    outcome = simulate(method, more, conditions=NONE, defaults={}, rounds=50, **OPTIONS)
    assert {p.unknowns for p in outcome.parties.values()} == {10}
    assert len(outcome.losses) == 16


@pytest.mark.parametrize("method", METHODS)
def test_embeddings_wider_than_the_unknowns_are_refused(method, data):
    options = OPTIONS | {"width": 10}
    with pytest.raises(ConfigurationError, match=r"width = 10 .* 10 independent"):
        simulate(method, data, conditions=NONE, defaults={}, rounds=3, **options)


def test_fedvs_server_that_asks_on_is_refused_by_the_clients(data, monkeypatch):
    from securevfl.protocols.fedvs.algorithm import Server

    monkeypatch.setattr(Server, "affordable", lambda self, batch: True)
    monkeypatch.setattr(Server, "count_release", lambda self, batch: None)
    with pytest.raises(PrivacyError, match=r"released 4 times, and its 10 unknowns, at h = 2"):
        simulate("fedvs", data, conditions=NONE, defaults={}, rounds=50, **OPTIONS)


def test_fedvs_client_counts_beyond_its_checkpoint(data):
    """What it shared for after its last checkpoint counts when it comes back from there."""
    outcome = simulate("fedvs", data, conditions=NONE, defaults={}, rounds=4, **OPTIONS)
    client = outcome.parties[0]
    saved = snapshot(client, waits=0, time=0)
    batch = Batch("train", np.arange(10, dtype=np.uint32))
    client.engine = Nowhere()
    for _ in range(3):
        client.count_release(batch)
    saved["ahead"] = ahead(client)
    fresh = make("fedvs", data, defaults={}, rounds=4, **OPTIONS).party(0)
    restore(fresh, saved)
    fresh.engine = Nowhere()
    with pytest.raises(PrivacyError, match="released 4 times"):
        fresh.count_release(batch)


class Nowhere:
    """An engine that keeps nothing."""

    def write_ahead(self, party):
        pass


def test_coded_split_holder_answers_no_label_with_other_steps(data):
    outcome = simulate("coded_split", data, conditions=NONE, defaults={}, rounds=4, **OPTIONS)
    holder = outcome.parties[0]
    holder.engine = Nowhere()
    values, _, left, digest = holder.model
    holder.model = (values, 3, left, holder.no_steps)
    with pytest.raises(PrivacyError, match=r"answered the batch of step 4 already"):
        holder.name_steps(4)
    holder.model = (values, 4, left, digest)
    holder.name_steps(5)
    labels, digests = bare_of(holder.named)
    assert labels[-1] == 5
    assert (digests[-4:] == bare_of(digest)).all()


@pytest.mark.parametrize("method", METHODS)
def test_crashes_release_nothing_beyond_the_budget(method, data):
    """Clients that crash and come back: the steps end no later than the budget says."""
    faults = faults_from(
        {"outage": [{"party": 1, "rounds": [3, 5]}, {"party": 2, "rounds": [8, 9]}]}
    )
    waits = {"share_timeout": 1.0, "result_timeout": 1.0} if method == "fedvs" else {}
    outcome = simulate(
        method, data, conditions=NONE, faults=faults, defaults={}, rounds=50, **OPTIONS, **waits
    )
    assert visits_of(outcome).max() <= 4
    released = [p.released for n, p in outcome.parties.items() if n != SERVER and method == "fedvs"]
    for counts in released:
        assert np.frombuffer(counts["train"], "<u4").max() <= 4


RUNS = int(os.environ.get("SECUREVFL_CHAOS", "8"))


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(RUNS))
def test_server_that_lies_after_two_crashes_of_all_clients_gets_no_sum_more(
    data, monkeypatch, seed
):
    """It forgets what it asked for, and asks for the same rows in every round."""
    from securevfl.protocols.fedvs.algorithm import Server

    rng, decoded = np.random.default_rng(seed), []
    asked = [rng.permutation(ROWS)[:10].astype(np.uint32) for _ in range(2)]
    interpolate = Server.interpolate

    def noted(self, uploads):
        sums = interpolate(self, uploads)
        decoded.append(self.batch.rows)
        return sums

    monkeypatch.setattr(Server, "interpolate", noted)
    monkeypatch.setattr(Server, "affordable", lambda self, batch: True)
    monkeypatch.setattr(Server, "count_release", lambda self, batch: None)
    again = lambda self: Batch("train", asked[self.round % 2])  # noqa: E731
    monkeypatch.setattr(Server, "next_batch", again)
    first = rng.integers(2, 4, PARTIES)
    outages = [
        {"party": n, "rounds": [int(start), int(start) + int(rng.integers(1, 3))]}
        for n in range(PARTIES)
        for start in (first[n], first[n] + 4)
    ]
    waits = {"share_timeout": 1.0, "result_timeout": 1.0, "max_attempts": 99}
    options = {**OPTIONS, **waits, "rounds": 30, "segments": 1}
    faults = faults_from({"outage": outages})
    with pytest.raises(SecureVFLError) as failure:
        simulate("fedvs", data, conditions=NONE, faults=faults, defaults={}, **options)
    visits = np.bincount(np.concatenate([*decoded, *asked]), minlength=ROWS)
    visits -= np.bincount(np.concatenate(asked), minlength=ROWS)
    assert 0 < visits.max() <= 4, failure.value
