import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from securevfl.engine.conditions import Conditions
from securevfl.engine.conditions_file import conditions_from
from securevfl.engine.delays import DEFAULT_SHAPE, DISTRIBUTIONS, Delay, Trace
from securevfl.engine.streams import keyed_stream
from securevfl.engine.traces import MEASURED, deal, read_trace, read_workers
from securevfl.errors import ConfigurationError

ROUNDS = 4000


def drawn(delay, party=0, seed=0):
    return np.array([delay.seconds(seed, party, r, "upload") for r in range(ROUNDS)])


def theirs(law, mean, shape):
    """The same law as scipy has it."""
    if law == "pareto":
        return stats.pareto(shape, scale=mean * (shape - 1) / shape)
    if law == "lognormal":
        return stats.lognorm(shape, scale=mean * math.exp(-(shape**2) / 2))
    return stats.expon(scale=mean)


@pytest.mark.parametrize(
    ("law", "shape"),
    [("exponential", 0.0), ("pareto", 1.5), ("pareto", 3.0), ("lognormal", 0.5), ("lognormal", 2)],
)
def test_each_law_is_scipys_with_the_stated_mean(law, shape):
    delay, oracle = Delay(2.0, 0.25, law, shape), theirs(law, 2.0, shape)
    assert oracle.mean() == pytest.approx(2.0)
    assert delay.expectation == 2.25
    # A true law fails with probability 1e-6 for each parameter; the seed is fixed anyway.
    assert stats.kstest(drawn(delay) - 0.25, oracle.cdf).pvalue > 1e-6


def test_an_exponential_delay_is_what_it_was_before_there_were_laws():
    stream = keyed_stream(3, 5, "delay/upload", 7)
    expected = 0.5 + 2.0 * float(stream.standard_exponential())
    assert Delay(2.0, 0.5).seconds(3, 5, 7, "upload") == expected


@pytest.mark.parametrize("law", DISTRIBUTIONS)
def test_laws_share_the_streams_and_depend_on_nothing_else(law):
    delay = Delay(1.0, 0.0, law, DEFAULT_SHAPE[law])
    assert (drawn(delay) == drawn(delay)).all()
    for other in (drawn(delay, party=1), drawn(delay, seed=1)):
        assert (drawn(delay) != other).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: Delay(1.0, 0.0, "weibull"),
        lambda: Delay(1.0, 0.0, ["pareto"]),
        lambda: Delay(1.0, 0.0, "exponential", 1.0),
        lambda: Delay(1.0, 0.0, "pareto", 1.0),
        lambda: Delay(1.0, 0.0, "pareto", 1 + 1e-9),  # 200 draws of mean 1 were 4e-8 in the mean
        lambda: Delay(1.0, 0.0, "lognormal", 50.0),  # all were 0
        lambda: Delay(1.0, 0.0, "lognormal", 1e200),
        lambda: Delay(1.0, 0.0, "pareto", math.inf),
        lambda: Delay(1.0, 0.0, "lognormal", 0.0),
        lambda: Delay(1.0, 0.0, "lognormal", math.nan),
        lambda: Trace(()),
        lambda: Trace((1.0, -1.0)),
        lambda: Trace((math.nan,)),
        lambda: Trace((1.0,), "stop"),
        lambda: Conditions(uploads=(Delay(1.0), Trace((1.0,)))),
        lambda: Conditions(uploads=(1.0,)),
        lambda: Conditions(uplinks=(0.0,)),
        lambda: Conditions(compute="modelled"),
        lambda: Conditions(compute="measured", seconds_per_multiply_add=1e-9),
        lambda: Conditions(compute="modelled", seconds_per_multiply_add=math.inf),
    ],
)
def test_values_out_of_range_are_refused(make):
    with pytest.raises(ConfigurationError):
        make()


def test_a_trace_begins_anew_or_refuses():
    wrapped = Trace((1.0, 2.0, 4.0))
    assert [wrapped.seconds(0, 0, r, "upload") for r in range(8)] == [1, 1, 2, 4, 1, 2, 4, 1]
    assert wrapped.expectation == 7 / 3
    refusing = Trace((1.0, 2.0), "refuse")
    assert refusing.seconds(0, 3, 2, "upload") == 2.0
    with pytest.raises(ConfigurationError, match=r"party 3 ends with round 2 and round 3"):
        refusing.seconds(0, 3, 3, "upload")


def test_a_trace_scales_shares_and_delays_no_server():
    conditions = Conditions(uploads=(Trace((1.0, 3.0)),), share_factor=0.5)
    assert conditions.delay(9, 0, 2, "upload") == 3_000_000_000
    assert conditions.delay(9, 0, 2, "share") == 1_500_000_000
    assert conditions.delay(9, -1, 2, "upload") == 0


