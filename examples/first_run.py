"""A first run: FedVS beside split learning, under the same delays.

Half of the clients straggle. FedVS goes on with the first R answers, split learning waits for all.
"""

import securevfl as svfl

ROUNDS = 60


def main(rounds: int = ROUNDS) -> dict[str, svfl.Run]:
    """Train both and print what it took."""
    data = svfl.load_dataset("digits", parties=8)
    runs = {name: svfl.run(name, data, rounds=rounds, seed=0) for name in ("fedvs", "split")}
    for name, run in runs.items():
        summary = run.summary()
        print(
            f"{name:6} {summary['test_accuracy']:6.1%} held-out accuracy "
            f"after {run.virtual_seconds:6.1f} s of modelled time, "
            f"{summary['bytes'] / 1e6:6.1f} MB, {summary['late']:4} late messages"
        )
    print("\nWhat FedVS claims, and does not:")
    for claim in runs["fedvs"].claims:
        print(f"  {claim.who:18} {claim.about:9} {claim.notion}")
    return runs


if __name__ == "__main__":
    main()
