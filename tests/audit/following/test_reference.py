"""The library's own parties beside recorded ones: states, draws and messages."""

import os

import numpy as np
import pytest

from securevfl.audit.deviations import compare
from securevfl.audit.followed_runs import follow
from securevfl.audit.following.slots import References
from securevfl.audit.recording.recorder import record
from securevfl.audit.settings import settings_of
from securevfl.engine import wire
from securevfl.models.weights import load_weights, weights_of
from securevfl.protocols.base.registry import find_protocols, get_protocol
from securevfl.testing.leaks import all_leaks
from securevfl.testing.leaks.planting import changed
from securevfl.testing.runs import make

LEAKS = {one.name: one for one in all_leaks()}


def followed(protocol, **options):
    run = record(make(protocol, **options), followed=True)
    return run, compare(run)


def planted(base, plant):
    def each(protocol, parties):
        for n in protocol.peers():
            plant(parties[n])

    return changed(base, each)()


@pytest.mark.parametrize("name", sorted(find_protocols()))
def test_each_party_of_the_library_sends_what_its_like_sends_and_has_its_state(name):
    pytest.importorskip("tenseal") if name == "he_split" else None
    run, found = followed(name)
    assert (found.deviations, found.unfollowed, found.unlike) == ((), (), ())
    assert found.acts == ()
    assert all(one.state.like for one in run.messages)


def test_the_same_in_every_setting_after_crashes_and_resumes():
    """Those of secagg_split are in verifiers/test_traffic.py."""
    name = "coded_split"
    for setting in settings_of(make(name, rounds=6)):
        found = follow(make(name, rounds=6, **dict(setting.options)), setting).comparison
        assert found.messages > 20, setting.name
        assert (found.deviations, found.unfollowed, found.unlike) == ((), (), ()), setting.name
        assert found.acts == (), setting.name


@pytest.mark.parametrize(
    "name",
    [
        "secagg_split: a bit in a weight",
        "secagg_split: a bit in the optimiser",
        "secagg_split: gradients turned round in place",
        "split: labels in the server's model",
        "vafl: labels in the table of embeddings",
        "cvfl: a pace that tells a label",
    ],
)
def test_a_state_that_does_not_follow_is_not_believed(name):
    leak = LEAKS[name]
    assert followed(leak.make(), rounds=8, **leak.options)[1].deviations
    assert not compare(record(make(leak.make(), rounds=8, **leak.options))).deviations


@pytest.mark.parametrize(
    "name",
    [
        "wait_dp: noise drawn until a sign shows",
        "secagg_split: keys drawn until a bit shows",
    ],
)
def test_draws_that_are_thrown_away_are_counted(name):
    leak = LEAKS[name]
    _, found = followed(leak.make(), **leak.options)
    assert "bytes of the operating system were drawn" in found.unfollowed[0]
    assert found.unlike


def test_ciphertexts_of_a_state_that_does_not_follow_are_not_what_their_formula_gives():
    pytest.importorskip("tenseal")
    leak = LEAKS["he_split: a bit in a weight"]
    _, found = followed(leak.make(), rounds=8)
    assert found.deviations


def test_ciphertexts_that_are_thrown_away_or_hold_something_else_are_counted():
    pytest.importorskip("tenseal")
    for name in ("bits in the noise of ciphertexts", "ciphertexts made until a bit shows"):
        leak = LEAKS[f"he_split: {name}"]
        _, found = followed(leak.make(), **leak.options)
        assert "ciphertexts were drawn" in found.unfollowed[0], name


def test_a_party_that_draws_its_state_otherwise_is_believed_and_that_is_said():
    def without_draw(client):
        draw = client.random_bytes
        client.random_bytes = lambda: bytes(32) if client.round == 0 else draw()

    _, found = followed(planted("secagg_split", without_draw), consistency=True)
    assert found.deviations == ()
    assert "states are believed from there on: party 0, round 0" in found.unfollowed[0]


def test_states_of_messages_are_the_librarys_and_what_a_setup_made_is_kept_as_it_was():
    def zeroed(client):
        update = client.update

        def updating(own, gradient):
            update(own, gradient)
            load_weights(client.network, {n: 0 * w for n, w in weights_of(client.network).items()})

        client.update = updating

    sound, _ = followed("wait_dp")
    run, _ = followed(planted("wait_dp", zeroed))
    for one, other in zip(sound.messages, run.messages, strict=True):
        if one.key.round <= 2 and one.key.kind == "embedding":
            assert wire.encode(one.state.kept) == wire.encode(other.state.kept)
            assert one.state.from_setup == other.state.from_setup


def test_a_class_that_specifies_something_itself_has_no_party_of_the_library():
    base = get_protocol("split")
    own = type("Own", (base,), {"network": base.network, "__doc__": "Own.", "extra": 1})
    assert not References(make(own)).known
    assert References(make(planted("split", lambda client: None))).known
    assert record(make(own), followed=True).unfollowed == ()


def test_what_a_party_draws_for_something_else_leaves_messages_as_they_are():
    def more(client):
        rows = client.rows_of

        def rows_of(batch):
            os.urandom(2)
            found: np.ndarray = rows(batch)
            return found

        client.rows_of = rows_of

    _, found = followed(planted("secagg_split", more))
    assert (found.deviations, found.unlike) == ((), ())
    assert found.unfollowed


def test_a_message_that_is_not_sent_is_missed():
    def silent(client):
        send = client.send

        def sending(to, kind, payload, **more):
            if (kind, client.round, client.index) != ("embedding", 3, 1):
                send(to, kind, payload, **more)

        client.send = sending

    _, found = followed(planted("split", silent), stragglers="ignore", quorum=2)
    assert found.unfollowed == ("1 messages were not sent that the library's parties send",)
