import math

import numpy as np
import pytest

from securevfl.engine.conditions import (
    NONE,
    Conditions,
    Delay,
    conditions_from,
    load_conditions,
    paper,
    round_ns,
    share_factor,
)
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
}


@pytest.mark.parametrize("text", GOOD)
def test_good_files(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    assert GOOD[text](load_conditions(path, parties=4, batch_rows=8))


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
    ],
)
def test_bad_files_are_refused_with_the_reason(tmp_path, text, words):
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        load_conditions(path, parties=4, batch_rows=8)


def test_names_and_missing_or_binary_files(tmp_path):
    assert load_conditions("none", parties=4, batch_rows=8) is NONE
    assert load_conditions("paper", parties=4, batch_rows=8) == paper(4, batch_rows=8)
    with pytest.raises(ConfigurationError, match="neither 'none' nor 'paper'"):
        load_conditions(tmp_path / "none.toml", parties=4, batch_rows=8)
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigurationError, match="not valid TOML"):
        load_conditions(tmp_path / "binary", parties=4, batch_rows=8)


def test_what_describe_says_gives_the_same_conditions():
    first = paper(6, batch_rows=4)
    said = first.describe()
    said.pop("name")
    assert conditions_from(said, parties=6, batch_rows=4, name="paper") == first
