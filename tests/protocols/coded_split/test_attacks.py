"""What the server may learn, by attacks that must succeed: the card says that they do."""

import numpy as np
import pytest

from securevfl.audit.attacks.gram import Visit
from securevfl.data import load_dataset
from securevfl.engine.party import SERVER
from securevfl.field.lagrange import interpolation_matrix
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.algorithm import Owner
from securevfl.testing.runs import simulate
from securevfl.verified import bare_of
from tests.audit.attacks.equations import gram_of_rows
from tests.protocols.coded_split.twin import Twin, dealt_of, log_of, watched

ROWS, WIDTH = 24, 4
DIGITS = load_dataset("digits", parties=8)


def visits_of(outcome):
    server, layout = outcome.parties[SERVER], outcome.protocol.public.batches["train"]
    return [
        Visit(layout.draw(t), server.seen[t][0][0], step[0].astype(np.float64))
        for t, step in enumerate(log_of(server), 1)
    ]


@pytest.mark.parametrize(("epochs", "succeeds"), [(6, False), (8, True)])
def test_the_servers_sums_tell_all_inner_products_after_enough_epochs_and_not_before(
    epochs, succeeds
):
    """(E - 1) h >= M at 7 epochs; one more is allowed for steps that happen to be dependent."""
    options = {"batch": 6, "width": WIDTH, "hidden": 6, "client_lr": 8.0, "lr": 0.05}
    data = DIGITS.subset(ROWS, 10)
    outcome = simulate(watched(CodedSplit), data, rounds=epochs * ROWS // 6, **options)
    found = gram_of_rows(visits_of(outcome), ROWS)
    X = Twin(outcome.protocol).X[0].astype(np.int64)
    exact = [bool((np.rint(row) == true).all()) for row, true in zip(found, X @ X.T, strict=True)]
    assert sum(exact) == (ROWS if succeeds else 0)
    assert np.isnan(found).all() != succeeds


class Stale(Owner):
    """Holder 2 uploads to label 3 from a share that lacks step 2."""

    def upload(self, label, rows, round):
        current = self.model
        if label.step == 3:
            self.model = (self.before, *current[1:])
        super().upload(label, rows, round)
        self.model = current

    def apply(self, step, share, digest):
        if step == 2:
            self.before = self.model[0]
        super().apply(step, share, digest)


class WithStale(CodedSplit):
    """Coded split learning with one stale holder, and a server that believes what comes of it."""

    def parties(self):
        made = super().parties()
        bare_of(made[SERVER].made).bound.promised = lambda rows: np.array(2**62)
        old = made[2]
        made[2] = Stale(2, old.peers, old.public, *map(bare_of, (old.features, old.weights)))
        return made


def test_one_stale_upload_tells_the_server_the_gram_matrix_of_the_holders_shares():
    """With h = |B| one upload is enough; this is why shares and their steps are one value."""
    options = {"rounds": 3, "batch": 8, "width": 8, "hidden": 6, "lr": 0.05}
    outcome = simulate(WithStale, DIGITS.subset(61, 10), payloads=True, **options)
    public, server = outcome.protocol.public, outcome.parties[SERVER]
    field, sent = public.field, outcome.simulation.transcript
    columns = sent.columns()
    uploads = {
        int(columns["sender"][row]): payload
        for row, payload in enumerate(sent.payloads)
        if columns["kind"][row] == "embedding" and columns["round"][row] == 3
    }
    good = [0, 1, 3, 4]
    predict = interpolation_matrix(field, [public.code.alphas[j] for j in good], public.code.alphas)
    stack = np.stack([uploads[j] for j in good]).reshape(len(good), -1)
    expected = field.matmul(predict, stack)[2].reshape(uploads[2].shape)
    off = field.subtract(expected, uploads[2])
    dealt = dealt_of(server, 2).shares[2]
    solved = field.solve(np.ascontiguousarray(dealt.T), np.ascontiguousarray(off.T)).T
    layout = public.batches["train"]
    F = bare_of(outcome.parties[2].data_shares["train"])
    assert (solved == field.matmul(F[layout.draw(3)], F[layout.draw(2)].T)).all()
