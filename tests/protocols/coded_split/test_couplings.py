"""Theorem 1 on recorded runs: other secrets, draws moved by its bijection, and the same view.

The proof is on the page docs/coded-split.md. Two runs differ in what honest parties have. The draws
of the second are those of the first, moved as the proof says; then a coalition's messages are the
same, bit for bit.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from securevfl.audit.proof.coupling import Secrets, move
from securevfl.audit.recording import record
from securevfl.audit.views import Tape
from securevfl.data import load_dataset
from securevfl.engine.party import SERVER
from securevfl.field.lagrange import interpolation_matrix
from securevfl.field.prss import mask_streams
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.dealing import Dealing
from securevfl.protocols.coded_split.quantisation import first_model, whole_rows
from securevfl.testing.runs import make

DIGITS = load_dataset("digits", parties=8).subset(37, 10)
OPTIONS = {"rounds": 5, "batch": 12, "width": 3, "hidden": 5, "prime": 2**31 - 1}
OPTIONS |= {"data_bits": 6, "gradient_bits": 8, "lr": 0.05}
# (K, T, helpers) and the coalitions that are looked at.
CASES = [
    ((1, 1, 0), (0,)),
    ((1, 1, 0), (5,)),
    ((2, 1, 1), (8,)),
    ((1, 2, 1), (0, 1)),
    ((2, 2, 3), (2, 9)),
]


@dataclass(frozen=True)
class Fixed(Dealing):
    """Deals in which the shares of a coalition are those of another run."""

    coalition: tuple = ()
    held: Any = None  # step -> shares of all holders in the other run

    def seeds(self, secret, number, step):
        """None: all shares are dealt as they are."""
        return []

    def shares(self, secret, number, step):
        """The polynomial through the step and the coalition's old shares, at all points."""
        code, field, C = self.code, self.code.field, list(self.coalition)
        points = [*code.betas[: code.segments], *(code.alphas[c] for c in C)]
        rest = [j for j in range(code.parties) if j not in C]
        through = [field.reduce(step.astype(np.int64)), *(self.held[number][c][None] for c in C)]
        stack = np.concatenate(through).reshape(len(points), -1)
        to_rest = interpolation_matrix(field, points, [code.alphas[j] for j in rest])
        values = field.matmul(to_rest, stack).reshape(len(rest), *step.shape[1:])
        made = dict(zip(rest, values, strict=True)) | {c: self.held[number][c] for c in C}
        return [made[j] for j in range(code.parties)]


def configured(shape):
    K, T, helpers = shape
    return make(CodedSplit, DIGITS, segments=K, privacy=T, helpers=helpers, **OPTIONS)


def secrets_of(made, party, tape):
    """X-bar and W-bar of an owner, with the masks that it drew."""
    public = made.public
    whole = whole_rows(public, party.index, party.features["train"])
    X = public.batches["train"].lay_out(public.field.reduce(whole))
    W = first_model(public, party.weights)
    return Secrets(X, {0: W}, tape.draws[0], {0: tape.draws[1]})


def replayed(made, first, tapes, change):
    """A run with the first one's keys and server secret, these draws, and other secrets."""
    parties = made.parties()
    change(parties)
    drawn = {j: first.sent("own-keys", 0)[j, j] for j in made.peers()}
    for j in made.peers():
        keys = iter(drawn[j])
        parties[j].secret_bytes = lambda count, keys=keys: next(keys)
    server = parties[SERVER]

    async def setup():
        server.secret = first.parties[SERVER].secret

    server.setup = setup
    return record(made, parties=parties, tapes=tapes)


def moved(made, first, C, parties):
    """Draws with which the coalition holds the same shares of what `parties` have."""
    tapes = {}
    for n in range(made.public.owners):
        before = secrets_of(made, first.parties[n], first.tapes[n])
        tapes[n] = first.tapes[n]
        if n not in C:
            after = secrets_of(made, parties[n], first.tapes[n])
            found = move(made.public.code, C, before, after.data, after.models)
            tapes[n] = Tape([found.data_masks, found.model_masks[0]], [0, 0])
    return tapes


