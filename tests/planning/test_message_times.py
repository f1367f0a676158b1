"""Bytes and times from the outline: equal to the transcript and to the simulation's clock."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import securevfl as svfl
from securevfl.data.dataset import VerticalDataset
from securevfl.engine.conditions import NONE, Conditions, Delay, Trace
from securevfl.engine.delays import DEFAULT_SHAPE, DISTRIBUTIONS
from securevfl.engine.network import SERVER
from securevfl.field.prss import mask_streams
from securevfl.planning.message_bytes import sent_bytes
from securevfl.planning.message_times import MANY, draw, expected_times
from securevfl.protocols.base.schedule import Shape
from securevfl.protocols.fedvs.parameters import upload_streams

# Enough hidden units that one lives: a gradient of zeros is no step, and clients say more then.
TINY = {"width": 3, "hidden": 16, "batch": 8, "degree": 1}


def data(parties: int, rows: int = 30, test_rows: int = 21) -> Any:
    stream = np.random.Generator(np.random.Philox(5))
    widths = [1 + n % 3 for n in range(parties)]
    features = stream.random((rows + test_rows, sum(widths)), np.float32)
    parts = np.split(features, np.cumsum(widths)[:-1], axis=1)
    labels = np.arange(rows + test_rows) % 2
    return VerticalDataset.from_numpy(
        [part[:rows] for part in parts], labels[:rows],
        test_features=[part[rows:] for part in parts], test_labels=labels[rows:], task="binary",
    )  # fmt: skip


def outline_of(run: svfl.Run) -> Any:
    found = run.protocol.data
    shape = Shape(tuple(found.widths), len(found.train_labels), len(found.test_labels))
    outline = run.protocol.outline(run.protocol.config, shape)
    assert outline is not None
    return outline


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize(
    ("parties", "options"),
    [
        (4, {"masked": True}),
        (4, {"masked": False}),
        (5, {"secure": True, "segments": 2}),
        (5, {"secure": True, "masked": False, "segments": 2, "batch": 1000}),
        (7, {"privacy": 2, "segments": 2}),
        (6, {"prime": 2**31 - 1, "data_bits": 5, "model_bits": 5, "degree": 2}),
        (4, {"security": "covert"}),
        (5, {"security": "active", "secure": True}),
    ],
)
def test_predicted_bytes_of_every_party_are_those_of_the_transcript(parties, options, sealed):
    given = {**TINY, **options}
    run = svfl.run("fedvs", data(parties), rounds=5, conditions="none", sealed=sealed, **given)
    columns = run.transcript.columns()
    measured = {
        n: int(columns["bytes"][columns["sender"] == n].sum()) for n in (SERVER, *range(parties))
    }
    assert sent_bytes(outline_of(run), parties, sealed=sealed).total == measured


def test_inference_in_several_attempts_is_counted():
    """More coded test rows than one attempt takes: 4096 // K of each segment."""
    few = data(3, rows=12, test_rows=4100)
    run = svfl.run("fedvs", few, rounds=2, conditions="none", secure=True, segments=1, **TINY)
    outline = outline_of(run)
    assert [phase.rounds for phase in outline.phases] == [2, 1, 1]
    assert sum(sent_bytes(outline, 3, sealed=True).total.values()) == run.transcript.bytes


def constant(shifts: list[float], **given: Any) -> Conditions:
    return Conditions(name="constant", uploads=tuple(Delay(0.0, s) for s in shifts), **given)


@pytest.mark.parametrize(
    "conditions",
    [
        constant([0.0, 0.1, 0.2, 0.7, 3.0]),
        constant([0.5] * 5, share_factor=0.3, bandwidth=1e5),
        # Late uploads of several rounds queue before shares on the slow uplinks.
        constant([0.01, 0.02, 0.03, 0.9, 2.5], share_factor=0.01, bandwidth=2e5,
                 uplinks=(1e6, 1e5, 5e5, 3e4, 2e4)),
        constant([0.0] * 5, bandwidth=1e4),
        NONE,
        # A client takes 0.1 to 0.6 s to share, deal or embed, so slow ones are behind.
        constant([0.0, 0.1, 0.2, 0.5, 1.0], share_factor=0.5, bandwidth=1e5,
                 compute="modelled", seconds_per_multiply_add=1e-3),
        Conditions(compute="modelled", seconds_per_multiply_add=1e-3),
        constant([0.0, 0.1, 0.2, 0.7, 3.0], share_factor=0.1, delay_mode="occupies"),
        constant([0.01, 0.02, 0.03, 0.9, 2.5], share_factor=0.1, bandwidth=2e5, delay_mode="abort"),
        # Slow clients drop what they compute, too.
        constant([0.0, 0.1, 0.2, 0.5, 1.0], share_factor=0.01, bandwidth=1e6, delay_mode="abort",
                 compute="modelled", seconds_per_multiply_add=1e-3, slowness=(1, 2, 3, 4, 5.5)),
        # Gradients and announcements queue on slow downlinks; one client has no limit.
        constant([0.0, 0.1, 0.2, 0.3, 0.4], share_factor=0.1, bandwidth=1e6,
                 downlinks=(1e5, 2e4, None, 5e3, 3e4)),
        constant([0.0, 0.1, 0.2, 0.5, 1.0], share_factor=0.1, bandwidth=2e5, delay_mode="abort",
                 downlinks=(1e5,) * 5),
    ],
    ids=["delays", "equal", "slow uplinks", "bandwidth alone", "nothing", "computing", "only it",
         "busy", "aborted", "aborted work", "downlinks", "aborted downlinks"],
)  # fmt: skip
@pytest.mark.parametrize("options", [{"masked": True}, {"masked": False, "segments": 2}])
def test_without_chance_the_times_are_those_of_the_simulation(conditions, options):
    run = svfl.run("fedvs", data(5), rounds=12, conditions=conditions, **TINY, **options)
    found = expected_times(outline_of(run), conditions, 5, sealed=True, runs=2, rounds=12)
    times = [row["time"] for row in run.history]
    assert found.total == pytest.approx(run.virtual_seconds, abs=1e-7)
    assert found.round == pytest.approx((times[-1] - times[0]) / 11, abs=1e-7)
    assert found.error == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("security", ["covert", "active"])
