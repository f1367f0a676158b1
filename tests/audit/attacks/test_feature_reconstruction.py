"""Reconstruction of features, and theft of models: planted leaks are found, noise is not."""

from collections.abc import Iterator

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from securevfl.audit.attacks.feature_reconstruction import equality_solving, inversion
from securevfl.audit.attacks.model_stealing import steal
from securevfl.audit.attacks.outcome import explained
from securevfl.audit.attacks.regression import fit
from securevfl.errors import ConfigurationError
from securevfl.models.polynomial_network import expand
from securevfl.runs.threads import one_thread

ROWS, D, H = 400, 4, 12


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with threadpool_limits(1), one_thread():
        yield


def stream(seed: int = 3) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(seed))


def columns(seed: int = 1) -> np.ndarray:
    return stream(seed).random((ROWS, D))


def weights(seed: int = 2, width: int = H) -> np.ndarray:
    return stream(seed).normal(size=(2 * D + 1, width))


KNOWN = np.arange(0, ROWS, 4)


@pytest.mark.parametrize("curved", [False, True])
def test_embeddings_are_inverted(curved):
    X = columns()
    embedding = np.tanh(expand(X, 2) @ weights() / 2) if curved else expand(X, 2) @ weights()
    found = inversion(embedding, X, KNOWN, stream())
    assert (found.metric, found.chance, found.samples) == ("error explained", 0.0, 300)
    assert found.low > (0.8 if curved else 0.999)
    assert abs(found.controls["shuffled rows"]) < 0.1


@pytest.mark.parametrize("width", [3, 300])
def test_noise_is_not_inverted(width):
    found = inversion(stream(8).random((ROWS, width)), columns(), KNOWN, stream())
    assert -0.1 < found.low <= found.high < 0.05


def test_field_elements_of_a_mask_are_not_inverted():
    uploads = stream(8).integers(0, 2**61 - 1, (ROWS, H)).astype(np.float64)
    found = inversion(uploads, columns(), KNOWN, stream())
    assert found.high < 0.05


@pytest.mark.parametrize("parties", [1, 3])
def test_equations_are_solved_where_they_are_enough(parties):
    X = [columns(n) for n in range(parties)]
    W = [weights(9 + n, 2 * D * parties) for n in range(parties)]
    seen = sum(expand(x, 2) @ w for x, w in zip(X, W, strict=True))
    found = equality_solving(seen, W, X, 2, stream())
    assert found.success == pytest.approx(1.0, abs=1e-9)
    assert f"{8 * parties} equations a row, {8 * parties} unknowns; 100.0%" in found.note


def test_too_few_equations_give_less_and_a_wrong_model_nothing():
    X, W = columns(), weights()
    few = equality_solving(expand(X, 2) @ W[:, :5], [W[:, :5]], [X], 2, stream())
    assert 0.05 < few.success < 0.9
    wrong = equality_solving(expand(X, 2) @ W, [weights(99)], [X], 2, stream())
    assert wrong.high < 0


def test_weights_of_another_shape_are_refused():
    with pytest.raises(ConfigurationError, match="degree 1"):
        equality_solving(np.zeros((ROWS, H)), [weights()], [columns()], 1, stream())


def test_guesses_stay_in_the_public_range():
    X, W = columns(), weights()
    noisy = expand(X, 2) @ W + 100 * stream(4).normal(size=(ROWS, H))
    assert equality_solving(noisy, [W], [X], 2, stream()).success > -6  # at worst all at an edge


def test_a_model_is_stolen_from_few_rows():
    X, W = columns(), weights()
    H_ = expand(X, 2) @ W
    found = steal(X[KNOWN], H_[KNOWN], columns(5), expand(columns(5), 2) @ W, stream())
    assert found.low > 0.999
    assert abs(found.controls["shuffled rows"]) < 0.1


def test_nothing_is_stolen_from_noise():
    seen = stream(8).random((len(KNOWN), H))
    found = steal(columns()[KNOWN], seen, columns(5), stream(6).random((ROWS, H)), stream())
    assert -0.1 < found.low <= found.high < 0.05


def test_explained_is_one_for_the_truth_and_zero_for_the_decoy():
    X = columns()
    decoy = X.mean(axis=0)
    assert explained(X, X, decoy, stream()) == (1.0, 1.0, 1.0)
    assert explained(np.tile(decoy, (ROWS, 1)), X, decoy, stream()) == (0.0, 0.0, 0.0)


def test_constant_columns_are_left_out_and_nothing_else_is_refused():
    X = columns()
    padded = np.concatenate([X, np.ones((ROWS, 1))], axis=1)
    assert explained(np.zeros((ROWS, 5)), padded, np.ones(5), stream())[0] == pytest.approx(
        explained(np.zeros((ROWS, 4)), X, np.ones(4), stream())[0]
    )
    with pytest.raises(ConfigurationError, match="none of the 2 attacked columns varies"):
        explained(np.ones((9, 2)), np.ones((9, 2)), np.ones(2), stream())


def test_too_few_pairs_are_refused():
    with pytest.raises(ConfigurationError, match="7 known pairs"):
        fit(np.zeros((7, 2)), np.zeros((7, 2)), stream())


def test_a_fit_is_a_function_of_its_stream():
    X, y = columns(), np.sin(9 * columns())
    one, two = (fit(X, y, stream(4))(X) for _ in range(2))
    assert np.array_equal(one, two)
