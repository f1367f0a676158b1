"""Commands on many runs and on none: compare, study, plan, bench."""

from __future__ import annotations

import functools
import json
import shlex
import signal
from pathlib import Path

import pytest

from securevfl.audit.attack_matrix.run import attack_matrix
from securevfl.cli.studies import Display
from securevfl.machine import describe_machine
from securevfl.protocols.base.registry import find_protocols
from tests.cli.calls import SMALL, call, run_json, write

TWO = ("compare", "fedvs", "split", *SMALL, "--seeds", "2", "--segments", "1")


def test_compare_writes_what_a_study_writes_and_prints_the_table():
    result = call(*TWO, "--set", "client_lr=0.02")
    assert result.exit_code == 0, result.output
    for part in ("fedvs", "split", "test accuracy", "minus fedvs", "equal virtual times", "±"):
        assert part in result.stdout
    assert result.stderr.splitlines()[-1] == "compare: 4/4, 100 % (split, seed 1)"
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


def test_the_attack_on_a_run_stands_in_its_folder_and_in_its_report(monkeypatch):
    small = ("--parties", "4", "--rounds", "3", "--width", "3", "--batch", "60", "--hidden", "2")
    own = ("--data", "breast-cancer", *small, "--segments", "1", "--out", "a b")
    run = call("run", "fedvs", *own, "--verbose")
    assert "No attack was run on it: `securevfl compare 'a b' --attacks`" in run.stdout
    one = functools.partial(attack_matrix, attacks=("squares",))
    monkeypatch.setattr("securevfl.audit.attack_matrix.run.attack_matrix", one)
    assert call("compare", "a b", "--attacks").exit_code == 0
    assert {"attacks.json", "attacks.png"} <= {path.name for path in Path("a b").iterdir()}
    assert call("report", "a b", "--out", "page.html").exit_code == 0
    text = Path("page.html").read_text()
    assert "Built-in attacks on this configuration got with nothing known" in text


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
    assert "compare: 2/4, 50 % (2 were there)" in resumed.stderr
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


def test_a_study_with_a_network_of_one_s_own_needs_its_name_said_again(monkeypatch):
    Path("nets_of_study.py").write_text(
        "from torch import nn\n\n\n"
        "def head(inputs, outputs):\n    return nn.Linear(inputs, outputs)\n"
    )
    monkeypatch.setenv("SECUREVFL_CODE", "")
    named = STUDY.replace("[options]", '[options]\nown_centre = "nets_of_study:head"')
    write("own.toml", named)
    refused = call("study", "own.toml", "--quick")
    assert refused.exit_code == 2
    assert "files must not name code" in refused.stderr
    code = ("--code", "nets_of_study:head")
    done = json.loads(call("study", "own.toml", "--quick", *code, "--json").stdout)
    assert done["settings"]["plain"]["options"]["own_centre"] == "nets_of_study:head"
    monkeypatch.setenv("SECUREVFL_CODE", "")
    again = call("study", "own.toml", "--quick", *code, "--workers", "2")
    assert again.exit_code == 0, again.stderr
    assert "(4 were there)" in again.stderr


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
    text = " ".join(call("compare", "--help-all").stdout.replace("│", " ").split())
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


def test_plan_says_how_many_rounds_and_epochs_the_budget_affords():
    shape = ("--rows", "500", "--features", "12", "--parties", "6", "--batch", "50")
    result = call("plan", *shape, "--rounds", "40", "--width", "4", "--set", "sum_budget=1")
    assert result.exit_code == 0, result.output
    assert "20 of 40" in result.stdout
    assert "ends the run after 20 of 40 rounds, which are 2 epochs" in result.stdout


def test_bench_decoding(tmp_path):
    size = ("--parties", "5,7", "--privacy", "1,2", "--segments", "3", "--tries", "1")
    few = ("--time-parties", "5", "--rounds", "3", "--prime", "2^31-1", "--out", "map.png")
    found = json.loads(call("bench", "decoding", *size, *few, "--json").stdout)
    assert found["cells"] == (6 + 8) * 2 * 3
    assert found["not_as_predicted"] == []
    assert [(row["T"], row["K"]) for row in found["rounds"]] == [(1, 1), (1, 2), (2, 1)]
    assert Path("map.png").stat().st_size > 5000
    text = call("bench", "decoding", *size, *few).stdout
    for part in ("0 not as predicted", "virtual", "computing, all parties", "processor"):
        assert part in text


