"""Secret choices of a simulation follow from the secret seed, by default the seed of the run."""

import os
import stat

import pytest

import securevfl as svfl
from securevfl.cli.output import print_summary
from securevfl.errors import ConfigurationError
from securevfl.protocols.protocol import find_protocols, get_protocol, make_config
from securevfl.report import write_report
from securevfl.report.reproduce import how_to_reproduce
from securevfl.runs.history import HistoryRecorder
from securevfl.runs.spec import CONFIG, RunSpec
from securevfl.studies.jobs import Job, run_job
from securevfl.studies.study import read_study
from securevfl.testing.runs import make, tiny_data

OPTIONS = {"rounds": 3, "width": 6, "hidden": 6, "conditions": "none"}


def losses(run):
    return [row["loss"] for row in run.history]


@pytest.fixture(scope="module")
def data():
    return tiny_data()


def test_the_files_that_tell_secrets_are_their_owner_s_alone(tmp_path, data):
    """The specification has the seed from which all secrets follow; others could read it."""
    modes = {}

    def noted(_):
        modes[CONFIG] = stat.S_IMODE((tmp_path / CONFIG).stat().st_mode)

    before = os.umask(0)
    try:
        svfl.run("fedvs", data, secret_seed=5, out=tmp_path, progress=noted, **OPTIONS)
    finally:
        os.umask(before)
    assert modes == {CONFIG: 0o600}  # while it runs, too
    assert "secret_seed = 5" in (tmp_path / CONFIG).read_text()
    page = write_report([tmp_path]).path.name
    for name in (CONFIG, "model.npz", "parties.state", "party-0.json", page):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600, name


def test_the_secret_seed_is_the_runs_seed_by_default(data):
    plain = svfl.run("fedvs", data, seed=5, **OPTIONS)
    same = svfl.run("fedvs", data, seed=5, secret_seed=5, **OPTIONS)
    other = svfl.run("fedvs", data, seed=5, secret_seed=6, **OPTIONS)
    assert plain.history == same.history
    assert losses(plain) != losses(other)
    times = [[row["time"] for row in run.history] for run in (plain, other)]
    assert times[0] == times[1]  # delays and schedule are public


def test_batches_do_not_follow_from_the_secret_seed(data):
    def rows(seed):
        made = make("fedvs", data)
        made.secrets = type(made.secrets)(seed)
        return [made.public.batches["train"].draw(r).tolist() for r in range(1, 5)]

    assert rows(0) == rows(9)


def test_weights_and_rounding_follow_from_it(data):
    from securevfl.engine.streams import SecretSeed

    one, two = (make("fedvs", data, secrets=SecretSeed(s)).network(0).values for s in (1, 2))
    assert abs(one - two).max() > 0.1


def test_it_survives_a_resume_and_a_loaded_run(data, tmp_path):
    options = OPTIONS | {"conditions": "paper", "secret_seed": 6}
    whole = svfl.run("fedvs", data, **options)
    asked = []

    def interrupted():
        asked.append(1)
        return len(asked) > 12

    with pytest.raises(KeyboardInterrupt):
        svfl.run("fedvs", data, out=tmp_path / "run", interrupted=interrupted, **options)
    assert RunSpec.from_toml(tmp_path / "run" / CONFIG).secret_seed == 6
    resumed = svfl.resume(tmp_path / "run", data=data)
    assert resumed.history == whole.history
    loaded = svfl.load_run(tmp_path / "run", data=data)
    assert loaded.protocol.secrets == whole.protocol.secrets
    assert loaded.summary()["secret_choices"] == whole.summary()["secret_choices"]


def test_the_summary_says_what_whoever_knows_it_gets(data, capsys):
    run = svfl.run("fedvs", data, seed=3, **OPTIONS)
    said = run.summary()["secret_choices"]
    assert said.startswith("derived from the secret seed 3 (the run's own). A server that knows it")
    assert said.endswith("claims that grant decoded sums promise nothing of the columns against it")
    print_summary(run.summary())
    shown = " ".join(capsys.readouterr().out.split())
    assert "secret choices derived from the secret seed 3" in shown
    own = svfl.run("fedvs", data, seed=3, secret_seed=4, **OPTIONS)
    assert own.summary()["secret_choices"].startswith("derived from a secret seed of its own, ")


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "7"])
def test_what_is_no_seed_is_refused(wrong, data):
    with pytest.raises(ConfigurationError, match="secret_seed must be an integer of at least 0"):
        svfl.run("fedvs", data, secret_seed=wrong, **OPTIONS)


def test_a_cluster_refuses_a_common_one_before_anything_starts(data, tmp_path):
    with pytest.raises(ConfigurationError, match="draws its secret choices from entropy of its"):
        svfl.run("fedvs", data, engine="ray", secret_seed=0, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_study_and_the_command_that_repeats_a_run_know_it(tmp_path):
    text = """
        title = "one"
        dataset = "digits"
        conditions = "none"
        secret_seed = 4
        seeds = 1
        options = {rounds = 2, width = 6, hidden = 6}
        [runs.fedvs]
        [runs.other]
        protocol = "fedvs"
        secret_seed = 0
    """
    (tmp_path / "study.toml").write_text(text)
    one, other = read_study(tmp_path / "study.toml").jobs
    assert (one.secret_seed, other.secret_seed) == (4, 0)
    assert one.key() != other.key()
    assert run_job(one)["history"] != run_job(other)["history"]
    config = {"protocol": "fedvs", "seed": 0, "options": {}, "data": {}, "secret_seed": 4}
    assert "--seed 0 --secret-seed 4" in how_to_reproduce(config).command
    del config["secret_seed"]
    assert "secret" not in how_to_reproduce(config).command


def test_jobs_without_one_keep_their_key():
    given = {"label": "a", "protocol": "fedvs", "options": {}, "dataset": "digits", "data": {}}
    assert Job(**given, conditions="none", seed=0).key() == "7a527432297449ff"


def test_secrets_that_were_drawn_from_cannot_be_replaced(data):
    from securevfl.engine.streams import OwnEntropy, SecretSeed

    class Early(get_protocol("split")):
        """Draws in its constructor."""

        name = "early"

        def __init__(self, config, data, *, seed):
            super().__init__(config, data, seed=seed)
            self.early = self.client_network(0)

    made = Early(make_config(Early, {}), data, seed=0)
    with pytest.raises(RuntimeError, match="early: secret streams were drawn before"):
        made.secrets = OwnEntropy.draw(0)
    made.secrets = SecretSeed(0)  # the same ones


@pytest.mark.parametrize("name", find_protocols())
def test_no_protocol_draws_secrets_before_its_parties_are_made(name, data):
    from securevfl.engine.streams import Composed

    if name == "he_split":
        pytest.importorskip("tenseal")
    made = make(name, data)
    made.secrets = Composed.draw(*range(-1, 20))
    parties = made.parties()
    made.scores(parties, made.data.test)
    HistoryRecorder(made, parties, eval_every=1, progress=None)
