import functools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from securevfl.engine.streams import keyed_stream
from securevfl.errors import ConfigurationError, RunError, UnknownNameError
from securevfl.models.networks import CENTRES, make_centre
from securevfl.models.split import Batches, Centre, balanced_weights, measure, rows_of

stream = functools.partial(keyed_stream, 3, -1)
# VGG13 has tests of its own: it is slow here, and so deep that roundings grow within a few steps.
SMALL = [name for name in CENTRES if name != "vgg13"]
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9}

layouts = st.integers(1, 60).flatmap(
    lambda rows: st.tuples(st.just(rows), st.integers(1, rows), st.integers(1, 80))
)


@given(layouts)
def test_every_epoch_visits_rows_at_most_once_and_padding_is_marked(layout):
    rows, segments, size = layout
    batches = Batches(rows, segments, size, stream)
    assert batches.length == -(-rows // segments)
    assert batches.coded == min(max(1, size // segments), batches.length)
    for epoch in range(2):
        first = epoch * batches.per_epoch + 1
        drawn = [batches.draw(first + n) for n in range(batches.per_epoch)]
        coded = np.concatenate(drawn)
        assert len(np.unique(coded)) == len(coded)
        assert batches.length - len(coded) < batches.coded
        assert coded.max() < batches.length
        samples = np.concatenate([batches.samples(batch) for batch in drawn])
        true = samples[samples >= 0]
        assert len(np.unique(true)) == len(true)
        assert all((batches.samples(batch) >= 0).any() for batch in drawn)
    everything = batches.samples(np.arange(batches.length))
    assert sorted(everything[everything >= 0].tolist()) == list(range(rows))


@given(layouts)
def test_laid_out_rows_are_the_samples_behind_a_batch(layout):
    rows, segments, size = layout
    batches = Batches(rows, segments, size, stream)
    matrix = np.arange(1, 2 * rows + 1).reshape(rows, 2)
    laid = batches.lay_out(matrix)
    assert laid.shape == (segments, batches.length, 2)
    batch = batches.draw(1)
    stacked = laid[:, batch].reshape(-1, 2)  # segment by segment
    assert (stacked == rows_of(matrix, batches.samples(batch))).all()
    assert laid.sum() == matrix.sum()


def test_a_row_beyond_the_matrix_is_refused_and_padding_is_zero():
    matrix = np.arange(6, dtype=np.float32).reshape(3, 2) + 1
    assert (rows_of(matrix, np.array([2, -1])) == [[5, 6], [0, 0]]).all()
    with pytest.raises(IndexError, match="row 3 of a matrix of 3 rows"):
        rows_of(matrix, np.array([0, 3]))


def test_batches_follow_their_stream_whatever_the_order_of_asking():
    one, two = (Batches(100, 3, 20, stream) for _ in range(2))
    forward = [one.draw(r).tolist() for r in range(1, 40)]
    backward = [two.draw(r).tolist() for r in range(39, 0, -1)]
    assert forward == backward[::-1]
    assert forward[:5] != forward[5:10]
    other = Batches(100, 3, 20, functools.partial(keyed_stream, 4, -1))
    assert [other.draw(r).tolist() for r in range(1, 40)] != forward


@pytest.mark.parametrize(("rows", "segments", "size"), [(5, 6, 1), (5, 0, 1), (5, 1, 0), (0, 1, 1)])
def test_impossible_layouts_are_refused(rows, segments, size):
    with pytest.raises(ConfigurationError):
        Batches(rows, segments, size, stream)


def centre(task="multiclass", outputs=4, network="mlp", optimizer=SGD):
    return Centre(task, outputs, 6, network=network, hidden=8, optimizer=dict(optimizer), seed=5)


def labels_for(task, rng, rows):
    if task == "multiclass":
        return rng.integers(0, 4, rows)
    return rng.integers(0, 2, rows) if task == "binary" else rng.normal(size=rows)


LOSSES = {
    "multiclass": lambda s, y: torch.nn.CrossEntropyLoss()(s, y),
    "binary": lambda s, y: torch.nn.BCELoss()(torch.sigmoid(s[:, 0]), y.float()),
    "regression": lambda s, y: torch.nn.MSELoss()(s[:, 0], y.float()),
}


@pytest.mark.parametrize("network", SMALL)
@pytest.mark.parametrize("task", LOSSES)
def test_steps_and_gradients_are_those_of_plain_torch(task, network):
    outputs = 4 if task == "multiclass" else 1
    ours = centre(task, outputs, network)
    plain = make_centre(network, 6, 8, outputs, seed=5)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0.9)
    rng = np.random.default_rng(0)
    labels = labels_for(task, rng, 50)
    for _ in range(4):
        H = rng.normal(size=(9, 6)).astype(np.float32)
        samples = rng.choice(50, 9, replace=False)
        loss, gradient = ours.step(H, samples, labels)
        inputs = torch.from_numpy(H.copy()).requires_grad_()
        plain.train()
        wanted = LOSSES[task](plain(inputs), torch.from_numpy(labels[samples]))
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        assert loss == pytest.approx(wanted.item(), rel=1e-5)
        np.testing.assert_allclose(gradient, inputs.grad.numpy(), rtol=1e-4, atol=1e-6)
    plain.eval()
    with torch.no_grad():
        np.testing.assert_allclose(
            ours.scores(H), plain(torch.from_numpy(H)).numpy(), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("network", SMALL)
def test_padded_rows_never_enter_the_loss(network):
    rng = np.random.default_rng(1)
    labels = rng.integers(0, 4, 20)
    H = rng.normal(size=(8, 6)).astype(np.float32)
    samples = np.array([3, 4, 5, -1, 6, -1, 7, -1])
    padded, plain = centre(network=network), centre(network=network)
    H[samples < 0] = np.nan  # would spread if a padded row were used at all
    loss, gradient = padded.step(H, samples, labels)
    wanted, true_gradient = plain.step(H[samples >= 0], samples[samples >= 0], labels)
    assert loss == wanted
    assert (gradient[samples >= 0] == true_gradient).all()
    assert (gradient[samples < 0] == 0).all()
    assert all(
        torch.equal(a, b)
        for a, b in zip(padded.network.parameters(), plain.network.parameters(), strict=True)
    )


def test_a_loss_that_is_not_finite_ends_the_run_with_advice():
    with pytest.raises(RunError, match="lower lr"):
        centre("regression", 1).step(
            np.full((2, 6), 1e30, np.float32), np.arange(2), np.array([1e30, 0.0])
        )


@pytest.mark.parametrize("network", SMALL)
def test_the_state_goes_on_where_it_was(network):
    rng = np.random.default_rng(2)
    labels = rng.integers(0, 4, 20)
    steps = [(rng.normal(size=(8, 6)), rng.choice(20, 8, replace=False)) for _ in range(6)]
    adam = {"name": "adam", "lr": 0.01}
    whole, first, second = (centre(network=network, optimizer=adam) for _ in range(3))
    losses = [whole.step(*step, labels)[0] for step in steps]
    assert [first.step(*step, labels)[0] for step in steps[:3]] == losses[:3]
    second.load_state_dict(first.state_dict())
    assert [second.step(*step, labels)[0] for step in steps[3:]] == losses[3:]


def test_centres_are_seeded_without_touching_torchs_global_state():
    before = torch.get_rng_state()
    one, two, other = (make_centre("mlp", 3, 4, 2, seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one[0].weight, two[0].weight)
    assert not torch.equal(one[0].weight, other[0].weight)
    with pytest.raises(UnknownNameError, match="mlp"):
        make_centre("mlpp", 3, 4, 2, seed=1)


def test_measures_are_those_of_scikit_learn():
    from sklearn import metrics

    rng = np.random.default_rng(3)
    labels = rng.integers(0, 2, 200)
    scores = rng.normal(size=(200, 1)) + labels[:, None]
    guess = scores[:, 0] > 0
    assert measure("binary", scores, labels) == pytest.approx(
        {
            "accuracy": metrics.accuracy_score(labels, guess),
            "auc": metrics.roc_auc_score(labels, scores[:, 0]),
            "f1": metrics.f1_score(labels, guess),
        }
    )
    classes = rng.integers(0, 5, 200)
    many = rng.normal(size=(200, 5))
    assert measure("multiclass", many, classes) == pytest.approx(
        {"accuracy": metrics.accuracy_score(classes, many.argmax(1))}
    )
    targets = rng.normal(size=200)
    assert measure("regression", scores, targets) == pytest.approx(
        {
            "rmse": metrics.root_mean_squared_error(targets, scores[:, 0]),
            "r2": metrics.r2_score(targets, scores[:, 0]),
        }
    )


def test_one_class_alone_has_no_auc_and_no_warning():
    assert measure("binary", np.array([[1.0], [-1.0]]), np.zeros(2, np.int64)) == {
        "accuracy": 0.5,
        "f1": 0.0,
    }


@pytest.mark.parametrize(("task", "classes"), [("binary", 2), ("multiclass", 3)])
def test_balanced_weights_are_those_of_scikit_learn(task, classes):
    from sklearn.utils.class_weight import compute_sample_weight

    rng = np.random.default_rng(1)
    labels = rng.choice(classes, 50, p=[0.8, 0.2] if classes == 2 else [0.7, 0.2, 0.1])
    rows, weights = rng.random((50, 4), np.float32), compute_sample_weight("balanced", labels)
    outputs, look = 1 if classes == 2 else classes, {"network": "linear", "hidden": 3}
    plain, weighted = (
        Centre(task, outputs, 4, optimizer=SGD, seed=0, class_weights=kind, **look)
        for kind in ("none", "balanced")
    )
    batch = np.arange(20)  # the weights are of all labels, not of these
    scores = plain.network(torch.tensor(rows[:20]))
    each = plain.loss(scores, torch.tensor(labels[:20]), reduction="none").detach().numpy()
    wanted = float(np.mean(each * weights[:20]))
    loss, gradient = weighted.step(rows[:20], batch, labels)
    assert loss == pytest.approx(wanted, rel=1e-6)
    _, unweighted = plain.step(rows[:20], batch, labels)
    np.testing.assert_allclose(gradient, unweighted * weights[:20, None], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("task", "weights"), [("binary", (0.5, 3)), ("multiclass", (1, 2, 7.5))])
def test_numbers_of_classes_multiply_the_loss_of_their_rows(task, weights):
    rng = np.random.default_rng(1)
    labels, rows = rng.choice(len(weights), 50), rng.random((50, 4), np.float32)
    outputs, look = 1 if task == "binary" else 3, {"network": "linear", "hidden": 3}
    plain, weighted = (
        Centre(task, outputs, 4, optimizer=SGD, seed=0, class_weights=kind, **look)
        for kind in ("none", weights)
    )
    scores = plain.network(torch.tensor(rows))
    each = plain.loss(scores, torch.tensor(labels), reduction="none").detach().numpy()
    of_rows = np.array(weights)[labels]
    loss, gradient = weighted.step(rows, np.arange(50), labels)
    assert loss == pytest.approx(float(np.mean(each * of_rows)), rel=1e-6)
    _, unweighted = plain.step(rows, np.arange(50), labels)
    np.testing.assert_allclose(gradient, unweighted * of_rows[:, None], rtol=1e-4, atol=1e-7)


def test_a_class_without_rows_weighs_nothing():
    assert balanced_weights(np.array([0, 0, 0, 2]), 3).tolist() == [np.float32(2 / 3), 0.0, 2.0]
