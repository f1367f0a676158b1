"""What holders of shares have, what T + 1 of them decode, and what attacks make of it."""

import functools

import numpy as np
import pytest

from securevfl.audit.attack_matrix import held_shares
from securevfl.audit.attack_matrix.observation import observe
from securevfl.audit.attack_matrix.run import AttackSettings, attack_matrix
from securevfl.audit.attack_matrix.server_steps import visits_of
from securevfl.audit.attacks.gram import gram_by_rank, rough_gram_by_rank
from securevfl.audit.attacks.outcome import NoView
from securevfl.data import load_dataset
from securevfl.data.source import DataSource
from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.field import PrimeField
from securevfl.models.polynomial_network import expand
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.verified import bare_of

ROWS = 220
SMALL = {"width": 24, "hidden": 16, "batch": 55}
FREE = {
    "fedvs": {"paper": True},
    "coded_split": {"degree": 2, "sum_budget": 0.0, "client_lr": 4.0, "client_lr_decay": "none"},
}


@functools.cache
def seen(name="coded_split", rounds=8, every=False, parties=8, **options):
    cls = get_protocol(name)
    data = load_dataset("digits", parties=parties).subset(ROWS, 20)
    given = {**SMALL, "rounds": rounds, **FREE.get(name, {}), **options}
    made = cls(make_config(cls, given), data, seed=0)
    return observe(made, conditions=NONE, client=3, every=every)


def steps_of(found):
    """The dealt steps of the first epoch by training row, as the server logged them."""
    layout, log = found.protocol.train_layout(), bare_of(found.parties[SERVER].log)
    rows = {}
    for t in range(1, layout.per_epoch + 1):
        values = found.protocol.code.field.signed(log[t - 1].reshape(-1, log[t - 1].shape[-1]))
        rows |= dict(zip(layout.samples(layout.draw(t)).tolist(), values, strict=True))
    return rows


def test_a_holder_has_a_share_of_the_step_of_each_row_and_no_gradient():
    found = seen()
    table = found.gradient_shares(3, newest=False)
    assert isinstance(found.first_gradients, NoView)
    assert table.rows.tolist() == list(range(ROWS))
    assert np.abs(table.values).max() <= 0.5
    first = found.dealt(3)[1]
    layout, p = found.protocol.train_layout(), found.protocol.public.field.modulus
    places = np.searchsorted(table.rows, layout.samples(layout.draw(1)))
    assert np.allclose(table.values[places], first / p - 0.5)


def test_a_holders_share_of_the_joint_embedding_is_of_all_rows():
    share = held_shares.own_share(seen(), 3)
    assert share.shape == (ROWS, SMALL["width"])
    assert abs(share.mean()) < 0.05
    assert held_shares.own_share(seen("split"), 3) is None


@pytest.mark.parametrize(
    ("segments", "size", "security"),
    [(1, 2, "semi-honest"), (2, 3, "semi-honest"), (1, 2, "covert"), (1, 2, "active")],
)
def test_enough_holders_decode_every_step_and_t_of_them_none(segments, size, security):
    found = seen(segments=segments, security=security)
    code = found.protocol.public.code
    table = held_shares.pooled_steps(found, held_shares.coalition(code, size))
    steps = steps_of(found)
    assert len(table.rows) >= ROWS - SMALL["batch"]
    for row, value in zip(table.rows.tolist(), table.values, strict=True):
        assert (value == steps[row]).all()
    assert isinstance(held_shares.pooled_steps(found, (4,)), NoView)


SHARP = [(1, 1, 0), (1, 2, 1), (2, 1, 0), (2, 2, None), (2, 3, 1)]


@pytest.mark.parametrize(("segments", "size", "read"), SHARP)
def test_the_threshold_of_the_data_is_sharp(segments, size, read):
    """T + 1 of them with K = 2 know one number a pair of values: some pairs follow, not all."""
    found = seen(segments=segments)
    holders = held_shares.coalition(found.protocol.public.code, size)
    if read is None:
        holders = held_shares.keenest(found.protocol.public.code)
        assert 0.05 < held_shares.elements_read(found, holders) < 0.5
    else:
        assert held_shares.elements_read(found, holders) == read


def test_coalitions_are_of_holders_that_are_there():
    code = seen().protocol.public.code
    assert held_shares.coalition(code, 2) == (1, 2)
    assert isinstance(held_shares.coalition(code, 8), NoView)
    assert held_shares.code_of(seen("split")) is held_shares.NO_HOLDERS


