"""Number of stragglers that FedVS can lose: the theorem, the arithmetic and the clock.

With N clients, K segments and T colluders, R = 2(K+T-1)+1 answers decode (Theorem 5.1), so N - R
clients may be arbitrarily slow. First every case is tried on random data of the whole field; then
runs are timed in which s clients take 100 s for every upload.
"""

import securevfl as svfl
from securevfl.bench.decoding import Cell, map_threshold
from securevfl.engine.conditions import Conditions, Delay

N, T = 10, 1
SLOW = 100.0  # seconds


def exact_cells(largest: int) -> list[Cell]:
    """Every number of stragglers for K = 1, ..., decoded from random values."""
    return map_threshold([N], largest_segments=largest, privacies=[T], tries=2)


def seconds_of_a_round(segments: int, stragglers: int, rounds: int) -> float:
    """Mean virtual time of a round in which the last `stragglers` clients are slow."""
    slow = (Delay(),) * (N - stragglers) + (Delay(shift=SLOW),) * stragglers
    conditions = Conditions(name=f"{stragglers} slow", uploads=slow)
    data = svfl.load_dataset("digits", parties=N).subset(200, 40)
    run = svfl.run(
        "fedvs", data, rounds=rounds, conditions=conditions, segments=segments, privacy=T,
        batch=32, width=8, hidden=8, sealed=False, eval_every=rounds,
    )  # fmt: skip
    return run.virtual_seconds / rounds


def main(rounds: int = 3, largest: int = 4) -> dict[tuple[int, int], float]:
    """Print both and return the seconds by (K, stragglers)."""
    cells = exact_cells(largest)
    wrong = [cell for cell in cells if not cell.as_predicted]
    print(f"{len(cells)} cells of (K, stragglers): {len(wrong)} differ from the theorem\n")
    print(f"virtual seconds of a round, N = {N}, T = {T}; * beyond N - R stragglers")
    print("  K  R  " + "".join(f"{s:>9}" for s in range(0, N, 2)))
    times = {}
    for K in range(1, largest + 1):
        R = 2 * (K + T - 1) + 1
        line = f"{K:3}{R:3}  "
        for s in range(0, N, 2):
            times[K, s] = seconds_of_a_round(K, s, rounds)
            line += f"{times[K, s]:8.1f}{'*' if s > N - R else ' '}"
        print(line)
    return times


if __name__ == "__main__":
    main()
