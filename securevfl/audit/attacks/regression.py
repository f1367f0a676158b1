"""A small network with a linear part, for attackers who know few pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from securevfl.errors import ConfigurationError
from securevfl.models.tensors import tensor
from securevfl.models.weights import initialised

_PENALTIES = 10.0 ** np.arange(-8, 7)
_HELD_OUT = 0.25  # of the pairs, to choose the penalty and to stop
_LOOKS = 25  # steps between looks at the held-out pairs
_PATIENCE = 6  # looks without progress
LEAST = 8  # pairs


def fit(
    inputs: np.ndarray,
    outputs: np.ndarray,
    stream: np.random.Generator,
    *,
    hidden: int = 64,
    steps: int = 1500,
) -> Callable[[np.ndarray], np.ndarray]:
    """Function that predicts outputs from inputs, fitted to a few pairs.

    Ridge regression comes first; its penalty is the best on a quarter of the pairs, and the largest
    penalty leaves only the mean. A network with one hidden layer then fits the residual, starting
    from zero, until the error on that quarter stops falling. For uninformative inputs the result is
    close to the mean of the outputs.

    Parameters
    ----------
    inputs : ndarray, (pairs, a)
        Known inputs.
    outputs : ndarray, (pairs, b)
        Outputs that belong to them.
    stream : numpy Generator
        Draws the split, the first weights and the batches.
    hidden : int
        Width of the hidden layer.
    steps : int
        Largest number of Adam steps.

    Raises
    ------
    ConfigurationError
        For fewer than eight pairs.
    """
    pairs = len(inputs)
    if pairs < LEAST:
        raise ConfigurationError(
            f"attacks: {pairs} known pairs are too few to fit and to check; give {LEAST} or more"
        )
    at, scale = inputs.mean(axis=0), inputs.std(axis=0)
    scale = np.where(scale > 1e-9 * max(float(scale.max()), 1e-300), scale, np.inf)
    centre, spread = outputs.mean(axis=0), max(float(outputs.std()), 1e-12)
    x = ((inputs - at) / scale).astype(np.float64)
    y = ((outputs - centre) / spread).astype(np.float64)
    order = stream.permutation(pairs)
    held, used = np.split(order, [max(2, int(_HELD_OUT * pairs))])
    weight, penalty = _ridge(x, y, used, held)
    network = _network(x, y - x @ weight, used, held, hidden, steps, stream)
    # The penalty is chosen; all pairs then serve the linear part.
    whole = _solve(x, y, penalty)

    def predict(new: np.ndarray) -> np.ndarray:
        z = ((new - at) / scale).astype(np.float64)
        predicted: np.ndarray = (z @ whole + network(z)) * spread + centre
        return predicted

    return predict


def _solve(x: np.ndarray, y: np.ndarray, penalty: float) -> np.ndarray:
    if x.shape[1] <= len(x):
        gram = x.T @ x + penalty * len(x) * np.eye(x.shape[1])
        primal: np.ndarray = np.linalg.lstsq(gram, x.T @ y, rcond=None)[0]
        return primal
    gram = x @ x.T + penalty * len(x) * np.eye(len(x))
    solved: np.ndarray = x.T @ np.linalg.lstsq(gram, y, rcond=None)[0]
    return solved


def _ridge(
    x: np.ndarray, y: np.ndarray, used: np.ndarray, held: np.ndarray
) -> tuple[np.ndarray, float]:
    """(ridge weights of rows `used`, penalty), that with the least error on rows `held`."""
    best: tuple[float, np.ndarray, float] | None = None
    for penalty in _PENALTIES:
        weight = _solve(x[used], y[used], penalty)
        error = float(((x[held] @ weight - y[held]) ** 2).mean())
        if best is None or error <= best[0]:
            best = error, weight, float(penalty)
    assert best is not None
    return best[1], best[2]


def _network(
    x: np.ndarray,
    y: np.ndarray,
    used: np.ndarray,
    held: np.ndarray,
    hidden: int,
    steps: int,
    stream: np.random.Generator,
) -> Callable[[np.ndarray], np.ndarray]:
    import torch
    from torch import nn

    sizes = x.shape[1], hidden, y.shape[1]
    model = initialised(
        lambda: nn.Sequential(nn.Linear(*sizes[:2]), nn.ReLU(), nn.Linear(*sizes[1:])), stream
    )
    last = model[2]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    xs, ys = tensor(x, np.float32), tensor(y, np.float32)
    best = float((ys[held] ** 2).mean())
    state = {k: v.clone() for k, v in model.state_dict().items()}
    waited = 0
    for step in range(1, steps + 1):
        batch = used if len(used) <= 128 else stream.choice(used, 128, replace=False)
        optimizer.zero_grad()
        loss = ((model(xs[batch]) - ys[batch]) ** 2).mean()
        loss.backward()
        optimizer.step()
        if step % _LOOKS == 0:
            with torch.no_grad():
                error = float(((model(xs[held]) - ys[held]) ** 2).mean())
            if error < best:
                best, waited = error, 0
                state = {k: v.clone() for k, v in model.state_dict().items()}
            else:
                waited += 1
            if waited == _PATIENCE:
                break
    model.load_state_dict(state)

    def predict(new: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            predicted: np.ndarray = model(tensor(new, np.float32)).numpy()
        return predicted

    return predict
