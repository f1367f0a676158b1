import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.models.aggregation import AGGREGATIONS, gather, make_aggregation

N, ROWS, H = 3, 4, 2
entries = st.integers(-3, 3).map(np.float32)  # few values, so that maxima tie
stacks = hnp.arrays(np.float32, (N, ROWS, H), elements=entries)
presences = hnp.arrays(bool, (N, ROWS))


def oracle(name, stack, present):
    """The joint embedding, row by row, in torch."""
    rows = []
    for i in range(ROWS):
        here = [stack[n, i] for n in range(N) if present[n, i]]
        if name == "concat":
            parts = [stack[n, i] if present[n, i] else torch.zeros(H) for n in range(N)]
            rows.append(torch.cat(parts))
        elif not here:
            rows.append(torch.zeros(H))
        elif name in ("mean", "sum"):
            rows.append(sum(here) / (len(here) if name == "mean" else 1))
        else:
            rows.append(torch.stack(here).max(dim=0).values)
    return torch.stack(rows)


@pytest.mark.parametrize("name", AGGREGATIONS)
@given(stack=stacks, present=presences)
def test_rules_are_those_of_torch_whoever_is_absent(name, stack, present):
    stack = stack * present[:, :, None]
    rule = make_aggregation(name, N)
    joint = rule.combine(stack, present)
    assert joint.dtype == np.float32
    assert joint.shape == (ROWS, rule.width(H))
    wanted = oracle(name, torch.from_numpy(stack), present)
    np.testing.assert_allclose(joint, wanted.numpy(), rtol=1e-6)


@pytest.mark.parametrize("name", ["mean", "concat", "sum"])
@given(stack=stacks, present=presences, seed=st.integers(0, 99))
def test_gradients_are_those_of_autograd(name, stack, present, seed):
    stack = stack * present[:, :, None]
    rule = make_aggregation(name, N)
    outer = np.random.default_rng(seed).normal(size=(ROWS, rule.width(H))).astype(np.float32)
    inputs = torch.from_numpy(stack.copy()).requires_grad_()
    joint = oracle(name, inputs, present)
    if joint.requires_grad:
        joint.backward(torch.from_numpy(outer))
    wanted = np.zeros_like(stack) if inputs.grad is None else inputs.grad.numpy()
    for n in range(N):
        own = rule.gradient(outer, stack, present, n)
        assert own.dtype == np.float32
        np.testing.assert_allclose(own, wanted[n], rtol=1e-6)
    some = rule.gradients(outer, stack, present, (2, 0))
    assert list(some) == [2, 0]
    for n, own in some.items():
        np.testing.assert_array_equal(own, rule.gradient(outer, stack, present, n))
    assert rule.gradients(outer, stack, present, ()) == {}


@given(stack=stacks, present=presences)
def test_a_maximums_gradient_goes_whole_to_the_lowest_of_the_largest(stack, present):
    stack = stack * present[:, :, None]
    rule = make_aggregation("max", N)
    outer = np.arange(1, ROWS * H + 1, dtype=np.float32).reshape(ROWS, H)
    gradients = [rule.gradient(outer, stack, present, n) for n in range(N)]
    for i in range(ROWS):
        for j in range(H):
            here = [n for n in range(N) if present[n, i]]
            if not here:
                assert not any(g[i, j] for g in gradients)
                continue
            largest = max(stack[n, i, j] for n in here)
            winner = min(n for n in here if stack[n, i, j] == largest)
            assert [g[i, j] for g in gradients] == [
                outer[i, j] if n == winner else 0 for n in range(N)
            ]


def test_gathered_embeddings_lie_at_their_clients_and_keep_their_dtype():
    given_ = {2: np.full((ROWS, H), 2.0), 0: np.full((ROWS, H), 1.0)}
    stack, present = gather(given_, N)
    assert stack.dtype == np.float64
    assert stack[:, 0, 0].tolist() == [1, 0, 2]
    assert present.all(axis=1).tolist() == [True, False, True]
    mean = make_aggregation("mean", N)
    assert (mean.combine(stack, present) == sum(given_.values()) / 2).all()


def test_names_are_checked():
    with pytest.raises(UnknownNameError, match="mean"):
        make_aggregation("maen", 3)
    with pytest.raises(ConfigurationError, match="0 clients: at least 1"):
        make_aggregation("mean", 0)
