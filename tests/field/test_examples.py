"""The examples of the docstrings run."""

import doctest
import importlib

import numpy as np
import pytest


@pytest.mark.parametrize("name", ["prime_field", "lagrange_code", "fixed_point"])
def test_examples(name):
    module = importlib.import_module(f"securevfl.field.{name}")
    results = doctest.testmod(module, extraglobs={"np": np})
    assert results.attempted > 0
    assert results.failed == 0
