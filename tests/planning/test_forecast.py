"""Plans: feasible K, bits that cannot wrap, memory, and what summaries say after a run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import securevfl as svfl
from securevfl.engine.conditions import Conditions, Delay
from securevfl.errors import ConfigurationError, WouldOverflowError
from securevfl.field import PrimeField
from securevfl.planning.field_choice import RowSums, choose_bits, largest_sum
from securevfl.planning.forecast import plan
from securevfl.planning.message_bytes import link_memory, links
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.runs.assembly import make_protocol, planned_memory


def test_feasible_segments_are_those_that_the_protocol_accepts():
    digits = svfl.load_dataset("digits", parties=9)
    cls = get_protocol("fedvs")
    for privacy in (1, 2, 3):
        feasible = []
        for segments in range(1, 8):
            try:
                cls(make_config(cls, {"segments": segments, "privacy": privacy}), digits, seed=0)
            except ConfigurationError:
                continue
            feasible.append(segments)
        found = plan(digits, privacy=privacy, conditions="none")
        assert [choice.segments for choice in found.choices] == feasible
        for choice in found.choices:
            assert choice.threshold == 2 * (choice.segments + privacy - 1) + 1
            assert choice.tolerated == 9 - choice.threshold


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"segments": 4}, "K = 4 and T = 1 need 9 results of 8 parties; use at most 3 segments"),
        ({"segments": 3, "rows": 2}, "a row each, and there are 2; use at most 2 segments"),
        ({"segments": 4, "rows": 2}, "9 results of 8 parties; use at most 2 segments"),
        ({"segments": 1, "privacy": 4}, "no K is feasible: K = 1 and T = 4 need 9 results"),
    ],
)
def test_segments_that_are_not_feasible_are_refused_with_what_is(asked, words):
    with pytest.raises(ConfigurationError, match=words):
        plan(**{"parties": 8, "rows": 100, "features": 16, "conditions": "none"} | asked)


def test_a_plan_needs_no_data():
    """Widths and rows alone give the plan of a data set of that shape, but for its row sums."""
    digits = svfl.load_dataset("digits", parties=6)
    rows, test_rows = len(digits.train_labels), len(digits.test_labels)
    bits = {"prime": 2**61 - 1, "data_bits": 20, "model_bits": 24}
    with_data = plan(digits, secure=True, **bits)
    without = plan(parties=6, rows=rows, features=64, test_rows=test_rows, secure=True, **bits)
    assert replace(with_data.shape, unknowns=None, rank=None) == without.shape
    assert with_data.choices == without.choices


def test_bytes_and_time_of_a_plan_are_held_against_the_run():
    found = plan("digits", parties=4, segments=1, width=4, batch=16, rounds=40, seed=1)
    bits = found.bits
    run = svfl.run(
        "fedvs", svfl.load_dataset("digits", parties=4), rounds=40, width=4, batch=16, hidden=4,
        segments=1, prime=bits.prime, data_bits=bits.data_bits, model_bits=bits.model_bits,
    )  # fmt: skip
    planned = run.summary()["planned"]
    assert found.best.bytes == planned["bytes"] == planned["measured_bytes"] == run.transcript.bytes
    assert planned["round_seconds"] == pytest.approx(found.best.round_seconds, rel=0.1)
    assert planned["measured_round_seconds"] == pytest.approx(
        (run.history[-1]["time"] - run.history[0]["time"]) / 39
    )


def test_a_run_that_was_cut_has_no_predicted_bytes():
    run = svfl.run("fedvs", "digits", rounds=100, until=80.0, width=2, hidden=2, batch=16)
    planned = run.summary()["planned"]
    assert planned["bytes"] is planned["measured_bytes"] is None
    assert planned["round_seconds"] > 0


def test_the_best_choice_has_the_shortest_round():
    """Under the paper's delays fewer results are waited for sooner, and K = 1 needs the fewest."""
    found = plan(parties=12, rows=500, features=24, conditions="paper")
    assert found.best.round_seconds == min(choice.round_seconds for choice in found.choices)
    assert found.best.segments == 1


def test_the_best_choice_changes_where_transfers_dominate():
    """Coded batches shrink with K: with a narrow uplink and no delays more segments are faster."""
    narrow = Conditions(name="narrow", uploads=(Delay(0.0),) * 10, bandwidth=1e5)
    found = plan(parties=10, rows=4000, features=20, batch=512, degree=1, conditions=narrow)
    assert found.best.segments > 1


