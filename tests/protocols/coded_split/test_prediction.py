"""Coded predictions bind the steps of the run: a stale share is refused, or does not fit."""

import numpy as np
import pytest

from securevfl.active.uploads import evidence_of
from securevfl.data import load_dataset
from securevfl.engine.party import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.errors import CheckpointError, RangeError
from securevfl.field.lagrange import interpolation_matrix
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split import protocol as module
from securevfl.protocols.coded_split.algorithm import Owner
from securevfl.protocols.coded_split.evaluation import caught_up
from securevfl.testing.runs import simulate
from securevfl.verified import bare_of

DIGITS = load_dataset("digits", parties=8).subset(61, 10)
OPTIONS = {"rounds": 3, "batch": 8, "width": 8, "hidden": 6, "lr": 0.05}
STALE = 2  # the holder whose share lacks the last step
USED = (0, 1, 3, 4)  # others, R of them


class Remembering(Owner):
    """An owner that keeps its share of the models from before the last step."""

    def apply(self, step, share, digest):
        if step == OPTIONS["rounds"]:
            self.before = self.model
        super().apply(step, share, digest)


class Remembered(CodedSplit):
    """Coded split learning with that owner."""

    def owner(self, index):
        plain = super().owner(index)
        if index != STALE:
            return plain
        own = plain.features, plain.weights
        return Remembering(index, plain.peers, plain.public, *map(bare_of, own))


@pytest.fixture(scope="module", params=["semi-honest", "covert"])
def trained(request):
    outcome = simulate(Remembered, DIGITS, security=request.param, **OPTIONS)
    assert outcome.parties[STALE].before[1] == OPTIONS["rounds"] - 1
    return outcome


def predictors_of(trained):
    return trained.protocol.predictors(trained.parties, DIGITS.test)


def predict(trained, parties):
    made = Simulation(
        parties, secrets=trained.protocol.secrets, transcript=Transcript(payloads=True)
    )
    made.run()
    return made.transcript


def with_stale_share(trained):
    """Parties of a prediction, one of which has a share without the last step, and its digest."""
    parties, before = predictors_of(trained), trained.parties[STALE].before
    parties[STALE].model = before[0], 0, (), before[3]
    return parties


def test_labels_of_a_prediction_have_the_digest_of_the_runs_steps(trained):
    parties = predictors_of(trained)
    holders = trained.protocol.peers()
    every = [
        bare_of(made[j].model[3]).tobytes() for made in (parties, trained.parties) for j in holders
    ]
    assert len(set(every)) == 1
    assert set(every) != {bytes(32)}
    assert parties[0].model[1:3] == (0, ())


def test_a_stale_share_in_a_prediction_ends_in_an_error_that_says_what_may_be_wrong(trained):
    parties = with_stale_share(trained)
    with pytest.raises(RangeError, match="or holders have other steps than the rest"):
        predict(trained, parties)
    assert parties[SERVER].predicted is None


def test_a_stale_upload_tells_the_server_nothing_of_the_holders_share(trained):
    """It told F(new) F(batch)^T Gamma, of which the server knows Gamma: a step's share."""
    parties = with_stale_share(trained)
    parties[SERVER].check = lambda *rest: None
    sent = predict(trained, parties)
    columns = sent.columns()
    uploads = {
        int(columns["sender"][row]): payload
        for row, payload in enumerate(sent.payloads)
        if columns["kind"][row] == "embedding"
    }
    public, server = trained.protocol.public, trained.parties[SERVER]
    field, alphas = public.field, public.code.alphas
    stack = np.stack([uploads[j] for j in USED]).reshape(len(USED), -1)
    fitting = field.matmul(interpolation_matrix(field, [alphas[j] for j in USED], alphas), stack)
    off = field.subtract(fitting[STALE].reshape(uploads[STALE].shape), uploads[STALE])
    last = OPTIONS["rounds"]
    share = bare_of(server.dealt(last).shares[STALE])
    batch = bare_of(trained.parties[STALE].data_shares["train"])[public.batches["train"].draw(last)]
    new = bare_of(parties[STALE].data_shares["test"])
    told = field.matmul(new, field.matmul(batch.T, share))
    assert (off != told).mean() > 0.9  # before, equal in every element


def test_an_honest_holder_with_a_stale_share_is_not_named():
    """Its signed upload is under another label, as its share is of another model."""
    how = OPTIONS | {"security": "active", "tolerate_corrupt": 1}
    trained = simulate(Remembered, DIGITS, **how)
    parties = with_stale_share(trained)
    predict(trained, parties)
    assert parties[SERVER].predicted is not None
    assert evidence_of(parties[SERVER]) == ()


def test_holders_whose_shares_have_different_steps_are_refused_before_anything_is_sent(
    trained, monkeypatch
):
    """However a stale share came to pass for one with all steps."""

    def stale(server, holder):
        return holder.before if holder.index == STALE else caught_up(server, holder)

    monkeypatch.setattr(module, "caught_up", stale)
    words = "2 different sets of steps: parties 0, 1, 3, 4, 5, 6, 7; parties 2. Bring back"
    with pytest.raises(CheckpointError, match=words):
        predictors_of(trained)


def test_a_late_holder_is_brought_to_the_share_and_the_digest_of_the_others(trained):
    late = trained.parties[STALE]
    now = late.model
    late.model = late.before
    try:
        values, done, ahead, digest = bare_of(caught_up(trained.parties[SERVER], late))
        parties = predictors_of(trained)
    finally:
        late.model = now
    assert (values == bare_of(now[0])).all()
    assert (done, ahead) == now[1:3]
    assert (digest == bare_of(now[3])).all()
    predict(trained, parties)
    found = trained.protocol.scores(trained.parties, DIGITS.test)
    np.testing.assert_allclose(bare_of(parties[SERVER].predicted[1]), found, atol=1e-6)
