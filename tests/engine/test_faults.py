import math

import numpy as np
import pytest

from securevfl.engine.faults import Chain, Faults, Outage, Schedule, faults_from, load_faults
from securevfl.errors import ConfigurationError

ROLES = {"server": (-1,), "client": tuple(range(6))}


@pytest.mark.parametrize(("fault", "rejoin"), [(0.3, 0.5), (0.3, 0.1), (0.05, 1.0)])
def test_chains_are_up_in_the_stated_share_of_the_rounds(fault, rejoin):
    chain = Chain(fault, rejoin)
    schedule = Faults({"client": chain, "link": chain}).bind(ROLES, seed=3)
    rounds = 3000
    parties = [[schedule.alive(n, r, 0.0) for r in range(1, rounds + 1)] for n in range(6)]
    links = [[schedule.linked(-1, n, r, 0.0) for r in range(1, rounds + 1)] for n in range(6)]
    # A chain's sample mean has variance about a (1-a) (1+c)/(1-c) / rounds, c = 1 - fault - rejoin.
    a, c = rejoin / (fault + rejoin), 1 - fault - rejoin
    spread = math.sqrt(a * (1 - a) * (1 + c) / (1 - c) / (rounds * 6))
    for up in (parties, links):
        assert abs(np.mean(up) - a) < 5 * spread + 1 / rounds
        assert len({tuple(each) for each in up}) == 6  # entities are independent


def test_the_server_is_up_where_only_clients_fail():
    schedule = Faults({"client": Chain(1.0, 0.0)}).bind(ROLES, seed=0)
    assert all(schedule.alive(-1, r, 0.0) for r in range(50))
    assert not any(schedule.alive(2, r, 0.0) for r in range(1, 50))
    assert schedule.may_crash == frozenset(range(6))


def test_chains_strike_from_the_first_round_on():
    chains = {"client": {"fault": 0.3, "rejoin": 0.4}, "link": {"fault": 1, "rejoin": 1}}
    one, late = (faults_from(chains | {"first": f}).bind(ROLES, seed=3) for f in (1, 5))
    assert all(
        late.alive(n, r, 0.0) and late.linked(n, -1, r, 0.0) for n in range(6) for r in range(5)
    )
    assert [late.linked(2, -1, r, 0.0) for r in (4, 5, 6, 4)] == [True, False, True, True]
    # The same draws, from that round on: whom round 5 strikes there is struck here.
    for n in range(6):
        if one.alive(n, 4, 0.0):
            assert one.alive(n, 5, 0.0) == late.alive(n, 5, 0.0)
    described = faults_from(chains | {"first": 5}).describe()
    assert faults_from(described).first == described["first"] == 5


def test_a_chain_may_draw_again_in_a_round_for_what_comes_back():
    chains = {"client": {"fault": 0.3, "rejoin": 0.4}, "link": {"fault": 0.3, "rejoin": 0.4}}
    once = faults_from(chains).bind(ROLES, seed=3)
    twice = faults_from(chains | {"backward": True}).bind(ROLES, seed=3)
    rounds = range(1, 30)
    for n in range(6):
        both = [twice.alive(n, r, 0.0, back=back) for r in rounds for back in (False, True)]
        assert both == [once.alive(n, step, 0.0) for step in range(1, 59)]
        links = [twice.linked(n, -1, r, 0.0, back=back) for r in rounds for back in (False, True)]
        assert links == [once.linked(n, -1, step, 0.0) for step in range(1, 59)]
        # Without it, what comes back meets what went there.
        assert all(once.alive(n, r, 0.0, back=True) == once.alive(n, r, 0.0) for r in rounds)
    described = faults_from(chains | {"backward": True, "first": 4}).describe()
    late = faults_from(described)
    assert (late.backward, late.first) == (True, 4)
    assert all(late.bind(ROLES, 3).alive(n, 3, 0.0, back=True) for n in range(6))


