"""The step that all split methods share, against plain torch."""

import numpy as np
import pytest
import torch

from securevfl.errors import RunError
from securevfl.models.aggregation import make_aggregation
from securevfl.models.split import Centre
from securevfl.protocols.base.split_step import aggregated, gathered, split_step

N, ROWS, H, CLASSES = 3, 5, 4, 3
LABELS = np.array([2, 0, 1, 1, 0, 2, 2], np.int64)
SAMPLES = np.array([4, 0, 6, -1, 1])


def centre(width=H, lr=0.1):
    optimizer = {"name": "sgd", "lr": lr}
    return Centre(
        "multiclass", CLASSES, width, network="linear", hidden=8, optimizer=optimizer, seed=3
    )


def embeddings(*clients):
    rng = np.random.default_rng(7)
    drawn = rng.normal(size=(N, ROWS, H)).astype(np.float32)
    return {n: drawn[n] for n in clients}


def oracle(rule, present):
    """Loss and gradients by torch's own differentiation through the aggregation."""
    network = centre(N * H if rule == "concat" else H).network
    leaves = [torch.tensor(own, requires_grad=True) for own in embeddings(*present).values()]
    stack = torch.stack(leaves)
    if rule == "concat":
        parts = [leaves[present.index(n)] if n in present else torch.zeros(ROWS, H)
                 for n in range(N)]  # fmt: skip
        joint = torch.cat(parts, 1)
    else:
        joint = {"mean": stack.mean, "sum": stack.sum, "max": stack.amax}[rule](0)
    true = torch.tensor(SAMPLES >= 0)
    labels = torch.tensor(LABELS[SAMPLES[SAMPLES >= 0]])
    loss = torch.nn.functional.cross_entropy(network(joint[true]), labels)
    loss.backward()
    return float(loss.detach()), [leaf.grad.numpy() for leaf in leaves]


@pytest.mark.parametrize("present", [(0, 1, 2), (2, 0)])
@pytest.mark.parametrize("rule", ["mean", "sum", "max", "concat"])
def test_loss_and_gradients_are_those_of_torch(rule, present):
    aggregation = make_aggregation(rule, N)
    joint = gathered(aggregation, embeddings(*present), N)
    step = split_step(centre(aggregation.width(H)), joint, SAMPLES, LABELS)
    loss, gradients = oracle(rule, present)
    assert step.loss == pytest.approx(loss, rel=1e-6)
    assert tuple(step.gradients) == present
    for n, expected in zip(present, gradients, strict=True):
        np.testing.assert_allclose(step.gradients[n], expected, rtol=1e-5, atol=1e-7)


def test_padded_rows_have_no_gradient_and_change_no_loss():
    aggregation = make_aggregation("mean", N)
    own = embeddings(0, 1, 2)
    step = split_step(centre(), gathered(aggregation, own, N), SAMPLES, LABELS)
    assert not step.gradients[1][SAMPLES < 0].any()
    assert step.gradients[1][SAMPLES >= 0].any()
    true = SAMPLES >= 0
    cut = {n: embedding[true] for n, embedding in own.items()}
    without = split_step(centre(), gathered(aggregation, cut, N), SAMPLES[true], LABELS)
    assert without.loss == step.loss


def test_the_server_model_is_updated_once():
    model = centre()
    before = {name: weight.clone() for name, weight in model.network.named_parameters()}
    joint = gathered(make_aggregation("mean", N), embeddings(0, 1, 2), N)
    split_step(model, joint, SAMPLES, LABELS)
    for name, weight in model.network.named_parameters():
        expected = before[name] - 0.1 * weight.grad
        torch.testing.assert_close(weight.detach(), expected.detach())


def test_who_gets_a_gradient_is_chosen_apart_from_who_is_present():
    stack, present = np.stack(list(embeddings(0, 1, 2).values())), np.ones((N, ROWS), bool)
    aggregation = make_aggregation("mean", N)
    only = split_step(centre(), aggregated(aggregation, stack, present, (1,)), SAMPLES, LABELS)
    whole = split_step(centre(), gathered(aggregation, embeddings(0, 1, 2), N), SAMPLES, LABELS)
    assert tuple(only.gradients) == (1,)
    assert only.loss == whole.loss
    np.testing.assert_array_equal(only.gradients[1], whole.gradients[1])
    nobody = split_step(centre(), aggregated(aggregation, stack, present, ()), SAMPLES, LABELS)
    assert not nobody.gradients


def test_a_loss_that_is_not_finite_is_refused():
    own = {n: np.full((ROWS, H), np.float32(np.inf)) for n in range(N)}
    with pytest.raises(RunError, match="loss became"):
        split_step(centre(), gathered(make_aggregation("mean", N), own, N), SAMPLES, LABELS)
