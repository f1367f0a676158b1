"""Tiny files in the formats of the published sets, for tests that need no real data."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd

# A change of the test rows: (features, where) -> features, on a copy.
Edit = Callable[[np.ndarray], np.ndarray]


def synthetic_clicks() -> ModuleType:
    """The generators of the benchmarks, which are a package of their own."""
    path = Path(__file__).parents[2] / "benchmarks/synthetic_clicks/synthetic_clicks.py"
    spec = importlib.util.spec_from_file_location("synthetic_clicks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def write_idx(path: Path, values: np.ndarray) -> None:
    head = bytes([0, 0, 8, values.ndim]) + np.array(values.shape, dtype=">u4").tobytes()
    data = head + values.astype(np.uint8).tobytes()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def grey_images(count: int, classes: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.Generator(np.random.Philox(seed))
    images = source.integers(0, 256, size=(count, 28, 28), dtype=np.uint8)
    return images, (np.arange(count) % classes).astype(np.uint8)


def write_mnist(
    folder: Path, *, classes: int = 10, packed: bool = True, edit: Edit | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Write the four files of the MNIST family; return training and test images."""
    folder.mkdir(parents=True, exist_ok=True)
    end = ".gz" if packed else ""
    train, train_labels = grey_images(3 * classes, classes, 1)
    test, test_labels = grey_images(classes, classes, 2)
    test = test if edit is None else edit(test.copy())
    prefix, held = ("", "t10k") if classes == 10 else ("emnist-balanced-", "test")
    write_idx(folder / f"{prefix}train-images-idx3-ubyte{end}", train)
    write_idx(folder / f"{prefix}train-labels-idx1-ubyte{end}", train_labels)
    write_idx(folder / f"{prefix}{held}-images-idx3-ubyte{end}", test)
    write_idx(folder / f"{prefix}{held}-labels-idx1-ubyte{end}", test_labels)
    return train, test


def write_emnist_part(folder: Path, *, edit: Edit | None = None) -> np.ndarray:
    folder.mkdir(parents=True, exist_ok=True)
    train, train_labels = grey_images(94, 47, 3)
    test, test_labels = grey_images(47, 47, 4)
    np.savez(
        folder / "emnist_balanced_part.npz",
        train_images=train,
        train_labels=train_labels,
        test_images=test if edit is None else edit(test.copy()),
        test_labels=test_labels,
    )
    return train


def write_cifar(folder: Path, *, edit: Edit | None = None) -> np.ndarray:
    """Write the binary version with ten images a batch; return the training records."""
    folder.mkdir(parents=True, exist_ok=True)
    source = np.random.Generator(np.random.Philox(5))
    records = source.integers(0, 256, size=(60, 3073), dtype=np.uint8)
    records[:, 0] = np.arange(60) % 10
    if edit is not None:
        records[50:, 1:] = edit(records[50:, 1:].copy())
    for k in range(5):
        (folder / f"data_batch_{k + 1}.bin").write_bytes(records[10 * k : 10 * k + 10].tobytes())
    (folder / "test_batch.bin").write_bytes(records[50:].tobytes())
    return records[:50]


VIEW_WIDTHS = (5, 4, 3, 2, 6, 3)


def views(rows: int, seed: int) -> list[np.ndarray]:
    """Make six views; the first column of the first is the row's number."""
    source = np.random.Generator(np.random.Philox(seed))
    made = [source.normal(size=(rows, width)).round(6) for width in VIEW_WIDTHS]
    made[0][:, 0] = np.arange(rows)
    return made


