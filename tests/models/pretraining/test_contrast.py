"""Contrastive losses against values worked out by hand."""

from math import exp, log

import pytest
import torch

from securevfl.models.pretraining.contrast import info_nce, nt_xent

ONE = torch.tensor([[2.0, 0.0], [0.0, 3.0]])
TWO = torch.tensor([[1.0, 0.0], [1.0, 1.0]])


def test_info_nce_of_two_samples():
    # Cosines: (1, 1/sqrt 2) for the first anchor, (0, 1/sqrt 2) for the second; tau = 1/2.
    c = 2 / 2**0.5
    wanted = (-log(exp(2) / (exp(2) + exp(c))) - log(exp(c) / (1 + exp(c)))) / 2
    assert info_nce(ONE, TWO, 0.5).item() == pytest.approx(wanted, abs=1e-6)


def test_info_nce_is_not_symmetric():
    assert info_nce(ONE, TWO, 0.5) != info_nce(TWO, ONE, 0.5)


def test_nt_xent_of_two_samples():
    # Views a, b, c, d = (1, 0), (0, 1), (1, 0), (1, 1)/sqrt 2; partners a-c and b-d.
    c = 2 / 2**0.5
    wanted = [
        -log(exp(2) / (1 + exp(2) + exp(c))),
        -log(exp(c) / (1 + 1 + exp(c))),
        -log(exp(2) / (exp(2) + 1 + exp(c))),
        -log(exp(c) / (exp(c) + exp(c) + exp(c))),
    ]
    assert nt_xent(ONE, TWO, 0.5).item() == pytest.approx(sum(wanted) / 4, abs=1e-6)


def test_lengths_do_not_matter_and_gradients_flow():
    for loss in (info_nce, nt_xent):
        one = ONE.clone().requires_grad_()
        value = loss(one, TWO, 0.3)
        assert value.item() == pytest.approx(loss(7 * ONE, TWO, 0.3).item(), abs=1e-6)
        value.backward()
        assert torch.isfinite(one.grad).all()
        assert one.grad.abs().sum() > 0
