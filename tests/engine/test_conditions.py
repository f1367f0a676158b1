import math
import tomllib
from dataclasses import replace

import numpy as np
import pytest

from securevfl.engine.conditions import (
    NONE,
    Conditions,
    Delay,
    Trace,
    paper,
    round_ns,
    share_factor,
)
from securevfl.engine.conditions_file import conditions_from, load_conditions
from securevfl.errors import ConfigurationError

ROUNDS = 4000


def uploads(conditions, party, seed=0, activity="upload"):
    return np.array([conditions.delay(seed, party, r, activity) for r in range(ROUNDS)]) / 1e9


def test_the_papers_pattern_has_the_stated_means_and_law():
    # Over 4000 draws a mean of an exponential is off by more than 8 % with probability < 5e-7 and
    # its tail beyond the mean by more than 0.038 with probability < 1e-6 (normal, 5 sigma);
    # 8 parties: the test fails by chance with probability < 2e-5 (the seed is fixed anyway).
    conditions = paper(8, batch_rows=32)
    means = [0.1] * 4 + [2.25, 2.5, 2.75, 3.0]
    for party, mean in enumerate(means):
        drawn = uploads(conditions, party)
        assert abs(drawn.mean() / mean - 1) < 0.08
        assert abs(np.mean(drawn > mean) - math.exp(-1)) < 0.038
        assert abs(np.std(drawn) / mean - 1) < 0.15
    assert conditions.bandwidth == 300e6
    assert conditions.share_factor == 9 / 32


def test_sharing_is_scaled_and_drawn_separately():
    conditions = paper(8, batch_rows=32)
    shares, sends = uploads(conditions, 7, activity="share"), uploads(conditions, 7)
    assert abs(shares.mean() / (3.0 * 9 / 32) - 1) < 0.08
    assert abs(np.corrcoef(shares, sends)[0, 1]) < 0.08  # 5 sigma of 4000 independent pairs


def test_half_of_an_odd_number_straggle_rounded_down():
    slow = [delay.mean > 1 for delay in paper(5, batch_rows=1).uploads]
    assert slow == [False, False, False, True, True]
    assert [d.mean for d in paper(4, batch_rows=1, slow=1.0).uploads] == [2.25, 2.5, 2.75, 3.0]
    assert {d.mean for d in paper(4, batch_rows=1, slow=0.0).uploads} == {0.1}


def test_delays_are_a_function_of_seed_party_round_and_activity():
    conditions = paper(8, batch_rows=32)
    one = conditions.delay(3, 5, 7, "upload")
    assert one == paper(8, batch_rows=32).delay(3, 5, 7, "upload")
    others = [(4, 5, 7, "upload"), (3, 6, 7, "upload"), (3, 5, 8, "upload"), (3, 5, 7, "share")]
    assert one not in [conditions.delay(*key) for key in others]


def test_the_server_and_unknown_parties_are_never_delayed():
    conditions = paper(2, batch_rows=1)
    assert [conditions.delay(0, n, 1, "upload") for n in (-1, 2, 99)] == [0, 0, 0]
    assert NONE.delay(0, 0, 1, "upload") == 0


def test_a_constant_delay_and_a_transfer_are_exact():
    conditions = Conditions(uploads=(Delay(shift=1.5),), bandwidth=300e6, share_factor=2.0)
    assert conditions.delay(0, 0, 1, "upload") == 1_500_000_000
    assert conditions.delay(0, 0, 1, "share") == 3_000_000_000
    assert conditions.transfer(37_500_000) == 1_000_000_000
    assert NONE.transfer(10**12) == 0
    assert round_ns(1e-9) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda: Delay(mean=-1),
        lambda: Delay(shift=math.nan),
        lambda: Delay(mean=math.inf),
        lambda: Conditions(bandwidth=0.0),
        lambda: Conditions(bandwidth=math.nan),
        lambda: Conditions(compute="guess"),
        lambda: Conditions(share_factor=-1.0),
        lambda: Conditions(share_factor=math.nan),
        lambda: paper(4, batch_rows=1, slow=1.5),
        lambda: paper(4, batch_rows=1, slow=math.nan),
    ],
)
def test_values_out_of_range_are_refused(make):
    with pytest.raises(ConfigurationError):
        make()


