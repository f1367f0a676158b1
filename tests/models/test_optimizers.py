"""The learning rate of an optimiser, and that a checkpoint carries it."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from securevfl.engine import wire
from securevfl.errors import UnknownNameError
from securevfl.models.optimizers import make_optimizer, take_step


def rates(optimizer, parameter, steps):
    seen = []
    for _ in range(steps):
        parameter.grad = torch.ones(2)
        take_step(optimizer)
        seen.append(optimizer.param_groups[0]["lr"])
    return seen


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_linear_decay_falls_from_lr_to_zero_over_its_steps(name):
    parameter = torch.zeros(2, requires_grad=True)
    optimizer = make_optimizer([parameter], name=name, lr=0.5, decay_steps=4)
    np.testing.assert_allclose(rates(optimizer, parameter, 6), [0.5, 0.375, 0.25, 0.125, 0, 0])


def test_without_decay_the_rate_stays():
    parameter = torch.zeros(2, requires_grad=True)
    optimizer = make_optimizer([parameter], name="sgd", lr=0.5, momentum=0.9)
    assert rates(optimizer, parameter, 3) == [0.5] * 3


def test_the_state_continues_the_decay_through_the_bytes_of_a_checkpoint():
    parameters = [torch.zeros(2, requires_grad=True) for _ in range(2)]
    first, second = (make_optimizer([p], name="adam", lr=1.0, decay_steps=4) for p in parameters)
    rates(first, parameters[0], 2)
    second.load_state_dict(wire.decode(wire.encode(first.state_dict())))
    assert rates(second, parameters[1], 2) == rates(first, parameters[0], 2) == [0.5, 0.25]


def test_an_unknown_name_is_refused():
    with pytest.raises(UnknownNameError, match="adam"):
        make_optimizer([torch.zeros(1)], name="adan", lr=1.0)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_step_is_that_of_torch(name):
    """Bit for bit, over steps with momentum, weight decay and a state that is read back."""
    options = {"lr": 0.05, "weight_decay": 0.01} | ({"momentum": 0.9} if name == "sgd" else {})
    make = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name]
    ours, theirs = (torch.arange(1.0, 8.0).requires_grad_() for _ in range(2))
    own, reference = make_optimizer([ours], name=name, **options), make([theirs], **options)
    for step in range(5):
        for parameter, optimizer in ((ours, own), (theirs, reference)):
            optimizer.zero_grad()
            (parameter**2 * (step + 1)).sum().backward()
        take_step(own)
        reference.step()
        own.load_state_dict(own.state_dict())
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_a_step_of_adam_on_a_network_is_that_of_torch(weight_decay):
    """Bit for bit, on weights of several shapes, gradients of all sizes, and one without any."""
    stream = np.random.default_rng(0)
    shapes = [(29, 64), (64,), (7, 3)]
    initial = [stream.normal(size=shape).astype(np.float32) for shape in shapes]
    ours, theirs = ([torch.from_numpy(w.copy()).requires_grad_() for w in initial] for _ in "ab")
    own = make_optimizer(ours, name="adam", lr=0.01, weight_decay=weight_decay, decay_steps=40)
    reference = torch.optim.Adam(theirs, lr=0.01, weight_decay=weight_decay)
    for step in range(30):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            size = 10.0 ** stream.integers(-9, 4)
            gradient = torch.from_numpy((size * stream.normal(size=one.shape)).astype(np.float32))
            missing = number == 2 and step % 3
            one.grad, other.grad = (None, None) if missing else (gradient, gradient.clone())
        take_step(own)
        reference.param_groups[0]["lr"] = own.param_groups[0]["lr"]
        reference.step()
        assert all(map(torch.equal, ours, theirs))
    for one, other in zip(ours, theirs, strict=True):
        assert all(torch.equal(own.state[one][k], v) for k, v in reference.state[other].items())


@pytest.mark.parametrize("name", ["sgd", "adam"])
@pytest.mark.parametrize("when", ["pre", "post"])
def test_hooks_of_a_step_are_called(when, name):
    parameter = torch.zeros(2, requires_grad=True)
    optimizer = make_optimizer([parameter], name=name, lr=1.0)
    called = []
    getattr(optimizer, f"register_step_{when}_hook")(lambda *_: called.append(1))
    rates(optimizer, parameter, 2)
    assert len(called) == 2


WITHOUT = """
import sys
import securevfl as svfl
few = svfl.load_dataset("digits", parties=3).subset(40, 9)
for name in ("fedvs", "split", "vflhlp"):
    svfl.run(name, few, rounds=2, width=3, hidden=3)
print("torch" in sys.modules, "torch._dynamo" in sys.modules)
"""


def test_training_says_nothing_and_does_not_import_torchs_compiler(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "True False\n", "")


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_steps_are_those_of_torch_bit_for_bit(name):
    first, second = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)
    second.load_state_dict(first.state_dict())
    options = {"lr": 0.05, "weight_decay": 0.01} | ({"momentum": 0.9} if name == "sgd" else {})
    theirs = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}[name](first.parameters(), **options)
    ours = make_optimizer(list(second.parameters()), name=name, **options)
    for step in range(5):
        inputs = torch.full((4, 5), 0.1 * (step + 1))
        for network, optimizer in ((first, theirs), (second, ours)):
            optimizer.zero_grad()
            network(inputs).square().sum().backward()
            optimizer.step()
        if step == 2:
            ours.load_state_dict(ours.state_dict())
        pairs = zip(first.parameters(), second.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
