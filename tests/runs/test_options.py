"""An option of a run is declared once: everything else is read from its declaration."""

import inspect
import tomllib

import pytest
from typer.testing import CliRunner

import securevfl as svfl
from securevfl.audit.attack_matrix.run import attack_matrix
from securevfl.cli import common
from securevfl.cli.app import app
from securevfl.data import load_dataset
from securevfl.data.source import DataSource
from securevfl.engine.conditions import NONE
from securevfl.errors import CheckpointError, ConfigurationError, UnknownNameError
from securevfl.report import reproduce
from securevfl.report.reproduce import how_to_reproduce
from securevfl.runs.engines.cluster_options import ClusterOptions
from securevfl.runs.engines.registry import ENGINES, check_supported, get_engine
from securevfl.runs.options import check_values, option, options_of, per_job
from securevfl.runs.spec import CONFIG, RunSpec
from securevfl.studies import jobs, study
from securevfl.studies.jobs import Job

pytestmark = pytest.mark.quick
SPEC = {"protocol": "fedvs", "options": {"rounds": 2}, "conditions": NONE, "eval_every": 1}
SPEC |= {"fingerprint": "f"}
JOB = {"label": "a", "protocol": "fedvs", "options": {}, "dataset": "digits", "data": {}}


class Longer(RunSpec):
    """A run with one option more, declared in one place."""

    grace: float | None = option(
        None, gt=0, metavar="SECONDS", panel="Run", per_job=True, help="Virtual seconds of grace."
    )


@pytest.mark.parametrize("model", [RunSpec, ClusterOptions])
def test_the_keywords_of_run_are_the_declared_options_with_their_defaults(model):
    written = inspect.signature(svfl.run).parameters
    assert {name: written[name].default for name in options_of(model)} == {
        name: model.model_fields[name].default for name in options_of(model)
    }


def test_all_keywords_of_run_are_declared_but_those_that_say_what_to_do_with_it():
    declared = {*options_of(RunSpec), *options_of(ClusterOptions)}
    other = {"protocol", "data", "rounds", "out", "checkpoint_seconds", "progress"}
    other |= {"interrupted", "track", "options"}
    assert set(inspect.signature(svfl.run).parameters) == declared | other


def test_resume_takes_the_options_of_a_cluster():
    written = inspect.signature(svfl.resume).parameters
    for name in options_of(ClusterOptions):
        assert written[name].default == ClusterOptions.model_fields[name].default


@pytest.mark.parametrize(
    ("function", "models"),
    [(svfl.run, (RunSpec, ClusterOptions)), (svfl.resume, (ClusterOptions,))],
)
def test_the_docstrings_have_the_help_texts(function, models):
    text = " ".join(inspect.getdoc(function).split())
    for model in models:
        for name in options_of(model):
            assert " ".join(model.model_fields[name].description.split()) in text


def test_help_texts_are_sentences():
    for model in common.MODELS:
        for name, info in model.model_fields.items():
            if name in options_of(model):
                assert info.description[0].isupper()
                assert info.description.endswith((".", ".)"))


def test_a_new_option_is_in_help_and_on_the_command_line(monkeypatch):
    monkeypatch.setattr(
        common, "MODELS", tuple(Longer if model is RunSpec else model for model in common.MODELS)
    )
    common.shared_options.cache_clear()
    try:
        for command in (["run", "split"], ["compare"]):
            page = CliRunner().invoke(app, [*command, "--help"], prog_name="securevfl").output
            assert "--grace" in page
            assert "Virtual seconds of" in page
        assert "--grace" not in CliRunner().invoke(app, ["plan", "--help"]).output
    finally:
        common.shared_options.cache_clear()


def test_a_new_option_is_in_the_file_of_a_run_and_comes_back(tmp_path):
    text = Longer(**SPEC, grace=2.5).to_toml({})
    assert tomllib.loads(text)["grace"] == 2.5
    (tmp_path / CONFIG).write_text(text)
    assert Longer.from_toml(tmp_path / CONFIG).grace == 2.5
    (tmp_path / CONFIG).write_text(RunSpec(**SPEC).to_toml({}))
    assert Longer.from_toml(tmp_path / CONFIG).grace is None


def test_a_new_option_is_in_jobs_and_studies(monkeypatch, tmp_path):
    monkeypatch.setattr(jobs, "JOB_OPTIONS", per_job(Longer))
    plain = Job(**JOB, conditions="none", seed=0)
    assert Job(**JOB, conditions="none", seed=0, grace=None).key() == plain.key()
    longer = Job(**JOB, conditions="none", seed=0, grace=2.5)
    assert longer.grace == 2.5
    assert longer.key() != plain.key()
    each = tuple(name for name in per_job(Longer) if name != "seed")
    monkeypatch.setattr(study, "_EACH", each)
    monkeypatch.setattr(study, "_KEYS", {*study._OWN, *each})
    file = tmp_path / "study.toml"
    file.write_text('title = "t"\ndataset = "digits"\nseeds = 1\ngrace = 1.0\n[runs.fedvs]\n')
    assert study.read_study(file).jobs[0].grace == 1.0


