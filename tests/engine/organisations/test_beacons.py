"""Beacons and the roster: what a party believes of the others, and what follows from it."""

import pytest

from securevfl.engine import wire
from securevfl.engine.network import SERVER
from securevfl.engine.organisations.beacon import Beacon
from securevfl.engine.organisations.roster import Roster, server_runs
from securevfl.engine.security.identity import Manifest, ManifestEntry
from securevfl.errors import CheckpointError, SealError, WireError
from tests.engine.carriers.world import identity

PARTIES = (SERVER, 0, 1)


def beacon(sender, **more):
    return Beacon(**{
        "sender": sender, "life": 0, "number": 1, "phase": 1, "era": (0, 0, 0), "rounds": (1, 2),
        "origin": (0, 0, 0), "begun": False, "done": False, "failed": False, "consent": b"s" * 64,
    } | more)  # fmt: skip


@pytest.fixture(scope="module")
def keys():
    return {n: identity() for n in PARTIES}


@pytest.fixture(scope="module")
def manifest(keys):
    entries = {n: ManifestEntry(keys[n].public) for n in PARTIES}
    return Manifest("s", "p", entries, terms={"version": "1", "options": {"rounds": 3}})


def test_a_beacon_arrives_as_it_was_sent(keys, manifest):
    sent = beacon(0, life=3, begun=True)
    assert Beacon.decode(sent.encode(manifest.digest, keys[0]), manifest) == sent


def test_nobody_speaks_for_another_and_no_session_for_another(keys, manifest):
    with pytest.raises(SealError, match="not signed by it"):
        Beacon.decode(beacon(1).encode(manifest.digest, keys[0]), manifest)
    with pytest.raises(SealError, match="not signed by it"):
        Beacon.decode(beacon(0).encode(b"other session", keys[0]), manifest)
    with pytest.raises(SealError):
        Beacon.decode(beacon(7).encode(manifest.digest, keys[0]), manifest)


def test_a_changed_beacon_is_refused_wherever_it_is_changed(keys, manifest):
    data = beacon(0).encode(manifest.digest, keys[0])
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises((SealError, WireError)):
            Beacon.decode(bytes(changed), manifest)


@pytest.mark.parametrize(
    "changes",
    [
        {"era": (0, 0)},
        {"era": (0, 0, "x")},
        {"era": (0, 0, 1 << 62)},
        {"origin": (0, 0)},
        {"origin": (0, 0, "x")},
        {"rounds": (1.5,)},
        {"rounds": (2, 1)},
        {"rounds": (1, 1)},
        {"rounds": (-4, 1)},
        {"rounds": tuple(range(300))},
        {"life": True},
        {"done": 1},
    ],
)
def test_a_signed_beacon_of_another_shape_is_none(keys, manifest, changes):
    data = beacon(0)._replace(**changes).encode(manifest.digest, keys[0])
    with pytest.raises(WireError):
        Beacon.decode(data, manifest)


def test_the_sender_within_a_beacon_is_the_one_who_signs(keys, manifest):
    body = wire.encode(tuple(beacon(1)))
    signed = keys[0].sign(wire.encode(("securevfl beacon 2", manifest.digest, body)))
    with pytest.raises(WireError, match="of this session"):
        Beacon.decode(wire.encode((0, body, signed)), manifest)


def roster(index=0, life=0, beacons=()):
    made = Roster(PARTIES, index, life)
    for number, one in enumerate(beacons):
        assert made.hear(one, now=float(number))
    return made


def test_only_newer_beacons_count():
    made = roster(beacons=[beacon(1, life=1, number=5)])
    assert not made.hear(beacon(1, life=1, number=5), 9.0)
    assert not made.hear(beacon(1, life=0, number=9), 9.0)
    assert made.hear(beacon(1, life=2, number=1), 9.0)
    assert made.lives == (-1, 0, 2)