def test_the_best_choice_changes_where_computing_dominates():
    """The paper's second pattern: embedding |B| rows is what takes long, and |B| = b / K."""
    given = {"parties": 10, "rows": 1000, "features": 60, "batch": 512, "degree": 1}
    heavy = Conditions(name="heavy", compute="modelled", seconds_per_multiply_add=1e-7)
    assert plan(conditions=heavy, **given).best.segments > 1


def test_corrupt_uploads_cost_two_results_each():
    digits = svfl.load_dataset("digits", parties=9)
    found = plan(digits, tolerate_corrupt=1, conditions="none")
    assert [(c.segments, c.threshold, c.tolerated) for c in found.choices] == [
        (1, 3, 4), (2, 5, 2), (3, 7, 0),
    ]  # fmt: skip
    run = svfl.run("fedvs", digits, tolerate_corrupt=1, rounds=3, width=2, hidden=2, segments=2)
    assert run.summary()["planned"]["bytes"] == run.transcript.bytes


@pytest.mark.parametrize("secure", [False, True])
def test_memory_of_a_simulation_is_that_of_the_protocol(secure):
    digits = svfl.load_dataset("digits", parties=5)
    cls = get_protocol("fedvs")
    found = plan(digits, segments=2, secure=secure)
    options = {"segments": 2, "secure": secure, "prime": found.bits.prime}
    options |= {"data_bits": found.bits.data_bits, "model_bits": found.bits.model_bits}
    made = cls(make_config(cls, options), digits, seed=0)
    assert found.best.simulation_memory == made.memory() + link_memory(5, sealed=True)
    assert found.best.simulation_memory == planned_memory(made)
    assert found.best.client_memory < found.best.simulation_memory


def test_links_are_those_over_which_messages_went():
    data = svfl.load_dataset("digits", parties=5).subset(60, 20)
    columns = svfl.run("fedvs", data, rounds=2, width=2).transcript.columns()
    pairs = set(zip(columns["sender"].tolist(), columns["receiver"].tolist(), strict=True))
    assert len(pairs) == links(5)


#: Bytes by which a process grew in a sealed run of 512 rows, at most, with kernels on disk; that of
#: 256 parties is in benchmarks/results/scale/growth_large.json.
MEASURED = {10: 5_464_064, 64: 37_019_648, 256: 552_398_848}


