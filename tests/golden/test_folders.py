"""Run folders that an earlier version wrote can be read, resumed, used and reported."""

from __future__ import annotations

import html
import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import securevfl as svfl
from securevfl.cli.app import app
from securevfl.engine import wire
from securevfl.engine.checkpoint import read_file
from securevfl.errors import CheckpointError
from securevfl.models.quality import QUALITY
from securevfl.runs.folders.descriptions import file_of

from .folders import FOLDERS, new_rows

EXPECTED: dict[str, Any] = json.loads((FOLDERS / "expected.json").read_text())
FINISHED = ("fedvs", "split", "dvfl")
INTERRUPTED = ("fedvs-keys-interrupted", "split-interrupted")
FILES = {"config.toml", "curves.png", "history.jsonl", "messages.csv", "messages.npz"} | {
    "model.npz",
    "parties.state",
    "summary.json",
}


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of all folders, so that nothing is written into them."""
    shutil.copytree(FOLDERS, tmp_path / "old")
    monkeypatch.chdir(tmp_path / "old")
    monkeypatch.delenv("SECUREVFL_TRACEBACK", raising=False)


def call(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), prog_name="securevfl")
    assert done.exit_code == 0, done.output
    return done.stdout


def close(old: Any, new: Any) -> bool:
    """Equality, but for what a float may differ by on another processor."""
    if isinstance(old, dict) and isinstance(new, dict):
        return old.keys() == new.keys() and all(close(old[key], new[key]) for key in old)
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(close, old, new))
    if isinstance(old, float) and isinstance(new, float):
        return new == pytest.approx(old, rel=1e-3, abs=1e-5)
    return bool(old == new)


@pytest.mark.parametrize("name", FINISHED)
def test_an_old_folder_is_loaded_value_for_value(name):
    run, wanted = svfl.load_run(name), EXPECTED[name]
    assert list(run.history) == wanted["history"]
    assert len(run.events) == wanted["events"]
    assert (len(run.transcript), run.transcript.bytes) == (wanted["messages"], wanted["bytes"])


@pytest.mark.parametrize("name", FINISHED)
def test_models_of_an_old_folder_predict_what_they_predicted(name):
    scores = svfl.load_run(name).scores(new_rows())
    np.testing.assert_allclose(scores, EXPECTED[name]["scores"], rtol=1e-4, atol=1e-5)


def test_coded_prediction_from_an_old_folder_is_that_in_the_clear():
    run = svfl.load_run("fedvs")
    np.testing.assert_allclose(
        run.scores(new_rows(), coded=True), EXPECTED["fedvs"]["scores"], atol=1e-3
    )


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_old_checkpoint_is_resumed_to_the_unbroken_run(name):
    run, wanted = svfl.resume(name), EXPECTED[name]
    assert close(wanted["history"], list(run.history)), run.history
    assert len(run.transcript) == wanted["messages"]
    assert {path.name for path in Path(name).iterdir()} == FILES | described(run)


def test_a_checkpoint_of_masks_that_were_dealt_is_refused_in_one_line():
    with pytest.raises(CheckpointError, match=r"another version.*start the run again") as caught:
        svfl.resume("fedvs-interrupted")
    assert "\n" not in str(caught.value)


def described(run):
    """Files that a folder has since predictions need no data: the description of each model."""
    return {file_of(party) for party in run.parties}


#: What parties kept at version 0.1.0 and keep no more.
DROPPED = {"fedvs": ("held", "latest")}
#: Keys of summary.json that came after version 0.1.0.
NEW_KEYS = {
    "released",
    "secret_choices",
    "delay_mode",
    "downlinks",
    "rounds_asked",
    "notices",
    "files",
    "checksum",
    "evaluation_data",
    *QUALITY,
}


@pytest.mark.parametrize("name", FINISHED)
def test_a_new_run_writes_the_files_with_the_keys_of_an_old_one(name):
    assert {path.name for path in Path(name).iterdir()} >= FILES
    run = svfl.load_run(name)
    run.save("again")
    assert {path.name for path in Path("again").iterdir()} == FILES | described(run)
    old, new = (json.loads(Path(place, "summary.json").read_text()) for place in (name, "again"))
    assert [key for key in new if key not in NEW_KEYS] == list(old)
    for file in ("history.jsonl", "messages.csv"):
        assert Path("again", file).read_bytes() == Path(name, file).read_bytes()
    was, now = (read_file(Path(place, "parties.state")) for place in (name, "again"))
    for kept in was.values():
        for gone in DROPPED.get(name, ()):
            kept.pop(gone, None)
    assert wire.encode(now) == wire.encode(was)


@pytest.mark.parametrize("name", FINISHED)
def test_messages_of_an_old_folder_are_traced(name):
    assert (
        json.loads(call("trace", name, "--json", "--first", "5"))
        == (EXPECTED[name]["first messages"])
    )


def test_payloads_of_an_old_run_are_shown_by_running_it_again():
    said = call("trace", "split", "--first", "3", "--payloads")
    assert "float32" in said or "uint32" in said


def test_exported_models_of_an_old_folder_predict():
    scores = svfl.load_models("split/models").scores(np.split(new_rows(), 4, axis=1))
    np.testing.assert_allclose(scores, EXPECTED["split"]["scores"], rtol=1e-3, atol=1e-4)


def test_models_of_an_old_folder_can_be_exported_as_they_were():
    call("export", "split", "--out", "models")
    for old in Path("split/models").glob("*.npz"):
        with np.load(old) as was, np.load(Path("models", old.name)) as now:
            assert was.files == now.files
            said, says = (json.loads(each["about"].tobytes()) for each in (was, now))
            if old.name == "server.npz":  # it came after version 0.1.0
                assert says.pop("class_values") == {"type": "int64", "values": [*range(10)]}
            assert says == said
            for name in {*was.files} - {"about"}:
                assert (was[name] == now[name]).all(), (old.name, name)


def command_in(page: Path, files: Path) -> list[str]:
    """Words of the command by which a report says a run can be repeated; its files are written."""
    text = page.read_text()
    for name, content in re.findall(r'<pre data-file="([^"]+)">(.*?)</pre>', text, re.S):
        (files / html.unescape(name)).write_text(html.unescape(content))
    found = re.search(r'<pre id="command-0"[^>]*>(.*?)</pre>', text, re.S)
    assert found is not None
    return shlex.split(html.unescape(re.sub(r"<[^>]+>", "", found[1])))


@pytest.mark.parametrize("name", FINISHED)
def test_an_old_folder_is_reported_and_the_command_of_the_page_repeats_it(name):
    call("report", name, "--out", "page.html")
    words = command_in(Path("page.html"), Path())
    assert words[:3] == ["securevfl", "run", name]
    call(*words[1:], "--out", "again", "--json")
    was, now = ([dict(row) for row in rows] for rows in
                (EXPECTED[name]["history"], svfl.load_run("again").history))  # fmt: skip
    if name == "fedvs":  # elements were sent in words of 64 bits then, and masks were dealt
        sent = [(old.pop("bytes"), new.pop("bytes")) for old, new in zip(was, now, strict=True)]
        assert all(0.5 < after / before < 61 / 64 for before, after in sent)
    assert close(was, now)


def test_the_report_of_an_old_folder_has_its_verdicts():
    call("report", "fedvs", "--out", "page.html")
    verdicts = {
        found["verdict"] for found in claims(json.loads(Path("fedvs/verify.json").read_text()))
    }
    page = Path("page.html").read_text()
    assert verdicts
    assert all(verdict in page for verdict in verdicts)


def claims(content: Any) -> list[dict[str, Any]]:
    """Everything in a document that has a verdict."""
    if isinstance(content, dict):
        own = [content] if isinstance(content.get("verdict"), str) else []
        return own + [found for value in content.values() for found in claims(value)]
    if isinstance(content, list):
        return [found for value in content for found in claims(value)]
    return []


def test_jobs_of_an_old_study_are_known_by_their_keys_and_not_done_again():
    before = {path.name: path.read_bytes() for path in Path("study/jobs").iterdir()}
    keys = {name: json.loads(content)["key"] for name, content in before.items()}
    assert keys == EXPECTED["study"]
    times = {path.name: path.stat().st_mtime_ns for path in Path("study/jobs").iterdir()}
    call("study", "study.toml", "--out", "study", "--json")
    assert {path.name: path.read_bytes() for path in Path("study/jobs").iterdir()} == before
    assert {p.name: p.stat().st_mtime_ns for p in Path("study/jobs").iterdir()} == times


def test_a_job_is_done_again_where_its_settings_differ():
    text = Path("study.toml").read_text().replace("rounds = 2\n", "rounds = 1\n", 1)
    Path("study.toml").write_text(text)
    call("study", "study.toml", "--out", "study", "--json")
    keys = {p.name: json.loads(p.read_text())["key"] for p in Path("study/jobs").iterdir()}
    assert keys.keys() == EXPECTED["study"].keys()
    assert all(keys[name] != key for name, key in EXPECTED["study"].items())


def test_results_of_an_old_study_are_summed_up_as_they_were():
    old = Path("study/results.csv").read_text()
    call("study", "study.toml", "--out", "study", "--json")
    assert Path("study/results.csv").read_text() == old


def test_a_saved_classifier_of_old_predicts_what_it_predicted():
    again = svfl.FedVSClassifier.load("classifier")
    np.testing.assert_allclose(
        again.predict_proba(new_rows()[:, :8]),
        EXPECTED["classifier"]["probabilities"],
        rtol=1e-4,
        atol=1e-6,
    )
