"""Growth of encoding, sharing, evaluation and decoding with size: ``python benchmarks/scale.py``.

N goes from 8 to 1024 with T = 1 and K + T = N/4, so that half of the parties may straggle, with
coset points of the field 2013265921 and with default points. M goes to ten million rows, which are
read from and written to memory maps. Times are medians of the CPU time of one thread; for memory
maps, whose paging is done by the kernel, they are wall time. Writes scale.json and scale.png.

The paper (section 5.3) counts O(N log^2 N) for sharing a group of elements by fast evaluation,
O(|B| h sum_n d_n D_n) for a round and O(|B| h R log^2 R) for decoding.
"""

import argparse
import json
import resource
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from securevfl.field import LagrangeCode, PrimeField, ntt
from securevfl.field.kernels import cpu
from securevfl.field.lagrange import interpolation_matrix
from securevfl.machine import describe_machine

F = PrimeField(2013265921)
BATCH, WIDTH, FEATURES = 32, 16, 4


# Seconds: shorter calls are repeated within a turn. Longer ones are not, since what follows itself
# finds its data in the caches.
SHORTEST = 0.001


def interleaved(methods, repeats):
    """Median CPU seconds of one thread for each method (a function without arguments).

    Methods are called in turns, so that other work on the machine slows all of them alike.
    """
    rounds = {}
    for name, call in methods.items():
        call()
        start = time.thread_time()
        call()
        rounds[name] = max(1, int(SHORTEST / max(1e-9, time.thread_time() - start)))
    seconds = {name: [] for name in methods}
    for _ in range(repeats):
        for name, call in methods.items():
            start = time.thread_time()
            for _again in range(rounds[name]):
                call()
            seconds[name].append((time.thread_time() - start) / rounds[name])
    return {name: statistics.median(own) for name, own in seconds.items()}


def code_of(N, cosets):
    size = N // 4
    points = {}
    if cosets:
        points = dict(zip(("alphas", "betas"), ntt.coset_points(F, N, size), strict=True))
    return LagrangeCode(F, parties=N, segments=size - 1, privacy=1, **points)


