"""Where compiled code is kept, and what is said where it cannot be."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import securevfl

PROGRAM = """
import numpy as np
from securevfl.field import PrimeField
F = PrimeField(2**31 - 1)
assert F.add([1, 2], [3, F.modulus - 2]).tolist() == [4, 0]
from securevfl.field.kernels import fixed_point
"""


@pytest.fixture
def unwritable(tmp_path):
    """Return a copy of the package and an environment in which numba may write nowhere.

    Files stand where folders would be made, so that this holds for the superuser too.
    """
    package = tmp_path / "site" / "securevfl"
    shutil.copytree(
        Path(securevfl.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "field" / "kernels" / "__pycache__").write_text("")
    (tmp_path / "home").write_text("")
    nowhere = str(tmp_path / "home" / "cache")
    variables = {"HOME": nowhere, "XDG_CACHE_HOME": nowhere, "PYTHONPATH": str(package.parent)}
    return {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | variables


def run(environment, folder):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_where_nothing_can_be_kept_kernels_compile_and_one_line_names_the_variable(
    unwritable, tmp_path
):
    said = run(unwritable, tmp_path)
    assert said.count("Set NUMBA_CACHE_DIR to a folder") == 1
    assert run(unwritable | {"NUMBA_CACHE_DIR": str(tmp_path / "kept")}, tmp_path) == ""
    assert list((tmp_path / "kept").rglob("*.nbi"))
