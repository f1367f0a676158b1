"""Who may write into a run's folder, and what is left there by runs that are refused or fail."""

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest
from filelock import FileLock

import securevfl as svfl
from securevfl.errors import ConfigurationError, RunError
from securevfl.runs.claim import LOCK, MARK, MARKER, claimed
from tests.runs.folders import small


def files(folder):
    return sorted(path.name for path in folder.rglob("*"))


def stop_after(looks):
    left = iter(range(looks))
    return lambda: next(left, None) is None


def stopped(folder):
    with pytest.raises(svfl.Interrupted):
        small.run(folder, interrupted=stop_after(2))


@pytest.mark.parametrize("go_on", ["run", "resume"])
def test_a_folder_in_which_another_process_runs_is_refused_and_not_changed(tmp_path, go_on):
    stopped(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    with (
        FileLock(tmp_path / "run" / LOCK),
        pytest.raises(ConfigurationError, match=r"another process runs in .*nothing was changed"),
    ):
        small.run(tmp_path / "run") if go_on == "run" else svfl.resume(
            tmp_path / "run", data=small.dataset()
        )
    after = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}
    after.pop(LOCK, None)
    assert after == before


def test_two_runs_that_find_a_folder_free_do_not_both_take_it(tmp_path):
    with (
        claimed(tmp_path / "run", new=True),
        pytest.raises(ConfigurationError, match="another process"),
        claimed(tmp_path / "run", new=True),
    ):
        pass


def test_a_folder_that_is_a_file_is_refused_in_one_line(tmp_path):
    (tmp_path / "a").write_text("mine")
    for folder in (tmp_path / "a", tmp_path / "a" / "b"):
        with pytest.raises(ConfigurationError, match=r"cannot be used: .* Choose another"):
            small.run(folder)
    assert (tmp_path / "a").read_text() == "mine"


def test_a_finished_run_leaves_no_lock(tmp_path):
    small.run(tmp_path / "run")
    assert LOCK not in files(tmp_path / "run")


def test_a_run_that_is_refused_leaves_nothing_and_can_be_started_again(tmp_path):
    """The refusal comes from the engine, after the folder was claimed."""
    with pytest.raises(ConfigurationError, match="no effect"):
        small.run(tmp_path / "a" / "b", place={1: "node"})
    with pytest.raises(ConfigurationError, match="party 9"):
        small.run(
            tmp_path / "a" / "b", faults={"tick": 1.0, "outage": [{"party": 9, "rounds": [1, 2]}]}
        )
    assert not files(tmp_path)
    small.run(tmp_path / "a" / "b")


def refused(folder, name):
    """A run that writes a file and a folder before it is refused."""
    with claimed(folder, new=True):
        (folder / name).touch()
        (folder / "more").mkdir()
        raise ConfigurationError("the manifest is not signed")


def test_a_refusal_by_the_engine_removes_what_the_run_wrote(tmp_path):
    (tmp_path / "parties").mkdir()  # tables that an earlier process prepared
    (tmp_path / MARKER).write_text(MARK)
    with pytest.raises(ConfigurationError, match="not signed"):
        refused(tmp_path, "config.toml")
    assert files(tmp_path) == ["parties", MARKER]


def test_a_mistake_that_shows_after_a_checkpoint_removes_nothing(tmp_path):
    with pytest.raises(ConfigurationError):
        refused(tmp_path, "checkpoint.svfl")
    assert files(tmp_path) == ["checkpoint.svfl", "more", MARKER]


def test_a_folder_whose_run_came_to_no_checkpoint_can_be_taken_again(tmp_path):
    """`resume` says "start it again"; `run` refused."""
    for name in ("config.toml", "once-0.svfl", "history.jsonl", "checkpoint.part"):
        (tmp_path / name).touch()
    (tmp_path / "saving.part").mkdir()
    (tmp_path / MARKER).write_text(MARK)
    run = small.run(tmp_path)
    assert len(run.history) == 4
    assert not {"once-0.svfl", "checkpoint.part", "saving.part", MARKER} & set(files(tmp_path))


THEIRS = (
    *("model.npz", "config.toml", "history.jsonl", "messages.csv", "server.json"),
    *("party-3.json", "notes.part", "keys.svfl", "results.part/deep.txt", "parties/list.txt"),
    "run.lock",
)


@pytest.mark.parametrize("name", THEIRS)
def test_files_of_somebody_else_stay_whatever_their_names(tmp_path, name):
    """They were taken for the rest of a run that never came to a checkpoint."""
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine")
    run = small.run()
    for use in (lambda: small.run(tmp_path), lambda: run.save(tmp_path)):
        with suppress(ConfigurationError):  # what does not stand in the way may stay beside
            use()
        assert path.read_text() == "mine"


def test_what_a_killed_run_left_is_removed_but_not_what_another_put_there(tmp_path):
    (tmp_path / MARKER).write_text(MARK)
    (tmp_path / "history.jsonl").touch()
    (tmp_path / "results.part").mkdir()
    with pytest.raises(ConfigurationError, match="no folder of a run"):
        small.run(tmp_path)
    assert files(tmp_path) == ["history.jsonl", "results.part", MARKER]


def test_another_s_result_is_not_saved_over(tmp_path):
    run = small.run(tmp_path / "run")
    for name in ("summary.json", "config.toml"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(ConfigurationError, match=r"config\.toml is there.*not replaced"):
        run.save(tmp_path)
    assert [(tmp_path / name).read_text() for name in ("summary.json", "config.toml")] == ["{}"] * 2
    run.save(tmp_path / "run")  # its own may be written again


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("summary.json", "a finished run"),
        ("checkpoint.svfl", "securevfl resume"),
        ("checkpoint.previous.svfl", "securevfl resume"),
        ("parties/0/rounds.svfl", "securevfl resume"),
        ("thesis.tex", "no folder of a run"),
    ],
)
def test_a_folder_in_use_is_refused_and_says_why(tmp_path, there, said):
    (tmp_path / there).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / there).write_text("mine")
    with pytest.raises(ConfigurationError, match=f"is not empty.*{said}"):
        small.run(tmp_path)
    assert (tmp_path / there).read_text() == "mine"


def test_a_result_that_cannot_be_saved_is_kept_as_a_checkpoint(tmp_path, monkeypatch):
    """The disk is full when the result is written; nothing that was whole is lost."""
    whole = small.run()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full_disk(os.replace, "history.jsonl"))
        with pytest.raises(RunError, match=r"No space left.*securevfl resume"):
            small.run(tmp_path / "run")
    assert "saving.part" not in files(tmp_path / "run")
    assert "summary.json" not in files(tmp_path / "run")
    resumed = svfl.resume(tmp_path / "run", data=small.dataset())
    assert resumed.history == whole.history
    assert "summary.json" in files(tmp_path / "run")


def full_disk(replace, name):
    def replaced(source, target):
        if Path(target).name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    return replaced


def test_a_result_that_is_saved_again_is_whole_before_and_after_a_full_disk(tmp_path, monkeypatch):
    run = small.run(tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()}

    def full(*_arguments):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("securevfl.runs.result.write_parties", full)
    with pytest.raises(OSError, match="No space"):
        run.save(tmp_path / "run")
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir()} == before


def test_a_checkpoint_that_cannot_be_written_does_not_end_the_run(tmp_path, monkeypatch, caplog):
    calls = []

    def full(*arguments):
        calls.append(arguments)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("securevfl.runs.engines.autosave.write_checkpoint", full)
    run = small.run(tmp_path / "run", checkpoint_seconds=0.0)
    assert len(run.history) == 4
    assert calls
    assert "no checkpoint could be written" in caplog.text