def test_a_new_option_is_in_the_command_that_reproduces_a_run(monkeypatch):
    monkeypatch.setattr(reproduce, "RunSpec", Longer)
    config = {"protocol": "fedvs", "seed": 0, "options": {}, "data": {}, "grace": 2.5}
    assert "--grace 2.5" in how_to_reproduce(config).command


def test_a_new_option_is_checked():
    with pytest.raises(ConfigurationError, match=r"grace must be a finite number above 0, it is 0"):
        check_values(Longer, {"grace": 0})
    check_values(Longer, {"grace": None})


def test_study_keys_are_the_options_of_runs():
    assert set(study._EACH) == {*per_job(RunSpec)} - {"seed"}
    assert {"until", "secret_seed", "sealed", "eval_every"} <= study._KEYS & study._QUICK


def test_an_unknown_option_of_a_job_is_refused_with_the_nearest():
    with pytest.raises(UnknownNameError, match="untill"):
        Job(**JOB, untill=3)
    with pytest.raises(AttributeError, match="untill"):
        _ = Job(**JOB).untill
    with pytest.raises(UnknownNameError, match="faults"):
        attack_matrix(["split"], DataSource("digits"), seeds=[0], faults={"tick": 1.0})


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"conditions": "none", "seed": 0}, "7a527432297449ff"),
        (
            {"conditions": "paper", "seed": 3, "eval_every": 5, "until": 60.0, "sealed": False},
            "9063d9f55e65306f",
        ),
        (
            {"conditions": {"upload_mean": 0.5}, "seed": 1, "faults": {"tick": 1.0}}
            | {"eval_seconds": 2.0, "secret_seed": 9},
            "a5998908604c3817",
        ),
    ],
)
def test_keys_of_jobs_stay(options, key):
    assert Job(**JOB, **options).key() == key


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"seed": True}, "seed must be an integer of at least 0, it is True"),
        ({"seed": None}, "seed must be an integer of at least 0, it is None"),
        ({"until": 0}, "until must be a finite number above 0, it is 0"),
        ({"until": float("inf")}, "until must be a finite number above 0, it is inf"),
        ({"eval_every": 0}, "eval_every must be an integer of at least 1, it is 0"),
        ({"eval_seconds": -1.0}, "eval_seconds must be a finite number above 0, it is -1.0"),
        ({"sealed": "no"}, "sealed must be True or False, it is 'no'"),
        ({"engine": "rai"}, "unknown engine 'rai'; known: simulation, ray"),
        ({"address": "a:1"}, "address has no effect with engine = 'simulation'. Remove it, or"),
        ({"address": "a:1", "keys": "k"}, "address, keys have no effect with"),
        ({"engine": "ray", "place": {"x": "y"}}, "place"),
    ],
)
def test_values_out_of_range_are_refused_before_the_data_are_loaded(values, said):
    with pytest.raises(ConfigurationError, match=said):
        svfl.run("split", "no such data set", **values)


def test_every_option_that_needs_something_is_supported_by_an_engine_and_refused_by_another():
    needing = {name for name, own in options_of(RunSpec).items() if own.needs}
    assert needing == {"until", "faults", "secret_seed", "sealed"}
    for name in needing:
        value = False if name == "sealed" else 1
        check_supported(get_engine("simulation"), {name: value})
        said = f"{name} = {value} with engine = 'ray': {name}"
        with pytest.raises(ConfigurationError, match=said):
            check_supported(get_engine("ray"), {name: value})
    check_supported(get_engine("ray"), {"sealed": True})
    assert needing < set().union(*(engine.supports for engine in ENGINES.values()))


@pytest.mark.parametrize(
    ("old", "new"), [("seed = 0", ""), ("seed = 0", "seed = -1"), ("sealed = true", "")]
)
def test_a_file_that_lacks_an_option_or_has_a_wrong_one_is_damaged(old, new, tmp_path):
    text = RunSpec(**SPEC).to_toml({})
    assert old in text
    (tmp_path / CONFIG).write_text(text.replace(old, new, 1))
    with pytest.raises(CheckpointError, match="damaged"):
        RunSpec.from_toml(tmp_path / CONFIG)


def test_an_engine_in_real_time_refuses_delays_that_are_work():
    data = load_dataset("breast-cancer", parties=3)
    conditions = {"upload_mean": 0.1, "delay_mode": "occupies"}
    with pytest.raises(ConfigurationError, match="delay_mode = 'occupies' with engine = 'ray'"):
        svfl.run("split", data, rounds=1, engine="ray", conditions=conditions)
