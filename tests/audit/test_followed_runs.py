"""Followed runs: the configuration itself, and its settings, against the declaration."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from securevfl.audit.followed_runs import follow
from securevfl.audit.recording.recorded_run import ForgottenError, RecordedRun
from securevfl.audit.recording.recorder import Recorder, keep_draws, record
from securevfl.audit.settings import settings_of
from securevfl.audit.subject import Subject
from securevfl.audit.traffic.seen import differences, traffic_of
from securevfl.audit.traffic.setting import ITSELF, Setting
from securevfl.data import load_dataset
from securevfl.engine import wire
from securevfl.engine.faults import Chain, Faults
from securevfl.engine.party import ANNOUNCE, STOP, Party
from securevfl.engine.streams import SecretSeed
from securevfl.engine.transcript import Transcript
from securevfl.protocols.base.registry import get_protocol
from securevfl.protocols.fedvs.messages import Attempt
from securevfl.testing.runs import make, tiny_data
from tests.zoo import all_leaks

ROUNDS = 12
ZOO = {one.name: one for one in all_leaks()}
FEDVS = {"rounds": ROUNDS, "batch": 20}


def planted(when, change, name="fedvs"):
    """A method in which each client's draws are changed where ``when(client, place)`` holds."""
    base = get_protocol(name)

    def parties(self):
        made = base.parties(self)
        for n, client in made.items():
            if n >= 0:
                wrap(client, when, change)
        return made

    return type("Planted", (base,), {"parties": parties, "__doc__": "Planted leak."})


def wrap(client, when, change):
    uniform, places = client.uniform, {}

    def drawn(shape):
        place = places[client.round] = places.get(client.round, -1) + 1
        made = uniform(shape)
        return change(made) if when(client, place) else made

    client.uniform = drawn


def settings(**options):
    protocol = make("fedvs", **FEDVS | options)
    return {one.name: one for one in settings_of(protocol) if not one.predicts}


def followed(cls, name, **options):
    setting = ITSELF if name == "as configured" else settings(**options)[name]
    return follow(make(cls, **FEDVS | options | dict(setting.options)), setting)


@cache
def sound(name):
    """A run of FedVS in a setting, of which only what was found is looked at."""
    return followed("fedvs", name)


@pytest.mark.parametrize("name", ["as configured", *settings()])
def test_a_sound_run_is_as_declared_in_every_setting(name):
    found = sound(name)
    assert found.comparison.deviations == ()
    assert found.comparison.without_formula == ()
    assert found.comparison.forgotten == 0
    assert found.strange == ()
    assert found.draws > 6 * ROUNDS
    assert found.ended == ""
    if name == "as configured":
        assert found.comparison.computed == found.comparison.messages
        assert found.rounds == ROUNDS + 1  # the last says stop


@pytest.mark.parametrize(
    ("name", "setting", "lives"),
    [
        ("fedvs: uploads of a resumed run without masks", "resumed", 1 << 32),
        ("fedvs: uploads to a server that came back without masks", "server crashes", 1),
    ],
)
def test_later_lives_are_lived_and_what_is_sent_in_them_is_compared(name, setting, lives):
    found = followed(ZOO[name].make(), setting)
    assert {one.key.kind for one in found.comparison.deviations} == {"embedding"}
    assert all("formula" in one.what for one in found.comparison.deviations)
    sound = kept_lives("fedvs", setting)
    assert lives in sound
    assert min(sound) == 0


def kept_lives(cls, setting):
    """Lives of the server in a run, as messages say them."""
    lives = set()

    class Noting(get_protocol(cls)):
        """The same, whose clients note what they are told."""

        def parties(self):
            made = super().parties()
            masked = made[0].masked
            made[0].masked = lambda upload, told: (
                lives.add(wire.decode(told)[-1].life),
                masked(upload, told),
            )[1]
            return made

    followed(Noting, setting)
    return lives


def test_a_resumed_run_goes_back_and_makes_rounds_again():
    """As a run folder does that was written two rounds before the run was broken off."""
    lives = []

    class Noting(get_protocol("fedvs")):
        """The same, whose first client notes in which life it uploads."""

        def parties(self):
            made = super().parties()
            send = made[0].send

            def sending(to, kind, payload, **more):
                if kind == "embedding":
                    lives.append((made[0].round, made[0].resumptions))
                send(to, kind, payload, **more)

            made[0].send = sending
            return made

    followed(Noting, "resumed")
    rounds = [{r for r, life in lives if life == number} for number in (0, 1)]
    assert rounds[0] & rounds[1]
    assert max(rounds[1]) == ROUNDS > max(rounds[0])


def test_a_mask_that_comes_again_in_another_life_is_found(monkeypatch):
    """A label without the server's life: clients mask two sums of a round alike."""

    def told(attempt, round, batch):
        return wire.encode(("fedvs", round, batch, replace(attempt, life=0)))

    monkeypatch.setattr(Attempt, "told", told)
    faults = followed("fedvs", "resumed").mask_keys
    assert any("2 uploads" in fault and "1 labels" in fault for fault in faults)
    faults = followed("fedvs", "as configured").mask_keys  # without another life, by the label
    assert faults
    assert all("sums of two lives of a server have one label" in fault for fault in faults)