def test_bench_threshold():
    words = ("fedvs:privacy=1,segments=1", "--parties", "4", "--counts", "2", "--target", "0.11")
    few = ("--law", "constant", "--until", "0.5", "--set", "width=4", "--seeds", "1")
    text = call("bench", "threshold", *words, *few, "--out", "here").stdout
    assert "constant" in text
    assert {path.name for path in Path("here").iterdir()} == {
        *("cells.csv", "threshold.json", "threshold.png", "thresholds.csv", "thresholds.tex"),
        "jobs",
    }
    found = json.loads(call("bench", "threshold", *words, *few, "--out", "here", "--json").stdout)
    (row,) = found["thresholds"]
    assert (row["declared"], row["clock"]) == (1, 0)
    assert [cell["troubled"] for cell in found["cells"]] == [0, 2]
    assert found["settings"]["until"] == 0.5


def test_bench_methods():
    words = ("fedvs", "local:lr=0.1", "--data", "digits:parties=2,test_fraction=0.8")
    few = ("--until", "3", "--set", "width=4", "--conditions", "paper", "--out", "here")
    result = call("bench", "methods", *words, *few)
    assert result.exit_code == 0, result.output
    assert "fedvs on digits:parties=2,test_fraction=0.8 cannot run: fedvs: 2 parties" in " ".join(
        result.output.split()
    )
    assert {path.name for path in Path("here").glob("methods.*")} == {
        *("methods.csv", "methods.json", "methods.png", "methods.tex")
    }
    found = json.loads(call("bench", "methods", *words, *few, "--json").stdout)
    fedvs, local = found["cells"]
    assert fedvs["empty"].startswith("cannot run")
    assert (local["seeds"], local["lr"]) == (1, None)
    assert found["protocol"]["until"] == 3
    refused = call("bench", "methods", "--rates", "fast")
    assert refused.exit_code == 2
    assert "positive numbers with commas" in refused.output


def test_conditions_are_listed_and_shown():
    listed = json.loads(call("conditions", "--json").stdout)["conditions"]
    assert {"none", "paper", "ranks_st"} <= {each["name"] for each in listed}
    assert all(each["what"] for each in listed)
    assert "ranks_ar" in call("conditions").stdout
    shown = call("conditions", "ranks_st", "--parties", "4").stdout
    for part in ("32 rounds", "Apache-2.0", "share_factor = 0.0625"):
        assert part in shown
    found = json.loads(call("conditions", "paper", "--parties", "2", "--json").stdout)
    assert [row["mean"] for row in found["parties"]] == [0.1, 2.25]


def test_bench_scale():
    few = ("--protocols", "split", "--parties", "2", "--rows", "", "--features", "")
    arguments = ("bench", "scale", *few, "--rounds", "", "--out", "scale.png")
    found = json.loads(call(*arguments, "--json").stdout)
    assert [(p["axis"], p["parties"], p["rounds"]) for p in found["points"]] == [("parties", 2, 6)]
    assert found["exponents"] == {"split": {"parties": {}}}  # one size has no slope
    assert Path("scale.png").stat().st_size > 5000


def test_scale_is_printed_with_its_exponents(monkeypatch):
    measured = {
        "protocol": "split", "axis": "rounds", "rounds": 10, "setup": 0.5, "seconds": 0.002,
        "memory": 3_000_000, "bytes": 1500.0, "predicted_memory": None, "predicted_bytes": 1400.0,
    }  # fmt: skip
    result = {
        "points": [measured],
        "exponents": {"split": {"rounds": {"seconds": 1.02, "bytes": 1.0}}},
        "machine": describe_machine(),
    }
    monkeypatch.setattr("securevfl.bench.scale.bench_scale", lambda *_, **__: result)
    text = call("bench", "scale").stdout
    for part in ("10 rounds", "2.0 ms", "exponents of the whole run over rounds: seconds +1.02"):
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
    for part in ("shared round", "float round", "ratio", "2^31-1", "2^50-2^14+1", "2^61-1"):
        assert part in text