GOOD = {
    'pattern = "paper"\nslow = 0.25\nbandwidth = 0': lambda c: (
        [d.mean for d in c.uploads] == [0.1, 0.1, 0.1, 2.25] and c.bandwidth is None
    ),
    "upload_mean = 0.5": lambda c: (
        [d.mean for d in c.uploads] == [0.5] * 4 and c.share_factor == share_factor(4, 8) == 0.5
    ),
    "upload_mean = [0, 1, 2, 3]\nupload_shift = 1\nshare_factor = 0\nbandwidth = 1000": lambda c: (
        [d.mean for d in c.uploads] == [0, 1, 2, 3]
        and {d.shift for d in c.uploads} == {1.0}
        and c.bandwidth == 1000
        and c.share_factor == 0
    ),
    'compute = "measured"': lambda c: c.compute == "measured",
    'pattern = "slow_set"\nslow_parties = [2, 0]\nslow_mean = 5\nfast_mean = 0.5': lambda c: (
        [d.mean for d in c.uploads] == [5, 0.5, 5, 0.5]
        and c.share_factor == 0.5
        and c.bandwidth == 300e6
    ),
    'pattern = "paper"\nupload_law = "pareto"\nupload_shape = 1.5': lambda c: (
        {(d.law, d.shape) for d in c.uploads} == {("pareto", 1.5)}
        and [d.mean for d in c.uploads] == [0.1, 0.1, 2.25, 2.5]
    ),
    'upload_mean = 1\nupload_law = ["exponential", "pareto", "lognormal", "pareto"]': lambda c: (
        [(d.law, d.shape) for d in c.uploads]
        == [("exponential", 0), ("pareto", 2.5), ("lognormal", 1), ("pareto", 2.5)]
    ),
    'compute = "modelled"\nseconds_per_multiply_add = 1e-9': lambda c: c.work(10**6) == 1_000_000,
    'pattern = "paper"\ncompute = "modelled"\nseconds_per_multiply_add = 1e-9': lambda c: (
        c.compute == "modelled" and c.work(1000) == 1000
    ),
    "bandwidth = 16\nuplinks = [8, 0, 4, 2]": lambda c: (
        [c.transfer(1, n) for n in (-1, 0, 1, 2, 3)]
        == [500_000_000, 10**9, 0, 2 * 10**9, 4 * 10**9]
    ),
}


@pytest.mark.parametrize("text", GOOD)
def test_good_files(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert GOOD[text](load_conditions(path, parties=4, batch_rows=8))
    values = tomllib.loads(text)
    assert GOOD[text](load_conditions(values, parties=4, batch_rows=8))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bandwith = 1", "unknown key 'bandwith'"),
        ("bandwidth = -1", "positive"),
        ("bandwidth = true", "must be a number"),
        ('slow = "half"', "must be a number"),
        ("upload_mean = [1, 2]", "2 entries for 4 clients"),
        ('upload_mean = "x"', "numbers only"),
        ("upload_mean = [true, 1, 1, 1]", "numbers only"),
        ("upload_mean = -1", "at least 0"),
        ("upload_mean = nan", "at least 0"),
        ("share_factor = -0.5", "at least 0"),
        ('pattern = "papr"', "unknown pattern"),
        ('pattern = "paper"\nupload_mean = 1', "does not go with pattern 'paper'"),
        ("slow = 0.5", "does not go with"),
        ('compute = "real"', "'none' or 'measured'"),
        ("= 3", "not valid TOML"),
        ('pattern = "paper"\nslow = 2', "must lie in"),
        ('pattern = "slow_set"', "needs slow_parties"),
        ('pattern = "slow_set"\nslow_parties = 1', "needs slow_parties"),
        ('pattern = "slow_set"\nslow_parties = [4]', "different numbers of 0 to 3"),
        ('pattern = "slow_set"\nslow_parties = [1, 1]', "different numbers of 0 to 3"),
        ('pattern = "slow_set"\nslow_parties = [0.5]', "different numbers of 0 to 3"),
        ('pattern = "slow_set"\nslow_parties = [0]\nslow = 0.5', "slow does not go with"),
        ('upload_mean = 1\nupload_law = "weibull"', "unknown law"),
        ('upload_mean = 1\nupload_law = ["pareto"]', "1 entries for 4 clients"),
        ('upload_mean = 1\nupload_law = "pareto"\nupload_shape = 0.5', "above 1"),
        ("upload_mean = 1\nupload_shape = 0.5", "has no shape"),
        ("uplinks = [1, 2]", "2 entries for 4 clients"),
        ('uplinks = ["a", 1, 1, 1]', "numbers only"),
        ("uplinks = [-1, 1, 1, 1]", "positive"),
        ('compute = "modelled"', "seconds_per_multiply_add"),
        ("seconds_per_multiply_add = 1e-9", "seconds_per_multiply_add"),
        ('trace = "missing.csv"', "cannot be read"),
        ('trace = "missing.csv"\nupload_mean = 1', "upload_mean does not go with"),
        ("trace = [[1.0]]", "a list for each of 4"),
        ("trace = [[1.0], [], [1], [1]]", "at least one round"),
        ("trace = [[1.0], 3, [1], [1]]", "numbers only"),
        ("trace = [[1], [1], [1], [1]]\ntrace_end = 3", "'wrap' or 'refuse'"),
        ('pattern = ["paper"]', "unknown pattern"),
    ],
)
def test_bad_files_are_refused_with_the_reason(tmp_path, text, words):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        load_conditions(path, parties=4, batch_rows=8)