def test_chains_strike_up_to_the_last_round_that_is_given():
    faults = faults_from(
        {
            "client": {"fault": 1, "rejoin": 0},
            "link": {"fault": 1, "rejoin": 0},
            "outage": [{"party": 3, "rounds": [8]}],
        }
    )
    schedule = faults.bind(ROLES, seed=0, last=5)
    assert [schedule.alive(2, r, 0.0) for r in (0, 1, 5, 6, 9)] == [True, False, False, True, True]
    assert [schedule.linked(2, -1, r, 0.0) for r in (1, 5, 6)] == [False, False, True]
    assert [schedule.alive(3, r, 0.0) for r in (5, 6, 7, 8)] == [False, True, True, False]
    assert schedule.returns(2)
    assert [schedule.ends_after(r) for r in (1, 5, 6)] == [True, True, False]
    assert not faults.bind(ROLES, seed=0).ends_after(1)
    assert not faults.bind(ROLES, seed=0).returns(2)


def test_who_is_down_for_good_does_not_come_back():
    faults = faults_from({"outage": [{"party": 2, "rounds": [3]}, {"party": 1, "rounds": [3, 9]}]})
    schedule = faults.bind(ROLES, seed=0)
    assert [schedule.returns(2, r) for r in (2, 3, 99)] == [True, False, False]
    assert all(schedule.returns(1, r) for r in (2, 3, 99))


def test_a_party_of_several_roles_meets_the_faults_of_each():
    roles = ROLES | {"active": (0, 1)}
    all_clients = Faults({"client": Chain(1.0, 0.0)}).bind(roles, seed=0)
    assert all_clients.may_crash == set(range(6))
    mixed = Faults({"active": Chain(0.0, 1.0), "client": Chain(1.0, 0.0)}).bind(roles, seed=0)
    assert mixed.may_crash == {2, 3, 4, 5}


def test_states_do_not_depend_on_the_order_of_questions():
    def make() -> Schedule:
        return Faults({"client": Chain(0.3, 0.4)}).bind(ROLES, seed=9)

    one, two = make(), make()
    forwards = [one.alive(3, r, 0.0) for r in range(40)]
    backwards = [two.alive(3, r, 0.0) for r in reversed(range(40))][::-1]
    assert forwards == backwards
    other = Faults({"client": Chain(0.3, 0.4)}).bind(ROLES, seed=10)
    assert forwards != [other.alive(3, r, 0.0) for r in range(40)]


def test_outages_by_rounds_and_seconds():
    faults = faults_from(
        {
            "outage": [
                {"party": 3, "rounds": [40, 60]},
                {"link": [2, "server"], "seconds": [12.0]},
                {"party": "server", "seconds": [1, 2]},
            ]
        }
    )
    schedule = faults.bind(ROLES, seed=0)
    assert [schedule.alive(3, r, 0.0) for r in (39, 40, 59, 60)] == [True, False, False, True]
    assert [schedule.linked(-1, 2, 1, t) for t in (11.9, 12.0, 1e9)] == [True, False, False]
    assert [schedule.linked(2, -1, 1, t) for t in (11.9, 12.0)] == [True, False]
    assert [schedule.alive(-1, 0, t) for t in (0.5, 1.0, 2.0)] == [True, False, True]
    assert schedule.moments == [1.0, 2.0]
    assert schedule.may_crash == {3, -1}


