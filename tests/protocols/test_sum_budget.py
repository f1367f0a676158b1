"""The budget of sums: no row is in more decoded sums than its unknowns allow, whoever asks."""

import os
from dataclasses import replace

import numpy as np
import pytest

from securevfl.data import VerticalDataset
from securevfl.engine.conditions import NONE, Conditions, Delay
from securevfl.engine.faults import faults_from
from securevfl.engine.party import SERVER
from securevfl.engine.party_state import ahead, restore, snapshot
from securevfl.engine.realtime.checkpoint_store import CheckpointStore
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError, PrivacyError, SecureVFLError
from securevfl.protocols.fedvs.messages import Batch
from securevfl.protocols.fedvs.sums import SumLedger
from securevfl.runs.assembly import rules_of
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
    assert (digests[-20:-16] == bare_of(digest)).all()
    holder.model = (values + values, 4, left, digest)  # of other steps that have one digest
    with pytest.raises(PrivacyError, match=r"answered the batch of step 5 already"):
        holder.name_steps(5)


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


RUNS = int(os.environ.get("SECUREVFL_CHAOS", "3"))
SLOW = Conditions(uploads=tuple(Delay(shift=0.01 * (n + 1)) for n in range(PARTIES)))
WAITS = {"fedvs": {"share_timeout": 1.0, "max_attempts": 99}, "coded_split": {}}


class Stored(Simulation):
    """A run in virtual time whose parties have folders of their own, as on a cluster.

    Where these hold checkpoints it goes on from a round that all have, `back` before the newest.
    """

    def __init__(self, made, folder, back=0):
        parties = made.parties()
        self.stores = {n: CheckpointStore(folder / str(n)) for n in parties}
        common = set.intersection(*(set(one.whole()) for one in self.stores.values()))
        at = sorted(common)[max(-1 - back, -len(common))] if common else -1
        for n, store in self.stores.items():
            if common:
                restore(parties[n], store.read(at))
            else:
                store.refuse_to_begin_anew(f"party {n}")
            parties[n].epoch = store.begin_incarnation()
            store.forget(at)
        super().__init__(parties, seed=made.seed, conditions=SLOW, rules=rules_of(made))
        for slot in self.slots.values():
            slot.runner.setup_done = bool(common)

    def _at_rest(self, slot):
        super()._at_rest(slot)
        self.stores[slot.party.index](slot.party, lambda: snapshot(slot.party, waits=0, time=0))

    def write_ahead(self, party):
        super().write_ahead(party)
        self.stores[party.index].write_ahead(party.round, ahead(party), party.begins_once)


class Decoded(list):
    """What was decoded, and its rows; the process is killed at some of them."""

    def __init__(self, kills):
        super().__init__()
        self.kills = kills

    def note(self, what, rows):
        self.append((what, rows))
        if len(self) in self.kills:
            raise KeyboardInterrupt


def lying_fedvs(monkeypatch, rng, decoded):
    """A server that forgets, and asks in any round for any of a few batches of its own making."""
    from securevfl.protocols.fedvs.algorithm import Server

    asked = [np.sort(rng.permutation(ROWS)[:10]).astype(np.uint32) for _ in range(3)]
    honest = Server.interpolate

    def interpolate(self, attempt, uploads):
        sums = honest(self, attempt, uploads)
        decoded.note(len(decoded), self.batch.rows)  # what is told twice counts twice
        return sums

    def next_batch(self):
        ledger = self.ledger
        self.ledger = SumLedger(parties=PARTIES, threshold=ledger.threshold, notes=ledger.notes)
        self.round += int(rng.integers(3))
        return Batch("train", asked[rng.integers(3)])

    monkeypatch.setattr(Server, "interpolate", interpolate)
    monkeypatch.setattr(Server, "next_batch", next_batch)
    monkeypatch.setattr(Server, "affordable", lambda self, batch: True)
    monkeypatch.setattr(Server, "count_release", lambda self, batch: None)


def lying_coded_split(monkeypatch, rng, decoded):
    """A server that goes on beyond the budget, or deals other steps whenever it comes back.

    It tells their own digests, or those that it told of these numbers before.
    """
    from securevfl.protocols.coded_split import server as module

    honest, mean, agree = module.Server.sums, module.Server.mean, module.agree_on_unknowns
    others, as_before, told = bool(rng.integers(2)), bool(rng.integers(2)), {}
    dealt = module.Server.dealt

    async def sums(self):
        found = await honest(self)
        rows = self.public.batches["train"].draw(self.round)
        decoded.note((self.round, bare_of(found).tobytes()), rows)
        return found

    def moved(self, found):
        shift = float(rng.normal()) if others else 0.0
        return mean(self, found).map(np.add, shift)

    def again(self, step):
        found = dealt(self, step)
        before = told.setdefault(step, bare_of(found.digest))
        digest = found.digest.map(lambda own: before if as_before else own)
        return replace(found, digest=digest)

    async def unknowns(*asked):
        await agree(*asked)
        return 10**6

    monkeypatch.setattr(module.Server, "sums", sums)
    monkeypatch.setattr(module.Server, "mean", moved)
    monkeypatch.setattr(module.Server, "dealt", again)
    monkeypatch.setattr(module, "agree_on_unknowns", unknowns)


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(RUNS))
@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_is_killed_and_resumed_twice_gives_a_lying_server_no_sum_more(
    data, monkeypatch, tmp_path, method, seed
):
    """Ten unknowns and h = 1: each row may be in nine decoded sums."""
    rng = np.random.default_rng(seed)
    first = int(rng.integers(2, 5))
    decoded = Decoded((first, first + int(rng.integers(1, 4))))
    lie = {"fedvs": lying_fedvs, "coded_split": lying_coded_split}[method]
    lie(monkeypatch, rng, decoded)
    options = {**OPTIONS, "width": 1, "rounds": 99, "segments": 1, "result_timeout": 1.0}
    made = make(method, data, seed=seed, defaults={}, **options, **WAITS[method])
    for _ in decoded.kills:  # holders may refuse the second life's lie before it is killed
        with pytest.raises((KeyboardInterrupt, SecureVFLError)):
            Stored(made, tmp_path, int(rng.integers(3))).run()
    decoded.kills = ()
    with pytest.raises(SecureVFLError) as ended:
        Stored(made, tmp_path, int(rng.integers(3))).run()
    visits = np.zeros(ROWS, int)
    for rows in dict(decoded).values():  # the same sums of a batch are released once
        visits[rows] += 1
    assert 0 < visits.max() <= 9, ended.value
    if method == "fedvs":
        assert isinstance(ended.value, PrivacyError)
