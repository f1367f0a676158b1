"""FedVS is proved where clients are late, down and back; mistakes that only then show are not."""

from __future__ import annotations

import dataclasses

import pytest

from securevfl.protocols.fedvs import protocol
from securevfl.protocols.fedvs.algorithm import Client, Server
from securevfl.verified.schedules import UNDISTURBED
from tests.protocols.faulty import proof_under, weak

IMPATIENT = {"share_timeout": 5.0, "result_timeout": 5.0, "cohorts": 0}
SILENT = "clients 2, 3 upload nothing in round 1"
AGAIN = "all clients but 0 upload nothing in round 1, and client 3 is down in round 2"
BACK = "client 3 goes down within round 2, and comes back"


def planted(client=Client, server=Server):
    def change(cls, patch):
        patch.setattr(protocol, "Client", client)
        patch.setattr(protocol, "Server", server)

    return change


class LabelOfStep(Client):
    """Masks by the step, so that those of an attempt that is given up are used again."""

    def masked(self, upload, told):
        attempt = dataclasses.replace(self.attempt, life=0, harmless=())
        return super().masked(upload, attempt.told(attempt.stepped, self.batch))

    async def upload(self, batch, attempt):
        self.batch, self.attempt = batch, attempt
        await super().upload(batch, attempt)


class TapeAhead(Client):
    """Draws the tape of the next model beforehand; it is in the checkpoint."""

    kept = (*Client.kept, "spare")
    spare = None

    def uniform(self, *shape, **named):
        if not self.round:
            return super().uniform(*shape, **named)
        first = super().uniform(*shape) if self.spare is None else self.spare
        self.spare = super().uniform(*shape)
        return first


class Forgetful(Client):
    """Uploads rows to any sum."""

    def consistent(self, batch, attempt):
        self.ledger.hear_of_attempt(attempt)
        return True


class WhoIsThere(Server):
    """Sums over those who shared, although others are in a sum of the same rows."""

    async def attempt(self, batch):
        self.ledger.forget(tuple(self.ledger.sums))
        return await super().attempt(batch)


RETRIED, RETURNED = {"batch": 8, **IMPATIENT}, {"rounds": 3, **IMPATIENT}
MISTAKES = {
    "a mask again at the retry": (RETRIED, SILENT, planted(LabelOfStep)),
    "a tape again after a crash": (RETURNED, BACK, planted(TapeAhead)),
    "a smaller sum of the same rows": (RETRIED, AGAIN, planted(Forgetful, WhoIsThere)),
}
ON_SERVER = ("server", "server + client 0")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_that_shows_under_a_schedule_is_not_proved(monkeypatch, name):
    options, schedule, change = MISTAKES[name]
    found = weak(proof_under(monkeypatch, "fedvs", options, [schedule], change, ON_SERVER))
    assert not found[UNDISTURBED.name]
    assert found[schedule]


@pytest.mark.parametrize(
    ("options", "schedules"), [(RETRIED, [SILENT, AGAIN]), (RETURNED, [BACK])], ids=str
)
def test_without_the_mistake_these_schedules_are_proved(monkeypatch, options, schedules):
    sound = weak(proof_under(monkeypatch, "fedvs", options, schedules, claims=ON_SERVER))
    assert not any(sound.values())
    assert set(sound) == {UNDISTURBED.name, *schedules}


@pytest.mark.parametrize(
    ("options", "parties", "told"),
    [
        ({"paper": True, "degree": 2}, 4, ""),
        ({"share_timeout": 5.0}, 4, ""),
        ({"share_timeout": 5.0}, 6, "whether model 1 moved in 1"),  # two cohorts
        ({"segments": 2}, 5, ""),
        ({"privacy": 2}, 5, ""),
        ({"pretrain": "p", "pretrain_epochs": 2}, 4, "loss of pre-training of party 1"),
        ({"pretrain": "full", "pretrain_epochs": 2}, 4, "labels"),
        ({"secure": True}, 4, "whether test rows are of both classes"),
    ],
    ids=str,
)
def test_options_are_proved_but_for_what_is_sent_as_it_is(monkeypatch, options, parties, told):
    found = proof_under(monkeypatch, "fedvs", {"rounds": 1} | options, [], parties=parties)
    assert all(v.sure for v in found.verdicts)
    assert {v.verdict for v in found.verdicts} >= ({"NOT PROTECTED"} if told else {"PROVED"})
    if told:
        assert told in found.verdicts[0].clear