def test_description_gives_the_faults_back(tmp_path):
    text = (
        "tick = 0.5\n[client]\nfault = 0.3\nrejoin = 0.1\n[link]\nfault = 0.2\nrejoin = 1\n"
        '[[outage]]\nparty = "server"\nrounds = [3]\n[[outage]]\nlink = [0, 1]\nseconds = [1, 2]\n'
    )
    path = tmp_path / "bad-day.toml"
    path.write_text(text)
    faults = load_faults(path)
    assert faults is not None
    assert faults.name == "bad-day"
    assert faults_from(faults.describe(), name="bad-day") == faults
    assert faults.outages[1] == Outage((0, 1), seconds=(1, 2))
    assert load_faults(None) is None
    assert load_faults("none") is None


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"client": {"fault": 1.5, "rejoin": 1}}, "fault = 1.5 must lie in"),
        ({"client": {"fault": 0.5}}, "neither a tick"),
        ({"client": {"fault": "x", "rejoin": 1}}, "must be a number"),
        ({"tick": 0}, "tick"),
        ({"first": 0}, "first = 0 must be a round"),
        ({"first": 2.5}, "neither a tick"),
        ({"outage": [{"party": 1}]}, "either rounds or seconds"),
        ({"outage": [{"party": 1, "rounds": [1], "seconds": [1]}]}, "either rounds or seconds"),
        ({"outage": [{"rounds": [1]}]}, "of a party or of a link"),
        ({"outage": [{"party": 1, "rounds": [5, 5]}]}, "must start"),
        ({"outage": [{"party": 1, "rounds": 5}]}, "[start]"),
        ({"outage": [{"link": [1], "rounds": [5]}]}, "two ends"),
        ({"outage": [{"party": "client", "rounds": [5]}]}, "a number or 'server'"),
        ({"outage": [{"party": 1, "round": [5]}]}, "a table of"),
    ],
)
def test_nonsense_is_refused(values, words):
    with pytest.raises(ConfigurationError) as caught:
        faults_from(values)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"host": {"fault": 0.5, "rejoin": 1}}, "no party has the role 'host'"),
        ({"outage": [{"party": 6, "rounds": [1]}]}, "party 6 does not exist"),
        ({"outage": [{"link": [1, 1], "rounds": [1]}]}, "to itself"),
    ],
)
def test_who_does_not_exist_cannot_fail(values, words):
    with pytest.raises(ConfigurationError) as caught:
        faults_from(values).bind(ROLES, seed=0)
    assert words in str(caught.value)


def test_missing_file(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load_faults(tmp_path / "none.toml")


def test_a_file_that_nests_too_deep_is_refused(tmp_path):
    (tmp_path / "deep.toml").write_text("a = " + "[" * 5000)
    with pytest.raises(ConfigurationError, match=r"deep\.toml"):
        load_faults(tmp_path / "deep.toml")


@pytest.mark.parametrize(
    ("whose", "called"),
    [
        ({"party": 3}, "of party 3 from 5 to 5"),
        ({"link": [2, "server"]}, "of the link from"),
    ],
)
def test_an_outage_of_no_length_is_refused_by_name(whose, called):
    with pytest.raises(ConfigurationError, match=called):
        faults_from({"outage": [whose | {"rounds": [5, 5]}]})


def test_a_link_may_fail_in_one_direction():
    content = {"outage": [{"link": [2, "server"], "rounds": [3, 5], "one_way": True}]}
    faults = faults_from(content)
    schedule = faults.bind(ROLES, seed=0)
    assert [schedule.linked(2, -1, r, 0.0) for r in range(2, 6)] == [True, False, False, True]
    assert all(schedule.linked(-1, 2, r, 0.0) for r in range(2, 6))
    assert faults_from(faults.describe()) == faults
    both = faults_from({"outage": [{"link": [2, "server"], "rounds": [3, 5]}]}).bind(ROLES, seed=0)
    assert not both.linked(-1, 2, 3, 0.0)


@pytest.mark.parametrize(
    ("outage", "words"),
    [
        ({"party": 1, "rounds": [2.5, 2.7]}, "must be whole numbers"),
        ({"party": 1, "rounds": [2], "one_way": True}, "one_way is of a link, and party 1"),
        ({"link": [1, 2], "rounds": [2], "one_way": 1}, "one_way must be true or false"),
    ],
)
def test_outages_that_would_mean_nothing_are_refused(outage, words):
    with pytest.raises(ConfigurationError, match=words):
        faults_from({"outage": [outage]}).bind(ROLES, seed=0)