@pytest.mark.parametrize("parties", MEASURED)
def test_memory_is_forecast_where_many_parties_hold_little(parties):
    sizes = {"parties": parties, "rows": 512, "features": max(parties, 64), "conditions": "none"}
    sizes |= {"batch": 32, "width": 16, "rounds": 2, "segments": (parties // 2 - 1) // 2}
    found = plan(**sizes).best.simulation_memory
    assert 1 / 1.5 < found / MEASURED[parties] < 1.5
    assert plan(**sizes, sealed=False).best.simulation_memory < found


# -- field and bits ----------------------------------------------------------------------------


def test_the_smaller_field_is_taken_where_it_has_room():
    few = [RowSums(10.0)] * 4
    assert choose_bits(few, 16.0, 8, {}).prime == 2**31 - 1
    assert choose_bits(few, 16.0, 14, {}).prime == 2**50 - 2**14 + 1
    assert choose_bits(few, 16.0, 20, {}).prime == 2**61 - 1


def test_the_default_field_is_the_smallest_with_room_for_the_default_bits():
    default = make_config(get_protocol("fedvs"), {})
    bits = {"data_bits": default.data_bits, "model_bits": default.model_bits}
    for name, parties in (("digits", 8), ("breast-cancer", 8)):
        assert plan(name, parties=parties, **bits).bits.prime == default.prime


def test_the_default_field_has_the_room_that_61_bits_had():
    """11 bits fewer in p, and 11 fewer in lx + lw: what passed the check at 2^61-1 passes still."""
    default = make_config(get_protocol("fedvs"), {})
    before = {"prime": 2**61 - 1, "data_bits": 20, "model_bits": 24}
    own = {name: getattr(default, name) for name in before}
    for exponent in (2.0, 11.0, 11.99, 12.01, 13.0):
        sums = [RowSums(2.0**exponent / 4)] * 4
        fits = []
        for options in (before, own):
            largest = largest_sum(sums, 16.0, options["data_bits"], options["model_bits"])
            fits.append(largest <= (options["prime"] - 1) // 2)
        assert fits == [exponent < 12.0] * 2


@given(
    largest=st.lists(st.floats(1.0, 2000.0), min_size=1, max_size=30),
    weight=st.floats(0.01, 100.0),
    wanted=st.integers(1, 20),
    prime=st.sampled_from([None, 2**31 - 1, 2**26 - 5]),
)
def test_chosen_bits_cannot_wrap_and_leave_no_room_for_another(largest, weight, wanted, prime):
    sums = [RowSums(value, 3) for value in largest]
    options = {} if prime is None else {"prime": prime}
    try:
        bits = choose_bits(sums, weight, wanted, options)
    except WouldOverflowError:
        last = prime or 2**61 - 1
        assert largest_sum(sums, weight, wanted, wanted) > (last - 1) // 2
        return
    assert largest_sum(sums, weight, bits.data_bits, bits.model_bits) == bits.largest
    assert bits.largest <= bits.limit == (bits.prime - 1) // 2
    assert min(bits.data_bits, bits.model_bits) >= wanted
    wider = [(bits.data_bits + 1, bits.model_bits), (bits.data_bits, bits.model_bits + 1)]
    for lx, lw in wider:
        assert lx > 20 or lw > 24 or largest_sum(sums, weight, lx, lw) > bits.limit


@given(
    st.lists(st.floats(0, 1, width=32), min_size=1, max_size=40),
    st.integers(1, 20),
    st.integers(1, 3),
)
def test_the_bound_on_row_sums_covers_the_quantised_row(values, bits, degree):
    from securevfl.field import FixedPoint
    from securevfl.models.polynomial_network import expand

    row = np.array([values], np.float32)
    powers = expand(row, degree)
    quantised = FixedPoint(PrimeField(2**61 - 1), bits=bits).round(powers)
    exact = RowSums(float(np.abs(powers.astype(np.float64)).sum()), len(values) * degree)
    in_unit = RowSums(len(values) * degree + 1.0)
    assert np.abs(quantised).sum() <= exact.units(bits)
    assert np.abs(quantised).sum() <= in_unit.units(bits)


@pytest.mark.parametrize("degree", [1, 2])
def test_planned_bits_pass_the_check_of_the_protocol(degree):
    digits = svfl.load_dataset("digits", parties=8)
    found = plan(digits, degree=degree, accuracy_bits=7)
    bits = found.bits
    assert bits.prime == 2**31 - 1
    cls = get_protocol("fedvs")
    given_bits = {"prime": bits.prime, "data_bits": bits.data_bits, "model_bits": bits.model_bits}
    cls(make_config(cls, {"degree": degree, **given_bits}), digits, seed=0)
    wider = given_bits | {"data_bits": bits.data_bits + 2}
    with pytest.raises(WouldOverflowError):
        cls(make_config(cls, {"degree": degree, **wider}), digits, seed=0)


# -- mistakes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"parties": 4}, "rows and features"),
        ({"rows": 10, "features": 3, "parties": 4}, "at most 3"),
        ({"rows": 10, "features": 8, "parties": 4, "privacy": 2}, "5 results of 4"),
        ({"rows": 10, "features": 8, "parties": 4, "segments": 2}, "at most 1 segments"),
        (
            {"rows": 10, "features": 40, "parties": 40, "privacy": 3},
            "4161 streams.*1096 keys",
        ),
        ({"rows": 10, "features": 8, "share_timeout": 3.0}, "leave out timeouts"),
        ({"rows": 10, "features": 8, "protocol": "split"}, "no message schedule.* Plan fedvs, or"),
        ({"rows": 10, "features": 8, "accuracy_bits": 30}, "accuracy_bits"),
        ({"rows": 10, "features": 8, "prime": 101}, "in all"),
        ({"data": "digits", "rows": 10}, "not both"),
    ],
)
def test_mistakes_are_refused(arguments, part):
    with pytest.raises(ConfigurationError, match=part):
        plan(**arguments)


@pytest.mark.parametrize(("features", "warned"), [(24, True), (64, True), (65, False)])
def test_a_plan_warns_where_the_sums_of_a_row_are_enough_equations(features, warned):
    options = {"width": 64, "rounds": 3, "batch": 128, "conditions": "none"}
    found = plan(parties=6, rows=500, features=features, **options)
    assert bool(found.warnings) is warned
    assert found.released.at_most  # nobody saw the columns
    assert not warned or f"(h = 64 each) about its at most {features} unknowns" in found.warnings[0]


def test_a_plan_counts_as_the_run_does():
    data = svfl.load_dataset("breast-cancer", parties=5)
    options = {"width": 4, "rounds": 30, "batch": 64, "segments": 2, "degree": 2}
    made, _ = make_protocol("fedvs", options, data, 0)
    found = plan(data, conditions="none", **options)
    assert found.released == made.released()
    assert (found.shape.unknowns, found.shape.rank) == (30, 61)


def test_a_plan_names_rounds_and_what_would_keep_it_below():
    shape = {"parties": 6, "rows": 500, "features": 12, "batch": 50, "degree": 2}
    found = plan(**shape, width=4, rounds=40, conditions="none")
    told = found.released  # 10 rounds an epoch, 4 visits
    assert (told.equations, told.full_after, told.spanned_from) == (16, 20, 61)
    assert "width <= 2, or rounds <= 20, or at least 17 independent columns" in found.warnings[0]
    narrow = plan(**shape, width=2, rounds=40, conditions="none")
    assert narrow.warnings == ()


def test_a_plan_with_a_budget_says_where_it_ends():
    options = {"width": 4, "rounds": 40, "batch": 50, "conditions": "none", "sum_budget": 1.0}
    found = plan(parties=6, rows=500, features=12, **options)
    assert (found.released.visits, found.released.visits_planned) == (2, 4)
    assert found.warnings == ()
    assert (found.rounds, found.best.rounds) == (40, 20)
    whole = plan(parties=6, rows=500, features=12, **options | {"rounds": 20})
    assert whole.best == found.best  # time and bytes are those of the rounds that are made


@pytest.mark.parametrize("protocol", ["fedvs", "coded_split"])
def test_the_rounds_and_bytes_of_a_plan_are_those_of_a_run_that_its_budget_ends(protocol):
    data = svfl.load_dataset("breast-cancer", parties=6).subset(60, 20)
    options = {"width": 8, "rounds": 30, "batch": 20, "segments": 1, "sum_budget": 1.0}
    run = svfl.run(protocol, data, hidden=2, conditions="none", **options)
    planned = run.summary()["planned"]
    found = plan(data, protocol=protocol, conditions="none", **options)
    assert len(run.history) == found.best.rounds == 9
    assert planned["bytes"] == planned["measured_bytes"] == run.transcript.bytes


def test_a_plan_refuses_a_width_of_which_no_sum_is_in_the_budget():
    with pytest.raises(ConfigurationError, match="plan: fedvs: a sum of embeddings is width = 12"):
        plan(parties=6, rows=500, features=12, width=12, sum_budget=1.0)


@pytest.mark.parametrize("security", ["covert", "active"])
@pytest.mark.parametrize("parties", [6, 9])
def test_levels_against_liars_need_more_results_than_the_formula(security, parties):
    """At N = 9 the levels have no K = 3, which 2(K+T-1)+1 = 7 results would allow."""
    cls = get_protocol("fedvs")
    accepted = []
    for segments in range(1, parties):
        config = make_config(cls, {"security": security, "segments": segments})
        try:
            cls.check_parties(config, parties)
        except ConfigurationError:
            continue
        accepted.append((segments, *cls.results(config, parties)))
    given = {"parties": parties, "rows": 40, "features": 18, "security": security, "width": 1}
    found = plan(conditions="none", rounds=3, **given)
    planned = [(c.segments, c.threshold, parties - c.tolerated) for c in found.choices]
    assert planned == accepted
    (level,) = [one for one in found.levels if one.name == security]
    assert (level.bytes, level.tolerated) == (found.best.bytes, found.best.tolerated)
    if parties == 9:
        assert [K for K, _, _ in planned] == [1, 2, 4]
        with pytest.raises(ConfigurationError, match=r"K = 3 and T = 1 need .* at most 2 seg"):
            plan(conditions="none", segments=3, **given)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"parties": 0}, "parties must be a whole number of at least 1, it is 0"),
        ({"parties": True}, "parties must be a whole number"),
        ({"rows": -5}, "rows must be a whole number of at least 1, it is -5"),
        ({"rows": 100.5}, "rows must be a whole number"),
        ({"test_rows": -1}, "test_rows must be a whole number of at least 0"),
        ({"accuracy_bits": 8.5}, "accuracy_bits must be a whole number from 1 to 20"),
        ({"sealed": "no"}, "sealed must be True or False"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"secure": True}, "give test_rows"),
    ],
)
def test_sizes_that_are_none_are_refused(wrong, words):
    with pytest.raises(ConfigurationError, match=words):
        plan(**{"parties": 8, "rows": 100, "features": 16, "conditions": "none"} | wrong)


def test_another_number_of_parties_than_that_of_the_data_is_refused():
    with pytest.raises(ConfigurationError, match="parties = 6, and the data set has 4"):
        plan(svfl.load_dataset("digits", parties=4), parties=6, conditions="none")


def test_a_table_of_any_length_is_planned_by_its_number_of_parties():
    found = plan(parties=4, rows=10**15, features=8, conditions="none", width=1, rounds=1)
    assert [choice.segments for choice in found.choices] == [1]
