"""Normal values of keys by other code."""

import numpy as np
import pytest

from securevfl.privacy.mechanisms import gaussian, release_rows
from tests.oracles import normals
from tests.oracles.normals import release_gradient


def test_the_library_has_no_fault():
    assert normals.noise_fault() == ""


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_values_are_those_of_the_key(size):
    key = bytes(range(32))
    found = normals.normals(key, size)
    assert found.shape == (size,)
    assert found == pytest.approx(gaussian((size,), normals.GivenKey(key)), abs=1e-12)
    assert not np.allclose(found, normals.normals(bytes(32), size))


def test_they_are_normal():
    from scipy.stats import kstest

    assert kstest(normals.normals(bytes(32), 100_000), "norm").pvalue > 1e-6


def test_values_that_begin_anew_are_found(monkeypatch):
    def repeated(shape, source):
        made = gaussian(shape, source).reshape(-1)
        return np.resize(made[:8192], made.size).reshape(shape)

    monkeypatch.setattr(normals, "gaussian", repeated)
    assert normals.noise_fault() == ("8193 normal values are not those of their key, by other code")


def test_large_rows_without_noise_are_found(monkeypatch):
    def bare(rows, **options):
        made = release_rows(rows, **options)
        made[4096:] = rows[4096:]
        return made

    monkeypatch.setattr(normals, "release_rows", bare)
    assert "noisy rows of" in normals.noise_fault()


@pytest.mark.parametrize("change", ["noise", "padding"])
def test_gradients_of_other_noise_are_found(monkeypatch, change):
    def changed(gradient, samples, **options):
        made = release_gradient(gradient, samples, **options)
        if change == "padding":
            made[samples < 0] = 1
        else:
            made[0] += 1
        return made

    monkeypatch.setattr(normals, "release_gradient", changed)
    assert "noisy rows of" in normals.noise_fault()