def test_batches_that_nobody_announces_have_rows_all_the_same():
    assert seen().uploads.rows.tolist() == list(range(ROWS))
    assert seen().uploads.values.shape == (ROWS, 8 * SMALL["width"])


def test_steps_are_those_that_were_dealt_and_not_the_gradients_before_rounding():
    found = seen(every=True)
    config, step = found.protocol.config, found.steps()[2]
    dealt = found.protocol.code.field.signed(bare_of(found.parties[SERVER].log[2])[0])
    assert np.allclose(step.gradient * -config.rate(3) * 2**12 / 8, dealt, atol=1e-3)


@functools.cache
def matrix():
    names = ["gradient clusters", "gradient directions", "model completion", "inversion"]
    names += ["gradient directions, T + 1 clients", "shares of T + 1 clients", "server + T clients"]
    return attack_matrix(
        [
            "fedvs:segments=1,paper=true",
            "coded_split:client_lr=16,degree=2,sum_budget=0,client_lr_decay=none",
        ],
        DataSource("digits", {"parties": 8}),
        options={**SMALL, "rounds": 16},
        seeds=[0],
        attacks=[*names, "equality solving of sums"],
        settings=AttackSettings(rows=ROWS, auxiliary=60, starts=2, replayed=2),
    )


def test_labels_leak_from_gradients_and_from_t_plus_1_holders_and_not_from_shares():
    fedvs, coded = matrix().labels
    for name in ("gradient clusters", "gradient directions"):
        assert matrix().cell(fedvs, name)["success"] > 0.4
        cell = matrix().cell(coded, name)
        assert "shares of steps" in cell["note"]
        # 140 rows of 10 classes: the standard deviation of a guess's balanced accuracy is 0.026.
        assert abs(cell["excess"]) < 0.15
    assert matrix().cell(coded, "gradient directions, T + 1 clients")["success"] > 0.4
    assert matrix().cell(coded, "model completion")["excess"] < 0.1


def test_a_view_that_holders_lack_is_said_in_words():
    fedvs, coded = matrix().labels
    assert "masks span" in matrix().cell(coded, "server + T clients")["note"]
    none = matrix().cell(fedvs, "gradient directions, T + 1 clients")
    assert (none["verdict"], none["note"]) == ("no view", held_shares.NO_HOLDERS.reason)
    assert matrix().cell(coded, "shares of T + 1 clients")["success"] == 1
    # Masks are drawn anew in every run: how badly a fit to them guesses has no bound, and of 150
    # fits to random numbers none explains more than 0.003.
    assert matrix().cell(coded, "inversion")["success"] < 0.05


def test_who_knows_the_secret_seed_has_the_rows_of_the_next_batch_too():
    """24 equations a row for 64 columns would not do; the rows fit, and are others."""
    _, coded = matrix().labels
    assert "100.0% of the rows fit" in matrix().cell(coded, "equality solving of sums")["note"]


def gram_of(found):
    columns = [expand(x.astype(np.float64), 1) for x in found.protocol.data.train]
    X = np.concatenate(columns, axis=1)
    bits = found.protocol.config.data_bits
    return np.floor(X * 2.0**bits + 0.5) * 2.0**-bits


def test_the_servers_own_run_gives_all_inner_products_exactly():
    options = {"batch": ROWS, "degree": 1, "rounds": 6, "client_lr": 64.0, "width": 64}
    found = seen(every=True, **options)
    X = gram_of(found) * 2**8
    gram = gram_by_rank(visits_of(found), PrimeField(2**61 - 1))
    assert (gram == X @ X.T).all()


def test_fedvs_with_sgd_gives_them_roughly_and_with_adam_no_linear_step():
    options = {"batch": ROWS, "degree": 1, "rounds": 8, "segments": 1, "width": 64, "hidden": 64}
    found = seen(
        "fedvs", every=True, optimizer="sgd", lr=0.5, client_lr=0.5, momentum=0.0, **options
    )
    X = gram_of(found)
    rough = rough_gram_by_rank(visits_of(found), int(np.linalg.matrix_rank(X)))
    assert np.linalg.norm(rough - X @ X.T) / np.linalg.norm(X @ X.T) < 0.3
    adam = visits_of(seen("fedvs", every=True, **options))
    assert isinstance(adam, NoView)
    assert "adam" in adam.reason
    assert "segments" in visits_of(seen(segments=2, every=True)).reason
