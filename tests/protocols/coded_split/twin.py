"""The integer twin of coded split learning: the same training without a field, shares or masks."""

from dataclasses import dataclass

import numpy as np

from securevfl.data import load_dataset
from securevfl.protocols.coded_split.quantisation import whole_rows
from securevfl.protocols.coded_split.server import Server
from securevfl.verified import bare_of

DIGITS = load_dataset("digits", parties=8).subset(61, 31)


def big(values, kind=object):
    """The same integers without a limit, or as int64, whose sums are right where they fit."""
    return np.asarray(values, np.int64).astype(kind)


@dataclass
class Twin:
    """Models and sums of a configuration as integers that never wrap.

    Attributes
    ----------
    protocol : CodedSplit
    kind : type
        Of the integers.
    """

    protocol: object
    kind: type = object

    def __post_init__(self):
        made, public = self.protocol, self.protocol.public
        data = made.data.train
        rows = [whole_rows(public, n, made.preparation(n).apply(x)) for n, x in enumerate(data)]
        self.layout = public.batches["train"]
        self.X = big(self.layout.lay_out(np.concatenate(rows, axis=1)), self.kind)
        unit = 2.0 ** (public.config.data_bits + public.config.gradient_bits)
        first = [
            np.floor(unit * made.first_weights(n).astype(np.float64) + 0.5)
            for n in range(public.owners)
        ]
        W = big(np.concatenate(first), self.kind)
        self.W = [W.copy() for _ in range(public.code.segments)]

    def sums(self, t):
        """U_1 to U_K of training batch t, with the steps so far."""
        rows = self.layout.draw(t)
        return np.stack([self.X[k][rows] @ W for k, W in enumerate(self.W)])

    def step(self, t, dealt):
        """W_k += X_k^T Gbar_k."""
        rows = self.layout.draw(t)
        for k, W in enumerate(self.W):
            self.W[k] = W + self.X[k][rows].T @ big(dealt[k], self.kind)


class Watched(Server):
    """A server that keeps what it decodes, and how, and its whole log."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.seen = {}

    def forget(self, message):
        """Forget nothing."""

    def train(self, rows, sums):
        """Keep the sums and the bound that was promised of them, then train."""
        promised = bare_of(self.made).bound.promised(rows).copy()
        self.seen[self.round] = self.field.signed(bare_of(sums)), promised
        super().train(rows, sums)


def watched(cls):
    """The protocol with a server that keeps what it decodes."""

    class Protocol(cls):
        """Watched."""

        def new_server(self):
            plain = super().new_server()
            own = plain.centre, plain.labels, plain.made
            return Watched(plain.peers, plain.public, *map(bare_of, own))

    return Protocol


def log_of(server):
    """Gbar of the steps in a server's log, (K, |B|, h) signed."""
    return [server.field.signed(step) for step in bare_of(server.log)]


def dealt_of(server, step):
    """Digest, seeds and shares that a server deals of a step, as bare numbers."""
    return bare_of(server.dealt(step))


def check_against_twin(outcome, *, rounds=None, kind=object):
    """All decoded sums are the twin's, within the bound; returns the largest of them."""
    server = outcome.parties[-1]
    twin, largest, log = Twin(outcome.protocol, kind=kind), 0, log_of(server)
    for t in range(1, len(log) + 1):
        if t in server.seen:
            sums, promised = server.seen[t]
            wanted = twin.sums(t)
            assert (big(sums) == wanted).all(), f"round {t}"
            assert (abs(wanted) <= big(promised)).all(), f"round {t}"
            largest = max(largest, int(abs(wanted).max()))
        twin.step(t, log[t - 1])
    assert rounds is None or len(server.seen) == rounds
    models = outcome.protocol.models(outcome.parties)
    for k, W in enumerate(twin.W):
        assert (big(models[k]) == W).all()
    assert 0 < largest <= (outcome.protocol.public.field.modulus - 1) // 2
    return largest
