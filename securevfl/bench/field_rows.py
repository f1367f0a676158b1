"""The table of the benchmark: each comparison with its target."""

from __future__ import annotations

from typing import Any

from securevfl.bench.field_cases import NTT, P31, P61

Row = dict[str, Any]


def rows(measured: dict[str, Any]) -> list[Row]:
    """Return the comparisons, those with a target first in each group."""
    return [
        *_products(measured["matmul"], measured["dgemm as installed"]),
        *_encoding(measured["encode"], measured["transform"]),
        *_others(measured),
        *_first(measured["first call"]),
    ]


def _row(
    operation: str,
    ours: float,
    unit: str,
    yardstick: str,
    theirs: float,
    target: float | None = None,
    at_most: bool = False,
) -> Row:
    """Return one comparison; ratio is ours / theirs in `unit`."""
    ratio = ours / theirs
    met = None
    if target is not None:
        met = ratio <= target if at_most else ratio >= target
    sign = "<=" if at_most else ">="
    return {
        "operation": operation,
        "ours": round(ours, 4),
        "unit": unit,
        "yardstick": yardstick,
        "theirs": round(theirs, 4),
        "ratio": round(ratio, 3),
        "target": "" if target is None else f"{sign} {target:g}",
        "met": met,
    }


def _fastest(speeds: dict[str, float]) -> tuple[str, float]:
    tier = next(t for t in ("amx", "ifma", "avx512", "avx2", "portable") if t in speeds)
    return tier, speeds[tier]


def _products(products: dict[str, Any], installed: dict[str, Any]) -> list[Row]:
    table = []
    targets = {
        f"{P31} 1024x1024x1024": 1.4,
        f"{P31} 256x784x64": 1.3,
        f"{P61} 1024x1024x1024": 0.35,
    }
    for case, speeds in products.items():
        tier, best = _fastest(speeds)
        name = f"matmul {case}"
        table.append(
            _row(f"{name} ({tier})", best, "GMAC/s", "dgemm", speeds["dgemm"], targets.get(case))
        )
        for other in ("avx512", "avx2", "portable"):
            if other in speeds and other != tier:
                square = case == f"{P31} 1024x1024x1024" and other == "portable"
                floor = 0.75 if square else None
                label = f"{name} ({other})"
                table.append(_row(label, speeds[other], "GMAC/s", "dgemm", speeds["dgemm"], floor))
        if case in installed:
            own = installed[case]
            label = f"{name} ({tier})"
            table.append(_row(label, own[tier], "GMAC/s", "dgemm as installed", own["dgemm"]))
        for other, floor in (("flint", 3.5 if str(P61) in case else 10), ("galois", 1000)):
            if other in speeds:
                wanted = floor if case in targets else None
                table.append(_row(f"{name} ({tier})", best, "GMAC/s", other, speeds[other], wanted))
    cube = "1024x1024x1024"
    ours, mersenne = (_fastest(products[f"{p} {cube}"])[1] for p in (NTT, P31))
    table.append(_row(f"matmul {NTT} {cube}", ours, "GMAC/s", "2^31-1", mersenne, 0.85))
    return table


def _encoding(encode: dict[str, Any], transform: dict[str, float]) -> list[Row]:
    table = []
    copies = {f"{P31} 10,5": 1.75, f"{P31} 28,14": 3.3}
    for case, seconds in encode.items():
        tier, best = _fastest(seconds)
        name, ms = f"encode {case} ({tier})", 1e3
        table.append(
            _row(name, best * ms, "ms", "copy", seconds["copy"] * ms, copies.get(case), True)
        )
        p, _, sizes = case.partition(" ")
        N, size = map(int, sizes.split(","))
        work = N * size * seconds["columns"] / 1e9
        rate = 1.1 if N == 128 and p == str(P31) else None
        table.append(_row(name, work / best, "GMAC/s", "dgemm", work / seconds["dgemm"], rate))
        if "flint" in seconds:
            floor = 25 if case == f"{P31} 28,14" else None
            table.append(_row(name, work / best, "GMAC/s", "flint", work / seconds["flint"], floor))
        label = f"encode {case}, fresh masks"
        table.append(_row(label, seconds["fresh masks"] * ms, "ms", "copy", seconds["copy"] * ms))
        if "avx512" in seconds and tier != "avx512":
            label = f"encode {case} (avx512)"
            table.append(_row(label, seconds["avx512"] * ms, "ms", "copy", seconds["copy"] * ms))
    ntt = 1 / transform["ntt"]
    for tier, seconds in transform.items():
        if tier != "ntt":
            name = f"our matrix ({tier})"
            row = _row(
                "transform 1024,512",
                ntt,
                "1/s",
                name,
                1 / seconds,
                5 if tier == _fastest(transform)[0] else None,
            )
            table.append(row)
    return table


def _others(measured: dict[str, Any]) -> list[Row]:
    table = []
    for p, ns in measured["sampling"].items():
        rates = {name: 1 / value for name, value in ns.items()}
        floor = 6 if p == str(P31) else None
        table.append(_row(f"sample {p}", rates["ours"], "G/s", "PCG64", rates["pcg64"], floor))
        table.append(_row(f"sample {p}", rates["ours"], "G/s", "keystream", rates["keystream"],
                          0.5 if p == str(P31) else None))  # fmt: skip
    for case, ns in measured["fixed point"].items():
        for name in ("quantize", "dequantize"):
            copy = ns[f"copy for {name}"]
            table.append(_row(f"{name} {case}", ns[name], "ns", "copy", copy, 1.5, at_most=True))
        own, numpy = 1 / ns["stochastic"], 1 / ns["numpy stochastic"]
        floor = 25 if case == f"{P31} float32" else None
        table.append(_row(f"stochastic {case}", own, "G/s", "numpy", numpy, floor))
    for p, speed in measured["check"].items():
        passes = speed["projections"]
        own, read = speed["read"] / speed["check"] / passes, 1.0
        name = f"check {p}, per projection ({passes:g})"
        table.append(_row(name, own, "passes", "read", read, 2, at_most=True))
    ms = measured["decode matrix"]
    table.append(_row("decode matrix R=127, K=32", ms, "ms", "1 ms", 1.0, 0.2, at_most=True))
    return table


def _first(first: dict[str, Any]) -> list[Row]:
    limits = {"cached": 0.5, "cold": 2.0}
    return [
        _row(f"first call of {name}, {state}", seconds, "s", "1 s", 1.0, limits[state], True)
        for name, states in first.items()
        for state, seconds in states.items()
        if state in limits
    ]