def view(run, members):
    """What passes between the members and others, but for itself; uploads of others apart."""
    return {
        one.key: one.content
        for one in run.messages
        if one.key.sender != one.key.receiver and {one.key.sender, one.key.receiver} & set(members)
    }


def without_deals(seen):
    """A view without deals, some of which are seeds in one run and shares in the other."""
    return {key: content for key, content in seen.items() if key.kind not in ("deal", "seed")}


@pytest.mark.parametrize(("shape", "C"), CASES)
def test_t_holders_see_the_same_for_other_data_models_and_labels(shape, C):
    made = configured(shape)
    first = record(made)
    code, server = made.public.code, first.parties[SERVER]
    held = {
        t: server.dealing.shares(server.secret, t, step) for t, step in enumerate(server.log, 1)
    }
    stream = np.random.default_rng(3)
    others = made.parties()

    def change(parties):
        for n in range(made.public.owners):
            if n not in C:
                parties[n].features, parties[n].weights = others[n].features, others[n].weights
        parties[SERVER].labels = {"train": (DIGITS.train_labels + 3) % 10}
        parties[SERVER].dealing = Fixed(code, C, held)

    for n in range(made.public.owners):
        own = others[n].features["train"]
        others[n].features = {"train": stream.random(own.shape, np.float32)}
        others[n].weights = stream.uniform(-0.2, 0.2, others[n].weights.shape).astype(np.float32)
    tapes = moved(made, first, C, others)
    second = replayed(configured(shape), first, tapes, change)
    for c in C:
        assert (second.parties[c].model[0] == first.parties[c].model[0]).all()
    one, two = (without_deals(view(run, C)) for run in (first, second))
    assert one == two
    log = zip(server.log, second.parties[SERVER].log, strict=True)
    assert any((ours != theirs).any() for ours, theirs in log)  # other gradients
    for t, shares in held.items():
        dealt = second.sent("deal", t)
        assert all((dealt[SERVER, c] == shares[c]).all() for c in C)
    unmoved = replayed(configured(shape), first, dict(first.tapes), change)
    assert without_deals(view(unmoved, C)) != one


@pytest.mark.parametrize(("shape", "C"), CASES)
def test_server_and_t_holders_see_the_same_when_two_owners_change_places(shape, C):
    made = configured(shape)
    first = record(made)
    a, b = [n for n in range(8) if n not in C][:2]
    others = made.parties()
    others[a].features, others[b].features = others[b].features, others[a].features
    others[a].weights, others[b].weights = others[b].weights, others[a].weights

    def change(parties):
        for n in (a, b):
            parties[n].features, parties[n].weights = others[n].features, others[n].weights

    second = replayed(configured(shape), first, moved(made, first, C, others), change)
    logs = [run.parties[SERVER].log for run in (first, second)]
    assert all((ours == theirs).all() for ours, theirs in zip(*logs, strict=True))
    one, two = (view(run, (*C, SERVER)) for run in (first, second))
    masked = {key for key in one if key.kind == "embedding" and key.sender not in C}
    assert {k: v for k, v in one.items() if k not in masked} == {
        k: v for k, v in two.items() if k not in masked
    }
    code, field = made.public.code, made.public.field
    u = mask_streams(code, 3)
    rest = [j for j in range(code.parties) if j not in C]
    factors = [
        int(code.vanishing[j]) * math.prod(code.alphas[j] - code.alphas[c] for c in C) for j in rest
    ]
    scale = field.reciprocal(field.reduce(np.array(factors, object)))
    points = [code.alphas[j] for j in rest]
    short = False
    for t in range(1, OPTIONS["rounds"] + 1):
        ours, theirs = (run.sent("embedding", t) for run in (first, second))
        differences = [field.subtract(ours[j, SERVER], theirs[j, SERVER]) for j in rest]
        # s = (psi - psi') / (P prod (z - alpha_c)): its u coefficients move the key's u streams.
        s = field.multiply(scale[:, None], np.stack(differences).reshape(len(rest), -1))
        assert s.any()
        for count in (u, u - 1):
            onto = interpolation_matrix(field, points[:count], points[count:])
            fits = (field.matmul(onto, s[:count]) == s[count:]).all()
            assert fits or count < u
            short |= count < u and not fits
    assert short  # one stream fewer would not do
