"""Lies at the covert level of FedVS, and honest runs in which nobody is named."""

from dataclasses import replace
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

import securevfl as svfl
from securevfl.active import history as told_history
from securevfl.active.judge import BadDealing, LieFoundError, TwoStories, judge, read_evidence
from securevfl.active.uploads import evidence_of
from securevfl.data import load_dataset
from securevfl.engine.faults import Faults, Outage
from securevfl.engine.network import SERVER
from securevfl.engine.party_state import snapshot
from securevfl.engine.simulation.simulator import Simulation
from securevfl.engine.transcript import Transcript
from securevfl.errors import ConfigurationError, NotEnoughResultsError, RunError
from securevfl.protocols.base.levels import proved_shares
from securevfl.protocols.fedvs import FedVS, algorithm, history
from securevfl.protocols.fedvs.algorithm import Client, Server
from securevfl.protocols.fedvs.messages import Attempt
from securevfl.protocols.fedvs.parameters import FedVSConfig, degree_of, results_needed
from securevfl.runs.engines.ray import Driver
from securevfl.runs.organisations.organisation import EVALUATION, Organisation
from securevfl.testing.runs import make, resume_from, simulate, states_at
from securevfl.verified import Judge, Secret, bare_of
from securevfl.verified.traced.proofs import Traced
from securevfl.verified.values import public_element
from tests.lies.lie import Size
from tests.lies.stage import FIELD, play

N, VICTIM = 8, 5
SIZE = Size(rows=32, batch=16, width=2, victims=1)
DIGITS = load_dataset("digits", parties=N).subset(40, 10)
SMALL = {"rounds": 4, "batch": 10, "width": 2, "hidden": 4, "degree": 1, "sum_budget": 0.0}


def run(server=None, *, liars=None, **options):
    options = {"security": "covert", "degree": 1, "rounds": 4, "hidden": 4, **options}
    return play(SIZE, server, liars=liars, parties=N, **options)


def named(played, kind=TwoStories):
    """The party that the run names, by the judge too; None where it names nobody."""
    if not isinstance(played.error, LieFoundError):
        return None
    keys = dict(bare_of(played.judge.parties[0].sworn[1]))
    found = judge(played.error.evidence, keys)
    assert isinstance(played.error.evidence, kind)
    assert found.party == played.error.party
    assert judge(played.error.evidence, {**keys, found.party: bytes(32)}) is None
    return found.party


class TwoStoriesTold(Server):
    """Tells some clients another story in a round, and signs both. `another` says what is other."""

    judge: object
    found: dict
    lied_to: ClassVar[tuple[int, ...]] = (VICTIM,)
    victim: ClassVar[int] = VICTIM
    round_of_lie: ClassVar[int] = 2
    others: tuple = ()  # the second story

    def another(self, attempt, gradient):
        return attempt, gradient

    def broadcast(self, kind, payload, to=None):
        if kind != "attempt" or self.round != self.round_of_lie:
            super().broadcast(kind, payload, to)
            return
        rest = [n for n in self.peers if n not in self.lied_to]
        super().broadcast(kind, payload, rest)
        super().broadcast(kind, self.another(payload, None)[0], self.lied_to)

    def train(self, batch, attempt, embedding):
        if self.round != self.round_of_lie:
            super().train(batch, attempt, embedding)
            return
        before, told, send = self.story, self.another(attempt, None)[0], Server.broadcast

        def broadcast(kind, payload, to=None):
            rest = [n for n in self.peers if n not in self.lied_to]
            send(self, kind, payload, rest)
            honest, self.story = self.story, before
            self.broadcast = lambda kind, payload, to=None: send(self, kind, payload, self.lied_to)
            lie = self.another(attempt, payload[0])[1]
            told_history.sign(self, batch, told, gradient=lie)
            self.story = honest

        self.broadcast = broadcast
        super().train(batch, attempt, embedding)
        del self.broadcast