def write_handwritten(folder: Path, *, edit: Edit | None = None, original: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    labels = np.repeat(np.arange(10), 5)
    for name, view in zip(("fac", "fou", "kar", "mor", "pix", "zer"), views(50, 6), strict=True):
        values = view if edit is None else edit(view.copy())
        if original:
            text = "\n".join("  ".join(map(repr, row)) for row in values.tolist())
            (folder / f"mfeat-{name}").write_text(text + "\n")
        else:
            frame = pd.DataFrame(values).assign(label=labels)
            frame.to_csv(folder / f"mfeat-{name}.csv.gz", index=False)


def write_caltech(folder: Path, *, edit: Edit | None = None) -> None:
    from scipy.io import savemat

    folder.mkdir(parents=True, exist_ok=True)
    cell = np.empty((1, 6), dtype=object)
    for k, view in enumerate(views(70, 7)):
        cell[0, k] = view if edit is None else edit(view.copy())
    labels = np.repeat(np.arange(1, 8), 10)[:, None]
    savemat(folder / "Caltech101-7.mat", {"X": cell, "Y": labels})


def write_credit_card(folder: Path, *, edit: Edit | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = np.random.Generator(np.random.Philox(8))
    values = source.integers(0, 1000, size=(60, 23)).astype(float)
    values[:, 0] = 10000 + np.arange(60)
    values = values if edit is None else edit(values)
    frame = pd.DataFrame(values, columns=["LIMIT_BAL", *(f"F{k}" for k in range(22))])
    frame.insert(0, "ID", range(1, 61))
    frame["default.payment.next.month"] = np.arange(60) % 4 == 0
    frame["default.payment.next.month"] = frame["default.payment.next.month"].astype(int)
    frame.to_csv(folder / "UCI_Credit_Card.csv.gz", index=False)


def write_parkinson(folder: Path, *, edit: Edit | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = np.random.Generator(np.random.Philox(9))
    values = source.normal(size=(60, 20)).round(6)
    values[:, 0] = np.arange(60)
    values = values if edit is None else edit(values)
    frame = pd.DataFrame(values, columns=["PPE", *(f"f{k}" for k in range(19))])
    frame.insert(0, "gender", np.repeat(np.arange(20) % 2, 3))
    frame.insert(0, "id", np.repeat(np.arange(20), 3))
    frame["class"] = np.repeat((np.arange(20) % 4 > 0).astype(int), 3)
    text = "," * (frame.shape[1] - 1) + "\n" + frame.to_csv(index=False)
    (folder / "pd_speech_features.csv.gz").write_bytes(gzip.compress(text.encode()))


ADULT_ROW = (
    "{age}, {work}, 77516, Bachelors, 13, Never-married, {job}, Not-in-family, White, Male, 2174, "
    "0, {hours}, United-States, {label}"
)


def write_adult(folder: Path, *, strange_test: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    jobs = ["Sales", "?", "Tech-support"]
    train = [
        ADULT_ROW.format(
            age=20 + k, work="Private", job=jobs[k % 3], hours=30 + k,
            label=">50K" if k % 4 == 0 else "<=50K",
        )
        for k in range(24)
    ]  # fmt: skip
    test = [
        ADULT_ROW.format(
            age=990 if strange_test else 25, work="Unheard-of" if strange_test else "Private",
            job="?", hours=-50 if strange_test else 40, label=">50K." if k % 2 else "<=50K.",
        )
        for k in range(8)
    ]  # fmt: skip
    (folder / "adult.data").write_text("\n".join(train) + "\n\n")
    (folder / "adult.test").write_text("|1x3 Cross validator\n" + "\n".join(test) + "\n")


def write_breast(folder: Path, *, edit: Edit | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    source = np.random.Generator(np.random.Philox(10))
    guest, host = source.normal(size=(40, 10)).round(6), source.normal(size=(40, 20)).round(6)
    guest[:, 0] = np.arange(40)
    if edit is not None:
        guest, host = edit(guest), edit(host)
    ids = np.arange(40) * 7
    a = pd.DataFrame(guest, columns=[f"x{k}" for k in range(10)])
    a.insert(0, "y", np.arange(40) % 2)
    a.insert(0, "id", ids)
    b = pd.DataFrame(host, columns=[f"x{k}" for k in range(20)])
    b.insert(0, "id", ids)
    a.to_csv(folder / "breast_hetero_guest.csv.gz", index=False)
    b.iloc[::-1].to_csv(folder / "breast_hetero_host.csv.gz", index=False)


def lay_openml(home: Path, data_id: int, frame: pd.DataFrame, target: str) -> None:
    """Lay a data set into scikit-learn's cache as if it had been downloaded from OpenML."""
    kinds = {
        name: "nominal" if name == target else "numeric" if frame[name].dtype.kind in "if" else ""
        for name in frame.columns
    }
    lines = [f"@RELATION small{data_id}"]
    for name, kind in kinds.items():
        values = ",".join(dict.fromkeys(map(str, frame[name])))
        lines.append(
            f"@ATTRIBUTE '{name}' " + ("NUMERIC" if kind == "numeric" else f"{{{values}}}")
        )
    text = "\n".join([*lines, "@DATA", frame.to_csv(index=False, header=False)])
    description = {
        "id": str(data_id), "name": f"small{data_id}", "version": "1", "status": "active",
        "format": "ARFF", "file_id": str(data_id), "description": "small",
        "url": f"https://www.openml.org/data/v1/download/{data_id}/small.arff",
        "md5_checksum": hashlib.md5(text.encode()).hexdigest(),
    }  # fmt: skip
    features = [
        {
            "index": str(k), "name": name, "data_type": kind or "nominal", "is_ignore": "false",
            "is_target": str(name == target).lower(), "is_row_identifier": "false",
            "number_of_missing_values": "0",
        }
        for k, (name, kind) in enumerate(kinds.items())
    ]  # fmt: skip
    qualities = [{"name": "NumberOfInstances", "value": str(float(len(frame)))}]
    api = home / "openml" / "openml.org"
    stored = {
        f"api/v1/json/data/{data_id}": {"data_set_description": description},
        f"api/v1/json/data/features/{data_id}": {"data_features": {"feature": features}},
        f"api/v1/json/data/qualities/{data_id}": {"data_qualities": {"quality": qualities}},
        f"data/v1/download/{data_id}/small.arff": text,
    }
    for name, content in stored.items():
        path = api / f"{name}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        raw = content if isinstance(content, str) else json.dumps(content)
        path.write_bytes(gzip.compress(raw.encode()))
