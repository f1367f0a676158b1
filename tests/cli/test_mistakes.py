"""Mistakes on the command line: one line, and exit code 2."""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from securevfl.errors import SecureVFLError, StalledError
from securevfl.protocols.base import registry
from tests.cli.calls import SMALL, call, table, write
from tests.conftest import look_again

MISTAKES = {
    "no protocol": (["run"], "protocol comes first"),
    "options before the protocol": (["run", "--rounds", "3", "fedvs"], "protocol comes first"),
    "unknown protocol": (["run", "fedsv"], "unknown protocol 'fedsv': did you mean fedvs"),
    "unknown command": (["rnu"], "rnu"),
    "a table without its option": (
        ["run", "fedvs", "a.csv"],
        "give a table by --data FILE, or one",
    ),
    "unknown option": (["run", "fedvs", "--segmnts", "2"], "did you mean --segments"),
    "only the nearest option": (["run", "fedvs", "--segmnts", "2"], "mean --segments? "),
    "another program's name": (["run", "fedvs", "--learning-rate", "x"], "lr = 'x'"),
    "its other form": (["run", "fedvs", "--batch-size=x"], "batch = 'x'"),
    "its name in --set": (["run", "fedvs", "--set", "learning_rate=x"], "lr = 'x'"),
    "its name in a variant": (["run", "split:batch_size=x"], "batch = 'x'"),
    "its name to compare": (["compare", "fedvs", "split", "--learning-rate", "x"], "lr = 'x'"),
    "its name to plan": (["plan", "--batch-size", "x"], "batch = 'x'"),
    "its name to verify": (["verify", "fedvs", "--batch-size", "x"], "batch = 'x'"),
    "weights of no kind": (["run", "split", "--class-weight", "x"], "class_weights = 'x'"),
    "weights that nobody may know": (
        ["run", "wait_dp", "--class-weights", "balanced", "--label-epsilon", "1"],
        "more than the noise is made for",
    ),
    "epochs": (["run", "fedvs", "--epochs", "3"], "E * M / B rounds: set rounds"),
    "epochs in --set": (["run", "fedvs", "--set", "epochs=3"], "E * M / B rounds: set rounds"),
    "data in --set": (["run", "fedvs", "--set", "parties=3"], "it is an option of the data"),
    "no such device": (["run", "fedvs", "--device", "abacus"], "cannot be used: "),
    "no device": (["run", "dvfl", "--gpu", "1"], "on the CPU, but by methods that have the option"),
    "nothing like it": (["export", "x", "--format", "onnx"], "'--format': there is none like it"),
    "option that cannot be": (["run", "coded_split", "--max-norm", "1"], "a clip is not linear"),
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
    "T >= N": (["run", "fedvs", "--parties", "4", "--privacy", "4"], "T = 4 (privacy)"),
    "N < R": (
        ["run", "fedvs", "--parties", "4", "--segments", "3"],
        "K = 3 (segments)",
    ),
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
    "no run to attack": (["compare", "runs/nosuch", "--attacks"], "is no folder of a run"),
    "unknown protocol to compare": (["compare", "fedvs", "splitt"], "did you mean split"),
    "unknown option to compare": (["compare", "fedvs", "split", "--widht", "3"], "--width"),
    "unknown variant to compare": (["compare", "fedvs", "split:width2=1"], "did you mean width"),
    "no seeds": (["compare", "fedvs", "split", "--seeds", "0"], "0 seeds"),
    "no workers": (["compare", "fedvs", "split", "--workers", "0"], "--workers"),
    "value to compare": (["compare", "fedvs", "split", "--lr", "fast"], "lr = 'fast'"),
    "a folder that is no run": (["verify", "runs/nothere"], "runs/nothere is no folder of a run"),
    "no invitation": (["party", "join", "", "--key", "k"], "give the whole line"),
    "no schedule": (["plan", "split", "--rows", "99", "--features", "9"], "no message schedule"),
    "a study that is not there": (["study", "none.toml"], "none.toml cannot be read"),
    "a plan without room": (["plan", "--prime", "2^31-1", "--accuracy-bits", "15"], "larger prime"),
    "a plan without any K": (["plan", "--privacy", "4"], "no K is feasible"),
    "a plan of two things": (["plan", "--rows", "9", "--data", "digits"], "leave out --data"),
    "a plan of rows alone": (["plan", "--rows", "9"], "rows and features"),
    "a negative time": (["run", "fedvs", "--until", "-1"], "until"),
    "no list of parties": (["bench", "decoding", "--parties", "6;7"], "--parties '6;7'"),
    "no list of numbers": (["bench", "threshold", "--counts", "1;2"], "--counts '1;2'"),
    "no law of delay": (["bench", "threshold", "--law", "constnat"], "did you mean constant"),
    "too many segments": (
        ["bench", "threshold", "fedvs:segments=3", "--parties", "4"],
        "there are 4 clients",
    ),
}


def test_sixty_typical_mistakes_are_in_the_table():
    assert len(MISTAKES) >= 60
    assert len({tuple(arguments) for arguments, _ in MISTAKES.values()}) >= 60


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


@pytest.fixture
def broken(monkeypatch):
    """A package whose protocol cannot be imported, and whose data set is none."""

    def load():
        raise ImportError("no module named theirs")

    groups = {
        "securevfl.protocols": [("coarse", load)],
        "securevfl.datasets": [("pumps", lambda: 3)],
        "securevfl.conditions": [("far", lambda: 3)],
    }
    made = {
        group: [
            SimpleNamespace(name=name, value=f"theirs:{name}", load=how, dist=None)
            for name, how in entries
        ]
        for group, entries in groups.items()
    }
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: made.get(group, []))
    look_again()
    registry._alone.cache_clear()
    yield
    monkeypatch.undo()
    look_again()


@pytest.mark.filterwarnings("default::securevfl.errors.SecureVFLWarning")
def test_a_broken_package_does_not_end_commands_that_do_without_it(broken):
    done = call("run", "split", *SMALL, "--conditions", "paper")
    assert done.exit_code == 0, done.output
    told = [line for line in done.stderr.splitlines() if "theirs:" in line]
    assert all(line.startswith("securevfl: warning: left out: entry point") for line in told)
    assert "entry point 'coarse' of group securevfl.protocols: theirs:coarse" in "".join(told)
    assert len(told) <= len(set(told)) <= 3  # each once, those that the command came across
    for words, part in [
        (["run", "coarse"], "theirs:coarse cannot be loaded: ImportError: no module named theirs"),
        (["run", "split", "--data", "pumps"], "theirs:pumps is no data set"),
        (["run", "split", "--conditions", "far"], "theirs:far is no pattern of conditions"),
    ]:
        done = call(*words)
        assert done.exit_code == 2, done.output
        assert part in done.stderr.splitlines()[-1]


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