def test_who_is_silent_and_who_never_came():
    made = roster(beacons=[beacon(1)])
    assert made.silent(10.0, 15.0) == []
    assert made.silent(16.0, 15.0) == [1]
    assert made.absent(1) == [SERVER]
    assert made.absent(2) == [SERVER, 1]


def test_a_phase_begins_when_all_want_it_with_the_same_lives():
    made = roster(beacons=[beacon(SERVER), beacon(1)])
    assert made.agreed(1, (0, 0, 0))
    assert not made.agreed(2, (0, 0, 0))
    made.hear(beacon(1, life=1, era=(0, 0, 1)), 3.0)
    assert not made.agreed(1, (0, 0, 1))  # the server does not know of the new life yet
    made.hear(beacon(SERVER, number=2, era=(0, 0, 1)), 4.0)
    assert made.agreed(1, (0, 0, 1))


def test_all_go_back_to_the_newest_common_round():
    made = roster(beacons=[beacon(SERVER, rounds=(1, 2, 3, 8)), beacon(1, rounds=(2, 3, 9))])
    assert made.common_round((2, 3, 8, 9), (0, 0, 0)) == 3


def test_work_is_not_deleted_where_no_round_is_common():
    made = roster(beacons=[beacon(SERVER, rounds=(7, 8)), beacon(1, rounds=())])
    with pytest.raises(CheckpointError, match="the server up to 8, party 0 up to 8, party 1 up to"):
        made.common_round((7, 8), (0, 0, 0))
    early = roster(beacons=[beacon(SERVER, rounds=(0, 1)), beacon(1, rounds=())])
    assert early.common_round((0, 1, 2), (0, 0, 0)) is None


def test_rounds_of_an_earlier_beginning_are_not_common():
    """Each beginning has secrets of its own."""
    made = roster(beacons=[beacon(SERVER), beacon(1, origin=(0, 0, 1))])
    assert made.common_round((1, 2), (0, 0, 1)) is None
    assert roster(beacons=[beacon(SERVER), beacon(1)]).common_round((1, 2), (0, 0, 0)) == 2
    made.hear(beacon(1, number=2, rounds=(3, 4), origin=(0, 0, 1)), 9.0)
    with pytest.raises(CheckpointError, match="the server up to 0, party 0 up to 0, party 1 up to"):
        made.common_round((3, 4), (0, 0, 0))
    assert not server_runs(roster(beacons=[beacon(SERVER, begun=True)]), 1, (0, 0, 1))


def test_a_party_hears_that_others_know_of_a_later_life_of_it():
    made = roster(life=3, beacons=[beacon(SERVER, era=(0, 5, 0)), beacon(1, era=(0, -1, 0))])
    assert made.known_life() == 5
    assert roster(life=3).known_life() == -1


def test_a_phase_is_over_when_all_have_ended_or_one_is_further():
    made = roster(beacons=[beacon(SERVER, done=True), beacon(1)])
    assert made.undone(1) == [1]
    assert not made.passed(1)
    made.hear(beacon(1, number=2, phase=2), 3.0)
    assert made.undone(1) == []
    assert made.passed(1)


def test_a_client_joins_a_running_server_only():
    made = roster(beacons=[beacon(SERVER, begun=True)])
    assert server_runs(made, 1, (0, 0, 0))
    assert not server_runs(made, 2, (0, 0, 0))
    made.hear(beacon(SERVER, life=1, begun=False), 2.0)
    assert not server_runs(made, 1, (0, 0, 0))


def test_terms_are_signed(manifest):
    other = Manifest("s", "p", manifest.entries, terms={"version": "1", "options": {"rounds": 4}})
    same = Manifest("s", "p", manifest.entries, terms={"options": {"rounds": 3}, "version": "1"})
    assert other.digest != manifest.digest
    assert same.digest == manifest.digest
    assert Manifest("s", "p", manifest.entries).digest != manifest.digest
    assert Manifest.from_toml(manifest.to_toml(), "m").digest == manifest.digest
