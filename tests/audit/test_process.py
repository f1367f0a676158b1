"""States of the process that one party may leave for another."""

import decimal
import gc
import os
import random
import signal
import socket
import sys
import warnings

import numpy as np
import pytest
import torch

from securevfl.audit.beside.process import changes, other_generators, process_state


def changed(act):
    before = process_state()
    act()
    return list(changes(before, process_state(), imported=False))


@pytest.mark.parametrize(
    ("name", "act", "undo"),
    [
        ("Python's generator", random.random, lambda: None),
        ("NumPy's generator", np.random.random, lambda: None),
        ("the environment", lambda: os.environ.update(A_WORD="1"),
         lambda: os.environ.pop("A_WORD")),
        ("the decimal context", lambda: setattr(decimal.getcontext(), "prec", 7),
         lambda: setattr(decimal.getcontext(), "prec", 28)),
        ("the timeout of sockets", lambda: socket.setdefaulttimeout(7.0),
         lambda: socket.setdefaulttimeout(None)),
        ("filters of warnings", lambda: warnings.filters.insert(0, warnings.filters[-1]),
         lambda: warnings.filters.pop(0)),
        ("a limit of the interpreter", lambda: sys.setrecursionlimit(1234),
         lambda: sys.setrecursionlimit(1000)),
        ("handlers of signals", lambda: signal.signal(signal.SIGUSR1, signal.SIG_IGN),
         lambda: signal.signal(signal.SIGUSR1, signal.SIG_DFL)),
        ("the garbage collector", lambda: gc.set_threshold(701), lambda: gc.set_threshold(700)),
        ("torch's defaults", lambda: torch.set_default_dtype(torch.float64),
         lambda: torch.set_default_dtype(torch.float32)),
    ],
)  # fmt: skip
def test_each_is_seen_to_change(name, act, undo):
    try:
        assert changed(act) == [name]
    finally:
        undo()
    assert changed(lambda: None) == []


def test_the_working_folder_is_one(tmp_path, monkeypatch):
    assert changed(lambda: monkeypatch.chdir(tmp_path)) == ["the working folder"]


def test_torchs_generator_is_told_with_its_state():
    [found] = changed(lambda: torch.manual_seed(3))
    [other] = changed(lambda: torch.manual_seed(4))
    assert found.startswith("torch's generator")
    assert found != other


def test_what_packages_change_as_they_are_imported_is_not_told():
    before = process_state()
    after = before | {"the environment": 0, "Python's generator": 0}
    assert list(changes(before, after, imported=True)) == ["Python's generator"]


def test_other_generators_are_put_back():
    before = process_state()
    with other_generators():
        assert random.getstate() != before["Python's generator"]
    assert list(changes(before, process_state(), imported=False)) == []
