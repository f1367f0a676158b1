"""Blinded predictions: the server decodes uniform numbers, and who asked scores the rows."""

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.engine.party import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import ConfigurationError, ProtocolError, RangeError
from securevfl.testing.runs import simulate
from securevfl.verified import bare_of

ASKER = 1
COMMON = {"rounds": 2, "batch": 8, "width": 4, "hidden": 6, "lr": 0.05, "sum_budget": 0.0}
METHODS = [("coded_split", "covert"), ("fedvs", "semi-honest"), ("fedvs", "covert")]


@pytest.fixture(scope="module", params=METHODS)
def trained(request):
    """A run, new rows, and the scores that the server of a plain prediction has."""
    data = load_dataset("digits", parties=11).subset(61, 10)
    name, security = request.param
    outcome = simulate(name, data, segments=2, security=security, **COMMON)
    rows = data.test
    parties = carried_out(outcome, outcome.protocol.predictors(outcome.parties, rows))
    _, scores = bare_of(parties[SERVER].predicted)
    return outcome, rows, scores


def carried_out(outcome, parties):
    Simulation(parties, secrets=outcome.protocol.secrets).run()
    return parties


def blinded(outcome, rows, *, without=()):
    """The numbers of who asks and what the server decodes, where some do not add their share."""
    made, count = outcome.protocol, len(rows[0])
    blind, shares = made.draw_blind(count)
    parties = made.predictors(outcome.parties, rows)
    for n, party in parties.items():
        if n not in without:
            made.blind(party, count, ASKER, None if n == SERVER else shares[n])
    return blind, carried_out(outcome, parties)[SERVER]


def test_who_asks_has_the_scores_and_the_server_uniform_numbers(trained):
    outcome, rows, scores = trained
    blind, server = blinded(outcome, rows)
    assert server.predicted is None
    told = server.told()
    found = outcome.protocol.opened_scores(len(rows[0]), told, blind)
    assert np.array_equal(found, scores)
    # Sums are small numbers, modulo p; blinded ones are anywhere, and others each time.
    p = outcome.protocol.field.modulus
    sums = flat(told)
    numbers = [sums, outcome.protocol.field.subtract(sums, blind.reshape(-1))]
    hidden, plain = (np.minimum(one, p - one).mean() / (p // 2) for one in numbers)
    assert hidden > 0.2  # of 40 uniform numbers or more less in one of 10^9 runs
    assert plain < 0.05
    others = flat(blinded(outcome, rows)[1].told())
    assert (others != sums).all()


def flat(told):
    return np.concatenate([one.reshape(-1) for one in told[0]])


def test_a_share_that_is_not_added_leaves_no_scores(trained):
    """So the shares are what opens them, and not the server's numbers alone."""
    outcome, rows, scores = trained
    blind, server = blinded(outcome, rows, without={0})
    try:
        found = outcome.protocol.opened_scores(len(rows[0]), server.told(), blind)
    except RangeError:
        return
    assert not np.allclose(found, scores)


def test_other_numbers_open_nothing(trained):
    outcome, rows, scores = trained
    _, server = blinded(outcome, rows)
    other, _ = outcome.protocol.draw_blind(len(rows[0]))
    try:
        found = outcome.protocol.opened_scores(len(rows[0]), server.told(), other)
    except RangeError:
        return
    assert not np.allclose(found, scores)


def test_what_a_server_or_an_asker_sends_of_another_form_is_refused(trained):
    outcome, rows, _ = trained
    made, count = outcome.protocol, len(rows[0])
    blind, server = blinded(outcome, rows)
    sums, network, numbers = server.told()
    name, first = next(iter(network.items()))
    wrong = [
        (None, "a NoneType, and must be sums"),
        (([], network, numbers), "sums of 1 pieces"),
        (([sums[0].astype(np.int32)], network, numbers), "int32, and must be an array"),
        (([np.full_like(sums[0], made.field.modulus)], network, numbers), "below p = "),
        ((sums, {}, numbers), "the network from the server is another one"),
        ((sums, network | {name: first[:1]}, numbers), name),
        ((sums, network, (-1, *numbers[1:])), "a whole number"),
    ]
    for one, words in wrong:
        with pytest.raises(ProtocolError, match=words):
            made.opened_scores(count, one, blind)
    party = made.predictors(outcome.parties, rows)[0]
    with pytest.raises(ProtocolError, match="the share of a blind from party 1 is a NoneType"):
        made.blind(party, count, ASKER, None)


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("fedvs", {"masked": False}, "with masked = false the server reads more than sums"),
        ("coded_split", {"security": "active"}, "security = active only the server can ask"),
    ],
)
def test_options_by_which_scores_cannot_be_kept_from_the_server_are_refused(name, options, said):
    from securevfl.protocols.base.registry import get_protocol, make_config

    cls = get_protocol(name)
    with pytest.raises(ConfigurationError, match=said):
        cls.check_blinded(make_config(cls, options))
