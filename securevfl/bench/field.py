"""The field's benchmark: one run, one table of ratios with their targets, as plain data.

dgemm is NumPy's; the OpenBLAS in its wheels picks kernels by processor, so the run happens in a
child process with ``OPENBLAS_CORETYPE=Haswell``, the yardstick of the targets, and a second one
times dgemm with the kernels that NumPy picks by itself.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from importlib import metadata
from typing import Any

from securevfl.errors import RunError
from securevfl.machine import processor

Row = dict[str, Any]

_FIRST_CALL = """
import json, time
from securevfl.field import FixedPoint, LagrangeCode, PrimeField
import numpy as np
F, G = PrimeField(2**31 - 1), PrimeField(2**61 - 1)
a, b, x = np.ones((40, 40), np.uint32), np.ones((40, 40), np.uint64), np.ones(9, np.float32)
code = LagrangeCode(F, parties=10, segments=4, privacy=1)
calls = {
    "matmul 2^31-1": lambda: F.matmul(a, a),
    "matmul 2^61-1": lambda: G.matmul(b, b),
    "encode": lambda: code.encode(a[:4]),
    "quantize": lambda: FixedPoint(F, 8).quantize(x),
    "random": lambda: F.random(9),
}
wall, cpu = time.perf_counter(), time.process_time()
calls[NAME]()
print(json.dumps([time.process_time() - cpu, time.perf_counter() - wall]))
"""
_CALLS = ("matmul 2^31-1", "matmul 2^61-1", "encode", "quantize", "random")


def benchmark(repeats: int = 7) -> dict[str, Any]:
    """Run everything and return the table.

    Parameters
    ----------
    repeats : int
        Medians are taken over so many turns.

    Returns
    -------
    dict
        ``machine``; ``rows``: for each comparison ``operation``, ``ours``, ``unit``, ``yardstick``,
        ``theirs``, ``ratio``, ``target`` (text) and ``met``; ``measured``: all numbers behind them.
        One thread, thread CPU time, methods in turns.
    """
    haswell = _child(repeats, "Haswell")
    installed = _child(repeats, None)
    measured = haswell["measured"] | {"dgemm as installed": installed["measured"]["matmul"]}
    measured["first call"] = first_calls()
    blas = {"yardstick": haswell["blas"], "as installed": installed["blas"]}
    from securevfl.bench.field_rows import rows

    return {"machine": describe() | {"blas": blas}, "rows": rows(measured), "measured": measured}


def describe() -> dict[str, Any]:
    """Return processor, versions and kernel tiers."""
    from securevfl.field.kernels import cpu as _cpu

    names = ("numpy", "numba", "llvmlite", "cryptography", "galois", "python-flint")
    versions = {}
    for name in names:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
        "kernels": list(_cpu.available()),
        "in use": _cpu.tier(),
    }


def _run(command: list[str], extra: dict[str, str]) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | extra
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RunError(f"benchmark: a child process failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _child(repeats: int, core: str | None) -> dict[str, Any]:
    """Measure in a process with one BLAS thread and, if named, the BLAS kernels of `core`."""
    extra = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    extra |= {"OPENBLAS_CORETYPE": core} if core else {}
    program = (
        "from securevfl.bench import field as b;"
        f"b._print({'b.measure' if core else 'b.measure_matmul'}({repeats}))"
    )
    return dict(json.loads(_run([sys.executable, "-c", program], extra)))


def _print(measured: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"blas": _blas(), "measured": measured}))


def _blas() -> str:
    try:
        from threadpoolctl import threadpool_info
    except ModuleNotFoundError:
        return "unknown: install threadpoolctl"
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return "; ".join(f"{p['internal_api']} {p['version']} {p.get('architecture')}" for p in pools)


def measure_matmul(repeats: int) -> dict[str, Any]:
    """Measure products alone, without the slow comparisons."""
    from securevfl.bench import field_cases as cases

    return {
        "matmul": {
            f"{p} {'x'.join(map(str, shape))}": cases.matmul(p, shape, repeats, others=False)
            for p in (cases.P31, cases.P50, cases.P61)
            for shape in cases.SHAPES
        }
    }


def measure(repeats: int) -> dict[str, Any]:
    """Measure everything in this process."""
    import numpy as np

    from securevfl.bench import field_cases as cases

    P31, P50, P61 = cases.P31, cases.P50, cases.P61
    products = {}
    for p in (P31, P50, P61, cases.NTT):
        for shape in cases.SHAPES:
            name, slow = f"{p} {'x'.join(map(str, shape))}", p == P31 and shape[1] == 784
            products[name] = cases.matmul(p, shape, repeats, others=slow)
    sizes = ((10, 5, 10**6), (28, 14, 10**6), (128, 64, 1 << 18))
    return {
        "matmul": products,
        "encode": {
            f"{p} {N},{size}": cases.encode(p, N, size, columns, repeats) | {"columns": columns}
            for p in (P31, P50, P61)
            for N, size, columns in sizes
        },
        "transform": cases.transform(repeats, 1 << 15),
        "sampling": {str(p): cases.sampling(p, repeats) for p in (P31, cases.NTT, P50, P61)},
        "fixed point": {
            f"{p} {kind.__name__}": cases.fixed_point(p, kind, repeats)
            for p, kind in ((P31, np.float32), (P31, np.float64), (P61, np.float64))
        },
        "check": {str(p): cases.check(p, repeats) for p in (P31, P50, P61)},
        "decode matrix": cases.decode_matrix(repeats),
    }


def first_calls() -> dict[str, dict[str, float]]:
    """Return seconds of each kind of call, first in its process, without and with a cache.

    They include the import of numba. CPU time is what the table shows: on a shared machine the
    wall time is that of the neighbours too; it stands beside it.
    """
    results: dict[str, dict[str, float]] = {}
    for name in _CALLS:
        with tempfile.TemporaryDirectory() as folder:
            for state in ("cold", "cached"):
                program = _FIRST_CALL.replace("NAME", repr(name))
                text = _run([sys.executable, "-c", program], {"NUMBA_CACHE_DIR": folder})
                cpu, wall = json.loads(text)
                results.setdefault(name, {}).update({state: cpu, f"{state}, wall": wall})
    return results
