"""The field's benchmark: yardsticks, targets by kind of kernels, the tables of the page."""

import importlib
import inspect
import sys
from pathlib import Path

import pytest

from securevfl.field.kernels import cpu

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
try:
    import field_cases
    import field_measure
    import field_rows
    from turns import Clock, interleaved
finally:
    sys.path.pop(0)

P31, P50, P61, NTT = field_cases.P31, field_cases.P50, field_cases.P61, field_cases.NTT
KERNELS = {"portable": "portable", "avx2": "avx2", "avx512": "ifma"}


def measured(ours=2.0, theirs=1.0):
    """What `measure` and `first_calls` return, every number of ours and of the others the same."""
    speeds = dict.fromkeys(KERNELS, ours) | {"dgemm": theirs, "flint": theirs, "galois": theirs}
    copies = {"true copy": theirs, "fresh masks": ours, "columns": 1000}
    shapes = ["x".join(map(str, shape)) for shape in field_cases.SHAPES]
    products = {f"{p} {shape}": speeds for p in (P31, P50, P61, NTT) for shape in shapes}
    fixed = {"quantize": ours, "dequantize": ours, "stochastic": ours, "numpy stochastic": theirs}
    fixed |= {"true copy for quantize": theirs, "true copy for dequantize": theirs}
    codes = [f"{N},{size}" for N, size, _ in field_cases.CODES]
    return {
        "matmul": products,
        "dgemm as installed": products,
        "encode": {f"{p} {code}": speeds | copies for p in (P31, P61) for code in codes},
        "transform": dict.fromkeys(KERNELS, ours) | {"ntt": theirs},
        "sampling": {str(P31): {"ours": ours, "pcg64": theirs, "keystream": theirs}},
        "fixed point": {f"{P31} float32": fixed, f"{P61} float64": fixed},
        "check": {str(P31): {"check": ours, "read": theirs, "projections": 2.0}},
        "decode matrix": ours,
        "first call": {"encode": {"cold": ours, "cached": ours, "beyond imports": ours}},
    }


def rows(ours=2.0, kernels=KERNELS, used="avx512"):
    return field_rows.rows(measured(ours), {"kernels": kernels, "in use": used})


def test_the_copy_reads_memory_that_was_written():
    call = field_cases.true_copy(1 << 12)
    before, after = (inspect.getclosurevars(call).nonlocals[name] for name in ("before", "after"))
    assert before.all()
    assert before.nbytes + after.nbytes == 1 << 12
    call()
    assert (after == before).all()


def test_every_target_has_rows_and_every_row_its_numbers():
    found = {(row["case"], row["yardstick"]) for row in rows() if row["target"]}
    named = {
        (case, yardstick)
        for case, yardstick in field_rows.TARGETS
        if case not in ("quantize", "dequantize", "check") and not case.startswith("first call")
    }
    assert named <= found
    assert (f"quantize {P31} float32", "true copy") in found
    assert ("first call of encode, beyond imports", "1 s") in found
    for row in rows():
        assert row["ratio"] == row["ours"] / row["theirs"]
        assert (row["met"] is None) == (row["target"] == "")


@pytest.mark.parametrize(
    ("kind", "target"), [("ifma", ">= 0.9"), ("avx512", ">= 0.6"), ("avx2", ">= 0.3")]
)
def test_targets_are_those_of_the_kernels_at_work(kind, target):
    kernels = KERNELS | {"avx512": kind}
    case = f"matmul {P50} 1024x1024x1024"
    row = next(r for r in rows(0.7, kernels) if (r["case"], r["yardstick"]) == (case, "dgemm"))
    assert (row["kernels"], row["target"], row["met"]) == (kind, target, kind != "ifma")


def test_the_tier_in_use_is_the_one_that_others_are_held_against():
    slower = {r["case"]: r["operation"] for r in rows(used="avx2") if r["yardstick"] == "flint"}
    assert slower[f"matmul {P31} 256x784x64"] == f"matmul {P31} 256x784x64 (avx2)"
    never = {
        r["operation"]: r["target"]
        for r in rows()
        if r["yardstick"] == "portable" and r["case"] == f"matmul {P31} 1024x1024x1024"
    }
    assert {"avx2", "avx512"} == {name.split("(")[1].rstrip(")") for name in never}
    assert set(never.values()) == {">= 1"}


def test_at_most_and_at_least_are_told_apart():
    verdicts = {
        (row["case"], row["yardstick"]): row["met"] for row in rows(2.0) if row["kernels"] == "ifma"
    }
    assert verdicts[f"encode {P31} 28,14", "true copy"] is True
    assert verdicts[f"encode {P31} 10,5", "true copy"] is False
    assert verdicts[f"matmul {P31} 1024x1024x1024", "dgemm"] is True


def test_kinds_are_told_for_every_tier_of_this_machine():
    told = field_measure.describe()
    assert list(told["kernels"]) == list(cpu.available())
    assert set(told["kernels"].values()) <= set(field_rows.KINDS)
    assert field_measure.kind("avx512", ("portable", "avx512", "ifma")) == "avx512"


def test_the_seconds_of_every_turn_are_kept():
    clock = Clock(3)
    medians = clock.time("case", {"a": lambda: sum(range(10)), "b": lambda: None})
    clock.time("case", {"c": lambda: None}, 1)
    assert {name: len(values) for name, values in clock.turns["case"].items()} == {
        "a": 3,
        "b": 3,
        "c": 1,
    }
    assert medians["a"] == sorted(clock.turns["case"]["a"])[1]
    assert interleaved({"a": lambda: None}, 2)["a"] >= 0


def test_the_tables_of_the_page_are_of_the_committed_results(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    script = importlib.import_module("field")
    page = script.PAGE.read_text()
    monkeypatch.setattr(script, "PAGE", tmp_path / "page.md")
    script.PAGE.write_text(page)
    script.write_page(script.load())
    assert script.PAGE.read_text() == page, "python benchmarks/field.py --page"


def test_children_do_not_inherit_settings_of_blas(monkeypatch):
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Haswell")
    program = "import os; print(sorted(n for n in os.environ if n.startswith('OPENBLAS')))"
    given = {"OPENBLAS_NUM_THREADS": "1"}
    assert (
        field_measure._run([sys.executable, "-c", program], given) == "['OPENBLAS_NUM_THREADS']\n"
    )
