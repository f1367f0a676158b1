"""A privacy audit of a protocol of one's own: examples/own_protocol, and two broken forms of it.

The claim: given the sum of all embeddings, the server learns nothing. Two secrets with the same sum
are chosen. Real runs with each of them are compared by what the server received; where the claim
holds the two samples have the same distribution, and the test accuses with probability 1e-7 at
most.

A good generator with a known seed looks random in every transcript, and that test stays silent. So
the second audit asks where the masks came from: each draw must be the result of one call of the
library's sampler, keyed by 32 fresh bytes of the operating system.
"""

import functools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from securevfl.audit import randomness, views
from securevfl.audit.statistical import Outcome, two_sample
from securevfl.audit.tapes import record_draws
from securevfl.data import VerticalDataset
from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.field import FixedPoint
from securevfl.privacy.coalition import Coalition
from securevfl.testing.runs import make, tiny_data

sys.path.insert(0, str(Path(__file__).parent / "own_protocol"))
from additive_split import FIELD, AdditiveSplit, Client

OPTIONS = {"rounds": 1, "batch": 4, "width": 2, "degree": 1}


class SmallMasks(Client):
    """Broken: masks of 16 bits, where an embedding has more."""

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Too few bits."""
        return FIELD.random(shape) % FIELD.dtype.type(1 << 16)


class SeededMasks(Client):
    """Broken: masks from the run's seed, which everybody knows."""

    def uniform(self, shape: tuple[int, ...]) -> np.ndarray:
        """Uniform, and known to whoever knows the seed."""
        return FIELD.reduce(self.stream("masks", self.round).integers(0, 1 << 62, shape))


@contextmanager
def clients(kind: type[Client]) -> Iterator[None]:
    """Let the protocol make clients of another kind."""
    import additive_split

    kept, additive_split.Client = additive_split.Client, kind
    try:
        yield
    finally:
        additive_split.Client = kept


@functools.cache
def dataset() -> VerticalDataset:
    """Three clients with the same columns, in sixteenths."""
    data = tiny_data()
    same = np.round(data.train[0] * 16).astype(np.float32) / 16
    return VerticalDataset.from_numpy([same] * 3, data.train_labels, scaling="none")


def server_view(kind: type[Client], secret: int, seed: int) -> np.ndarray:
    """Messages to the server in a real run with secret 0 or 1, as one row of signed numbers.

    Under secret 0 all weights are 0; under secret 1 those of client 0 are 1 and those of client 1
    are -1, so that every sum is 0 as well. All values are multiples of 2^-4: nothing is rounded.
    """
    with clients(kind):
        parties = make(AdditiveSplit, dataset(), seed=seed, **OPTIONS).parties()
    for n, sign in enumerate((1.0, -1.0, 0.0)):
        parties[n].network.values[:] = secret * sign
    transcript = Transcript(payloads=True)
    Simulation(parties, seed=seed, conditions=NONE, transcript=transcript).run()
    seen = views.cut(transcript, Coalition(server=True))
    uploads = np.stack(list(seen.one_per_sender("embedding", 1, SERVER).values()))
    return FixedPoint(FIELD, bits=0).dequantize(uploads).reshape(-1)


def game(kind: type[Client], runs: int) -> Outcome:
    """Compare the server's views under the two secrets, coordinate by coordinate."""
    one, two = (
        np.stack([server_view(kind, secret, seed=2 * run + secret) for run in range(runs)])
        for secret in (0, 1)
    )
    return two_sample(one, two)


def origins(kind: type[Client]) -> list[str]:
    """Draws of the clients that did not come from the operating system by the one sampler."""
    with clients(kind), randomness.watch() as log:
        parties = make(AdditiveSplit, **OPTIONS).parties()
        tapes = [record_draws(parties[n]) for n in parties if n != SERVER]
        Simulation(parties, conditions=NONE).run()
    return list(randomness.unexplained(log, tapes))


def main(runs: int = 30) -> dict[str, tuple[bool, bool]]:
    """Audit all three; what each audit found, by name of the clients."""
    found = {}
    for kind in (Client, SmallMasks, SeededMasks):
        outcome, strange = game(kind, runs), origins(kind)
        found[kind.__name__] = outcome.rejected, bool(strange)
        print(f"{kind.__name__}:")
        verdict = "VIOLATED" if outcome.rejected else "no violation found"
        print(f"  views of the server: {verdict} (p = {outcome.p_value:.2g}; {outcome.detail})")
        print(f"  origin of masks: {f'{len(strange)} draws unexplained' if strange else 'sound'}")
    return found


if __name__ == "__main__":
    main()
