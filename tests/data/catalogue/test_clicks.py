"""Click-through sets from small files of the same format, streamed; and the synthetic twins."""

import gzip

import numpy as np
import pandas as pd
import pytest

from securevfl.data import load_dataset
from securevfl.data.catalogue import clicks as module
from securevfl.data.catalogue.clicks import AVAZU_TEXTS, CRITEO_NUMBERS, CRITEO_TEXTS
from securevfl.errors import DataError

from ..small_sets import synthetic_clicks


def criteo_lines(rows: int) -> str:
    """Label, counts with gaps and negative ones, hexadecimal texts with gaps; tabs, no header."""
    draw = np.random.default_rng(1)
    lines = []
    for row in range(rows):
        counts = ["" if draw.random() < 0.2 else str(draw.integers(-2, 999)) for _ in range(13)]
        texts = ["" if draw.random() < 0.1 else f"{draw.integers(9):08x}" for _ in range(26)]
        lines.append("\t".join([str(row % 4 // 3), *counts, *texts]))
    return "\n".join(lines) + "\n"


def write_criteo(folder, rows: int = 400, name: str = "train.txt") -> None:
    (folder / "criteo").mkdir(exist_ok=True)
    text = criteo_lines(rows).encode()
    (folder / "criteo" / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)


def write_avazu(folder, rows: int = 400) -> pd.DataFrame:
    draw = np.random.default_rng(2)
    frame = pd.DataFrame({name: draw.integers(0, 9, rows) for name in AVAZU_TEXTS})
    frame["site_id"] = [f"{number:08x}" for number in draw.integers(0, 50, rows)]
    frame["hour"] = [f"141021{hour:02d}" for hour in draw.integers(0, 24, rows)]
    frame.insert(0, "click", np.arange(rows) % 5 // 4)
    frame.insert(0, "id", np.arange(rows))
    (folder / "avazu").mkdir(exist_ok=True)
    frame.to_csv(folder / "avazu" / "train.csv", index=False)
    return frame


@pytest.mark.parametrize("name", ["train.txt", "train.txt.gz"])
def test_criteo_as_distributed(tmp_path, name):
    write_criteo(tmp_path, name=name)
    data = load_dataset("criteo", data_dir=tmp_path)
    assert data.party_names == ("active", "passive")
    assert data.columns[0] == CRITEO_TEXTS
    assert [c for c in data.columns[1] if not c.endswith(" missing")] == list(CRITEO_NUMBERS)
    assert (data.rows, data.test_rows) == (320, 80)
    assert min(data.cardinalities[0]) > 1
    assert not any(data.cardinalities[1])
    assert data.train_labels.mean() == pytest.approx(0.25)


def test_avazu_as_distributed(tmp_path):
    frame = write_avazu(tmp_path)
    data = load_dataset("avazu", data_dir=tmp_path)
    assert [len(columns) for columns in data.columns] == [7, 7, 8]
    assert data.columns[0][0] == "hour"
    assert data.cardinalities[0][0] <= 25  # hours of the day, not of the month
    assert "id" not in {name for columns in data.columns for name in columns}
    assert data.rows + data.test_rows == len(frame)


def test_a_file_is_streamed_and_sampled(tmp_path, monkeypatch):
    write_criteo(tmp_path, 1000)
    monkeypatch.setattr(module, "_PIECE", 64)
    whole = load_dataset("criteo", data_dir=tmp_path, rows=1000, scaling="none")
    some = load_dataset("criteo", data_dir=tmp_path, rows=300, scaling="none")
    again = load_dataset("criteo", data_dir=tmp_path, rows=300, scaling="none")
    other = load_dataset("criteo", data_dir=tmp_path, rows=300, scaling="none", sample_seed=1)
    assert some.rows + some.test_rows == 300
    assert some.fingerprint() == again.fingerprint() != other.fingerprint()
    assert any("300 of 1000 rows, a uniform sample" in note for note in some.about.notes)
    rows = {row.tobytes() for row in np.concatenate([whole.train[1], whole.test[1]])[:, :5]}
    kept = {row.tobytes() for row in np.concatenate([some.train[1], some.test[1]])[:, :5]}
    assert len(kept & rows) > 0.6 * len(kept)  # the fill of a gap differs with the sample


def test_samples_are_uniform(tmp_path, monkeypatch):
    frame = write_avazu(tmp_path, 400).assign(device_ip=np.arange(400))
    frame.to_csv(tmp_path / "avazu" / "train.csv", index=False)
    monkeypatch.setattr(module, "_PIECE", 50)
    taken = np.zeros(400)
    for seed in range(40):
        notes: list[str] = []
        sample = module._sample(tmp_path / "avazu" / "train.csv", ",", None, 100, seed, notes)
        places = sample["device_ip"].astype(int).to_numpy()
        assert (np.diff(places) > 0).all()
        taken[places] += 1
    assert abs(taken[:200].sum() - 2000) < 150  # hypergeometric: standard deviation 27


@pytest.mark.parametrize(
    ("options", "words"),
    [({"rows": 5}, "too few"), ({"rows": 500}, "the file has 400"), ({"data_dir": None}, "Kaggle")],
)
def test_refusals(tmp_path, monkeypatch, options, words):
    monkeypatch.delenv("SECUREVFL_DATA", raising=False)
    write_criteo(tmp_path)
    with pytest.raises(DataError, match=words):
        load_dataset("criteo", **({"data_dir": tmp_path} | options))


def test_another_file_is_refused(tmp_path):
    (tmp_path / "avazu").mkdir()
    (tmp_path / "avazu" / "train.csv").write_text("click,a\n0,1\n1,2\n")
    with pytest.raises(DataError, match="column 'hour' is absent"):
        load_dataset("avazu", data_dir=tmp_path)
    (tmp_path / "criteo").mkdir()
    (tmp_path / "criteo" / "train.txt").write_text("label\tI1\nx\ty\n")
    with pytest.raises(DataError, match="no file of the form"):
        load_dataset("criteo", data_dir=tmp_path)


@pytest.mark.parametrize(("name", "clicks"), [("avazu", 0.17), ("criteo", 0.256)])
def test_twins_are_called_synthetic_and_can_be_learnt(name, clicks):
    facts, load = getattr(synthetic_clicks(), f"{name.upper()}_SET")
    assert facts.name == f"{name}-twin"
    data = load(rows=6000)
    assert "SYNTHETIC" in data.about.origin
    assert any("SYNTHETIC" in note for note in data.about.notes)
    assert (data.rows, data.test_rows) == (5000, 1000)
    assert data.train_labels.mean() == pytest.approx(clicks, abs=0.02)
    assert load(rows=6000).fingerprint() == data.fingerprint()
    assert load(rows=6000, sample_seed=1).fingerprint() != data.fingerprint()
    # Mean click of a code in the training rows ranks the test rows better than chance.
    scores = np.zeros(data.test_rows)
    for part, held, counts in zip(data.train, data.test, data.cardinalities, strict=True):
        for column, count in enumerate(counts):
            if 1 < count < 500:
                codes, total = part[:, column].astype(int), data.train_labels.mean()
                means = np.bincount(codes, data.train_labels, count) + 20 * total
                means /= np.bincount(codes, minlength=count) + 20
                scores += np.log(means[held[:, column].astype(int)] / total)
    clicked = data.test_labels == 1
    order = scores.argsort().argsort()
    auc = (order[clicked].mean() - (clicked.sum() - 1) / 2) / (~clicked).sum()
    assert auc > 0.6


@pytest.mark.parametrize("name", ["criteo", "avazu"])
def test_the_parts_that_are_at_hand(name):
    try:
        data = load_dataset(name)
    except DataError:
        pytest.skip("the files are not on this machine")
    assert data.train_labels.mean() == pytest.approx(0.19, abs=0.04)
