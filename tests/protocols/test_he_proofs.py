"""Encrypted sums are proved against all but the key holder, and mistakes are not."""

from dataclasses import replace

import numpy as np
import pytest

from securevfl.engine.conditions import NONE
from securevfl.engine.network import SERVER
from securevfl.protocols import he_split
from securevfl.protocols.he_split import Client, Server
from securevfl.verified import FlowError
from securevfl.verified.traced.proofs import Traced, prove_protocol
from tests.protocols.faulty import schedules_of_each_kind, verdict_on, verdicts_on
from tests.protocols.joint import slow

pytest.importorskip("tenseal")
pytest.importorskip("phe")


def verdicts(parties=4, dropped=(), fresh=False, **options):
    """Verdicts by claim: under all kinds of schedules where they are checked, else under one."""
    traced = Traced("he_split", {"rounds": 1} | options, parties)
    conditions = NONE if fresh else slow(*dropped, of=parties, seconds=5.0)
    with schedules_of_each_kind("he_split", apart=[options.get("holder", 0)]):
        proof = prove_protocol(traced, conditions=conditions, fresh=fresh)
    return {v.claim: v for v in proof.verdicts}


@pytest.mark.parametrize(
    ("parties", "dropped", "options"),
    [
        (4, (), {"fresh": True}),
        (4, (), {"scheme": "paillier", "holder": 2}),
        (5, (1,), {"quorum": 4, "privacy": 2, "rounds": 2}),
    ],
)
def test_all_but_the_key_holder_learn_sums_alone(parties, dropped, options):
    found = verdicts(parties, dropped, **options)
    holder = options.get("holder", 0)
    of_it = {f"client {holder}", f"server + client {holder}"}
    assert {v.verdict for claim, v in found.items() if claim not in of_it} == {"PROVED"}
    alone, both = found[f"client {holder}"], found[f"server + client {holder}"]
    assert (alone.verdict, both.verdict) == ("NOT PROTECTED", "NOT PROTECTED")
    # It knows the sum, so dL/dH is of the server's labels and model alone; both read everything.
    assert all(name.startswith(("loss", "gradient")) for name in alone.clear)
    assert all(name.startswith("embedding") for name in both.clear)


# -- mistakes -----------------------------------------------------------------------------------


def test_a_single_ciphertext_in_the_place_of_a_sum_is_seen(monkeypatch):
    add = Server.add_sealed

    def of_one(self, scheme, key, values):
        return add(self, scheme, key, values[-1:])

    monkeypatch.setattr(Server, "add_sealed", of_one)
    monkeypatch.setattr(Client, "open_sealed", opened_of_one)
    claims = ("server", "server + client 1", "client 1")  # the loss is another one
    found = verdicts_on(claims, "he_split", {"rounds": 1}, parties=4)
    assert "PROVED" not in {v.verdict for v in found}


OPEN = Client.open_sealed


def opened_of_one(self, scheme, secret, value, shape, summands):
    return OPEN(self, scheme, secret, value, shape, 1)


def test_an_embedding_beside_its_ciphertext_is_seen(monkeypatch):
    def told(self, scheme, key, value):
        if self.index == self.public.holder:
            x = value.map(he_split.integers, self.point, real=True, dtype=np.int64)
            self.send(SERVER, "opened", x)
        return type(self).__mro__[1].seal(self, scheme, key, value)

    monkeypatch.setattr(Client, "seal", told, raising=False)
    messages = he_split.HESplit.messages.fget
    free = property(lambda self: undeclared(messages(self)))
    monkeypatch.setattr(he_split.HESplit, "messages", free)
    assert verdict_on("server", "he_split", {"rounds": 1}, parties=4).verdict != "PROVED"


def undeclared(messages):
    """The same messages, without the number that the engine would refuse."""
    return tuple(replace(m, count=None) if m.kind == "opened" else m for m in messages)


def test_a_secret_key_cannot_be_sent(monkeypatch):
    def keys(self, scheme):
        made = type(self).__mro__[1].sealing_keys(self, scheme)
        self.send(SERVER, "key", made[1])
        return made

    monkeypatch.setattr(Client, "sealing_keys", keys, raising=False)
    with pytest.raises(FlowError, match="OpeningKey"):
        Traced("he_split", {"rounds": 1}, 4).run()


def test_what_is_sealed_is_opened_by_its_holder_alone(monkeypatch):
    """A sum that is sent to another client, which has no key for it."""

    async def eager(self, samples):
        own, wanted = self.quantised(samples), self.public.holder
        self.send(SERVER, "embedding", self.seal(self.public.scheme, self.public_key, own))
        if self.index == wanted:
            total = await self.receive("sum", sender=SERVER)
            total._holder = 3
            self.send(SERVER, "opened", self.decrypted(total, own.shape))

    monkeypatch.setattr(Client, "train", eager)
    with pytest.raises(FlowError, match="another party"):
        Traced("he_split", {"rounds": 1}, 4).run()