class TwoGradients(TwoStoriesTold):
    """The gradient to one client, another one to the rest."""

    def another(self, attempt, gradient):
        if gradient is not None:
            bare = bare_of(gradient)  # it may be 0, where all units are dead
            other = bare * np.float32(2) if bare.any() else bare + np.float32(1)
            gradient = Secret(other, None, SERVER, None)
        return attempt, gradient


class TwoSums(TwoStoriesTold):
    """S to half of the clients, S less one of them to the others."""

    lied_to: ClassVar[tuple[int, ...]] = tuple(range(N // 2, N))

    def another(self, attempt, gradient):
        less = tuple(n for n in attempt.sharers if n != self.victim)
        return Attempt(less, attempt.life, attempt.harmless, attempt.stepped), gradient


class TwoLives(TwoSums):
    """Another life of its own to half of the clients, in one start."""

    def another(self, attempt, gradient):
        return replace(attempt, life=attempt.life + 1), gradient


@pytest.mark.parametrize("server", [TwoGradients, TwoSums, TwoLives])
def test_two_stories_name_the_server_before_anything_else_is_uploaded(server):
    played = run(server, cohorts=0)
    assert named(played) == SERVER
    assert "'history' of step 2" in str(played.error)
    assert played.judge.uploads == 2 * N  # none of round 3


class FirstToOne(Server):
    """Sends the first gradient to one client alone, and none to others that ask for it."""

    judge: object
    found: dict
    victim: ClassVar[int] = VICTIM

    def broadcast(self, kind, payload, to=None):
        super().broadcast(kind, payload, [self.victim] if kind == "gradient" else to)

    def send(self, to, kind, payload, **how):
        super().send(to, kind, ([], [], [], []) if kind == "missed" else payload, **how)


def test_who_has_no_history_uploads_nothing_beside_one_who_has():
    """Else two sums of the same rows differ by the step of one client: its X X^T."""
    played = run(FirstToOne, cohorts=0, share_timeout=3.0, result_timeout=3.0)
    assert played.judge.uploads == N  # none of round 2


def test_no_half_of_the_clients_is_enough_for_a_sum():
    """Without the rule R = 3 of 8 uploads decode, and each half of a story is a sum."""
    public = make(FedVS, DIGITS, defaults=SMALL, security="covert").public
    assert public.results_needed > len(TwoSums.lied_to)
    assert make(FedVS, DIGITS, defaults=SMALL).public.results_needed <= len(TwoSums.lied_to)


@pytest.mark.parametrize(("parties", "K", "T"), [(8, 1, 1), (8, 2, 1), (10, 2, 1), (28, 6, 1)])
def test_two_stories_that_decode_have_an_honest_client_in_common(parties, K, T):
    config = FedVSConfig(security="covert", privacy=T, segments=K)
    R = results_needed(config, K, parties)
    assert parties + T + 2 * (K - 1) < 2 * R
    assert degree_of(config, K, parties) * (K + T - 1) + 1 == R
    assert results_needed(FedVSConfig(privacy=T), K, parties) == 2 * (K + T - 1) + 1


# -- clients that deal -----------------------------------------------------------------------------


class Dealer(Client):
    """Deals one client a share that is not on the polynomial of the others."""

    victim: ClassVar[int] = 2


def off_polynomial(monkeypatch, kind):
    """What a `Dealer` deals of data, or of a model, is moved before it is committed to."""
    modules = [one for one in (proved_shares, algorithm, history) if hasattr(one, kind)]
    honest = getattr(proved_shares, kind)

    def moved(owner, code, value, **how):
        made = honest(owner, code, value, **how)
        if not isinstance(owner, Dealer) or len(made[0].shape) < 2:
            return made
        shares = [made[j] for j in range(code.parties)]
        more = public_element(np.ones(shares[0].shape, code.field.dtype), code.field, None)
        return [one + more if j == owner.victim else one for j, one in enumerate(shares)]

    for module in modules:
        monkeypatch.setattr(module, kind, moved)


@pytest.mark.parametrize(
    ("kind", "security"),
    [
        ("encoded", "semi-honest"),
        ("encoded", "covert"),
        ("encoded_constant", "covert"),
        ("encoded_constant", "active"),
    ],
)
def test_who_deals_off_the_polynomial_is_named_and_before_it_was_the_receiver(
    monkeypatch, kind, security
):
    """Of data at covert, of models at active."""
    off_polynomial(monkeypatch, kind)
    played = run(liars={1: Dealer}, tolerate_corrupt=1, security=security, rounds=2)
    blamed = [e.fields["clients"] for e in played.events if e.name == "corrected"]
    if (kind, security) in (("encoded", "covert"), ("encoded_constant", "active")):
        assert named(played, BadDealing) == 1
        assert not played.judge.uploads or kind == "encoded_constant"
        assert not blamed
    else:
        assert blamed == [[2]] * 2
        assert played.error is None


class WrongUploads(Client):
    """Uploads wrong values in each round."""

    def evaluate(self, *args):
        return wrong(self, super().evaluate(*args))


def wrong(client, psi):
    return psi + public_element(np.ones(psi.shape, client.field.dtype), client.field, None)


def test_a_wrong_upload_is_corrected_and_its_sender_named_by_the_judge(tmp_path):
    """In a session of organisations, and where a cluster's run ends in an error, too."""
    how = {"security": "active", "rounds": 2}
    played = run(liars={2: WrongUploads}, tolerate_corrupt=1, **how)
    assert played.error is None
    keys = dict(bare_of(played.judge.parties[0].sworn[1]))
    assert [judge(one, keys).party for one in evidence_of(played.server)] == [2]
    assert np.allclose(played.judge.means, run(**how).judge.means)
    said = []
    own = SimpleNamespace(_caught=0, folder=SimpleNamespace(path=tmp_path), _say=said.append)
    for _ in range(2):
        Organisation._advance(own, EVALUATION, SimpleNamespace(party=played.server))
    path = tmp_path / "evidence.json"
    assert judge(read_evidence(path), keys).party == 2
    assert said == [f"evidence of wrong uploads is in {path}"]
    state = snapshot(played.server, waits=0, time=0)
    state |= {"once": dict.fromkeys(state["once"])}  # keys do not leave a cluster's actor

    def fails(*_, **how):
        raise RunError("it broke")

    driver = object.__new__(Driver)
    driver.cluster = SimpleNamespace(run=fails, states=lambda who: {SERVER: state}, close=int)
    how |= {"tolerate_corrupt": 1, "degree": 1, "hidden": 4, "width": SIZE.width, "cohorts": 0}
    driver.protocol = make(FedVS, SIZE.data(N), **FIELD, **how)
    driver.recorder, driver._mirrors = SimpleNamespace(newest=0), {}
    with pytest.raises(RunError, match="it broke"):
        driver.run()
    (found,) = evidence_of(driver.recorder.parties[SERVER])
    assert judge(found, keys).party == 2


def test_evidence_of_wrong_uploads_stands_in_the_folder_of_the_run_however_it_ends(
    tmp_path, monkeypatch
):
    """Party 2 uploads what is wrong in each round, and party 4 too from the second one on."""
    honest = Client.evaluate
    parties = []

    def evaluate(client, *args):
        psi = honest(client, *args)
        parties.append(client)
        for _ in range({2: 1, min(4, 2 * client.round): client.round}.get(client.index, 0)):
            psi = wrong(client, psi)
        return psi

    monkeypatch.setattr(Client, "evaluate", evaluate)
    how = SMALL | {"security": "active", "tolerate_corrupt": 1, "segments": 1}
    for rounds in (1, 2):
        path = tmp_path / str(rounds) / "evidence.json"
        given = {"out": path.parent, "conditions": "none", **how, "rounds": rounds}
        if rounds == 1:
            svfl.run("fedvs", DIGITS, **given)
        else:
            with pytest.raises(NotEnoughResultsError, match=r"Evidence of wrong uploads is in .*"):
                svfl.run("fedvs", DIGITS, **given)
        assert path.stat().st_mode & 0o77 == 0
        keys = dict(bare_of(parties[-1].sworn[1]))
        assert judge(read_evidence(path), keys).party == 2
        assert not (path.parent / "evidence-2.json").exists()


@pytest.mark.parametrize("security", ["covert", "active"])
def test_a_wrong_upload_is_detected_where_one_more_is_waited_for(security):
    """At covert nobody notices it."""
    played = run(liars={2: WrongUploads}, security=security, rounds=2)
    assert played.server.public.results_needed == (5 if security == "covert" else 6)
    if security == "covert":
        assert played.error is None
    else:
        assert type(played.error) is NotEnoughResultsError
        assert "whose are wrong nobody can tell" in str(played.error)
        assert not played.judge.means


class TwoModels(Client):
    """Deals half of the clients another sharing of its model, and signs both."""

    first = None

    def share(self, kind, values):
        if kind != "model" or self.round == 1:
            super().share(kind, values)
        elif self.first is None:
            self.first = values
            self.deal_again()
            history.show(self, self.quantised_model())
        else:
            super().share(kind, [*self.first[: N // 2], *values[N // 2 :]])
            self.first = None

    def deal_again(self):
        del self.shown[self.round]


class DealsAgain(TwoModels):
    """Is made to deal a round again, and does as all do then."""

    def deal_again(self):
        pass


def test_who_deals_two_models_is_named_when_labels_of_uploads_differ():
    played = run(liars={1: TwoModels}, security="active", tolerate_corrupt=1, rounds=3)
    assert named(played) == 1
    assert "'model' of step 2" in str(played.error)
    assert len(played.judge.means) == 1
    played = run(liars={1: DealsAgain}, security="active", tolerate_corrupt=1, rounds=3)
    assert type(played.error) is RunError
    assert "in two starts" in str(played.error)


class OtherLabel(Client):
    """Signs uploads of another label than the others have."""

    def masked(self, upload, told):
        made = super().masked(upload, told)
        name, h = self.label
        self.label = Secret(bare_of(name) ^ 1, None, self.index, None), h
        return made


def test_an_upload_under_another_label_is_no_error_of_its_sender():
    played = run(liars={2: OtherLabel}, security="active", tolerate_corrupt=1, rounds=2)
    assert played.error is None
    assert evidence_of(played.server) == ()
    assert {e.fields["party"] for e in played.events if e.name == "refused"} == {2}


def test_fewer_wrong_uploads_than_liars_are_not_corrected():
    with pytest.raises(ConfigurationError, match="T liars can have an honest holder named"):
        make(FedVS, DIGITS, security="active", privacy=2, tolerate_corrupt=1, segments=1)


class FalseHistory(Client):
    """Shows the others another history than it has, and again when it is asked for it."""

    again = True

    def share(self, kind, values):
        if kind == "model" and self.round > 1:
            values = [(share, self.other(h)) for share, h in values]
        super().share(kind, values)

    def send(self, to, kind, payload, **how):
        if kind == "history" and self.again:
            at, h, *rest = payload
            payload = at, self.other(h), *rest
        super().send(to, kind, payload, **how)

    def other(self, h):
        return Secret(bare_of(h) ^ 1, None, self.index, None)


class FalseAtFirst(FalseHistory):
    """Shows the true one when it is asked: as a client does that a crash took back."""

    again = False


def test_a_client_that_shows_a_false_history_names_nobody():
    played = run(liars={VICTIM: FalseHistory})
    assert type(played.error) is RunError
    assert f"and {VICTIM}: one of both errs" in str(played.error)
    assert played.judge.uploads == N  # none of round 2
    played = run(liars={VICTIM: FalseAtFirst}, result_timeout=3.0)
    assert type(played.error) is NotEnoughResultsError


class Doubting(Client):
    """Asks for histories of any round, and shows its own one unasked."""

    def share(self, kind, values):
        super().share(kind, values)
        if kind == "model" and len(self.story) > 1:
            h, *rest = self.story
            for n in self.peers:
                self.send(n, "doubted", None, round=7)
                self.send(n, "doubted", None)
                self.send(n, "history", (rest[0], h, *rest[1:]))


def test_who_doubts_without_a_reason_stops_nothing():
    assert run(liars={VICTIM: Doubting}).error is None


def test_two_stories_of_the_last_step_leave_a_prediction_without_uploads():
    """Else training rows that are predicted tell X X^T of the client that alone took the step."""
    made = simulate(FedVS, DIGITS, seed=1, **SMALL, security="active")
    for other in (False, True):
        parties = made.protocol.predictors(made.parties, DIGITS.test)
        if other:
            h = bare_of(made.parties[VICTIM].story[0]) ^ 1
            parties[VICTIM].story = (Secret(h, None, VICTIM, None),)
        simulation = Simulation(parties, secrets=made.protocol.secrets, transcript=Transcript())
        if other:
            with pytest.raises(RunError):
                simulation.run()
        else:
            simulation.run()
        assert ("embedding" in simulation.transcript.columns()["kind"]) is not other


class Unsigned(Server):
    """Signs with another key."""

    judge: object
    found: dict

    def sign(self, key, *rest):
        return super().sign(self.key("other"), *rest)


def test_a_gradient_without_a_signature_is_a_dispute_that_names_nobody():
    played = run(Unsigned)
    assert type(played.error) is RunError
    assert f"Dispute of {SERVER} and " in str(played.error)


def test_what_clients_sign_and_show_is_proved():
    found = Judge(Traced("fedvs", {"rounds": 2, "security": "active"}, parties=5, rows=6).run())
    for who in ({SERVER}, {SERVER, 4}):
        assert found.decide(who).verdict == "PROVED"


def test_masks_are_needed():
    with pytest.raises(ConfigurationError, match="needs masks"):
        make(FedVS, DIGITS, security="covert", masked=False)


@pytest.mark.parametrize(
    ("security", "options"), [("covert", {}), ("active", {"secure": True, "segments": 2})]
)
def test_an_honest_run_has_the_numbers_of_a_semi_honest_one(security, options):
    honest = simulate(FedVS, DIGITS, seed=1, **SMALL, **options)
    other = simulate(FedVS, DIGITS, seed=1, **SMALL, **options, security=security)
    assert other.losses == honest.losses


@pytest.mark.parametrize("rounds", [(2, 3), (2, 5)])
def test_a_client_that_was_down_takes_the_steps_that_it_missed(rounds):
    how = SMALL | {"security": "covert", "seed": 1, "rounds": 6}
    how |= {"share_timeout": 3.0, "result_timeout": 3.0}
    down = Faults(outages=(Outage(2, rounds=rounds),))
    data = load_dataset("digits", parties=N).subset(160, 10)
    outcome = simulate(FedVS, data, faults=down, **how)
    columns = outcome.simulation.transcript.columns()
    missed = columns["receiver"][columns["kind"] == "missed"].tolist()
    assert 2 in missed
    assert len(outcome.losses) == how["rounds"]
    told = {bare_of(outcome.parties[n].story[0]).tobytes() for n in (SERVER, *range(N))}
    assert len(told) == 1


def test_a_server_that_is_killed_in_set_up_and_one_that_is_resumed_name_nobody():
    how = SMALL | {"security": "active", "seed": 1}
    whole = simulate(FedVS, DIGITS, **how)
    killed = Faults(outages=(Outage(SERVER, seconds=(0.0, 2.0)),))
    assert len(simulate(FedVS, DIGITS, faults=killed, **how).losses) == SMALL["rounds"]
    for saved, events in states_at(FedVS, DIGITS, [0, 60], **how).values():
        assert resume_from(FedVS, DIGITS, saved, events, **how).losses == whole.losses