def test_a_trace_lies_beside_its_file(tmp_path):
    (tmp_path / "t.csv").write_text("party,round,seconds\n0,1,2\n1,1,3\n")
    (tmp_path / "mine.toml").write_text('trace = "t.csv"\nshare_factor = 0.5')
    conditions = load_conditions(tmp_path / "mine.toml", parties=2, batch_rows=8)
    assert conditions.uploads == (Trace((2.0,)), Trace((3.0,)))
    assert conditions.delay(0, 1, 5, "share") == 1_500_000_000


def test_no_conditions_come_back_from_what_they_say():
    said = NONE.describe()
    assert conditions_from(said, parties=0, batch_rows=1, name=said.pop("name")) == NONE


def test_names_and_missing_or_binary_files(tmp_path):
    assert load_conditions("none", parties=4, batch_rows=8) is NONE
    assert load_conditions("paper", parties=4, batch_rows=8) == paper(4, batch_rows=8)
    with pytest.raises(ConfigurationError, match="neither 'none' nor 'paper'"):
        load_conditions(tmp_path / "none.toml", parties=4, batch_rows=8)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        load_conditions(tmp_path / "binary", parties=4, batch_rows=8)
    (tmp_path / "deep").write_text("a = " + "[" * 5000)
    with pytest.raises(ConfigurationError, match="deep"):
        load_conditions(tmp_path / "deep", parties=4, batch_rows=8)
    with pytest.raises(ConfigurationError, match=r"a function is no name.*securevfl\.conditions"):
        load_conditions(lambda n: n, parties=4, batch_rows=8)


def test_what_describe_says_gives_the_same_conditions():
    first = paper(6, batch_rows=4)
    said = first.describe()
    said.pop("name")
    assert conditions_from(said, parties=6, batch_rows=4, name="paper") == first


def test_the_logarithm_of_the_share_delay_is_a_choice():
    assert share_factor(8, 32) == 9 / 32
    assert share_factor(8, 32, "e") == pytest.approx(math.log(8) ** 2 / 32)
    assert paper(8, batch_rows=32, log_base="e").share_factor == share_factor(8, 32, "e")
    assert paper(8, batch_rows=32, share_factor=0.25).share_factor == 0.25
    for wrong, words in (
        ({"log_base": "10"}, "'2' or 'e'"),
        (
            {"log_base": "e", "share_factor": 0.1},
            "exclude each other; give",
        ),
    ):
        with pytest.raises(ConfigurationError, match=words):
            paper(8, batch_rows=32, **wrong)


def test_a_draw_holds_for_a_spell_and_spells_do_not_begin_at_once():
    single = paper(4, batch_rows=16)
    lasting = replace(single, persistence=5)
    for party in range(4):
        drawn = [lasting.delay(3, party, round, "upload") for round in range(1, 41)]
        changes = [r for r in range(1, 40) if drawn[r] != drawn[r - 1]]
        assert changes == [r for r in range(1, 40) if (r + 1 + party) % 5 == 0]
    spells = [lasting.delay(3, 0, 5 * spell, "upload") for spell in range(9)]
    assert spells == [single.delay(3, 0, spell, "upload") for spell in range(9)]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"delay_mode": "busy"}, "'latency' or 'occupies' or 'abort'"),
        ({"slowness": (1.0,)}, "compute is 'none'"),
        (
            {"compute": "modelled", "seconds_per_multiply_add": 1e-9, "slowness": (0.0,)},
            "slowness of 0.0",
        ),
        ({"persistence": 0}, "at least 1; it is 0"),
        ({"persistence": 2.5}, "at least 1; it is 2.5"),
    ],
)
def test_what_delays_are_is_checked(given, words):
    with pytest.raises(ConfigurationError, match=words):
        Conditions(**given)


def test_a_file_says_what_delays_are():
    values = {
        "pattern": "paper", "delay_mode": "abort", "persistence": 4, "log_base": "e",
        "compute": "modelled", "seconds_per_multiply_add": 1e-9, "slowness": [1, 2, 3, 4],
    }  # fmt: skip
    made = load_conditions(values, parties=4, batch_rows=32)
    assert (made.delay_mode, made.persistence, made.slowness) == ("abort", 4, (1, 2, 3, 4))
    assert made.work(1000, 3) == 4 * made.work(1000) == 4000
    again = {k: v for k, v in made.describe().items() if k != "name"}
    assert conditions_from(again, parties=4, batch_rows=1, name="paper") == made


@pytest.mark.parametrize(
    "made",
    [
        Conditions(uploads=(Delay(1.0),) * 3),
        Conditions(uplinks=(1e6,) * 3),
        Conditions(downlinks=(1e6,) * 3),
        Conditions(compute="modelled", seconds_per_multiply_add=1e-9, slowness=(1.0,) * 3),
    ],
)
def test_conditions_for_fewer_clients_are_refused_as_in_a_file(made):
    with pytest.raises(ConfigurationError, match="has 3 entries for 4 clients"):
        load_conditions(made, parties=4, batch_rows=8)
    assert load_conditions(made, parties=3, batch_rows=8) is made
