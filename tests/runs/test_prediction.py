"""A trained model in use: predictions in the clear and on shares, from a folder, from files."""

from __future__ import annotations

import json
import stat

import numpy as np
import pandas as pd
import pytest

import securevfl as svfl
from securevfl.data import VerticalDataset
from securevfl.engine.conditions import Conditions, Delay
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import CheckpointError, ConfigurationError, DataError, NotEnoughResultsError
from securevfl.models.polynomial_network import expand
from securevfl.protocols.base.registry import find_protocols
from securevfl.runs.threads import one_thread
from securevfl.verified import bare_of

WIDTHS = (1, 3, 2, 2, 1)
SMALL = {"rounds": 6, "batch": 16, "width": 5, "hidden": 6, "seed": 2, "lr": 0.05}


def raw(rows=60, seed=0, scale=40.0):
    """Rows of all parties, far from [0, 1]."""
    rng = np.random.default_rng(seed)
    return [scale * rng.random((rows, d)) - 7 for d in WIDTHS]


def data_of(classes=3):
    features = raw()
    score = sum(x.mean(axis=1) for x in features)
    if classes == 0:
        return VerticalDataset.from_numpy(features, score, task="regression", test_fraction=0.2)
    cuts = np.quantile(score, np.linspace(0, 1, classes + 1)[1:-1])
    names = np.array(["low", "middle", "high"])[np.digitize(score, cuts)]
    return VerticalDataset.from_numpy(features, names, test_fraction=0.2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "fedvs"
    data = data_of()
    return svfl.run("fedvs", data, segments=1, privacy=1, out=folder, **SMALL)


def integers(run, rows, sharers=(0, 1, 2, 3, 4)):
    """Mean of the quantised embeddings, on Python integers until the last division."""
    config, features = run.protocol.config, run.protocol.data.transform.apply(rows)
    total = 0
    for n in sharers:
        own = features[n]
        powers = expand(own, config.degree).astype(np.float64)
        x = np.floor(powers * 2**config.data_bits + 0.5).astype(np.int64).astype(object)
        values = bare_of(run.parties[n].network).values.astype(np.float64)
        w = np.floor(values * 2**config.model_bits + 0.5).astype(np.int64).astype(object)
        total = total + x @ w
    scale = 2 ** (config.data_bits + config.model_bits)
    return np.array([[int(v) / scale for v in row] for row in total]) / len(sharers)


# -- coded predictions -------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 37])
def test_a_coded_prediction_is_the_quantised_one_bit_for_bit(trained, rows):
    new = raw(rows, seed=9)
    found = trained.infer(new)
    assert (found.embedding == integers(trained, new)).all()
    with one_thread():
        assert (found.scores == bare_of(trained.parties[-1].centre).scores(found.embedding)).all()
    assert (trained.predict(new, coded=True) == trained.predict(new)).all()
    np.testing.assert_allclose(found.scores, trained.scores(new), atol=1e-4)


@pytest.mark.parametrize("options", [{"segments": 2}, {"masked": False}, {"tolerate_corrupt": 1}])
def test_it_holds_for_every_way_to_evaluate(options):
    run = svfl.run("fedvs", data_of(), **SMALL, **options)
    new = raw(5, seed=3)
    found = run.infer(new)
    assert (found.embedding == integers(run, new)).all()
    kinds = set(found.transcript.columns()["kind"].tolist())
    assert ("key" in kinds) == run.protocol.config.masked
    assert "gradient" not in kinds


def test_it_comes_from_the_fastest_and_waits_for_no_straggler(trained):
    slow = {"pattern": "paper", "slow": 0.5}
    quick = trained.infer(raw(4), "none")
    paper = trained.infer(raw(4), slow)
    assert (quick.embedding == paper.embedding).all()
    assert quick.virtual_seconds < paper.virtual_seconds
    columns = paper.transcript.columns()
    uploads = columns["kind"] == "embedding"
    wanted = trained.protocol.public.results_needed
    in_time = uploads & (columns["late"] == 0) & (columns["arrived"] >= 0)
    assert in_time.sum() == wanted < uploads.sum()


def test_the_models_are_left_as_they_were(trained):
    before = {name: values.copy() for name, values in trained.models().items()}
    trained.infer(raw(3))
    after = trained.models()
    assert all((before[name] == after[name]).all() for name in before)


def test_too_few_answers_are_an_error_and_no_prediction():
    data = data_of()
    run = svfl.run("fedvs", data, result_timeout=5.0, max_attempts=2, segments=2, **SMALL)
    slow = tuple(Delay(shift=seconds) for seconds in (0.01, 900.0, 900.0, 900.0, 0.01))
    with pytest.raises(NotEnoughResultsError, match="attempts in a row"):
        run.infer(raw(3), Conditions(uploads=slow))


@pytest.mark.parametrize("late", [1, 2])
def test_rows_are_never_summed_over_two_sets_of_sharers(late):
    """Client 1 shares late in one of two attempts; the first is lost after the uploads."""
    options = {"share_timeout": 1.0, "max_attempts": 4, "cohorts": 0}
    run = svfl.run("fedvs", data_of(), conditions="none", **options, **SMALL)
    new = raw(5, seed=3)
    parties = run.protocol.predictors(run.parties, run.protocol.data.transform.apply(new))
    server, client = parties[-1], parties[1]
    send, decode, attempts = client.send, server.decode, []

    def slowly(to, kind, payload, **more):
        slow = kind == "shared" and client.round == late
        send(to, kind, payload, **more, after=50.0 if slow else 0.0)

    async def losing(attempt):
        attempts.append(attempt.sharers)
        if len(attempts) == 1:
            server.give_up("lost", attempt.sharers)
            return None
        return await decode(attempt)

    client.send, server.decode = slowly, losing
    Simulation(parties, seed=0).run()
    everybody, others = (0, 1, 2, 3, 4), (0, 2, 3, 4)
    assert attempts == ([others, others] if late == 1 else [everybody, (), everybody])
    summed = attempts[0]
    embedding, _ = bare_of(server.predicted)
    assert (embedding == integers(run, new, summed)).all()


def test_rows_that_could_wrap_are_refused():
    features = raw()
    labels = (features[0][:, 0] > 10).astype(int)
    data = VerticalDataset.from_numpy(features, labels, scaling="none")
    bits = {"prime": 2**61 - 1, "data_bits": 16, "model_bits": 20}
    run = svfl.run("fedvs", data, degree=1, **bits, **SMALL)
    with pytest.raises(ConfigurationError, match="can reach"):
        run.infer([1e9 * x for x in raw(2)])


def test_what_computes_on_no_shares_says_so():
    run = svfl.run("split", data_of(), **SMALL)
    with pytest.raises(ConfigurationError, match="split has none"):
        run.predict(raw(2), coded=True)


def test_no_rows_are_refused(trained):
    with pytest.raises(DataError, match="at least one row"):
        trained.infer(raw(0))


def test_probabilities_are_those_of_the_scores(trained):
    from scipy.special import expit, softmax

    new = raw(6, seed=4)
    np.testing.assert_allclose(
        trained.predict_proba(new), softmax(trained.scores(new).astype(float), axis=1)
    )
    two = svfl.run("split", data_of(2), **SMALL)
    np.testing.assert_allclose(two.predict_proba(new)[:, 1], expit(two.scores(new)[:, 0]), 1e-6)
    real = svfl.run("split", data_of(0), **SMALL)
    with pytest.raises(ConfigurationError, match="no classes"):
        real.predict_proba(new)


# -- from a folder -----------------------------------------------------------------------------


def test_a_run_read_back_predicts_the_same(trained):
    again = svfl.load_run(trained.folder, data=trained.protocol.data)
    new = raw(9, seed=5)
    assert (again.scores(new) == trained.scores(new)).all()
    assert (again.infer(new).embedding == trained.infer(new).embedding).all()
    assert again.history == trained.history
    assert len(again.events) == len(trained.events)
    assert again.summary()["test_accuracy"] == trained.summary()["test_accuracy"]
    ours, theirs = again.transcript.columns(), trained.transcript.columns()
    assert all((ours[name] == theirs[name]).all() for name in theirs)


ARRAYS_ONLY = {"coded_split", "dvfl", "fedhssl", "fedonce", "local", "multivfl", "wait_dp"}


@pytest.mark.parametrize("name", find_protocols())
def test_every_protocol_is_read_back_and_exported(name, tmp_path):
    cls = find_protocols()[name]
    known = {k: v for k, v in SMALL.items() if k in (*cls.Config.model_fields, "seed")}
    data = svfl.load_dataset("digits", parties=5).subset(60, 20)
    run = svfl.run(name, data, out=tmp_path / "run", **{**known, **cls.check_options, "rounds": 2})
    assert not [k for k, array in run.models().items() if array.dtype == object]  # needs pickle
    new = np.random.default_rng(0).integers(0, 17, (4, 64))
    again = svfl.load_run(tmp_path / "run", data=data)
    assert (again.scores(new) == run.scores(new)).all()
    paths = run.export(tmp_path / "models")
    assert len(paths) == len(run.parties)
    models = svfl.load_models(tmp_path / "models")
    parts = [new[:, list(own)] for own in data.transform.positions]
    if name not in ARRAYS_ONLY:
        np.testing.assert_allclose(models.scores(parts), run.scores(new), atol=1e-5)
        return
    # The models of coded_split exist in shares only.
    assert bool(models.clients[0].arrays) == (name != "coded_split")
    with pytest.raises(ConfigurationError, match="arrays only"):
        models.clients[0].embed(parts[0])


def test_a_quorum_is_read_back(tmp_path):
    """Whose embeddings count follows from who was in time in training."""
    options = {"stragglers": "ignore", "aggregation": "concat", "client": "mlp"}
    run = svfl.run("split", data_of(), out=tmp_path / "run", **{**SMALL, **options})
    again = svfl.load_run(tmp_path / "run", data=run.protocol.data)
    assert (again.scores(raw(4)) == run.scores(raw(4))).all()
    assert (again.parties[-1].answered == run.parties[-1].answered).all()


def test_a_data_set_known_by_name_is_loaded_again(tmp_path):
    run = svfl.run("split", "digits", out=tmp_path / "run", **SMALL)
    again = svfl.load_run(tmp_path / "run")
    new = np.random.default_rng(0).integers(0, 17, (4, 8, 8))
    assert (again.predict(new) == run.predict(new)).all()


def test_what_cannot_be_read_back_is_refused(trained, tmp_path):
    data = trained.protocol.data
    with pytest.raises(ConfigurationError, match="pass it as data="):
        svfl.load_run(trained.folder)
    with pytest.raises(ConfigurationError, match="differs from that of the run"):
        svfl.load_run(trained.folder, data=data.subset(20))
    with pytest.raises(ConfigurationError, match="is no folder"):
        svfl.load_run(tmp_path / "nowhere")
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in trained.folder.iterdir():
        if file.is_file():
            (copy / file.name).write_bytes(file.read_bytes())
    damaged = bytearray((copy / "parties.state").read_bytes())
    damaged[-9] ^= 1
    (copy / "parties.state").write_bytes(damaged)
    with pytest.raises(CheckpointError, match="damaged"):
        svfl.load_run(copy, data=data)
    config = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(config.replace("run_id", "walk_id"))
    with pytest.raises(CheckpointError, match="damaged: KeyError: 'run_id'"):
        svfl.load_run(copy, data=data)
    (copy / "config.toml").write_text(config)
    (copy / "summary.json").unlink()
    with pytest.raises(ConfigurationError, match="did not end"):
        svfl.load_run(copy, data=data)


# -- exported models ---------------------------------------------------------------------------

KINDS = {
    "fedvs": ("fedvs", {}),
    "concatenated perceptrons": ("split", {"client": "mlp", "aggregation": "concat"}),
    "the maximum, batch norm": ("split", {"aggregation": "max", "centre": "batch_norm_mlp"}),
    "one Linear layer on top": ("split", {"centre": "linear"}),
    "convolutions on top": ("split", {"centre": "conv", "aggregation": "concat"}),
    "vgg13": ("split", {"centre": "vgg13"}),
    "of DVFL": ("split", {"client": "leaky_encoder", "centre": "host_mlp"}),
    "those in time": ("split", {"stragglers": "ignore", "layers": "4", "client": "mlp"}),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("classes", [0, 3])
def test_exported_models_predict_without_data_or_protocol(name, classes, tmp_path):
    protocol, options = KINDS[name]
    run = svfl.run(protocol, data_of(classes), **SMALL, **options)
    run.export(tmp_path)
    model = svfl.load_models(tmp_path)
    new = raw(11, seed=6)
    np.testing.assert_allclose(model.scores(new), run.scores(new), rtol=1e-4, atol=1e-4)
    if classes:
        assert (model.predict(new) == run.predict(new)).all()
        np.testing.assert_allclose(model.predict_proba(new), run.predict_proba(new), atol=1e-4)
    whole = model.scores(new)
    alone = [model.scores([x[k : k + 1] for x in new]) for k in range(11)]
    np.testing.assert_allclose(np.concatenate(alone), whole, rtol=1e-12)


def test_each_party_uses_its_own_file_only(trained, tmp_path):
    paths = trained.export(tmp_path)
    names = ["server.npz", *(f"party-{n}.npz" for n in range(5))]
    assert [path.name for path in paths] == names
    new = raw(4, seed=8)
    embeddings = {
        n: svfl.load_model(tmp_path / f"party-{n}.npz").embed(new[n]) for n in range(len(WIDTHS))
    }
    server = svfl.load_model(tmp_path / "server.npz")
    assert (server.predict(embeddings) == trained.predict(new)).all()
    del embeddings[3]
    with pytest.raises(ConfigurationError, match=r"those of \[3\] are missing"):
        server.scores(embeddings)


def test_a_file_holds_nothing_of_another_party(tmp_path):
    """Planted words and numbers of one party are found in its own file and in no other."""
    rng = np.random.default_rng(0)
    frames = [
        pd.DataFrame(
            {f"secret{n}a": rng.random(40), f"secret{n}b": rng.choice([f"w{n}x", f"w{n}y"], 40)}
        )
        for n in range(4)
    ]
    frames[0]["label"] = rng.choice(["LABELYES", "LABELNO"], 40)
    data = VerticalDataset.from_pandas(frames, "label", party_names=[f"org{n}" for n in range(4)])
    run = svfl.run("fedvs", data, **SMALL)
    run.export(tmp_path)
    texts = {}
    for path in sorted(tmp_path.iterdir()):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with np.load(path, allow_pickle=False) as archive:
            texts[path.stem] = archive["about"].tobytes().decode()
            arrays = {name: archive[name] for name in archive.files}
        for n in range(4):
            weight = bare_of(run.parties[n].network).values
            same = [k for k, a in arrays.items() if a.shape == weight.shape and (a == weight).all()]
            assert bool(same) == (path.stem == f"party-{n}")
    for owner in [f"party-{n}" for n in range(4)]:
        n = owner[-1]
        for word in (f"secret{n}a", f"w{n}x", f"org{n}"):
            assert [name for name, text in texts.items() if word in text] == [owner]
    assert [name for name, text in texts.items() if "LABELYES" in text] == ["server"]


def test_a_data_frame_is_read_by_the_names_of_its_columns(tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({f"c{k}": rng.random(50) for k in range(6)})
    frame["kind"] = rng.choice(["a", "b"], 50)
    frame["y"] = np.where(frame["c1"] + frame["c4"] > 1, "yes", "no")
    data = VerticalDataset.from_pandas(frame, "y", parties=4)
    run = svfl.run("fedvs", data, **SMALL)
    run.export(tmp_path)
    shuffled = frame[["kind", *(f"c{k}" for k in (3, 1, 5, 0, 2, 4))]]
    assert (svfl.load_models(tmp_path).predict(shuffled) == run.predict(frame)).all()


def test_files_that_are_no_models_are_refused(trained, tmp_path):
    trained.export(tmp_path)
    server = tmp_path / "server.npz"
    whole = server.read_bytes()
    for text in (b"", b"nonsense", whole[: len(whole) // 2]):
        server.write_bytes(text)
        with pytest.raises(DataError, match=r"server\.npz"):
            svfl.load_models(tmp_path)
    about = np.frombuffer(json.dumps({"format": 99}).encode(), np.uint8)
    np.savez(server, about=about)
    with pytest.raises(DataError, match="format 99"):
        svfl.load_model(server)
    np.savez(server, about=np.array([{"format": 1}], dtype=object))
    with pytest.raises(DataError, match="no exported model"):
        svfl.load_model(server)
    server.write_bytes((tmp_path / "party-0.npz").read_bytes())
    with pytest.raises(DataError, match="not the server's"):
        svfl.load_models(tmp_path)
    server.write_bytes(whole)
    (tmp_path / "party-2.npz").write_bytes((tmp_path / "party-1.npz").read_bytes())
    with pytest.raises(DataError, match="not the model of party 2"):
        svfl.load_models(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        svfl.load_model(tmp_path / "none.npz")
