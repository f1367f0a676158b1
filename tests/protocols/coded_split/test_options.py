"""What is refused and why, learning-rate schedules, coded predictions, released models."""

import numpy as np
import pytest

import securevfl as svfl
from securevfl.cli.options import protocol_options
from securevfl.data import load_dataset
from securevfl.errors import ConfigurationError, PrivacyError, WouldOverflowError
from securevfl.models.polynomial_network import expand
from securevfl.protocols.base.registry import get_protocol
from securevfl.protocols.coded_split import CodedSplit
from securevfl.protocols.coded_split.options import CodedSplitConfig
from securevfl.protocols.coded_split.parameters import expected_bound
from securevfl.testing.runs import make, simulate
from securevfl.verified import bare_of

DIGITS = load_dataset("digits", parties=8).subset(103, 41)
SMALL = {"rounds": 6, "batch": 16, "width": 5, "hidden": 6}
FREE = {"degree": 2, "sum_budget": 0.0, "client_lr_decay": "none"}


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"client_step": "adam"}, "linear in the gradient: plain SGD"),
        ({"client_momentum": 0.9}, "linear in the gradient: plain SGD"),
        (
            {"client_lr": 4.0, "client_weight_decay": 0.25},
            r"client_weight_decay = 1 must be below 1",
        ),
        (
            {"client_lr": 4.0, "client_weight_decay": 0.1, "rounds": 500},
            r"c = 1\.1\de-111 in 500 rounds",
        ),
        ({"weight_bound": 16.0}, "nobody can clip what nobody sees"),
        ({"segments": 3}, r"= 10 uploads with K = 3.*Use helpers = 2.*server runs counts"),
        ({"privacy": 2, "tolerate_corrupt": 2}, r"= 11 uploads with .*Use helpers = 3"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(options, why):
    with pytest.raises(ConfigurationError, match=why):
        make(CodedSplit, DIGITS, **options)


@pytest.mark.parametrize("name", ["client", "own_client"])
def test_fedvs_says_why_its_clients_have_no_other_networks(name):
    with pytest.raises(ConfigurationError, match=f"there is no option {name}: .*polynomial"):
        svfl.run("fedvs", DIGITS, **{name: "mlp"})


@pytest.mark.parametrize("name", ["clip", "gradient_clip", "client_clip", "max_norm", "clip_norm"])
def test_a_clip_of_gradients_is_refused_by_name_with_the_reason(name):
    with pytest.raises(ConfigurationError, match=r"a clip is not linear.*Lower client_lr"):
        make(CodedSplit, DIGITS, **{name: 1.0})
    with pytest.raises(ConfigurationError, match=f"coded_split: there is no option {name}"):
        protocol_options("coded_split", CodedSplitConfig.model_fields, [{name: "1"}])


def test_coalitions_must_leave_two_honest_owners_whatever_the_helpers():
    few = load_dataset("breast-cancer", parties=3)
    make(CodedSplit, few, helpers=1)
    with pytest.raises(PrivacyError, match=r"T\+2 = 4 owners; helpers do not count"):
        make(CodedSplit, few, helpers=9, privacy=2)


def test_too_many_keys_are_refused():
    many = load_dataset("digits", parties=28)
    with pytest.raises(ConfigurationError, match="98280 sets of T parties"):
        make(CodedSplit, many, privacy=5, masks="keys")
    assert len(make(CodedSplit, many, privacy=3, segments=1).prss.blocks) == 461


@pytest.mark.parametrize(
    ("decay", "rates"),
    [
        ("none", [8.0, 8.0, 8.0, 8.0]),
        ("linear", [8.0, 6.0, 4.0, 2.0]),
        ("cosine", [8.0, 6.828, 4.0, 1.172]),
        ("halving", [8.0, 4.0, 2.0, 1.0]),
    ],
)
def test_the_schedules_of_the_owners_rate(decay, rates):
    config = CodedSplitConfig(rounds=8, client_lr=8.0, client_lr_decay=decay)
    found = [config.rate(step) for step in (1, 3, 5, 7)]
    np.testing.assert_allclose(found, rates, atol=1e-3)


DECAYED = {**SMALL, "rounds": 12, "optimizer": "sgd", "momentum": 0.0, "client_lr": 8.0}


@pytest.mark.parametrize("schedule", ["none", "linear"])
def test_weight_decay_by_the_public_factor_is_that_of_floats(schedule):
    """Losses are those of split learning with torch's SGD, whose step is (1 - eta lambda) W."""
    both = DECAYED | {"weight_decay": 0.02}
    precise = {"prime": 2**61 - 1, "data_bits": 12, "gradient_bits": 20}
    if schedule == "linear":
        both |= {"lr_decay": "linear"}
        precise |= {"client_lr_decay": "linear"}
    twin = simulate(get_protocol("split"), DIGITS, **both)
    without = simulate(CodedSplit, DIGITS, **both, **precise)
    outcome = simulate(CodedSplit, DIGITS, **both, **precise, client_weight_decay=0.02)
    np.testing.assert_allclose(outcome.losses, twin.losses, atol=2e-6)
    assert np.abs(np.subtract(without.losses, twin.losses)).max() > 1e-4


def test_models_that_decay_are_evaluated_released_and_predicted_by_their_factor(tmp_path):
    options = DECAYED | FREE | {"client_weight_decay": 0.05, "release": True, "secure": True}
    run = svfl.run("coded_split", DIGITS, out=tmp_path / "run", **options)
    made, public = run.protocol, run.protocol.public
    assert public.scale(0) == 1.0
    assert public.scale(12) == pytest.approx((1 - 8 * 0.05) ** 12)
    (event,) = [event for event in run.events if event["event"] == "inference"]
    scores = made.scores(run.parties, DIGITS.test)
    assert event["accuracy"] == np.mean(scores.argmax(axis=1) == DIGITS.test_labels)
    H = (
        sum(
            expand(x, 2) @ bare_of(run.parties[n].released)[0][0] for n, x in enumerate(DIGITS.test)
        )
        / 8
    )
    np.testing.assert_allclose(made.embedding(run.parties, DIGITS.test), H, atol=0.02)
    new = np.random.default_rng(0).integers(0, 17, (7, 64))
    plain = run.scores(new)
    loaded = svfl.load_run(tmp_path / "run", data=DIGITS)
    np.testing.assert_allclose(loaded.scores(new, coded=True), plain, atol=1e-6)


def test_the_prime_has_room_for_the_factor_of_a_weight_decay():
    """Twelve steps of 0.5 need 12 bits more of the expected bound, but for its rounding."""
    PLAIN = {"rounds": 12, "client_lr": 4.0, "client_lr_decay": "none", "batch": 128}
    plain = CodedSplitConfig(**PLAIN)
    decayed = CodedSplitConfig(**PLAIN, client_weight_decay=0.125)
    found = [expected_bound(one, (8,) * 8, 1348) for one in (plain, decayed)]
    assert found[1] == found[0] * 2**12


def test_coded_inference_scores_as_the_experimenter_does():
    options = {**SMALL, "secure": True, "segments": 2, "helpers": 2}
    outcome = simulate(CodedSplit, DIGITS, **options)
    (event,) = [event for event in outcome.events if event.name == "inference"]
    scores = outcome.protocol.scores(outcome.parties, DIGITS.test)
    assert event.fields["accuracy"] == np.mean(scores.argmax(axis=1) == DIGITS.test_labels)
    assert event.fields["rows"] == 41


@pytest.mark.parametrize("more", [{}, {"segments": 2, "helpers": 1, "prepare": "scale"}])
def test_new_rows_are_predicted_on_shares_twice_over_and_after_loading(more, tmp_path):
    run = svfl.run("coded_split", DIGITS, out=tmp_path / "run", **SMALL, **more)
    new = np.random.default_rng(0).integers(0, 17, (7, 64))
    plain = run.scores(new)
    for one in (run, svfl.load_run(tmp_path / "run", data=DIGITS)):
        np.testing.assert_allclose(one.scores(new), plain, atol=1e-6)
        np.testing.assert_allclose(one.scores(new, coded=True), plain, atol=1e-6)
    run.export(tmp_path / "models")


def test_new_rows_are_refused_where_their_sums_could_wrap():
    run = svfl.run(
        *("coded_split", DIGITS),
        **{**SMALL, "rounds": 60, "width": 3},
        prime=2**31 - 1,
        data_bits=6,
        gradient_bits=8,
        client_lr=200.0,
    )
    with pytest.raises(WouldOverflowError, match="Train with secure = true"):
        run.predict(np.zeros((1, 64)), coded=True)


@pytest.mark.parametrize("more", [{}, {"segments": 2}])
def test_a_release_gives_each_owner_its_own_models_and_nobody_elses(more):
    outcome = simulate(CodedSplit, DIGITS, release=True, payloads=True, **SMALL, **more)
    public = outcome.protocol.public
    models = outcome.protocol.models(outcome.parties)
    start, unit = 0, 2.0 ** -(public.config.data_bits + public.config.gradient_bits)
    for n, size in enumerate(public.sizes):
        (released,) = bare_of(outcome.parties[n].released)
        assert (released == models[:, start : start + size] * unit).all()
        start += size
    H = sum(
        expand(rows, 2) @ bare_of(outcome.parties[n].released)[0][0]
        for n, rows in enumerate(DIGITS.train)
    )
    assert np.isfinite(H).all()
    strange = [claim for claim in outcome.protocol.claims if claim.asset == "labels"]
    assert [claim.strength for claim in strange] == ["none"]


def test_helpers_are_as_fast_as_the_fastest_and_hold_no_columns():
    run = svfl.run("coded_split", DIGITS, conditions="paper", helpers=2, **SMALL, **FREE)
    assert len(run.spec.conditions.uploads) == 10
    assert [delay.mean for delay in run.spec.conditions.uploads[8:]] == [0.1, 0.1]
    assert not hasattr(run.parties[9], "features")
    assert run.parties[9].model[1] == SMALL["rounds"]
