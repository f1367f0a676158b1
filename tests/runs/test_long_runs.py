"""Runs whose older messages leave memory for the folder, and come back from it."""

import tracemalloc
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

import securevfl as svfl
from securevfl.engine.transcript_rows import COLUMNS
from securevfl.errors import CheckpointError, ConfigurationError, WouldNotFitError
from securevfl.planning.message_bytes import sent_messages
from securevfl.protocols.base.registry import get_protocol, make_config
from securevfl.protocols.base.schedule import Shape
from securevfl.runs.assembly import check_memory, transcript_bytes
from securevfl.runs.engines.run import Interrupted
from securevfl.runs.storage import MESSAGES, read_transcript
from securevfl.studies.run import run_study
from securevfl.studies.study import read_study


@pytest.fixture
def small_chunks(monkeypatch):
    for module in ("engine.transcript", "engine.transcript_rows", "runs.storage"):
        monkeypatch.setattr(f"securevfl.{module}.CHUNK", 64)
    monkeypatch.setattr("securevfl.runs.storage._LOADED", 256)
    monkeypatch.setattr("securevfl.runs.engines.autosave._ENTRIES", 4)


OPTIONS = {"rounds": 12, "batch": 16, "width": 4, "segments": 1}


def small(**more):
    return svfl.run("fedvs", "digits", eval_every=6, **OPTIONS, **more)


def kept(run):
    return run.history, run.events, {n: c.tolist() for n, c in run.transcript.columns().items()}


def test_a_run_in_a_folder_is_the_run_in_memory(small_chunks, tmp_path):
    alone = small()
    saved = small(out=tmp_path / "run")
    assert kept(saved) == kept(alone)
    assert not list((tmp_path / "run").glob("*.svfl"))  # rows are in messages.npz now
    loaded = svfl.load_run(tmp_path / "run")
    assert kept(loaded)[2] == kept(alone)[2]
    assert saved.transcript.held == loaded.transcript.held == 0
    assert loaded.summary()["bytes_by_kind"] == alone.summary()["bytes_by_kind"]
    assert len(loaded.trace(kind="model")) == len(alone.trace(kind="model"))
    loaded.save(tmp_path / "copy")
    for name in ("messages.csv", MESSAGES):
        with_rows = [(tmp_path / one / name).read_bytes() for one in ("run", "copy")]
        if name == MESSAGES:
            with_rows = [dict(np.load(tmp_path / one / name)) for one in ("run", "copy")]
            with_rows = [{n: c.tolist() for n, c in one.items()} for one in with_rows]
        assert with_rows[0] == with_rows[1]


def test_a_run_that_was_stopped_goes_on_with_the_rows_of_its_folder(small_chunks, tmp_path):
    alone = small()
    seen = []
    with pytest.raises(Interrupted):
        small(out=tmp_path / "run", progress=seen.append, interrupted=lambda: len(seen) > 8)
    assert list((tmp_path / "run").glob("messages-rows-*.svfl"))
    assert len(list((tmp_path / "run").glob("history-rows-*.svfl"))) == 2
    resumed = svfl.resume(tmp_path / "run")
    assert kept(resumed) == kept(alone)
    assert not list((tmp_path / "run").glob("*.svfl"))


def test_an_archive_of_a_run_is_never_unpacked_as_a_whole(tmp_path):
    """0.1 MB that declare two million messages, 86 MB: a version before held them twice."""
    count = 2_000_000
    with zipfile.ZipFile(tmp_path / MESSAGES, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, code in {**COLUMNS, "kinds": "<U1"}.items():
            rows = 1 if name == "kinds" else count
            with archive.open(f"{name}.npy", "w") as file:
                header = {"descr": np.dtype(code).str, "fortran_order": False, "shape": (rows,)}
                np.lib.format.write_array_header_1_0(file, header)
                file.write(bytes(rows * np.dtype(code).itemsize))
    assert (tmp_path / MESSAGES).stat().st_size < 120_000
    tracemalloc.start()
    try:
        transcript = read_transcript(tmp_path)
        assert transcript.messages == count
        assert sum(len(part["late"]) for part in transcript.parts()) == count
        assert tracemalloc.get_traced_memory()[1] < 12e6
    finally:
        tracemalloc.stop()
    (tmp_path / MESSAGES).unlink()
    with pytest.raises(CheckpointError, match=r"messages\.npz is damaged"):
        transcript.columns()


@pytest.mark.parametrize("protocol", ["fedvs", "coded_split"])
def test_the_number_of_messages_is_foreseen(protocol):
    run = svfl.run(protocol, "digits", rounds=3, eval_every=3, width=4, conditions="none")
    data = run.protocol.data
    shape = Shape(tuple(data.widths), len(data.train_labels), len(data.test_labels))
    outline = run.protocol.outline(run.protocol.config, shape)
    assert sent_messages(outline, len(run.protocol.peers())) == run.transcript.messages
    assert transcript_bytes(run.protocol, None) == 43 * run.transcript.messages


def test_unplanned_messages_are_taken_for_those_of_split_learning():
    run = svfl.run("split", "digits", rounds=20, eval_every=20, width=4, conditions="none")
    foreseen = transcript_bytes(run.protocol, None)
    assert 0.9 < foreseen / (43 * run.transcript.messages) <= 1


def test_messages_that_would_not_fit_are_refused_or_go_to_the_folder(tmp_path, monkeypatch):
    cls, data = get_protocol("fedvs"), svfl.load_dataset("digits", parties=8)
    made = cls(make_config(cls, {"rounds": 10**6, "batch": 16, "width": 4}), data, seed=0)
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10**9))
    why = r"needs about 4\.\d+ GB .* for the list of its messages\. Give .* \(--out\)"
    with pytest.raises(WouldNotFitError, match=why):
        check_memory(made)
    check_memory(made, tmp_path)
    check_memory(made, messages=False)


def test_a_run_that_ends_at_a_second_is_not_refused_for_rounds_that_it_will_not_make(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=10**9))
    asked = {"rounds": 10**6, "batch": 16, "width": 4, "conditions": "paper"}
    found = svfl.run("fedvs", "digits", until=3.0, **asked)
    assert 0 < len(found.history) < 100
    study = tmp_path / "study.toml"
    study.write_text(
        'title = "t"\ndataset = "digits"\nseeds = 1\n[options]\nrounds = 1000000\nwidth = 4\n'
        '[runs.fedvs]\nprotocol = "fedvs"\n'
    )
    with pytest.raises(
        ConfigurationError, match=r"run 'fedvs': .*needs about .* list of its messages"
    ):
        run_study(read_study(study), tmp_path / "out")
    assert not (tmp_path / "out").exists()
