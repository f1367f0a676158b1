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
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from securevfl.errors import RunError
from securevfl.machine import processor

Row = dict[str, Any]

_FIRST_CALL = """
import importlib, json, sys, time
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
for module in NEEDED:
    importlib.import_module(module)
known = set(sys.modules)
wall, cpu = time.perf_counter(), time.process_time()
calls[NAME]()
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
needed = [m for m in ("llvmlite.binding", "numba", "cryptography") if m in set(sys.modules) - known]
print(json.dumps([cpu, wall, needed]))
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
        ``machine``; ``rows``: for each comparison ``operation``, ``case``, ``kernels`` (their kind,
        see field_rows.KINDS), ``ours``, ``unit``, ``yardstick``, ``theirs``, ``ratio``, ``target``
        (text) and ``met``; ``measured``: all numbers behind them, those of every turn under
        ``turns``. One thread, thread CPU time, methods in turns.
    """
    haswell = _child(repeats, "Haswell")
    installed = _child(repeats, None)
    measured = haswell["measured"] | {"dgemm as installed": installed["measured"]["matmul"]}
    measured["turns as installed"] = installed["measured"]["turns"]
    measured["first call"] = first_calls()
    blas = {"yardstick": haswell["blas"], "as installed": installed["blas"]}
    from field_rows import rows

    machine = describe() | {"blas": blas}
    return {"machine": machine, "rows": rows(measured, machine), "measured": measured}


def describe() -> dict[str, Any]:
    """Return processor, versions and kernel tiers, slowest first, each with its kind."""
    from securevfl.field.kernels import cpu as _cpu

    tiers = _cpu.available()
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
        "kernels": {tier: kind(tier, tiers) for tier in tiers},
        "in use": _cpu.tier(),
    }


def kind(tier: str, tiers: Sequence[str]) -> str:
    """Return of which kind in field_rows.KINDS the kernels of `tier` are on this processor."""
    if tier != "avx512" or "ifma" in tiers:
        return tier
    from llvmlite import binding

    return "ifma" if binding.get_host_cpu_features().get("avx512ifma", False) else tier


def _run(command: list[str], extra: dict[str, str]) -> str:
    # What the caller's environment says of BLAS would make "as installed" something else.
    own = {name: v for name, v in os.environ.items() if not name.startswith("OPENBLAS_")}
    environment = own | {"PYTHONPATH": os.pathsep.join(sys.path)} | extra
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RunError(f"benchmark: a child process failed:\n{done.stderr[-2000:]}")
    return done.stdout


def _child(repeats: int, core: str | None) -> dict[str, Any]:
    """Measure in a process with one BLAS thread and, if named, the BLAS kernels of `core`."""
    extra = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    extra |= {"OPENBLAS_CORETYPE": core} if core else {}
    program = (
        "import field_measure as b;"
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
    import field_cases as cases
    from turns import Clock

    clock = Clock(repeats)
    products = {
        _shape(p, shape): cases.matmul(p, shape, clock, others=False)
        for p in cases.PRODUCTS
        for shape in cases.SHAPES
        if p != cases.NTT
    }
    return {"matmul": products, "turns": clock.turns}


def measure(repeats: int) -> dict[str, Any]:
    """Measure everything in this process."""
    import field_cases as cases
    import numpy as np
    from turns import Clock

    P31, P50, P61, clock = cases.P31, cases.P50, cases.P61, Clock(repeats)
    products = {}
    for p in cases.PRODUCTS:
        for shape in cases.SHAPES:
            slow = p == P31 and shape[1] == 784
            products[_shape(p, shape)] = cases.matmul(p, shape, clock, others=slow)
    return {
        "matmul": products,
        "encode": {
            f"{p} {N},{size}": cases.encode(p, N, size, columns, clock) | {"columns": columns}
            for p in cases.ENCODED
            for N, size, columns in cases.CODES
        },
        "transform": cases.transform(clock, 1 << 15),
        "sampling": {str(p): cases.sampling(p, clock) for p in (P31, cases.NTT, P50, P61)},
        "fixed point": {
            f"{p} {kind.__name__}": cases.fixed_point(p, kind, clock)
            for p, kind in ((P31, np.float32), (P31, np.float64), (P61, np.float64))
        },
        "check": {str(p): cases.check(p, clock) for p in (P31, P50, P61)},
        "decode matrix": cases.decode_matrix(clock),
        "turns": clock.turns,
    }


def _shape(p: int, shape: tuple[int, int, int]) -> str:
    return f"{p} {'x'.join(map(str, shape))}"


def first_calls() -> dict[str, dict[str, float]]:
    """Return seconds of each kind of call, first in its process.

    ``cold`` is without a cache and ``cached`` with one, imports of other packages included; in
    ``beyond imports`` the packages that the call needs were imported before. CPU time is what the
    table shows: on a shared machine the wall time is that of the neighbours too; it stands beside.
    """
    results: dict[str, dict[str, float]] = {}
    for name in _CALLS:
        needed: list[str] = []
        with tempfile.TemporaryDirectory() as folder:
            for state in ("cold", "cached", "beyond imports"):
                before = needed if state == "beyond imports" else []
                program = _FIRST_CALL.replace("NAME", repr(name)).replace("NEEDED", repr(before))
                text = _run([sys.executable, "-c", program], {"NUMBA_CACHE_DIR": folder})
                cpu, wall, needed = json.loads(text)
                results.setdefault(name, {}).update({state: cpu, f"{state}, wall": wall})
    return results
