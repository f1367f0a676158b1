"""Columns that ride in the free slots of ciphertexts are found by the comparison of messages."""

import numpy as np
import pytest

from securevfl.audit.deviations import compare
from securevfl.audit.recording.recorder import record
from securevfl.audit.subject import Subject
from securevfl.audit.verifiers.registry import VERIFIERS
from securevfl.audit.verify import judge
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.runs import make

pytest.importorskip("tenseal")
pytest.importorskip("phe")


class Stowaway(get_protocol("he_split")):
    """Homomorphic aggregation whose client 1 encrypts its first columns behind its embedding."""

    def parties(self):
        made = super().parties()
        client = made[1]
        send = client.send

        def sending(to, kind, payload, **more):
            if kind == "embedding":
                own = client.rows_of(client.batches.draw(client.round))
                columns = np.rint(own[:, :2] * 100).astype(np.int64).reshape(-1)
                values = np.append(client.quantised(own).reshape(-1), columns)
                payload = client.public.scheme.encrypt(client.public_key, values)
            send(to, kind, payload, **more)

        client.send = sending
        return made


@pytest.mark.parametrize("scheme", ["ckks", "paillier"])
def test_columns_in_free_slots_deviate(scheme):
    options = {"scheme": scheme, "rounds": 1, "batch": 4}
    assert compare(record(make("he_split", **options))).deviations == ()
    found = compare(record(make(Stowaway, **options))).deviations
    assert {(one.key.kind, one.key.sender) for one in found} >= {("embedding", 1)}


def test_the_claim_is_violated():
    subject = Subject(make(Stowaway, rounds=2))
    claim = next(c for c in subject.protocol.claims if (c.who, c.asset) == ("server", "features"))
    found = judge(claim, subject, [VERIFIERS.get("declared messages")])
    assert found.verdict == "VIOLATED"
    assert "not what its formula gives" in found.words
