"""The command line: options, mistakes in one line, output, Ctrl-C, resume."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from securevfl.cli import displays
from securevfl.cli import output as show
from securevfl.cli import run as start
from securevfl.cli.app import app
from securevfl.cli.options import described, metavar, plain_number, power_form, toml_value
from securevfl.cli.studies import Display
from securevfl.errors import ConfigurationError, SecureVFLError, StalledError
from securevfl.protocols.base.registry import find_protocols
from securevfl.runs.history import Progress
from securevfl.studies.variant import parse_pairs, parse_variant

SMALL = ("--rounds", "4", "--width", "4", "--hidden", "4", "--batch", "16", "--parties", "4")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SECUREVFL_TRACEBACK", raising=False)
    monkeypatch.delenv("SECUREVFL_DATA", raising=False)
    monkeypatch.setenv("COLUMNS", "200")


def call(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="securevfl")


def run_json(*arguments: str) -> dict[str, Any]:
    result = call("run", *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout.splitlines()[-1])


def write(name: str, text: str) -> str:
    Path(name).write_text(text)
    return name


def table(rows: int = 40, *, label: str = "y") -> str:
    lines = [f"{k},{k % 7},{(3 * k) % 11},{'yes' if k % 3 else 'no'}" for k in range(rows)]
    return "\n".join([f"id,a,b,{label}", *lines]) + "\n"


# -- the user's mistakes -----------------------------------------------------------------------

MISTAKES = {
    "no protocol": (["run"], "protocol comes first"),
    "options before the protocol": (["run", "--rounds", "3", "fedvs"], "protocol comes first"),
    "unknown protocol": (["run", "fedsv"], "unknown protocol 'fedsv': did you mean fedvs"),
    "unknown command": (["rnu"], "rnu"),
    "unknown option": (["run", "fedvs", "--segmnts", "2"], "did you mean --segments"),
    "removed option": (
        ["run", "fedvs", "--absent", "last"],
        "no sum any more. Use coded_split",
    ),
    "another removed option": (["run", "fedvs", "--spares", "1"], "nobody deals masks any more"),
    "removed --set option": (["run", "fedvs", "--set", "absent=last"], "absent was removed"),
    "option of another protocol": (["run", "split", "--privacy", "1"], "'--privacy'"),
    "unknown data set": (["run", "fedvs", "--data", "digitz"], "did you mean digits?"),
    "unknown engine": (["run", "fedvs", "--engine", "rai"], "unknown engine 'rai'"),
    "unknown place": (["run", "fedvs", "--engine", "ray", "--place", "3=x"], "write party-3="),
    "a cluster's option": (["run", "fedvs", "--address", "a:1"], "address has no effect"),
    "unknown conditions": (["run", "fedvs", "--conditions", "papr"], "'papr'"),
    "no file of faults": (["run", "fedvs", "--faults", "gone.toml"], "gone.toml cannot be read"),
    "unknown variant option": (["run", "split:quantised=true"], "did you mean quantized"),
    "unknown --set option": (["run", "fedvs", "--set", "lrr=1"], "unknown option of fedvs 'lrr'"),
    "unknown data option": (["run", "fedvs", "--set", "data.skaling=none"], "did you mean scaling"),
    "argument of run in --set": (["run", "fedvs", "--set", "seed=1"], "unknown option"),
    "data seed in --set": (["run", "fedvs", "--set", "data.seed=1"], "use --seed"),
    "malformed --set": (["run", "fedvs", "--set", "lr"], "'lr' is not of the form key=value"),
    "twice": (["run", "fedvs", "--lr", "0.1", "--set", "lr=0.2"], "lr is given twice"),
    "rounds twice": (
        ["run", "fedvs", "--rounds", "1", "--set", "rounds=2"],
        "rounds is given twice",
    ),
    "no number": (["run", "fedvs", "--lr", "fast"], "lr = 'fast'"),
    "no integer": (["run", "fedvs", "--rounds", "many"], "--rounds"),
    "zero rounds": (["run", "fedvs", "--rounds", "0"], "rounds"),
    "negative seed": (["run", "fedvs", "--seed", "-1"], "seed"),
    "T >= N": (["run", "fedvs", "--parties", "4", "--privacy", "4"], "T=4"),
    "N < R": (["run", "fedvs", "--parties", "4", "--segments", "3"], "= 7 results"),
    "p too small for the points": (["run", "fedvs", "--prime", "7"], "7"),
    "p too small for the bits": (["run", "fedvs", "--prime", "2^31-1"], "p = 2147483647"),
    "p not prime": (["run", "fedvs", "--prime", "2^32-1"], "4294967295"),
    "more parties than columns": (["run", "fedvs", "--parties", "65"], "64"),
    "--id without --party": (["run", "fedvs", "--id", "k"], "--party"),
    "--party without --label": (["run", "fedvs", "--party", "a.csv"], "--label"),
    "--party and --data": (["run", "fedvs", "--party", "a.csv", "--data", "digits"], "exclude"),
    "a file that is not there": (["run", "fedvs", "--data", "no.csv", "--label", "y"], "no.csv"),
    "a data folder that is not there": (["datasets", "--data-dir", "nowhere"], "nowhere"),
    "unknown card": (["protocols", "fedvsx"], "did you mean fedvs"),
    "unknown set": (["datasets", "digit"], "did you mean digits?"),
    "resume of nothing": (["resume", "nowhere"], "nowhere is no folder"),
    "resume without an argument": (["resume"], "issing argument"),
    "too few blocks": (["bench", "round", "--blocks", "3"], "blocks"),
    "one protocol to compare": (["compare", "fedvs"], "name two protocols"),
    "nothing to compare": (["compare"], "issing argument"),
    "unknown protocol to compare": (["compare", "fedvs", "splitt"], "did you mean split"),
    "unknown option to compare": (["compare", "fedvs", "split", "--widht", "3"], "--width"),
    "unknown variant to compare": (["compare", "fedvs", "split:width2=1"], "did you mean width"),
    "no seeds": (["compare", "fedvs", "split", "--seeds", "0"], "0 seeds"),
    "no workers": (["compare", "fedvs", "split", "--workers", "0"], "--workers"),
    "value to compare": (["compare", "fedvs", "split", "--lr", "fast"], "lr = 'fast'"),
    "a study that is not there": (["study", "none.toml"], "none.toml cannot be read"),
    "a plan without room": (["plan", "--prime", "2^31-1", "--accuracy-bits", "15"], "larger prime"),
    "a plan without any K": (["plan", "--privacy", "4"], "no K is feasible"),
    "a plan of two things": (["plan", "--rows", "9", "--data", "digits"], "leave out --data"),
    "a plan of rows alone": (["plan", "--rows", "9"], "rows and features"),
    "a negative time": (["run", "fedvs", "--until", "-1"], "until"),
    "no list of parties": (["bench", "threshold", "--parties", "6;7"], "--parties '6;7'"),
}


@pytest.mark.parametrize(("arguments", "part"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, part):
    result = call(*arguments)
    told = result.stderr.splitlines()
    lines = [line for line in told if "preparing" not in line and not line.endswith(" ...")]
    assert result.exit_code == 2
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("securevfl: ")
    assert part in lines[0]
    assert result.stdout == ""
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("text", "options", "part"),
    [
        (table(), ["--label", "z"], "'z'"),
        (table().replace("3,3,9,", "3,nan,9,"), ["--label", "y"], "nan, not a number"),
        (table().replace("3,3,9,", "3,inf,9,"), ["--label", "y"], "inf"),
        (table(0), ["--label", "y"], "rows"),
        ("a,b\n1\n", ["--label", "a"], "line 2"),
    ],
    ids=["no such label", "NaN", "infinite", "no rows", "cut off"],
)
def test_a_file_that_cannot_be_used_is_one_line_and_exit_code_2(text, options, part):
    write("own.csv", text)
    result = call("run", "fedvs", "--data", "own.csv", *options, "--parties", "3", "--rounds", "2")
    assert result.exit_code == 2, result.output
    assert part in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_an_empty_party_is_one_line_and_exit_code_2():
    write("a.csv", table())
    write("b.csv", "id\n" + "\n".join(map(str, range(40))) + "\n")
    files = ("--party", "a.csv", "--party", "b.csv", "--id", "id", "--label", "y")
    result = call("run", "fedvs", *files)
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert "b.csv" in result.stderr


def test_a_run_that_does_not_fit_in_memory_is_refused(monkeypatch):
    import psutil

    memory = type("Memory", (), {"available": 1000})()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    result = call("run", "fedvs")
    assert result.exit_code == 2
    assert "GB are available" in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_a_folder_in_use_is_refused():
    write("file", "")
    assert "file is not a folder" in call("run", "fedvs", "--out", "file").stderr
    Path("full").mkdir()
    write("full/thing", "")
    result = call("run", "fedvs", *SMALL, "--out", "full")
    assert result.exit_code == 2
    assert "not empty" in result.stderr


def test_a_failure_of_the_run_is_one_line_and_exit_code_1(monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise StalledError("the run stalled\nat 3 s")

    monkeypatch.setattr("securevfl.run", fail)
    result = call("run", "fedvs")
    assert result.exit_code == 1
    assert result.stderr == "securevfl: the run stalled at 3 s\n"


def test_a_fault_of_ours_keeps_its_traceback(monkeypatch):
    def fail(*_: object, **__: object) -> None:
        raise KeyError("ours")

    monkeypatch.setattr("securevfl.run", fail)
    assert isinstance(call("run", "fedvs").exception, KeyError)


def test_the_traceback_of_an_error_can_be_asked_for(monkeypatch):
    monkeypatch.setenv("SECUREVFL_TRACEBACK", "1")
    assert isinstance(call("run", "fedvs", "--parties", "65").exception, SecureVFLError)


# -- runs --------------------------------------------------------------------------------------


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
    assert {"config.toml", "history.jsonl", "messages.csv", "model.npz", "curves.png"} <= files
    assert not [name for name in files if name.endswith(".svfl")]


def test_two_runs_of_the_same_second_have_different_folders():
    folders = {run_json("split", *SMALL)["run_folder"] for _ in range(2)}
    assert len(folders) == 2


def test_the_same_command_gives_the_same_history():
    folders = [Path(run_json("fedvs", *SMALL, "--out", name)["run_folder"]) for name in "ab"]
    first, second = ((folder / "history.jsonl").read_text() for folder in folders)
    assert first == second


def test_the_table_shows_the_figures_and_the_claims():
    result = call("run", "fedvs", *SMALL)
    assert result.exit_code == 0
    for part in ("test accuracy", "virtual time", "late messages", "not protected", "perfect"):
        assert part in result.stdout


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


# -- every protocol ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", list(find_protocols()))
def test_help_lists_every_option_with_its_description(name):
    text = " ".join(call("run", name, "--help").stdout.replace("│", " ").split())
    for field, info in find_protocols()[name].Config.model_fields.items():
        assert f"--{field.replace('_', '-')}" in text
        assert " ".join(described(info).replace("\\[", "[").split()) in text


@pytest.mark.parametrize("name", list(find_protocols()))
def test_every_option_is_understood_as_a_flag(name, monkeypatch):
    started: dict[str, Any] = {}
    monkeypatch.setattr(start, "start", lambda *arguments: started.update(arguments[2]))
    for field, info in find_protocols()[name].Config.model_fields.items():
        flag = f"--{field.replace('_', '-')}"
        value = [] if info.annotation is bool else ["7"]
        result = call("run", name, flag, *value)
        assert result.exit_code == 0, result.output
        assert started[field] in ("7", 7, True)


def test_help_names_all_protocols():
    text = call("run", "--help").stdout
    assert all(name in text for name in find_protocols())


def test_help_of_the_whole():
    for arguments in ([], ["--help"]):
        result = call(*arguments)
        assert result.exit_code == 0
        for command in ("run", "resume", "datasets", "protocols", "bench"):
            assert command in result.stdout


def test_version():
    from securevfl import __version__

    assert call("--version").stdout == f"securevfl {__version__}\n"


def test_protocols_as_json():
    found = json.loads(call("protocols", "--json").stdout)["protocols"]
    assert [entry["name"] for entry in found] == list(find_protocols())
    fedvs = next(entry for entry in found if entry["name"] == "fedvs")
    assert fedvs["options"]["privacy"]["default"] == 1
    assert "server" in fedvs["sees"]


def test_a_card_shows_what_each_role_sees():
    text = call("protocols", "fedvs").stdout
    for part in ("What each sees", "server + 1 client", "Departures from the paper"):
        assert part in text


def test_datasets():
    text = call("datasets").stdout
    assert "digits" in text
    assert "1,797" in text
    found = {
        entry["name"]: entry for entry in json.loads(call("datasets", "--json").stdout)["datasets"]
    }
    assert found["digits"]["available"] is True
    assert json.loads(call("datasets", "digits", "--json").stdout) == found["digits"]
    assert "licence" in call("datasets", "digits").stdout


# -- Ctrl-C and resume -------------------------------------------------------------------------


class Watch(displays.Lines):
    """Progress display that presses Ctrl-C in the third round."""

    def __call__(self, progress: Progress) -> None:
        super().__call__(progress)
        if progress.round == 3:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_writes_a_checkpoint_and_says_how_to_go_on(monkeypatch):
    long = ("fedvs", *SMALL[2:], "--rounds", "30")
    whole = run_json(*long, "--out", "whole")
    with monkeypatch.context() as patched:
        patched.setattr(displays, "progress_display", Watch)
        result = call("run", *long, "--out", "cut it")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == ("interrupted; go on with: securevfl resume 'cut it'")
    assert "press Ctrl-C again" in result.stderr
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    resumed = json.loads(call("resume", "cut it", "--json").stdout)
    assert resumed["test_accuracy"] == whole["test_accuracy"]
    histories = [Path(name, "history.jsonl").read_text() for name in ("whole", "cut it")]
    assert histories[0] == histories[1]
    again = call("resume", "cut it")
    assert again.exit_code == 2
    assert "complete" in again.stderr


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


def test_a_process_that_ctrl_c_stopped_is_resumed_by_another_one():
    stopped = process("run", "fedvs", *SMALL[2:], "--rounds", "200", "--out", "cut")
    assert stopped.stderr is not None
    first = stopped.stderr.readline()
    stopped.send_signal(signal.SIGINT)
    _, errors = stopped.communicate(timeout=120)
    assert "round 20/200" in first
    assert stopped.returncode == 130, errors
    assert "Traceback" not in errors
    resumed = process("resume", "cut", "--json")
    output, errors = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, errors
    assert json.loads(output.splitlines()[-1])["rounds"] == 200


def test_exit_codes_of_a_process():
    mistake = process("run", "fedvs", "--parties", "65")
    output, errors = mistake.communicate(timeout=120)
    assert (mistake.returncode, output, len(errors.splitlines())) == (2, "", 1)


# -- small parts -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("2^31-1", str(2**31 - 1)),
        ("2**61-1", str(2**61 - 1)),
        ("2 ^ 26 - 5", str(2**26 - 5)),
        ("2^4+1", "17"),
        ("2^50-2^14+1", "1125899906826241"),
        ("2**50 - 2**14 + 1", "1125899906826241"),
        ("2^50-2^14+", "2^50-2^14+"),
        ("2^8-2^99999", "2^8-2^99999"),
        ("17", "17"),
        ("adam", "adam"),
        ("2^99999", "2^99999"),
    ],
)
def test_powers_are_powers_and_not_xor(text, number):
    assert plain_number(text) == number


@pytest.mark.parametrize("value", [2**31 - 1, 2**50 - 2**14 + 1, 2**61 - 1, 2**26 - 5, 0, 97, None])
def test_a_prime_is_printed_as_it_can_be_typed(value):
    assert plain_number(power_form(value)) == str(value)


def test_primes_near_powers_of_two_are_printed_as_sums():
    written = [power_form(p) for p in (2**31 - 1, 2**50 - 2**14 + 1, 2**26 - 5, 2013265921)]
    assert written == ["2^31-1", "2^50-2^14+1", "2^26-5", "2^31-2^27+1"]


@pytest.mark.parametrize(
    ("text", "value"), [("0.3", 0.3), ("true", True), ("[1, 2]", [1, 2]), ("none", "none")]
)
def test_values_of_data_options(text, value):
    assert toml_value(text) == value


@pytest.mark.parametrize(
    ("kind", "word"),
    [(int, "INTEGER"), (float | None, "NUMBER"), (str, "TEXT"), (int | None, "INTEGER")],
)
def test_metavar(kind, word):
    assert metavar(kind) == word


@pytest.mark.parametrize("text", ["split:x", "split:=1", "split:a=1,a=2", "split:a=1,,b=2"])
def test_malformed_variants_are_refused(text):
    with pytest.raises(ConfigurationError):
        parse_variant(text)


def test_json_has_no_values_that_json_lacks(capsys):
    import numpy as np

    show.print_json({"a": float("nan"), "b": np.float64(0.5), "c": (1, np.int64(2)), "d": None})
    assert json.loads(capsys.readouterr().out) == {"a": None, "b": 0.5, "c": [1, 2], "d": None}


def test_the_bar_shows_rounds_and_figures():
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    with displays.Bar("fedvs on digits", Console(file=text, force_terminal=True, width=80)) as bar:
        bar(Progress(3, 10, 0.25, 0.5, 75.0, 5, 7))
        bar.note("stopping")
    shown = text.getvalue()
    for part in ("preparing", "3/10", "loss 0.2500", "acc 50.0 %", "0:01:15", "used 5", "late 7"):
        assert part in shown
    assert shown.rstrip().endswith("\x1b[?25h")  # the cursor is shown again


def test_lines_are_one_for_each_tenth(capsys):
    lines = displays.Lines("x")
    for round_ in range(1, 101):
        lines(Progress(round_, 100, None, None, 0.0, 1, 0))
    assert len(capsys.readouterr().err.splitlines()) == 10


# -- the straggler laboratory ------------------------------------------------------------------

TWO = ("compare", "fedvs", "split", *SMALL, "--seeds", "2", "--segments", "1")


def test_compare_writes_what_a_study_writes_and_prints_the_table():
    result = call(*TWO, "--set", "client_lr=0.02")
    assert result.exit_code == 0, result.output
    for part in ("fedvs", "split", "test accuracy", "minus fedvs", "equal virtual times", "±"):
        assert part in result.stdout
    assert result.stderr.splitlines()[-1] == "compare: 4/4 (split, seed 1)"
    (folder,) = Path("runs").iterdir()
    assert folder.name.startswith("compare-digits-")
    names = {"curves.csv", "curves.png", "jobs", "results.csv", "results.json", "times.csv"}
    assert {path.name for path in folder.iterdir()} == names
    settings = json.loads((folder / "results.json").read_text())["settings"]
    assert settings["fedvs"]["options"]["client_lr"] == "0.02"
    assert settings["split"]["options"]["width"] == "4"


def test_compare_prints_one_object_last_and_starts_at_the_seed():
    result = call(*TWO, "--seed", "5", "--json", "--out", "here")
    found = json.loads(result.stdout.splitlines()[-1])
    assert found["run_folder"] == "here"
    assert found["runs"]["split"]["seeds"] == [5, 6]
    assert len(found["differences"]["split"]["test_accuracy"]) == 3


def test_compare_runs_what_run_runs():
    found = json.loads(call(*TWO, "--json").stdout.splitlines()[-1])
    alone = run_json("fedvs", *SMALL, "--segments", "1", "--seed", "1")
    figures = found["runs"]["fedvs"]
    assert figures["test_accuracy"]["values"][1] == alone["test_accuracy"]
    assert figures["virtual_seconds"]["values"][1] == alone["virtual_seconds"]
    assert figures["bytes"]["values"][1] == alone["bytes"]


def test_ctrl_c_keeps_the_finished_runs_of_a_comparison(monkeypatch):
    def press(self: Display, done: int, total: int, what: str) -> None:
        if done == 2:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Display, "progress", press)
        stopped = call(*TWO, "--out", "cut it")
    assert stopped.exit_code == 130
    last = stopped.stderr.splitlines()[-1]
    assert last.endswith("go on with: the same command with --out 'cut it'")
    assert len(list(Path("cut it", "jobs").iterdir())) == 2
    resumed = call(*TWO, "--out", "cut it")
    assert "compare: 2/4 (2 were there)" in resumed.stderr
    assert resumed.exit_code == 0


def test_a_study_goes_on_with_the_command_that_its_interruption_names(monkeypatch):
    write("small.toml", STUDY)

    def press(self: Display, done: int, total: int, what: str) -> None:
        if done == 1:
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr(Display, "progress", press)
        stopped = call("study", "small.toml", "--quick")
    assert stopped.exit_code == 130
    command = stopped.stderr.splitlines()[-1].partition("go on with: ")[2]
    assert command == "securevfl study small.toml --quick --out runs/study-small-quick"
    resumed = call(*command.split()[1:])
    assert "(1 were there)" in resumed.stderr
    for part in ("of two", "paper", "95.00 %", "coded", "plain", "minus plain"):
        assert part in resumed.stdout
    found = json.loads(call(*command.split()[1:], "--json").stdout)
    assert found["settings"]["coded"]["options"]["rounds"] == 3


STUDY = """
title = "of two"
dataset = "digits"
seeds = 2
baseline = "plain"
[options]
rounds = 4
width = 3
hidden = 3
[runs.coded]
protocol = "fedvs"
[runs.plain]
protocol = "split"
[paper]
accuracy = 95.0
[quick.options]
rounds = 3
"""


def test_help_of_compare_lists_the_options_of_all_protocols():
    text = " ".join(call("compare", "--help").stdout.replace("│", " ").split())
    for protocol in find_protocols().values():
        for name in protocol.Config.model_fields:
            assert f"--{name.replace('_', '-')}" in text
    for flag in ("--seeds", "--workers", "--until", "--data", "PROTOCOL..."):
        assert flag in text


def test_plan_prints_the_choices_and_a_command_that_runs():
    shape = ("--parties", "4", "--width", "4", "--batch", "16", "--rounds", "4")
    result = call("plan", "--data", "digits", *shape)
    assert result.exit_code == 0, result.output
    assert "2^31-1" in result.stdout
    command = result.stdout.splitlines()[-1].partition("run: securevfl ")[2]
    planned = json.loads(call("plan", "--data", "digits", *shape, "--json").stdout)
    summary = json.loads(call(*command.split(), "--json").stdout.splitlines()[-1])
    assert summary["bytes"] == planned["best"]["bytes"] == summary["planned"]["bytes"]
    assert summary["derived"]["p"] == planned["bits"]["prime"] == 2**31 - 1
    assert summary["derived"]["K"] == planned["best"]["segments"]


def test_the_command_of_a_plan_names_own_tables():
    for name in ("a", "b", "c"):
        write(f"{name} 1.csv", f"k,{name}\n" + "".join(f"{i},{i % 7}\n" for i in range(60)))
    write("y.csv", "k,y\n" + "".join(f"{i},{i % 2}\n" for i in range(60)))
    parties = [word for name in "abc" for word in ("--party", f"{name} 1.csv")]
    given = [*parties, "--id", "k", "--label", "y", "--label-file", "y.csv", "--unsealed"]
    shape = ["--set", "data.test_fraction=0.3", "--batch", "16", "--rounds", "3"]
    result = call("plan", *given, *shape)
    assert result.exit_code == 0, result.output
    assert "…" not in result.stdout
    command = result.stdout.splitlines()[-1].partition("run: securevfl ")[2]
    summary = json.loads(call(*shlex.split(command), "--json").stdout.splitlines()[-1])
    planned = json.loads(call("plan", *given, *shape, "--json").stdout)
    assert summary["bytes"] == planned["best"]["bytes"]


def test_a_protocol_named_first_is_planned_with_its_own_options():
    shape = ("--parties", "8", "--helpers", "2", "--width", "4", "--batch", "16", "--rounds", "3")
    result = call("plan", "coded_split", "--data", "digits", *shape)
    assert result.exit_code == 0, result.output
    for words in ("helpers: with 2", "range bound:", "catching up:", "10 keys"):
        assert words in result.stdout
    command = result.stdout.splitlines()[-1].partition("run: securevfl ")[2]
    summary = json.loads(call(*command.split(), "--json").stdout.splitlines()[-1])
    planned = json.loads(call("plan", "coded_split", "--data", "digits", *shape, "--json").stdout)
    assert summary["bytes"] == planned["best"]["bytes"]
    assert "--helpers" not in call("plan", "--help").stdout
    assert "did you mean coded_split" in call("plan", "coded-split").output


def test_plan_of_a_shape():
    shape = ("--rows", "60000", "--features", "784", "--parties", "28", "--degree", "1")
    found = json.loads(call("plan", *shape, "--unsealed", "--json").stdout)
    assert [choice["segments"] for choice in found["choices"]] == list(range(1, 14))
    assert found["choices"][0]["simulation_memory"] == pytest.approx(5.5e9, rel=0.02)


def test_the_summary_holds_the_plan_against_the_run():
    text = " ".join(call("run", "fedvs", *SMALL).stdout.split())
    assert "as predicted" in text
    assert "NOT as predicted" not in text
    assert "plan and measurement" not in call("run", "split", *SMALL).stdout


def test_until_ends_a_run():
    summary = run_json("fedvs", *SMALL[2:], "--rounds", "500", "--until", "30")
    assert 20 < summary["virtual_seconds"] <= 30
    assert summary["rounds"] < 500


def test_unsealed_runs_send_less():
    sealed, plain = run_json("split", *SMALL), run_json("split", *SMALL, "--unsealed")
    assert sealed["bytes"] - plain["bytes"] == 24 * plain["messages"]
    assert sealed["test_accuracy"] == plain["test_accuracy"]


def test_bench_threshold(tmp_path):
    size = ("--parties", "5,7", "--privacy", "1,2", "--segments", "3", "--tries", "1")
    few = ("--time-parties", "5", "--rounds", "3", "--prime", "2^31-1", "--out", "map.png")
    found = json.loads(call("bench", "threshold", *size, *few, "--json").stdout)
    assert found["cells"] == (6 + 8) * 2 * 3
    assert found["not_as_predicted"] == []
    assert [(row["T"], row["K"]) for row in found["rounds"]] == [(1, 1), (1, 2), (2, 1)]
    assert Path("map.png").stat().st_size > 5000
    text = call("bench", "threshold", *size, *few).stdout
    for part in ("0 not as predicted", "virtual", "computing, all parties", "processor"):
        assert part in text


def test_the_display_of_a_study_on_a_terminal(monkeypatch):
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    display = Display("compare")
    display._console = Console(file=text, force_terminal=True, width=100)
    with display:
        display.progress(0, 4, "0 were there")
        display.part("fedvs, seed 0", 0.5)
        display.progress(1, 4, "fedvs, seed 0")
        display.note("stopping")
    shown = text.getvalue()
    for part in ("compare", "1/4", "stopping"):
        assert part in shown


def test_bench_round_prints_both_times_and_their_ratio():
    size = ("--parties", "5", "--segments", "1", "--batch", "4", "--width", "2", "--rows", "40")
    arguments = ("bench", "round", *size, "--features", "10", "--blocks", "7", "--rounds", "1")
    result = json.loads(call(*arguments, "--json").stdout)
    assert [field["prime"] for field in result["fields"]] == [
        2**31 - 1,
        2**50 - 2**14 + 1,
        2**61 - 1,
    ]
    for field in result["fields"]:
        assert len(field["fedvs_ms"]["blocks"]) == len(field["split_ms"]["blocks"]) == 7
        assert field["ratio"] > 0
    assert {"processor", "python", "numpy", "numba", "blas"} <= set(result["machine"])
    text = call(*arguments).stdout
    for part in ("FedVS round", "float round", "ratio", "2^31-1", "2^50-2^14+1", "2^61-1"):
        assert part in text


def test_figures_of_the_field_are_a_table_beside_their_targets(monkeypatch):
    row = {"operation": "matmul", "ours": 79.8, "unit": "GMAC/s", "yardstick": "dgemm"}
    rows = [
        {**row, "theirs": 27.6, "ratio": 2.89, "target": ">= 1.4", "met": True},
        {**row, "theirs": 27.6, "ratio": 0.5, "target": ">= 1.4", "met": False},
        {**row, "theirs": 27.6, "ratio": 0.5, "target": "", "met": None},
    ]
    measured = {"machine": {"cores": 2}, "rows": rows}
    monkeypatch.setattr("securevfl.bench.rounds.bench_field", lambda: measured)
    shown = call("bench", "field").stdout
    assert "2.89" in shown
    assert (shown.count("missed"), shown.count(" met")) == (1, 1)
    assert "cores 2" in shown
