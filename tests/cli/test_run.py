"""The command `run`: its output, its folder, its options; Ctrl-C and resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

from securevfl.cli import displays
from securevfl.cli import run as start
from securevfl.runs.history import Progress
from securevfl.studies.variant import parse_pairs
from tests.cli.calls import SMALL, call, run_json, table, write


def test_run_prints_one_object_last():
    summary = run_json("fedvs", *SMALL)
    expected = {
        "protocol", "dataset", "rounds", "test_accuracy", "virtual_seconds", "wall_seconds",
        "messages", "bytes", "late", "run_folder",
    }  # fmt: skip
    assert expected <= set(summary)
    assert (summary["protocol"], summary["dataset"], summary["rounds"]) == ("fedvs", "digits", 4)
    assert 0 <= summary["test_accuracy"] <= 1


def test_run_leaves_its_folder():
    folder = Path(run_json("fedvs", *SMALL)["run_folder"])
    assert folder.parent == Path("runs")
    assert folder.name.startswith("fedvs-digits-")
    files = {path.name for path in folder.iterdir()}
    assert {"config.toml", "history.jsonl", "messages.csv", "model.npz"} <= files
    assert not [name for name in files if name.endswith(".svfl")]


def test_two_runs_of_the_same_second_have_different_folders():
    folders = {run_json("split", *SMALL)["run_folder"] for _ in range(2)}
    assert len(folders) == 2


def test_the_same_command_gives_the_same_history():
    folders = [Path(run_json("fedvs", *SMALL, "--out", name)["run_folder"]) for name in "ab"]
    first, second = ((folder / "history.jsonl").read_text() for folder in folders)
    assert first == second


def test_a_run_ends_with_fifteen_lines_and_verbose_shows_all():
    result = call("run", "fedvs", *SMALL)
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) <= 15
    for part in (
        *("test accuracy", "(most frequent class: ", "of them late", "(modelled)"),
        *("equations about", "Not protected: labels from", "report: securevfl report runs/fedvs"),
    ):
        assert part in " ".join(result.stdout.split())
    whole = call("run", "fedvs", *SMALL, "--verbose").stdout
    for part in ("test accuracy", "virtual time", "late messages", "not protected", "perfect"):
        assert part in whole


def test_progress_goes_to_standard_error():
    result = call("run", "fedvs", *SMALL)
    assert "round 4/4" in result.stderr
    for part in ("loss", "accuracy", "virtual time", "used", "late"):
        assert part in result.stderr.splitlines()[-1]
    assert "round 4/4" not in result.stdout


def test_every_way_to_set_an_option_reaches_the_protocol():
    by_name = run_json("split:segments=2,quantized=true", *SMALL, "--out", "a")
    by_flag = run_json("split", "--segments", "2", "--quantized", *SMALL, "--out", "b")
    by_set = run_json(
        "split", "--set", "segments=2", "--set", "quantized=true", *SMALL, "--out", "c"
    )
    assert by_name["train_loss"] == by_flag["train_loss"] == by_set["train_loss"]
    plain = run_json("split", *SMALL)
    assert plain["train_loss"] != by_name["train_loss"]


def test_a_hyphen_in_a_key_is_an_underscore():
    assert parse_pairs(["client-lr=0.1"], what="x") == {"client_lr": "0.1"}


def test_the_prime_may_be_written_as_a_power():
    fields = ("--data-bits", "6", "--model-bits", "8", "--weight-bound", "4")
    summary = run_json("fedvs", *SMALL, "--prime", "2^31-1", *fields)
    assert summary["derived"]["p"] == 2**31 - 1


def test_own_table():
    write("own.csv", table())
    summary = run_json(
        "fedvs", "--data", "own.csv", "--label", "y", "--rounds", "3", "--parties", "3"
    )
    assert (summary["dataset"], summary["parties"]) == ("own", 3)
    assert "test_auc" in summary


def test_own_tables_of_several_parties():
    ids = range(40)
    write("a.csv", "k,a\n" + "".join(f"{i},{i % 5}\n" for i in ids))
    write("b.csv", "k,b\n" + "".join(f"{i},{i % 3}\n" for i in reversed(ids)))
    write("c.csv", "k,c\n" + "".join(f"{i},{i % 4}\n" for i in ids))
    write("y.csv", "k,y\n" + "".join(f"{i},{i % 2}\n" for i in ids))
    parties = ("--party", "a.csv", "--party", "b.csv", "--party", "c.csv", "--id", "k")
    labels = ("--label", "y", "--label-file", "y.csv", "--rounds", "3")
    summary = run_json("fedvs", *parties, *labels)
    assert summary["parties"] == 3
    private = run_json("fedvs", *parties, *labels, "--align", "psi")
    assert private["train_loss"] == summary["train_loss"]  # the same rows in the same order
    config = tomllib.loads((Path(private["run_folder"]) / "config.toml").read_text())
    assert config["data"]["options"]["align"] == "psi"


def test_faults_from_a_file_are_counted():
    write("bad-day.toml", "[[outage]]\nparty = 3\nrounds = [2, 4]\n")
    flags = ("--faults", "bad-day.toml", "--share-timeout", "5", "--result-timeout", "5")
    summary = run_json("fedvs", *SMALL, *flags)
    assert summary["faults"] == "bad-day"
    assert summary["crashes"] == 1
    assert summary["lost"] > 0


def test_who_waits_for_a_party_that_is_down_is_told():
    write("bad-day.toml", "[[outage]]\nparty = 3\nrounds = [2]\n")
    result = call("run", "split", *SMALL, "--faults", "bad-day.toml")
    assert result.exit_code == 1
    assert "party 3 has been down since round 2" in " ".join(result.stderr.split())


def test_conditions_from_a_file():
    write("slow.toml", 'pattern = "paper"\nslow = 0.25\n')
    summary = run_json("fedvs", *SMALL, "--conditions", "slow.toml")
    assert summary["conditions"] in ("slow", "paper")


class Watch(displays.Lines):
    """Progress display that presses Ctrl-C in the third round."""

    signal = signal.SIGINT

    def __call__(self, progress: Progress) -> None:
        super().__call__(progress)
        if progress.round == 3:
            signal.raise_signal(self.signal)


class Terminate(Watch):
    """Progress display that sends SIGTERM in the third round, as Slurm and systemd do."""

    signal = signal.SIGTERM


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(monkeypatch):
    long = ("fedvs", *SMALL[2:], "--rounds", "30")
    before = signal.getsignal(signal.SIGINT)  # ignored where a shell started pytest with &
    whole = run_json(*long, "--out", "whole")
    with monkeypatch.context() as patched:
        patched.setattr(displays, "progress_display", Watch)
        result = call("run", *long, "--out", "cut it")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == ("interrupted; go on with: securevfl resume 'cut it'")
    assert "press Ctrl-C again" in result.stderr
    assert signal.getsignal(signal.SIGINT) is before
    resumed = json.loads(call("resume", "cut it", "--json").stdout)
    assert resumed["test_accuracy"] == whole["test_accuracy"]
    histories = [Path(name, "history.jsonl").read_text() for name in ("whole", "cut it")]
    assert histories[0] == histories[1]
    again = call("resume", "cut it")
    assert again.exit_code == 2
    assert "complete" in again.stderr


def test_sigterm_is_the_first_ctrl_c(monkeypatch):
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # else it ends pytest
    try:
        with monkeypatch.context() as patched:
            patched.setattr(displays, "progress_display", Terminate)
            result = call("run", "fedvs", *SMALL[2:], "--rounds", "30", "--out", "cut")
        assert signal.getsignal(signal.SIGTERM) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGTERM, before)
    assert result.exit_code == 130
    assert "send SIGTERM again" in result.stderr
    assert result.stderr.splitlines()[-1] == "interrupted; go on with: securevfl resume cut"
    assert Path("cut", "checkpoint.svfl").exists()


def test_the_second_ctrl_c_has_the_default_effect():
    with start.stopping(displays.Lines("x")) as stop:
        assert not stop()
        signal.raise_signal(signal.SIGINT)
        assert stop()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL


def process(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "securevfl", *arguments]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ)
    )


def test_a_process_that_ctrl_c_stopped_is_resumed_by_this_one():
    stopped = process("run", "fedvs", *SMALL[2:], "--rounds", "200", "--out", "cut")
    assert stopped.stderr is not None
    first = stopped.stderr.readline()
    stopped.send_signal(signal.SIGINT)
    _, errors = stopped.communicate(timeout=120)
    assert "round 20/200" in first
    assert stopped.returncode == 130, errors
    assert "Traceback" not in errors
    resumed = call("resume", "cut", "--json")
    assert resumed.exit_code == 0, resumed.stderr
    assert json.loads(resumed.stdout.splitlines()[-1])["rounds"] == 200


def test_exit_codes_of_a_process():
    mistake = process("run", "fedvs", "--parties", "65")
    output, errors = mistake.communicate(timeout=120)
    assert (mistake.returncode, output, len(errors.splitlines())) == (2, "", 1)


def test_the_summary_holds_the_plan_against_the_run():
    text = " ".join(call("run", "fedvs", *SMALL, "--verbose").stdout.split())
    assert "as predicted" in text
    assert "NOT as predicted" not in text
    assert "plan and measurement" not in call("run", "split", *SMALL, "--verbose").stdout


def test_until_ends_a_run():
    summary = run_json("fedvs", *SMALL[2:], "--rounds", "500", "--until", "30")
    assert 20 < summary["virtual_seconds"] <= 30
    assert summary["rounds"] < 500


def test_unsealed_runs_send_less():
    sealed, plain = run_json("split", *SMALL), run_json("split", *SMALL, "--unsealed")
    assert sealed["bytes"] - plain["bytes"] == 24 * plain["messages"]
    assert sealed["test_accuracy"] == plain["test_accuracy"]


def test_a_folder_is_refused_and_hides_no_known_data_set():
    Path("digits").mkdir()
    assert run_json("split", *SMALL, "--data", "digits")["test_rows"] == 449
    told = call("run", "split", *SMALL, "--data", "./digits")
    assert told.exit_code == 2
    assert "is a folder" in told.stderr
