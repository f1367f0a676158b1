"""Noise as targets: an unsupervised network spreads its rows over the unit sphere.

P. Bojanowski, A. Joulin, "Unsupervised Learning by Predicting Noise", 2017, as FedOnce's guests use
it (Wu, Li, He 2022): every row has a random target on the sphere; the network is trained to
approach it, and from time to time targets are reassigned within a batch to minimise the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from securevfl.errors import DivergedError, needs
from securevfl.models.client_networks import ClientNetwork

_TINY = 1e-12  # added to norms; a row of exact zeros then stays zero


class NoiseTargets:
    """A bottom model (a client's network) with a noise target for each of its rows.

    Parameters
    ----------
    network : ClientNetwork
        Maps (rows, d) to (rows, h).
    rows, width : int
        Number M of rows, and width h.
    stream : numpy Generator
        Draws the targets, uniform on the sphere.

    Attributes
    ----------
    targets : ndarray, (M, h), float32
        Targets, of length 1.
    assigned : ndarray, (M,), int64
        Number of each row's target.
    """

    def __init__(
        self, network: ClientNetwork, rows: int, width: int, *, stream: np.random.Generator
    ) -> None:
        needs("noise as targets", "sklearn", "scipy")
        self.network = network
        self.targets = unit(stream.standard_normal((rows, width)).astype(np.float32))[0]
        self.assigned = np.arange(rows)

    def encode(self, rows: np.ndarray) -> np.ndarray:
        """Representations of rows, (rows, h) float32: outputs of the network, of norm 1."""
        return unit(self.network.forward(rows))[0]

    def train(self, rows: np.ndarray, places: np.ndarray, *, reassign: bool) -> tuple[float, int]:
        """One step; return the loss before it (mean |z - t|^2) and the number of clipped weights.

        Parameters
        ----------
        rows : ndarray, (B, d)
            Columns of the batch's rows.
        places : ndarray, (B,)
            Row numbers.
        reassign : bool
            Whether targets are first reassigned within the batch, to minimise the loss.

        Raises
        ------
        DivergedError
            When the loss is not finite.
        """
        z, norms = unit(self.network.forward(rows))
        if reassign:
            self.reassign(z, places)
        apart = z - self.targets[self.assigned[places]]
        loss = float((apart**2).sum(axis=1).mean())
        if not np.isfinite(loss):
            raise DivergedError(
                f"the loss of noise as targets became {loss}; lower the clients' lr"
            )
        outer = np.float32(2 / len(z)) * apart
        # z = f / |f|, so dL/df = (I - z z^T) dL/dz / |f|: only what is tangent to the sphere moves
        # f.
        inner = (outer - (outer * z).sum(axis=1, keepdims=True) * z) / norms
        return loss, self.network.update(rows, inner)

    def reassign(self, z: np.ndarray, places: np.ndarray) -> None:
        """Exchange the targets within a batch so that the sum of z . t is largest."""
        from scipy.optimize import linear_sum_assignment

        own = self.assigned[places]
        # |z - t|^2 = 2 - 2 z.t on the sphere: least distances are largest products, an assignment
        # problem. It is solved within the batch, as in Bojanowski and Joulin, 2017; all rows would
        # cost M^3.
        _, chosen = linear_sum_assignment(z @ self.targets[own].T, maximize=True)
        self.assigned[places] = own[chosen]

    def state_dict(self) -> dict[str, Any]:
        """Weights, optimiser state, and the assignment of targets to rows."""
        return {"network": self.network.state_dict(), "assigned": self.assigned}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state from `state_dict`."""
        self.network.load_state_dict(state["network"])
        self.assigned = np.array(state["assigned"])


def unit(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Rows divided by their L2 norms, and the norms as a column."""
    norms = np.sqrt((rows**2).sum(axis=1, keepdims=True)) + rows.dtype.type(_TINY)
    return rows / norms, norms
