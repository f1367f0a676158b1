"""Conditions of one's own: clients at growing distances from the server.

Client n is `step` seconds further away than client n - 1. Its uploads take that long, and a random
part on top that is as long on average for all of them.
"""

from __future__ import annotations

from securevfl.engine.conditions import Conditions, Delay, share_factor
from securevfl.errors import ConfigurationError


def make_conditions(
    *, parties: int, batch_rows: int, step: float = 0.2, jitter: float = 0.1
) -> Conditions:
    """Delays that grow with the number of the client.

    Parameters
    ----------
    parties : int
        Number of clients, N.
    batch_rows : int
        Rows of a coded batch, |B|.
    step : float
        Seconds between one client and the next.
    jitter : float
        Mean of the random part in seconds, exponentially distributed.
    """
    if step < 0 or jitter < 0:
        raise ConfigurationError(
            f"conditions: distance needs step and jitter of at least 0, they are {step}, {jitter}"
        )
    return Conditions(
        name="distance",
        uploads=tuple(Delay(jitter, shift=step * n) for n in range(parties)),
        share_factor=share_factor(parties, batch_rows),
        bandwidth=300e6,
    )
