"""Training on the CSV files of three parties, whose rows are matched by private set intersection.

The files are made here from a data set that comes with scikit-learn; put your own in their place.
"""

import tempfile
from pathlib import Path

import securevfl as svfl
from securevfl.runs.alignment import match_privately


def write_files(folder: Path) -> dict[str, Path]:
    """Three parties' tables of overlapping patients in different orders, and the outcomes."""
    from sklearn.datasets import load_breast_cancer

    whole = load_breast_cancer(as_frame=True).frame
    whole.insert(0, "patient", [f"patient-{n}" for n in whole.index])
    errors = [name for name in whole if "error" in name]
    worst = [name for name in whole if "worst" in name]
    means = [name for name in whole if "mean" in name]
    tables = {
        "clinic": whole[["patient", *errors[4:]]].iloc[:350],
        "lab": whole[["patient", *worst, *errors[:4]]].iloc[20:380].sample(frac=1, random_state=1),
        "insurer": whole[["patient", *means]].iloc[:360].sample(frac=1, random_state=2),
        "outcomes": whole[["patient", "target"]],
    }
    files = {name: folder / f"{name}.csv" for name in tables}
    for name, table in tables.items():
        table.to_csv(files[name], index=False)
    return files


def load(files: dict[str, Path]) -> svfl.VerticalDataset:
    """Join the parties' rows by the patients that all of them have."""
    return svfl.load_dataset(
        party_files=[files[name] for name in ("clinic", "lab", "insurer")],
        id_column="patient",
        label="target",
        label_file=files["outcomes"],
        match=match_privately,
    )


def main(rounds: int = 60) -> dict[str, float]:
    """Train together and alone; the held-out AUC of each."""
    import pandas as pd

    with tempfile.TemporaryDirectory() as name:
        files = write_files(Path(name))
        data = load(files)
        own = [pd.read_csv(files[n]).head(2) for n in ("clinic", "lab", "insurer")]
    print(data, *data.about.notes, sep="\n  ")
    found = {}
    for protocol in ("fedvs", "local"):
        run = svfl.run(protocol, data, rounds=rounds, seed=0)
        found[protocol] = run.summary()["test_auc"]
        who = "all three, by FedVS" if protocol == "fedvs" else "the clinic alone"
        print(f"{who}: AUC {found[protocol]:.3f} on held-out patients")
        if protocol == "fedvs":
            rows = [table.drop(columns="patient") for table in own]
            print("two new rows are predicted as", run.predict(rows))
    return found


if __name__ == "__main__":
    main()
