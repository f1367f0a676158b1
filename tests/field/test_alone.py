"""`securevfl.field` works where numpy, numba and cryptography are all that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# What pip installs for "numpy numba cryptography", by the names that are imported.
PRESENT = ("numpy", "numba", "llvmlite", "cryptography", "cffi", "_cffi_backend", "pycparser")

PROGRAM = '''
import sys

KNOWN = {*sys.stdlib_module_names, "securevfl", *sys.argv[1:]}


class Absent:
    """Finds no package but the known ones, as if the others were not installed."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in KNOWN:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Absent())

import numpy as np

from securevfl.field import FixedPoint, LagrangeCode, PrimeField, SeededSource

for modulus in (2**31 - 1, 2**50 - 2**14 + 1, 2**61 - 1):
    field = PrimeField(modulus)
    code = LagrangeCode(field, parties=8, segments=2, privacy=1)
    secrets = field.random((2, 3, 4))
    shares = code.encode(secrets)
    answers = field.multiply(shares, shares)
    some = [0, 2, 3, 5, 7]
    decoded = code.decode(answers[some], some, degree=2)
    assert np.array_equal(decoded, field.multiply(secrets, secrets))
    row, column = shares[0][:1], shares[1][:1].T
    exact = sum(int(a) * int(b) for a, b in zip(row[0], column[:, 0], strict=True)) % modulus
    assert field.matmul(row, column).tolist() == [[exact]]
    fixed = FixedPoint(field, bits=10)
    assert fixed.dequantize(fixed.quantize(np.array([0.5, -0.25]))).tolist() == [0.5, -0.25]
    assert field.random((2, 2), source=SeededSource(b"0" * 32)).shape == (2, 2)

import securevfl.field.prss, securevfl.field.designs, securevfl.field.packing, securevfl.field.ntt

for absent in ("torch", "pandas", "galois", "scipy", "sklearn", "pydantic", "psutil"):
    assert absent not in sys.modules, absent
print("whole")
'''


def test_the_field_needs_numpy_numba_and_cryptography_only():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *PRESENT],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout == "whole\n", done.stderr


def test_the_program_misses_what_is_not_installed():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *(set(PRESENT) - {"cryptography"})],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1
    assert "No module named 'cryptography'" in done.stderr