def parties(N, repeats):
    """Seconds of each step at N parties, and the sizes."""
    K, R = N // 4 - 1, N // 2 - 1
    columns = max(64, (1 << 21) // K // 64 * 64)
    X = F.random((K, columns))
    out = np.empty((N, columns), F.dtype)
    model = F.random((FEATURES, WIDTH))
    data_rows, models = F.random((BATCH, FEATURES * N)), F.random((FEATURES * N, WIDTH))
    embedding = np.empty((BATCH, WIDTH), F.dtype)
    results = F.random((R, BATCH * WIDTH))
    default, cosets = code_of(N, cosets=False), code_of(N, cosets=True)
    survivors = list(range(N - R, N))
    seconds = interleaved(
        {
            "encode, default points": lambda: default.encode(X, out=out),
            "encode, cosets": lambda: cosets.encode(X, out=out),
            "share model": lambda: default.encode_constant(model),
            "evaluate": lambda: F.matmul(data_rows, models, out=embedding, trusted=True),
            "decode": lambda: default.decode(results, survivors),
            "decode matrix": lambda: interpolation_matrix(
                F, [default.alphas[n] for n in survivors], default.betas[:K]
            ),
        },
        repeats,
    )
    sizes = {"K": K, "R": R, "columns": columns, "transform": hasattr(cosets._left, "cosets")}
    return {"N": N} | sizes | {"seconds": seconds}


def rows(M, folder):
    """Wall seconds and growth of memory in MiB for M rows on disk, with N = 16 and K = 4."""
    code = LagrangeCode(F, parties=16, segments=4, privacy=1)
    columns = -(-M // 4) * 2
    maps = [
        np.lib.format.open_memmap(folder / name, "w+", np.uint32, (count, columns))
        for name, count in (("x.npy", 4), ("shares.npy", 16))
    ]
    X, shares = maps
    for row in X:
        row[:] = F.random(columns)
    anonymous = _anonymous()
    start = time.perf_counter()
    code.encode(X, out=shares)
    encoded = time.perf_counter() - start
    start = time.perf_counter()
    values = np.lib.format.open_memmap(folder / "back.npy", "w+", np.uint32, (4, columns))
    step = 1 << 18
    for begin in range(0, columns, step):
        part = slice(begin, begin + step)
        values[:, part] = code.decode(shares[5:10, part], range(5, 10), degree=1)
    decoded = time.perf_counter() - start
    assert (values == X).all()
    grown = _anonymous() - anonymous
    return {"M": M, "elements": 4 * columns, "encode": encoded, "decode": decoded, "MiB": grown}


def _anonymous():
    """Resident memory of this process that is not backed by a file, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def plot(result, path):
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    by_n = result["parties"]
    N = np.array([entry["N"] for entry in by_n])
    K, R = (np.array([entry[name] for entry in by_n]) for name in ("K", "R"))
    columns = np.array([entry["columns"] for entry in by_n])
    times = {name: np.array([e["seconds"][name] for e in by_n]) for name in by_n[0]["seconds"]}
    figure, axes = pyplot.subplots(1, 4, figsize=(20, 4.5), layout="constrained")
    log2 = np.log2
    for name in ("encode, default points", "encode, cosets"):
        axes[0].loglog(N, times[name] / (K * columns) * 1e9, "o-", label=name)
    base = times["encode, cosets"][-1] / (K[-1] * columns[-1]) * 1e9
    theory = N * log2(N) ** 2 / K
    axes[0].loglog(N, theory / theory[-1] * base, "k:", label="N log$^2$ N / K, through the end")
    axes[0].set_ylabel("ns per element of data")
    axes[1].loglog(N, times["decode"] / (BATCH * WIDTH) * 1e9, "o-", label="decode, per |B| h")
    axes[1].loglog(N, times["decode matrix"] * 1e6, "s-", label="decode matrix (us)")
    theory = R * log2(R) ** 2
    scale = times["decode"][-1] / (BATCH * WIDTH) * 1e9 / theory[-1]
    axes[1].loglog(N, theory * scale, "k:", label="R log$^2$ R, through the end")
    axes[1].set_ylabel("ns (us for the matrix)")
    work = BATCH * WIDTH * FEATURES * N
    axes[2].loglog(N, times["evaluate"] / work * 1e9, "o-", label="evaluate, per MAC")
    share = times["share model"] / (FEATURES * WIDTH * N) * 1e9
    axes[2].loglog(N, share, "s-", label="share model, per element sent")
    axes[2].set_ylabel("ns; theory is a constant")
    for axis in axes[:3]:
        axis.set_xlabel("parties N")
    by_m = result["rows"]
    M = [entry["M"] for entry in by_m]
    for name in ("encode", "decode"):
        per = [entry[name] / entry["elements"] * 1e9 for entry in by_m]
        axes[3].semilogx(M, per, "o-", label=f"{name}, memory map to memory map")
    axes[3].set_ylabel("ns per element of data, wall time")
    axes[3].set_xlabel("rows M (N = 16, K = 4, T = 1)")
    for axis in axes:
        axis.legend(fontsize=8)
        axis.grid(alpha=0.3)
    figure.savefig(path, dpi=110)


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--most-rows", type=int, default=10**7)
    parser.add_argument("--most-parties", type=int, default=1024)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/field"))
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    sizes = [N for N in (8, 16, 32, 64, 128, 256, 512, 1024) if options.most_parties >= N]
    with tempfile.TemporaryDirectory() as folder:
        counts = [M for M in (10**4, 10**5, 10**6, 10**7) if options.most_rows >= M]
        rows(1000, Path(folder))  # Compiles, or loads from the cache, what the others use.
        by_rows = [rows(M, Path(folder)) for M in counts]
    by_parties = [parties(N, options.repeats) for N in sizes]
    result = {
        "machine": describe_machine() | {"kernels": cpu.tier()},
        "parties": by_parties,
        "rows": by_rows,
    }
    (options.out / "scale.json").write_text(json.dumps(result, indent=1) + "\n")
    plot(result, options.out / "scale.png")
    for entry in (*by_parties, *by_rows):
        print(json.dumps(entry))


if __name__ == "__main__":
    main()