def test_computing_against_liars_has_their_masks_and_results(security):
    """With N = 5 uploads are of degree 3: 4 results are decoded, and masks are of u = 2."""
    conditions = Conditions(compute="modelled", seconds_per_multiply_add=1e-3)
    options = {"security": security, "segments": 1, **TINY}
    run = svfl.run("fedvs", data(5), rounds=4, conditions=conditions, **options)
    found = expected_times(outline_of(run), conditions, 5, sealed=True, runs=2, rounds=4)
    times = [row["time"] for row in run.history]
    assert found.round == pytest.approx((times[-1] - times[0]) / 3, abs=1e-7)
    public = run.protocol.public
    streams = public.prss.most_streams(mask_streams(public.code, public.degree))
    assert upload_streams(5, 1, 1, public.degree) == streams == 3


def test_a_trace_is_replayed():
    recorded = [(0.1, 0.5, 0.2), (0.3, 0.1, 0.9), (1.0, 2.0, 0.1)]
    conditions = Conditions(uploads=tuple(Trace(r) for r in recorded), share_factor=0.5)
    run = svfl.run("fedvs", data(3), rounds=14, conditions=conditions, segments=1, **TINY)
    found = expected_times(outline_of(run), conditions, 3, sealed=True)
    assert found.total == pytest.approx(run.virtual_seconds, abs=1e-7)


def test_secure_inference_is_part_of_the_total():
    conditions = constant([0.1, 0.2, 0.4], share_factor=1.0, bandwidth=1e5)
    run = svfl.run("fedvs", data(3), rounds=4, conditions=conditions, secure=True, **TINY)
    found = expected_times(outline_of(run), conditions, 3, sealed=True)
    assert found.total == pytest.approx(run.virtual_seconds, abs=1e-7)
    assert found.total > run.history[-1]["time"] + 0.5


def test_mean_round_time_under_random_delays():
    """400 rounds of 8 runs' worth: standard errors stay below 4 %, so 15 % is beyond chance."""
    law = Delay(0.5, 0.1, "pareto", 3.0)
    conditions = Conditions(uploads=(law,) * 4 + (Delay(2.0),), share_factor=0.2, bandwidth=1e6)
    run = svfl.run("fedvs", data(5), rounds=400, conditions=conditions, sealed=False, **TINY)
    times = [row["time"] for row in run.history]
    found = expected_times(outline_of(run), conditions, 5, sealed=False)
    assert found.round == pytest.approx((times[-1] - times[0]) / 399, rel=0.15)
    assert 0 < found.error < 0.03 * found.round


@pytest.mark.parametrize(
    "law",
    [Delay(0.7, 0.2), Delay(0.7, 0.2, "pareto", 2.5), Delay(0.7, 0.2, "lognormal", 0.9)],
)
def test_drawn_delays_follow_the_laws_of_the_engine(law):
    """Two-sample Kolmogorov-Smirnov, seeded; a wrong law of the same mean gives p < 1e-20."""
    stream = np.random.Generator(np.random.Philox(3))
    drawn = draw(law, 1, 20_000, stream)
    engine = [
        law.shift + law.mean * DISTRIBUTIONS[law.law](stream, law.shape) for _ in range(20_000)
    ]
    assert stats.ks_2samp(drawn, engine).pvalue > 1e-4


def test_a_timeout_cannot_be_outlined():
    run = svfl.run("fedvs", data(4), rounds=2, conditions="none", share_timeout=5.0, **TINY)
    found = run.protocol.data
    shape = Shape(tuple(found.widths), len(found.train_labels))
    assert run.protocol.outline(run.protocol.config, shape) is None
    assert run.summary()["planned"] is None


def test_many_delays_follow_the_laws_of_single_ones():
    assert MANY.keys() == DISTRIBUTIONS.keys()
    for name, law in DISTRIBUTIONS.items():
        shape = DEFAULT_SHAPE[name]
        one, many = (np.random.Generator(np.random.Philox(3)) for _ in range(2))
        single = [law(one, shape) for _ in range(50)]
        np.testing.assert_allclose(MANY[name](many, shape, 50), single, rtol=1e-12)
