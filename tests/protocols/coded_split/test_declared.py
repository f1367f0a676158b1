"""Every message equals its formula byte by byte; planted leaks depart from it."""

import numpy as np
import pytest

from securevfl.audit.deviations import compare
from securevfl.audit.recording.recorder import record
from securevfl.data import load_dataset
from securevfl.engine.party import SERVER
from securevfl.protocols.base.mask_keys import as_array
from securevfl.protocols.base.messages import MessageKey
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.algorithm import Holder, Owner
from securevfl.protocols.coded_split.dealing import Dealing
from securevfl.protocols.coded_split.server import Server
from securevfl.testing.runs import make, paper_conditions
from tests.protocols.coded_split.twin import watched

DIGITS = load_dataset("digits", parties=8).subset(61, 31)
OPTIONS = [
    {},
    {"segments": 2},
    {"helpers": 2, "segments": 2, "secure": True},
    {"release": True},
    {"rounding": "stochastic", "client_lr_decay": "cosine", "client_weight_decay": 0.02},
    {"privacy": 2, "helpers": 1, "prepare": "scale", "prime": 2**61 - 1},
]


def deviations(protocol, **options):
    made = make(protocol, DIGITS, **options)
    return compare(record(made, conditions=paper_conditions(made)))


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_message_equals_its_formula(options):
    found = deviations(CodedSplit, **options)
    assert found.deviations == ()
    assert found.without_formula == ()
    assert found.computed == found.messages > 150


class Unmasked(Owner):
    """Uploads its share of the sum as it is."""

    def upload(self, label, rows, round):
        psi = self.public.field.matmul(self.data_shares[label.part][rows], self.model[0])
        self.send(SERVER, "embedding", psi, round=round)


class NewBytes(Owner):
    """Answers every label with a mask of its own."""

    def upload(self, label, rows, round):
        self.keys = {key: self.secret_bytes(32) for key in self.keys}
        super().upload(label, rows, round)


class Stale(Owner):
    """Uploads before it has applied the last step."""

    def take(self, kind, step, payload):
        values = self.model[0]
        super().take(kind, step, payload)
        self.model = (values if step == 3 else self.model[0], *self.model[1:])


class Twice(Owner):
    """Applies a step twice."""

    def apply(self, step, share, digest):
        doubled = self.public.field.add(share, share) if step == 2 else share
        super().apply(step, doubled, digest)


class ToMembers(Owner):
    """Sends holder 1 a key of a block with it, and no other."""

    def send(self, to, kind, payload, **more):
        if kind == "key" and to == 1:
            prss = self.public.prss
            place = next(i for i, key in enumerate(prss.dealt(0)) if 1 in prss.blocks[key])
            payload = as_array([self.drawn[place]] * len(payload))
        if kind == "own-keys":
            self.drawn = payload
        super().send(to, kind, payload, **more)


class InTheClear(Server):
    """Deals the step itself."""

    def send(self, to, kind, payload, **more):
        if kind == "deal":
            payload = payload[0], self.public.field.reduce(self.log[-1][0].astype(np.int64))
        super().send(to, kind, payload, **more)


class SameMasks(Dealing):
    """Uses the masks of the first step for all of them."""

    def seeds(self, secret, number, step):
        return super().seeds(secret, 1, np.zeros_like(step))


class Reused(Server):
    """Deals with the same masks in every round."""

    def __init__(self, *rest):
        super().__init__(*rest)
        self.dealing = SameMasks(self.public.code)


def planted(index, party):
    """The protocol with one party that leaks."""

    class Leaky(CodedSplit):
        """Planted; the server believes whatever sums come of it."""

        def parties(self):
            made = super().parties()
            old = made[index]
            if index == SERVER:
                made[index] = party(old.peers, old.public, old.centre, old.labels)
            else:
                rest = (old.features, old.weights)
                made[index] = party(index, old.peers, old.public, *rest)
            made[SERVER].check_range = lambda *rest: None
            return made

    return Leaky


@pytest.mark.parametrize(
    ("index", "party", "kind"),
    [
        (2, Unmasked, "embedding"),
        (2, NewBytes, "embedding"),
        (2, Stale, "embedding"),
        (2, Twice, "embedding"),
        (0, ToMembers, "key"),
        (SERVER, InTheClear, "deal"),
        (SERVER, Reused, "deal"),
    ],
)
def test_a_planted_leak_departs_from_its_formula(index, party, kind):
    found = deviations(planted(index, party)).deviations
    assert (found[0].key.kind, found[0].key.sender) == (kind, index)


def test_one_stream_fewer_departs_from_its_formula(monkeypatch):
    from securevfl.field import prss

    made = make(CodedSplit, DIGITS)
    streams = prss.mask_streams
    monkeypatch.setattr(prss, "mask_streams", lambda code, degree: streams(code, degree) - 1)
    run = record(made)
    monkeypatch.setattr(prss, "mask_streams", streams)
    assert {one.key.kind for one in compare(run).deviations} == {"embedding"}


def test_first_weights_come_from_the_owners_own_entropy():
    from securevfl.engine.streams import Composed

    one, other = make(CodedSplit, DIGITS), make(CodedSplit, DIGITS)
    other.secrets = Composed.draw(*range(-1, 8))
    for n in range(8):
        assert (one.first_weights(n) != other.first_weights(n)).any()


def test_a_helper_is_a_holder_without_columns():
    made = make(CodedSplit, DIGITS, helpers=1).parties()
    assert type(made[8]) is Holder
    assert isinstance(made[7], Owner)


@pytest.mark.parametrize("options", [{"segments": 2, "secure": True, "helpers": 1}, {}], ids=str)
def test_the_ideal_output_is_what_the_server_decodes(options):
    run = record(make(watched(CodedSplit), DIGITS, **options))
    made, server = run.protocol, run.parties[SERVER]
    assert len(server.seen) == made.config.rounds
    for t, (sums, _) in server.seen.items():
        ideal = made.ideal_output(run, MessageKey("embedding", t, 0, SERVER))
        assert (ideal == sums).all()
    assert made.ideal_output(run, MessageKey("deal", 1, SERVER, 3)) is None


def test_the_ideal_output_of_a_release_is_the_owners_models():
    run = record(make(CodedSplit, DIGITS, release=True))
    made, unit = run.protocol, 2.0**-20
    for n in (0, 5):
        ideal = made.ideal_output(run, MessageKey("release", made.config.rounds, 3, n))
        assert (ideal * unit == np.stack(run.parties[n].released)).all()