def test_a_trace_file_is_read_in_any_order(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text("seconds,round,party,note\n2,2,0,x\n1,1,0,\n0.5,1,1,y\n")
    assert read_trace(path, parties=2) == (Trace((1.0, 2.0)), Trace((0.5,)))


def test_workers_are_dealt_by_their_means_to_any_number_of_parties(tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text("step,a,b,c\n7,1,9,4\n9,3,9,4\n")
    workers = read_workers(path)
    assert workers == [(1.0, 3.0), (9.0, 9.0), (4.0, 4.0)]
    assert read_trace(path, parties=1) == (Trace((4.0, 4.0)),)
    assert [trace.recorded for trace in read_trace(path, parties=6)] == [
        *((1.0, 3.0), (3.0, 1.0)), *[(4.0, 4.0)] * 2, *[(9.0, 9.0)] * 2,
    ]  # fmt: skip
    path.write_text("step,a\n1,2,3\n")
    with pytest.raises(ConfigurationError, match="line 2: 3 columns, and the first has 2"):
        read_workers(path)


def test_calls_of_lambda_workers_become_a_table_and_no_code_of_the_file_is_run(
    tmp_path, monkeypatch
):
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    import lambda_calls

    source, table = tmp_path / "calls.pkl", tmp_path / "calls.csv"
    other = np.dtype(int)
    calls = [
        {"worker_id": np.int64(n), "started": 1.0, "finished": 1.5 + n, "response": other}
        for n in (1, 0)
    ]
    source.write_bytes(pickle.dumps([{"round": 0, "results": calls}] * 2))
    lambda_calls.write(source, table)
    assert read_workers(table) == [(0.5, 0.5), (1.5, 1.5)]
    source.write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR.")
    with pytest.raises(TypeError):
        lambda_calls.write(source, table)
    assert not (tmp_path / "ran").exists()


def test_shipped_traces_have_the_stated_workers():
    spread = {}
    for name, own in MEASURED.items():
        uploads = own.uploads(64)
        assert len(uploads) == 64
        if own.file:
            means = sorted({round(each.expectation, 9) for each in uploads})
            spread[name] = len(means), round(means[-1] / means[0], 1)
    assert spread == {"ranks_st": (8, 1.6), "ranks_ar": (16, 2.4), "ranks_se": (64, 1.6)}
    assert deal([(1.0,)], 2) == (Trace((1.0,)),) * 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it has none"),
        ("party,round\n0,1\n", "needs the columns"),
        ("party,round,seconds\n0,1,1\n", "of party 1 without gaps, it holds 0"),
        ("party,round,seconds\n0,1,1\n1,2,1\n", "of party 1 without gaps, it holds 1 of them up"),
        ("party,round,seconds\n0,1,1\n0,1,2\n", "line 3: round 1 of party 0 occurs twice"),
        ("party,round,seconds\n2,1,1\n", "party 2 is none of 0 to 1"),
        ("party,round,seconds\n0,1,-1\n", "must be finite and at least 0"),
        ("party,round,seconds\n0,1,inf\n", "must be finite and at least 0"),
        ("party,round,seconds\n0,1.5,1\n", "line 2: party and round must be integers"),
        ("party,round,seconds\n0,1\n", "line 2: party and round must be integers"),
    ],
)
def test_bad_trace_files_are_refused_with_the_line(tmp_path, text, words):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=words):
        read_trace(path, parties=2)


def test_missing_and_binary_trace_files_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_trace(tmp_path / "none.csv", parties=1)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ConfigurationError, match="no CSV file"):
        read_trace(tmp_path / "binary.csv", parties=1)


@pytest.mark.parametrize(
    "conditions",
    [
        Conditions(uploads=(Trace((1.0, 2.0), "refuse"), Trace((0.5,), "refuse")), share_factor=2),
        Conditions(uploads=(Delay(1.0, 0.5, "pareto", 2.0), Delay(0.1)), bandwidth=8.0),
        Conditions(uploads=(Delay(1.0),) * 2, uplinks=(8.0, None)),
        Conditions(
            uploads=(Delay(),) * 2, compute="modelled", seconds_per_multiply_add=1e-9, bandwidth=5.0
        ),
        Conditions(),
    ],
)
def test_what_describe_says_gives_the_same_conditions(conditions):
    said = conditions.describe()
    name = said.pop("name")
    parties = len(said["upload_mean"])
    assert conditions_from(said, parties=parties, batch_rows=1, name=name) == conditions