def test_labels_that_forget_the_life_in_rounds_that_no_run_has_are_found(monkeypatch):
    def told(attempt, round, batch):
        life = attempt.life if round <= 3 * ROUNDS else 0
        return wire.encode(("fedvs", round, batch, replace(attempt, life=life)))

    monkeypatch.setattr(Attempt, "told", told)
    faults = followed("fedvs", "as configured").mask_keys
    assert faults
    assert all(fault.startswith("in round 65537 sums of two lives") for fault in faults)


def test_a_draw_that_comes_again_in_another_life_is_found():
    seen = {}

    class Kept(get_protocol("fedvs")):
        """FedVS whose clients draw the masks of a round once, in whatever life."""

        def parties(self):
            made = super().parties()
            for n, client in made.items():
                if n >= 0:
                    keep(client)
            return made

    def keep(client):
        uniform = client.uniform

        def drawn(shape):
            place = client.index, client.round, shape
            return seen.setdefault(place, uniform(shape) if place not in seen else None)

        client.uniform = drawn

    assert followed(Kept, "resumed").strange


def test_settings_do_what_they_are_called():
    assert sound("attempts given up").rounds > ROUNDS + 1
    whole = sound("clients crash").comparison.messages
    assert whole < sound("as configured").comparison.messages
    assert settings()["wrong uploads"].wrong_uploads == 1


@pytest.mark.parametrize("name", ["split", "cvfl"])
def test_sound_runs_of_other_methods_are_as_declared_in_their_settings(name):
    """Those of coded_split are, with states, in test_reference."""
    for setting in settings_of(make(name, rounds=6)):
        found = follow(make(name, rounds=6, **dict(setting.options)), setting)
        assert found.comparison.deviations == (), setting.name
        assert found.comparison.messages > 20


def with_settings(cls, *words):
    """Settings of a method that have one of the words in their name."""
    found = [one for one in settings_of(make(cls)) if any(word in one.name for word in words)]
    return [(one, make(cls, **dict(one.options))) for one in found]


@pytest.mark.parametrize("name", ["dvfl"])
def test_methods_without_timeouts_have_crashes_and_lost_messages(name):
    found = with_settings(name, "crash", "lost")
    assert len(found) == 4
    for setting, protocol in found:
        comparison = follow(protocol, setting).comparison
        assert comparison.deviations == (), setting.name


@pytest.mark.parametrize("name", ["fedvs", "dvfl", "cvfl"])
def test_an_end_that_is_announced_twice_is_found(name, monkeypatch):
    """Its formula says "stop" in every round after the last one, so the number tells nothing."""
    once = Party.broadcast

    def twice(party, kind, payload, to=None):
        once(party, kind, payload, to)
        if STOP in (kind, payload if isinstance(payload, str) else ""):
            party.round += 1
            once(party, kind, payload, to)

    monkeypatch.setattr(Party, "broadcast", twice)
    found = follow(make(name), ITSELF).comparison.deviations
    assert {one.key.kind for one in found} <= {ANNOUNCE, STOP}
    assert any("the end was announced" in one.what for one in found)


@pytest.mark.parametrize("name", ["split"])
def test_a_round_number_that_is_left_out_is_found(name, monkeypatch):
    """What depends on the number, such as the rows, is that of the number that was announced."""
    safe_point = Party.safe_point

    def skip(party):
        party.round += party.round == 3
        safe_point(party)

    monkeypatch.setattr(Party, "safe_point", skip)
    found = follow(make(name, rounds=6), ITSELF).comparison.deviations
    assert {(one.key.round, one.what) for one in found} == {(5, "the round before it was 3")}


