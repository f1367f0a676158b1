"""Label inference: planted leaks are found, noise is not."""

import numpy as np
import pytest

from securevfl.audit.attacks import label_inference as li
from securevfl.audit.attacks.outcome import area, balanced_accuracy, bootstrap
from securevfl.errors import ConfigurationError

ROWS, H = 600, 8


def stream(seed: int = 3) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def labelled(classes: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """Labels, gradients (prediction - label) J of a model that has learnt little, and a stream."""
    draw = stream(seed)
    labels = draw.integers(0, classes, ROWS)
    errors = draw.dirichlet(np.ones(classes), ROWS) - np.eye(classes)[labels]
    return labels, errors @ draw.normal(size=(classes, H)) / ROWS, draw


def rare(seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    """One row in five is positive, and the model predicts about that."""
    draw = stream(seed)
    labels = (draw.random(ROWS) < 0.2).astype(np.int64)
    errors = draw.uniform(0.1, 0.3, ROWS) - labels
    return labels, errors[:, None] * draw.normal(size=H) / ROWS, draw


def noise(width: int = H) -> np.ndarray:
    return stream(77).normal(size=(ROWS, width))


@pytest.mark.parametrize("attack", [li.gradient_norm, li.gradient_sign])
def test_two_classes_are_told_apart_without_any_label(attack):
    labels, gradients, draw = rare()
    found = attack(gradients, labels, draw)
    assert (found.metric, found.chance, found.samples) == ("AUC", 0.5, ROWS)
    assert found.success > 0.99
    assert found.low > 0.9


@pytest.mark.parametrize("attack", [li.gradient_norm, li.gradient_sign])
def test_noise_tells_no_class(attack):
    labels, _, draw = rare()
    found = attack(noise(), labels, draw)
    assert found.low < 0.5 < found.high
    assert found.high - found.low < 0.15


@pytest.mark.parametrize("attack", [li.gradient_norm, li.gradient_sign])
def test_lengths_and_signs_are_for_two_classes(attack):
    labels, gradients, draw = labelled(3)
    with pytest.raises(ConfigurationError, match="3 classes"):
        attack(gradients, labels, draw)


@pytest.mark.parametrize("attack", [li.gradient_clusters, li.gradient_directions])
@pytest.mark.parametrize("classes", [3, 5])
def test_directions_show_classes(attack, classes):
    labels, gradients, draw = labelled(classes)
    known = li.known_rows(labels, 10, draw)
    found = attack(gradients, labels, known, classes, draw)
    assert found.metric == "balanced accuracy"
    assert found.samples == ROWS - 10 * classes
    assert found.low > found.chance + 0.2
    blind = attack(noise(), labels, known, classes, draw)
    assert blind.low < blind.chance < blind.high


def test_directions_of_two_classes_are_scored_by_area():
    labels, gradients, draw = rare()
    known = li.known_rows(labels, 10, draw)
    found = li.gradient_directions(gradients, labels, known, 2, draw)
    assert (found.metric, found.samples) == ("AUC", ROWS - 20)
    assert found.success > 0.99


def test_directions_survive_gradients_whose_squares_underflow():
    labels, gradients, draw = rare()
    known = li.known_rows(labels, 10, draw)
    tiny = (gradients * 1e-30).astype(np.float32)
    assert li.gradient_directions(tiny, labels, known, 2, draw).success > 0.99


def test_a_trained_network_is_held_against_the_best_control():
    labels = stream(2).integers(0, 4, ROWS)
    trained = np.eye(4)[labels] + 0.3 * noise(4)
    half = np.where(stream(5).random((ROWS, 1)) < 0.3, np.eye(4)[labels], 0.25)
    without = {"untrained network": noise(), "raw columns": half}
    known = li.known_rows(labels, 10, stream())
    found = li.model_completion(trained, without, labels, known, 4, stream())
    assert found.low > found.chance
    assert found.chance == found.controls["raw columns"] > 0.35
    assert found.controls["untrained network"] < 0.35
    assert found.controls["guess"] == 0.25


def test_a_network_that_has_learnt_nothing_of_the_labels_completes_nothing():
    labels = stream(2).integers(0, 2, ROWS)
    known = li.known_rows(labels, 20, stream())
    found = li.model_completion(noise(), {"raw columns": noise()}, labels, known, 2, stream())
    assert found.metric == "AUC"
    assert found.low < found.chance


def test_known_rows_are_so_many_of_each_class_and_never_more_than_half():
    labels = np.repeat([0, 1, 2], [50, 8, 1])
    known = li.known_rows(labels, 10, stream())
    assert np.bincount(labels[known]).tolist() == [10, 4, 1]


def test_area_is_the_probability_of_the_right_order():
    scores, positive = np.array([1.0, 2, 2, 3]), np.array([False, True, False, True])
    pairs = [(a > b) + (a == b) / 2 for a in scores[positive] for b in scores[~positive]]
    assert area(scores, positive) == np.mean(pairs)
    assert np.isnan(area(scores, np.ones(4, bool)))


def test_balanced_accuracy_counts_classes_equally():
    labels = np.repeat([0, 1], [90, 10])
    assert balanced_accuracy(np.zeros(100, int), labels) == 0.5


def test_the_bootstrap_covers_the_mean():
    """95 % intervals of 200 samples of 60 rows: fewer than 175 covering has probability 1e-5."""
    draw, covered = stream(9), 0
    for _ in range(200):
        values = draw.normal(size=60)
        low, high = bootstrap(lambda rows, v=values: float(v[rows].mean()), 60, draw)
        covered += low < 0 < high
    assert covered >= 175


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_zeros_stay_and_tiny_ones_have_length_one(dtype):
    """In float32 a row of zeros became NaN, and the attack ended in an error."""
    tiny = np.array([3, 4], dtype) * np.finfo(dtype).tiny
    found = li.unit(np.stack([np.zeros(2, dtype), tiny, np.array([0, -2], dtype)]))
    assert found.dtype == np.float64
    assert found == pytest.approx(np.array([[0, 0], [0.6, 0.8], [0, -1]]))
