"""The table of the benchmark: each comparison with its target for the kernels at work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from field_cases import NTT, P31, P50, P61

Row = dict[str, Any]

# The kinds of kernels, fastest first, by what the processor must have.
KINDS = {
    "amx": "tile unit",
    "ifma": "AVX-512 with IFMA",
    "avx512": "AVX-512",
    "avx2": "AVX2",
    "portable": "portable",
}
_WIDE = ("amx", "ifma", "avx512")
_CUBE = "1024x1024x1024"


@dataclass(frozen=True)
class Target:
    """A bound of the ratio ours / theirs, for each kind of kernels that has one."""

    bounds: Mapping[str, float]
    at_most: bool = False

    def text(self, kind: str) -> str:
        """The bound in words, empty where there is none."""
        sign = "<=" if self.at_most else ">="
        return f"{sign} {self.bounds[kind]:g}" if kind in self.bounds else ""

    def met(self, kind: str, ratio: float) -> bool | None:
        """Whether the ratio keeps the bound; None where there is none."""
        if kind not in self.bounds:
            return None
        bound = self.bounds[kind]
        return ratio <= bound if self.at_most else ratio >= bound


def _bounds(wide: float | None, others: Mapping[str, float]) -> dict[str, float]:
    return ({} if wide is None else dict.fromkeys(_WIDE, wide)) | dict(others)


def _least(wide: float | None = None, **others: float) -> Target:
    return Target(_bounds(wide, others))


def _most(wide: float | None = None, **others: float) -> Target:
    return Target(_bounds(wide, others), at_most=True)


def _everywhere(target: float, at_most: bool = False) -> Target:
    return Target(dict.fromkeys(KINDS, target), at_most)


# By case and yardstick. The first number is for 512-bit vectors and the tile unit.
TARGETS = {
    (f"matmul {P31} {_CUBE}", "dgemm"): _least(1.4, avx2=0.65, portable=0.75),
    (f"matmul {P31} {_CUBE}", "dgemm as installed"): _least(0.85),
    (f"matmul {P31} {_CUBE}", "portable"): _least(1, avx2=1),
    (f"matmul {P31} 256x784x64", "dgemm"): _least(1.4),
    (f"matmul {P31} 256x784x64", "flint"): _least(10),
    (f"matmul {P31} 256x784x64", "galois"): _least(1000),
    (f"matmul {P50} {_CUBE}", "dgemm"): _least(ifma=0.9, avx512=0.6, avx2=0.3),
    (f"matmul {P61} {_CUBE}", "dgemm"): _least(0.36, avx2=0.18),
    (f"matmul {P61} {_CUBE}", "flint"): _least(3.5),
    (f"matmul {P61} 256x784x64", "dgemm"): _least(0.33),
    (f"matmul {NTT} {_CUBE}", "dgemm"): _least(1.2),
    (f"matmul {NTT} {_CUBE}", "2^31-1"): _least(0.85),
    (f"encode {P31} 10,5", "true copy"): _most(1.4),
    (f"encode {P31} 28,14", "true copy"): _most(2.7),
    (f"encode {P31} 28,14", "flint"): _least(25),
    (f"encode {P31} 128,64", "dgemm"): _least(1.1),
    (f"encode {P61} 10,5", "true copy"): _most(2.8),
    (f"encode {P61} 28,14", "true copy"): _most(4.5),
    ("transform 1024,512", "our matrix"): _everywhere(5),
    (f"sample {P31}", "PCG64"): _everywhere(6),
    (f"sample {P31}", "keystream"): _everywhere(0.5),
    ("quantize", "true copy"): _most(1, avx2=1, portable=1.5),
    ("dequantize", "true copy"): _most(1, avx2=1, portable=1.5),
    (f"stochastic {P31} float32", "numpy"): _everywhere(25),
    ("check", "read"): _everywhere(2, at_most=True),
    ("decode matrix R=127, K=32", "1 ms"): _everywhere(0.2, at_most=True),
    ("first call, cold", "1 s"): _everywhere(2, at_most=True),
    ("first call, beyond imports", "1 s"): _everywhere(0.3, at_most=True),
}


def rows(measured: Mapping[str, Any], machine: Mapping[str, Any]) -> list[Row]:
    """Return the comparisons of what `field.measure` returned on what `field.describe` tells."""
    table = _Table(machine["kernels"], machine["in use"])
    return [
        *table.products(measured["matmul"], measured["dgemm as installed"]),
        *table.encoding(measured["encode"]),
        *table.transform(measured["transform"]),
        *table.others(measured),
        *table.first(measured["first call"]),
    ]


class _Table:
    """Makes rows for the tiers of one machine.

    Parameters
    ----------
    kinds : mapping of str to str
        The kind of each tier, slowest first.
    used : str
        The tier in use.
    """

    def __init__(self, kinds: Mapping[str, str], used: str) -> None:
        self.kinds, self.used = kinds, used

    def row(
        self,
        case: str,
        ours: float,
        unit: str,
        yardstick: str,
        theirs: float,
        tier: str | None = None,
        target: str | None = None,
    ) -> Row:
        """Return one comparison; `target` names the case in TARGETS where it is another."""
        kind, ratio = self.kinds[tier or self.used], ours / theirs
        goal = TARGETS.get((target or case, yardstick), Target({}))
        return {
            "operation": f"{case} ({tier})" if tier else case,
            "case": case,
            "kernels": kind,
            "ours": ours,
            "unit": unit,
            "yardstick": yardstick,
            "theirs": theirs,
            "ratio": ratio,
            "target": goal.text(kind),
            "met": goal.met(kind, ratio),
        }

    def tiers(self, numbers: Mapping[str, float]) -> list[str]:
        """Return the tiers that have a number: the one in use, then the others, fastest first."""
        order = [self.used, *(tier for tier in reversed([*self.kinds]) if tier != self.used)]
        return [tier for tier in order if tier in numbers]

    def products(self, products: Mapping[str, Any], installed: Mapping[str, Any]) -> Iterator[Row]:
        for name, speeds in products.items():
            case, tiers = f"matmul {name}", self.tiers(speeds)
            for tier in tiers:
                for other in ("dgemm", "portable"):
                    if other != tier:
                        yield self.row(case, speeds[tier], "GMAC/s", other, speeds[other], tier)
            for tier in self.tiers(installed.get(name, {})):
                own = installed[name]
                theirs = own["dgemm"]
                yield self.row(case, own[tier], "GMAC/s", "dgemm as installed", theirs, tier)
            best = tiers[0]
            for other in ("flint", "galois"):
                if other in speeds:
                    yield self.row(case, speeds[best], "GMAC/s", other, speeds[other], best)
        best = self.tiers(products[f"{NTT} {_CUBE}"])[0]
        ours, mersenne = (products[f"{p} {_CUBE}"][best] for p in (NTT, P31))
        yield self.row(f"matmul {NTT} {_CUBE}", ours, "GMAC/s", "2^31-1", mersenne, best)

    def encoding(self, encode: Mapping[str, Any]) -> Iterator[Row]:
        for name, seconds in encode.items():
            case, tiers, copy = f"encode {name}", self.tiers(seconds), seconds["true copy"] * 1e3
            for tier in tiers:
                yield self.row(case, seconds[tier] * 1e3, "ms", "true copy", copy, tier)
            N, size = map(int, name.split(" ")[1].split(","))
            work = N * size * seconds["columns"] / 1e9
            best = tiers[0]
            for other in ("dgemm", "flint"):
                if other in seconds:
                    rates = work / seconds[best], work / seconds[other]
                    yield self.row(case, rates[0], "GMAC/s", other, rates[1], best)
            fresh = seconds["fresh masks"] * 1e3
            yield self.row(f"{case}, fresh masks", fresh, "ms", "true copy", copy)

    def transform(self, transform: Mapping[str, float]) -> Iterator[Row]:
        case = "transform 1024,512"
        for i, tier in enumerate(self.tiers(transform)):
            name = "our matrix" if i == 0 else f"our matrix ({tier})"
            yield self.row(case, 1 / transform["ntt"], "1/s", name, 1 / transform[tier])

    def others(self, measured: Mapping[str, Any]) -> Iterator[Row]:
        for p, ns in measured["sampling"].items():
            rates = {name: 1 / value for name, value in ns.items()}
            for name, key in (("PCG64", "pcg64"), ("keystream", "keystream")):
                yield self.row(f"sample {p}", rates["ours"], "G/s", name, rates[key])
        for case, ns in measured["fixed point"].items():
            for name in ("quantize", "dequantize"):
                copy = ns[f"true copy for {name}"]
                yield self.row(f"{name} {case}", ns[name], "ns", "true copy", copy, target=name)
            own, numpy = 1 / ns["stochastic"], 1 / ns["numpy stochastic"]
            yield self.row(f"stochastic {case}", own, "G/s", "numpy", numpy)
        for p, speed in measured["check"].items():
            passes = speed["projections"]
            own, case = speed["read"] / speed["check"] / passes, f"check {p}, per projection"
            yield self.row(f"{case} ({passes:g})", own, "passes", "read", 1.0, target="check")
        ms = measured["decode matrix"]
        yield self.row("decode matrix R=127, K=32", ms, "ms", "1 ms", 1.0)

    def first(self, first: Mapping[str, Mapping[str, float]]) -> Iterator[Row]:
        for name, states in first.items():
            for state in ("cold", "cached", "beyond imports"):
                case = f"first call of {name}, {state}"
                target = f"first call, {state}"
                yield self.row(case, states[state], "s", "1 s", 1.0, target=target)