def test_a_server_of_fedonce_that_crashed_asks_again_and_is_not_blamed():
    crashes = Setting("server crashes", faults=Faults({"server": Chain(0.5, 0.9)}, first=2))
    found = follow(make("fedonce", batch=7), crashes)
    assert found.rounds > 1 + -(-tiny_data().rows // 7)  # rounds came again
    assert found.comparison.deviations == ()


LATE = planted(lambda client, place: client.round == ROUNDS - 1 and place == 0, np.zeros_like)
RETURNED = planted(
    lambda client, place: client.returned and client.round and place == 0, np.zeros_like
)


class Reborn(get_protocol("fedvs")):
    """FedVS whose parties leak once all of them were made a second time."""

    lives = 0

    def parties(self):
        made = super().parties()
        type(self).lives += 1
        if self.lives > 1:
            for n in self.peers():
                wrap(made[n], lambda client, place: client.round and place == 0, np.zeros_like)
        return made


AGAIN = planted(
    lambda client, place: bool(client.ledger.possible_uploads()) and place == 0, np.zeros_like
)


@pytest.mark.parametrize(
    ("leak", "name"),
    [
        (LATE, "as configured"),
        (Reborn, "resumed"),
        (RETURNED, "clients crash"),
        (AGAIN, "attempts given up"),
    ],
)
def test_masks_that_are_zero_somewhere_are_found_where_they_are(leak, name):
    Reborn.lives = 0
    assert followed(leak, name).strange
    Reborn.lives = 0
    if leak is not LATE:
        assert not followed(leak, "as configured").strange


def test_masks_of_an_earlier_round_are_found():
    kept = {}

    def old(drawn):
        return kept.setdefault(drawn.shape, drawn).copy()

    leak = planted(lambda client, place: client.index == 2 and place == 0, old)
    assert followed(leak, "as configured").strange


def test_a_run_that_forgets_compares_as_much(monkeypatch):
    monkeypatch.setattr("securevfl.audit.followed_runs.HELD", 200_000)
    found = followed("fedvs", "as configured")
    assert found.comparison.forgotten == 0
    assert found.comparison.computed == found.comparison.messages
    assert found.strange == ()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vafl", {"rounds": 150}),  # each client counts for itself
        ("vfb2", {"rounds": 40}),
    ],
)
def test_parties_with_rounds_of_their_own_are_compared_though_old_ones_are_forgotten(
    name, options, monkeypatch
):
    runs = []

    class Kept(RecordedRun):
        """A run that the test sees."""

        def __init__(self, *given, **more):
            super().__init__(*given, **more)
            runs.append(self)

    monkeypatch.setattr("securevfl.audit.followed_runs.HELD", 150_000)
    monkeypatch.setattr("securevfl.audit.followed_runs.RecordedRun", Kept)
    found = follow(make(name, **options), ITSELF).comparison
    assert found.deviations == ()
    assert found.forgotten == 0
    assert found.computed == found.messages > 0
    assert runs[0].forgotten["gradient"] > 0


def test_a_state_before_a_step_is_that_of_another_count():
    run = record(make("vafl", rounds=6))
    gradients = [m for m in run.messages if m.key.kind == "gradient"]
    first, *later = gradients
    assert run.state_before(first.key, "steps") is None
    for before, message in zip(gradients, later, strict=False):
        assert run.state_before(message.key, "steps") is before.state.kept
        assert run.state(message.key)["steps"] == before.state.kept["steps"] + 1


def test_what_was_forgotten_is_refused():
    protocol = make("fedvs", **FEDVS)
    run = RecordedRun(protocol, protocol.parties(), Transcript(), limit=200_000)
    for party in run.parties.values():
        keep_draws(run, party)
    made = Recorder(dict(run.parties), recorded=run, secrets=protocol.secrets)
    made.run()
    assert 0 < run.forgotten["model"] < ROUNDS - 3
    with pytest.raises(ForgottenError, match="was forgotten"):
        run.sent("model", run.forgotten["model"])
    assert run.sent("model", run.forgotten["model"] + 1)
    assert run.sent("train-data", 0)
    tape = run.tapes[0]
    assert len(tape.digests) > 0
    assert tape.drawn == record(protocol).tapes[0].drawn


def test_a_run_with_many_deviations_is_broken_off():
    base = get_protocol("fedvs")

    def parties(self):
        made = base.parties(self)
        client, send = made[0], made[0].send

        def sending(to, kind, payload, **more):
            send(to, kind, payload, **more)
            if kind == "embedding":
                send(1, "embedding", payload)

        client.send = sending
        return made

    leak = type("Telling", (base,), {"parties": parties, "__doc__": "Planted leak."})
    found = follow(make(leak, **FEDVS | {"rounds": 60}), ITSELF)
    assert found.rounds < 40
    assert found.ended == "it was broken off"
    assert "no such message is declared" in str(found.comparison.deviations[0])


def test_traffic_of_other_secrets_is_the_same_for_a_sound_method():
    one, other = make("fedvs", **FEDVS), make("fedvs", **FEDVS)
    other.secrets = SecretSeed(77)
    assert list(differences(traffic_of(one, ITSELF), traffic_of(other, ITSELF))) == []
    assert sound("as configured").traffic == traffic_of(one, ITSELF)


def test_another_number_of_messages_is_a_difference():
    one = traffic_of(make("fedvs", **FEDVS), ITSELF)
    other = traffic_of(make("fedvs", **FEDVS | {"rounds": ROUNDS - 1}), ITSELF)
    [(key, what), *_] = differences(one, other)
    assert key.round == ROUNDS
    assert "'round' from -1" in what


def test_a_setting_without_disturbance_is_none():
    assert not ITSELF.disturbed
    assert not Setting("resumed", resumed_in=4).disturbed
    assert tiny_data().parties == 6


def test_columns_in_the_clear_are_found_where_small_runs_have_none():
    """A researcher's protocol sends rows in large batches only; no formula of ours explains it."""
    [leak] = [one for one in all_leaks() if one.name == "masked_sum: rows of large batches"]
    subject = Subject(make(leak.make(), load_dataset("digits", parties=4), **leak.options))
    assert follow(subject.instance(), ITSELF).comparison.clear == ()
    (key, client), *_ = follow(subject.instance(whole=True), ITSELF).comparison.clear
    assert (key.kind, key.sender, key.round) == ("progress", client, 1)
    sound = Subject(make(leak.sound, load_dataset("digits", parties=4), **leak.options))
    assert follow(sound.instance(whole=True), ITSELF).comparison.clear == ()
