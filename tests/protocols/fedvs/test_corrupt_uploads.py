"""FedVS with wrong uploads: up to A are corrected and named, more end in a typed error."""

import numpy as np
import pytest

from securevfl.engine.party import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError, NotEnoughResultsError
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.testing.runs import tiny_data
from securevfl.verified import bare_of

BASE = {"rounds": 4, "batch": 8, "width": 3, "hidden": 4, "segments": 2}


class Watch:
    def __init__(self):
        self.events = []

    def record(self, event):
        self.events.append(event)

    def round_over(self, *_):
        pass


def corrupt_party(party, how):
    send = party.send

    def lie(to, kind, payload, **options):
        send(to, kind, how(party, bare_of(payload)) if kind == "embedding" else payload, **options)

    party.send = lie


def random_values(party, upload):
    return party.public.field.random(upload.shape)


def one_entry(party, upload):
    changed = upload.copy()
    changed[0, 0] = (int(changed[0, 0]) + 1) % party.public.field.modulus
    return changed


def another_shape(party, upload):
    return upload[:, :-1]


def beyond_the_field(party, upload):
    return np.full_like(upload, party.public.field.modulus)


def train(liars, how, **options):
    data = tiny_data().with_parties(9)
    cls = get_protocol("fedvs")
    protocol = cls(make_config(cls, BASE | options), data, seed=3)
    parties, watch = protocol.parties(), Watch()
    for n in liars:
        corrupt_party(parties[n], how)
    Simulation(parties, seed=3, observer=watch).run()
    losses = [e.fields["loss"] for e in watch.events if e.name == "round"]
    corrected = [e.fields for e in watch.events if e.name == "corrected"]
    named = [fields["clients"] for fields in corrected]
    assert all(f["why"] == f"uploads of {f['clients']} disagree with the rest" for f in corrected)
    return losses, named, parties[SERVER]


@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("how", [random_values, one_entry, another_shape, beyond_the_field])
def test_two_liars_change_nothing_and_are_named_in_every_round(how, masked):
    honest, nobody, _ = train((), how, masked=masked, tolerate_corrupt=2)
    losses, named, _ = train((1, 6), how, masked=masked, tolerate_corrupt=2)
    assert nobody == []
    assert losses == honest
    assert named == [[1, 6]] * 4


def test_more_liars_than_tolerated_are_given_up_by_name():
    with pytest.raises(NotEnoughResultsError, match="3 attempts in a row"):
        train((0, 1, 2), random_values, tolerate_corrupt=2)


def test_without_toleration_the_paper_s_server_cannot_tell():
    honest, _, _ = train((), random_values)
    losses, named, _ = train((0,), random_values)
    assert named == []
    assert losses != honest


def test_more_results_than_clients_are_refused_before_the_run():
    with pytest.raises(ConfigurationError, match=r"R \+ 2A = 11 .* 9 clients"):
        train((), one_entry, tolerate_corrupt=3)
