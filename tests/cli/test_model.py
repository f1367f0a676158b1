"""The command line: taught, completed, watched, interrupted; and what can be done with a run."""

from __future__ import annotations

import csv
import functools
import json
import logging
import os
import shlex
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

import securevfl as svfl
from securevfl.bench.field import bench_field
from securevfl.cli import completion, displays, studies, tables, verify
from securevfl.cli import output as show
from securevfl.cli import run as start
from securevfl.cli.app import app, in_flags
from securevfl.cli.logs import to_the_front
from securevfl.engine.names import PartyNames
from securevfl.protocols.base.registry import find_protocols
from securevfl.report import Written

SMALL = ("--rounds", "4", "--width", "4", "--hidden", "4", "--batch", "16", "--parties", "4")


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("SECUREVFL_TRACEBACK", "SECUREVFL_DATA", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "300")


def call(*arguments: str, given: str | None = None) -> Any:
    return CliRunner().invoke(app, list(arguments), prog_name="securevfl", input=given)


def leaves() -> list[tuple[str, ...]]:
    """Every command, with one protocol for those that have a command for each."""
    found: list[tuple[str, ...]] = []
    root = typer.main.get_command(app)

    def walk(command: Any, path: tuple[str, ...]) -> None:
        if path in (("run",), ("verify",)):
            found.append((*path, "fedvs"))
        elif hasattr(command, "list_commands"):
            context = command.context_class(command)
            for name in command.list_commands(context):
                walk(command.get_command(context, name), (*path, name))
        else:
            found.append(path)

    walk(root, ())
    return found


LEAVES = leaves()
IDS = [" ".join(path) for path in LEAVES]


# -- teaching ----------------------------------------------------------------------------------


def test_there_are_commands():
    assert {("run", "fedvs"), ("trace",), ("keys", "sign"), ("bench", "round")} <= set(LEAVES)


@pytest.mark.parametrize("path", [*LEAVES, ("run",), ("verify",), ()], ids=" ".join)
def test_every_help_page_teaches_by_example(path):
    text = call(*path, "--help").stdout
    assert text.count(f"securevfl {' '.join(path)}".strip()) >= 2  # in the usage, and an example
    assert "<bool>" not in text  # a flag takes no value


def every_example() -> list[str]:
    return [line for name in completion.EXAMPLES for line in completion.commands(name, "fedvs")]


@pytest.mark.parametrize("line", every_example())
def test_every_example_is_understood(line, monkeypatch, tmp_path):
    called: list[Any] = []
    # One example writes into the home directory, for the shell among the parents of this process.
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("typer._completion_shared._get_shell_name", lambda: "bash")

    def note(*arguments: Any, **options: Any) -> Any:
        called.append(arguments)
        return {}

    for module, names in (
        (start, ("start", "go_on")),
        (verify, ("start",)),
        (studies, ("compare", "study", "plan")),
        (show, ("print_rounds", "print_json", "print_brief")),
        (tables, ("print_decoding", "print_scale")),
    ):
        for name in names:
            monkeypatch.setattr(module, name, note)
    for name in (
        *("scale.bench_scale", "scale.draw_scale", "threshold_picture.draw"),
        *("threshold.Sweep.run", "threshold.write_csv"),
        *("decoding.map_threshold", "decoding.time_rounds", "decoding.draw_threshold"),
        *("decoding.report", "methods.MethodTable.run", "methods_picture.draw"),
    ):
        monkeypatch.setattr(f"securevfl.bench.{name}", note)
    monkeypatch.setattr("securevfl.bench.threshold.latex", str)
    monkeypatch.setattr("securevfl.cli.bench._print", note)
    for name in ("invitation.invite", "join.join", "relay.start", "relay.init"):
        monkeypatch.setattr(f"securevfl.runs.organisations.{name}", note)
    monkeypatch.setattr(
        "securevfl.runs.organisations.prediction.predict",
        lambda *a, **_: called.append(a) or {"predicted_rows": 1},
    )
    invited = SimpleNamespace(index=0, token="0123456789")
    monkeypatch.setattr(
        "securevfl.runs.organisations.invitation.Invitation.parse", lambda _: invited
    )
    for name in ("create", "write_public", "show", "write_manifest", "sign", "named"):
        monkeypatch.setattr(f"securevfl.runs.organisations.identities.{name}", note)
    signed = type("M", (), {"check": note, "terms": {}})
    monkeypatch.setattr("securevfl.runs.organisations.identities.look", lambda _: ({}, signed))
    monkeypatch.setattr(
        "securevfl.bench.rounds.bench_round", lambda *a, **_: called.append(a) or ((), 0)
    )
    small = functools.partial(bench_field, repeats=3, largest=64, elements=4096)
    monkeypatch.setattr("securevfl.bench.field.bench_field", lambda **_: small())
    monkeypatch.setattr(
        "securevfl.runs.from_folder.trace_folder",
        lambda *a, **_: called.append(a) or (pd.DataFrame(), PartyNames()),
    )
    nothing = {"classes": (), "probabilities": None, "predictions": (), "ids": None, "left_out": {}}
    nothing |= {"class_values": ()}
    monkeypatch.setattr("securevfl.runs.from_folder.predict_files", lambda *_, **__: nothing)
    monkeypatch.setattr(
        "securevfl.runs.from_folder.export_folder", lambda run, out, **_: called.append(out) or []
    )
    monkeypatch.setattr("securevfl.verified.traced.proofs.check_certificate", lambda _: {(-1,): ""})
    written = {"claims": [{"coalition": [-1], "scope": "PROVED for these"}]}
    monkeypatch.setattr("securevfl.verified.traced.proofs.read_certificate", lambda _: written)
    monkeypatch.setattr(
        "securevfl.runs.evidence.judged", lambda *_: SimpleNamespace(party=-1, why="it lied")
    )
    page = Written(Path("report.html"), 1, (), ())
    monkeypatch.setattr("securevfl.report.write_report", lambda *_, **__: page)
    result = call(*shlex.split(line)[1:])
    assert result.exit_code == 0, result.output
    assert called or result.stdout


@pytest.mark.parametrize("path", LEAVES, ids=IDS)
def test_every_command_speaks_json_and_suggests_options(path):
    result = call(*path, "--jsno")
    assert result.exit_code == 2
    assert "did you mean --json" in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "suggestion"),
    [
        (("verify", "fedsv"), "did you mean fedvs"),
        (("plan", "--data", "digts"), "did you mean digits"),
        (("verify", "fedvs", "--data", "digts"), "did you mean digits"),
        (("compare", "fedvs", "split", "--data", "digts"), "did you mean digits"),
        (("bench", "rond"), "Did you mean 'round'"),
        (("keys", "sgn"), "Did you mean 'sign'"),
        (("--log-level", "inof", "protocols"), "did you mean info"),
    ],
)
def test_misspelt_names_get_suggestions(words, suggestion):
    result = call(*words)
    assert result.exit_code == 2
    assert suggestion in result.stderr.splitlines()[-1]


# -- completion --------------------------------------------------------------------------------


def completed(words: str) -> list[str]:
    """What bash is told for a line whose last word is not done."""
    environment = {
        "_SECUREVFL_COMPLETE": "complete_bash",
        "COMP_WORDS": f"securevfl {words}",
        "COMP_CWORD": str(len(words.split(" "))),
    }
    result = CliRunner().invoke(app, [], prog_name="securevfl", env=environment)
    assert not result.stderr
    return result.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("ver", ["verify"]),
        ("run fedv", ["fedvs"]),
        ("run ", list(find_protocols())),
        ("verify spl", ["split"]),
        ("compare fedvs spl", ["split"]),
        ("protocols vaf", ["vafl"]),
        ("datasets parki", ["parkinson"]),
        ("run fedvs --data digi", ["digits"]),
        ("compare fedvs --data digi", ["digits"]),
        ("run fedvs --optimizer s", ["sgd"]),
        ("run fedvs --class-weights ", ["none", "balanced"]),
        ("run fedvs --tolerate", ["--tolerate-corrupt"]),
        ("run split --strag", ["--stragglers"]),
        ("plan --accuracy", ["--accuracy-bits"]),
        ("run fedvs --conditions p", ["paper"]),
        ("trace runs --fate l", ["late", "lost"]),
        ("--log-level d", ["debug"]),
        ("run nonsense --par", []),
    ],
)
def test_a_shell_completes(words, expected):
    assert completed(words) == expected


def test_own_files_complete_beside_data_sets():
    for name in ("dig.csv", "dig.txt", "other.csv"):
        Path(name).write_text("")
    Path("digs").mkdir()
    assert completed("run fedvs --data dig") == ["digits", "dig.csv", "digs/"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_can_be_shown(shell, monkeypatch):
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    command = [sys.executable, "-m", "securevfl", "--show-completion", shell]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "_SECUREVFL_COMPLETE" in done.stdout


# -- watching ----------------------------------------------------------------------------------


def test_what_takes_longer_than_a_second_is_said_and_what_does_not_is_not(monkeypatch, capsys):
    with displays.busy("quick") as tell:
        tell("a part")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(displays, "PATIENCE", -1.0)
    with displays.busy("slow") as tell:
        tell("a part")
    assert "slow: a part\n" in capsys.readouterr().err


def test_a_long_silence_is_broken_by_a_line(monkeypatch, capsys):
    said = threading.Event()
    monkeypatch.setattr(displays, "PATIENCE", 0.01)
    monkeypatch.setattr(displays, "say", lambda line, stream: said.set())
    with displays.busy("slow"):
        assert said.wait(30)


@pytest.mark.parametrize(
    ("words", "target"),
    [
        (("verify", "fedvs", "--parties", "4"), "securevfl.verified.traced.proofs.prove_protocol"),
        (("verify", "fedhssl", "--plain"), "securevfl.verify"),
        (("plan", "--data", "digits"), "securevfl.planning.forecast.plan"),
        (("bench", "round"), "securevfl.bench.rounds.bench_round"),
        (("bench", "decoding"), "securevfl.bench.decoding.map_threshold"),
        (("bench", "scale"), "securevfl.bench.scale.bench_scale"),
        (("predict", "a run", "new.csv"), "securevfl.runs.from_folder.predict_files"),
        (("trace", "a run"), "securevfl.runs.from_folder.trace_folder"),
        (("export", "a run"), "securevfl.runs.from_folder.export_folder"),
    ],
)
def test_ctrl_c_ends_cleanly_and_says_how_to_start_again(words, target, monkeypatch):
    def press(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(target, press)
    result = call(*words)
    assert result.exit_code == 130
    last = result.stderr.splitlines()[-1]
    command = shlex.join(["securevfl", *words])
    assert last == f"interrupted; nothing was kept; start again with: {command}"


def test_a_stopped_verification_says_what_is_kept_and_what_stays(monkeypatch):
    def press(traced: Any, *, progress: Any, kept: Any) -> None:
        progress("40 %: server: VIOLATED so far, nobody is late")
        kept.add("digest", [])
        progress("50 %: client 0: derived, unchecked so far, nobody is late")
        raise KeyboardInterrupt

    monkeypatch.setattr("securevfl.verified.traced.proofs.prove_protocol", press)
    result = call("verify", "fedvs")
    assert result.exit_code == 130
    assert result.stdout.splitlines() == [
        "server: VIOLATED, so far (1 trace)",
        "client 0: derived, unchecked, so far (1 trace)",
    ]
    last = result.stderr.splitlines()[-1]
    assert last.startswith("interrupted at 50 %; VIOLATED stays, and no other claim has a verdict")
    file = Path("runs/verify-fedvs.unfinished.jsonl")
    assert last.endswith(f"; the same command goes on from {file}")
    assert file.is_file()


def terminal(*words: str, **environment: str) -> str:
    """What a command writes on a terminal of its own."""
    import pty

    parent, child = pty.openpty()
    command = [sys.executable, "-m", "securevfl", *words]
    own = {**os.environ, "TERM": "xterm-256color", **environment}
    with subprocess.Popen(command, stdout=child, stderr=child, stdin=child, env=own) as process:
        os.close(child)
        text = b""
        while True:
            try:
                part = os.read(parent, 4096)
            except OSError:  # the other end was closed
                break
            if not part:
                break
            text += part
        assert process.wait(120) == 0
    os.close(parent)
    return text.decode()


def test_colour_is_for_terminals_only():
    assert "\x1b[32m" in terminal("datasets")
    plain = terminal("datasets", NO_COLOR="1")
    assert "\x1b[32m" not in plain
    assert "digits" in plain
    assert "\x1b" not in call("datasets").stdout


# -- the log -----------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [("-v",), ("--log-level", "info"), ("--log-level=INFO",)])
@pytest.mark.parametrize("front", [True, False])
def test_the_log_goes_to_standard_error(words, front):
    command = ("run", "split", *SMALL)
    result = call(*words, *command) if front else call(*command, *words)
    assert result.exit_code == 0
    assert "INFO securevfl.runs.engines.run: run of split on 'digits'" in result.stderr
    assert "DEBUG" not in result.stderr
    assert "INFO" not in result.stdout


def test_more_is_said_when_asked_for_and_nothing_without():
    told = call("run", "split", *SMALL, "-vv").stderr
    assert "DEBUG securevfl.runs.history: {'event': 'round', 'party': -1, 'round': 3" in told
    assert "INFO" not in call("run", "split", *SMALL).stderr
    kinds = {type(handler).__name__ for handler in logging.getLogger("securevfl").handlers}
    assert kinds == {"NullHandler"}


def test_words_after_a_double_hyphen_are_left_alone():
    assert to_the_front(["a", "--", "-v"]) == ["a", "--", "-v"]


# -- finished runs -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A folder with a table, some of its rows without labels, and a run."""
    home = tmp_path_factory.mktemp("kept")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"c{k}": rng.random(60) for k in range(5)})
    frame["y"] = np.where(frame["c0"] + frame["c3"] > 1, "yes", "no")
    frame.to_csv(home / "own.csv", index=False)
    frame.drop(columns="y").iloc[:7].to_csv(home / "new.csv", index=False)
    words = ("--data", str(home / "own.csv"), "--label", "y", *SMALL, "--out", str(home / "mine"))
    assert call("run", "fedvs", *words).exit_code == 0
    return home


@pytest.fixture
def folder(kept, monkeypatch):
    monkeypatch.chdir(kept)
    return Path("mine")


@pytest.fixture
def table(kept):
    return pd.read_csv(kept / "own.csv")


def test_predictions_are_those_of_the_run(table, folder, tmp_path):
    run = svfl.load_run(folder)
    expected = run.predict(table.iloc[:7]).tolist()
    lines = list(csv.DictReader(call("predict", "mine", "new.csv").stdout.splitlines()))
    assert [line["prediction"] for line in lines] == expected
    shares = run.predict_proba(table.iloc[:7])
    assert [float(line["p(yes)"]) for line in lines] == pytest.approx(shares[:, 1], rel=1e-4)
    coded = json.loads(call("predict", "mine", "new.csv", "--coded", "--json").stdout)
    assert coded["predictions"] == expected
    assert coded["messages"] > 0
    assert coded["coded"] is True
    found = tmp_path / "found.csv"
    call("predict", "mine", "new.csv", "--out", str(found))
    assert pd.read_csv(found)["prediction"].tolist() == expected


def test_a_file_for_each_party(table, folder, tmp_path):
    owners = svfl.load_run(folder).protocol.data.transform.parties
    files = []
    for n, part in enumerate(owners):
        files.append(str(tmp_path / f"p{n}.csv"))
        table[[column.name for column in part.columns]].iloc[:7].to_csv(files[-1], index=False)
    whole = call("predict", "mine", "new.csv").stdout
    assert call("predict", "mine", *files).stdout == whole


def test_files_of_parties_are_joined_by_their_ids(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    ids = [f"u{k}" for k in range(120)]
    values = draw.normal(size=(120, 3))
    labels = np.where(values.sum(axis=1) > 0, "yes", "no")
    pd.DataFrame({"who": ids, "y": labels}).to_csv("y.csv", index=False)
    files = []
    for n in range(3):
        files.append(f"{n}.csv")
        pd.DataFrame({"who": ids, f"x{n}": values[:, n]}).to_csv(files[-1], index=False)
    parties = [word for file in files for word in ("--party", file)]
    given = ("--id", "who", "--label", "y", "--label-file", "y.csv", "--rounds", "4")
    call("run", "fedvs", *parties, *given, "--out", "mine", "--json")
    aligned = call("predict", "mine", *files).stdout
    assert aligned.splitlines()[0] == "who,prediction,p(no),p(yes)"
    new = [f"new-{n}.csv" for n in range(3)]
    for n, file in enumerate(new):  # each in an order of its own, and not the same people
        rows = draw.permutation(120)[: 100 + n]
        part = pd.DataFrame({"who": np.array(ids)[rows], f"x{n}": values[rows, n]})
        part.to_csv(file, index=False)
    result = call("predict", "mine", *new)
    assert set(result.stdout.splitlines()) < set(aligned.splitlines())
    assert len(result.stdout.splitlines()) > 60
    assert "new-2.csv: " in result.stderr
    pd.DataFrame({"x1": values[:, 1]}).to_csv(new[1], index=False)
    result = call("predict", "mine", *new)
    assert result.exit_code == 2
    assert "new-1.csv has no id column 'who'" in result.stderr


@pytest.mark.usefixtures("in_this_process")
def test_the_claims_of_a_run_are_verified_in_its_folder(kept, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("--data", str(kept / "own.csv"), "--label", "y", "--out", "mine", *SMALL)
    assert call("run", "split", *words).exit_code == 0
    folder = Path("mine")
    result = call("verify", "mine", "--json")
    report = json.loads(result.stdout)
    assert report["protocol"] == "split"
    assert report["parameters"]["N"] == svfl.load_run(folder).protocol.data.parties
    assert json.loads((folder / "verify.json").read_text()) == report
    assert {claim["who"] for claim in report["claims"]} >= {"server", "client"}
    assert report["ran"][0].startswith("a trace at N = ")
    assert "no verdicts" not in call("report", "mine").stderr
    refused = call("verify", "mine", "--data", "digits")
    assert refused.exit_code == 2
    assert "has its own data" in refused.stderr
    card = " ".join(call("protocols", "fedvs").stdout.split())
    assert "What is claimed, with the default options on the set digits. Figures below are" in card


def test_exported_files_predict_too(table, folder):
    told = json.loads(call("export", "mine", "--out", "models", "--json").stdout)
    assert [Path(file).name for file in told["files"]][:2] == ["server.npz", "party-0.npz"]
    models = svfl.load_models("models")
    assert (models.predict(table.iloc[:7]) == svfl.load_run(folder).predict(table.iloc[:7])).all()
    assert "written to" in call("export", "mine").stdout
    assert Path("mine/models/server.npz").exists()


def test_messages_are_traced(folder):
    words = ("trace", "mine", "--kind", "embedding", "--from", "party-2", "--to", "server")
    told = json.loads(call(*words, "--json", "--first", "2").stdout)
    run = svfl.load_run(folder)
    chosen = run.trace(kind="embedding", sender=2, receiver=-1)
    assert told["chosen"] == len(chosen) == 4
    assert [m["number"] for m in told["messages"]] == chosen["number"].tolist()[:2]
    assert "4 of" not in call(*words).stdout
    assert f"40 of {len(run.transcript):,} messages" in call("trace", "mine").stdout


def test_a_trace_needs_no_data(folder):
    Path("own.csv").rename("away.csv")
    try:
        assert call("trace", "mine", "--json").exit_code == 0
    finally:
        Path("away.csv").rename("own.csv")


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("predict", "nowhere", "new.csv"), "nowhere is no folder"),
        (("predict", "mine", "none.csv"), "none.csv"),
        (("predict", "mine", "own.csv", "own.csv"), "2 files for 4 parties"),
        (("export", "nowhere"), "nowhere is no folder"),
        (("trace", "nowhere"), "nowhere is no folder"),
        (
            ("trace", "mine", "--from", "party-x"),
            "write party-0 to party-3, or server",
        ),
        (("trace", "mine", "--from", "9"), "there is no party 9"),
        (("trace", "mine", "--round", "900"), "no message of round 900; the messages are of"),
        (("verify", "runs/nothere"), "verify: runs/nothere is no folder of a run, nor a protocol"),
        (("trace", "mine", "--kind", "embed"), "did you mean embedding"),
        (("trace", "mine", "--fate", "latte"), "did you mean late"),
    ],
)
def test_mistakes_are_one_line(folder, words, part):
    result = call(*words)
    assert result.exit_code == 2, result.output
    assert part in result.stderr.splitlines()[-1]
    assert len([line for line in result.stderr.splitlines() if "..." not in line]) == 1


def test_a_link_in_a_foreign_folder_is_not_written_through(tmp_path):
    from securevfl.cli.verify import _write

    class Found:
        def to_dict(self):
            return {"protocol": "fedvs"}

    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "verify.json").symlink_to(precious)
    _write(Found(), tmp_path / "run")
    assert precious.read_text() == "mine"
    assert json.loads((tmp_path / "run" / "verify.json").read_text()) == {"protocol": "fedvs"}


def test_a_network_of_one_s_own_is_found_in_the_working_folder(folder, monkeypatch):
    Path("my_net_of_cli.py").write_text(
        "from torch import nn\n\n\n"
        "def head(inputs, outputs):\n    return nn.Linear(inputs, outputs)\n"
    )
    monkeypatch.setenv("SECUREVFL_CODE", "")
    own = ("--own-centre", "my_net_of_cli:head", "--out", "own")
    done = call("run", "split", "--data", "own.csv", "--label", "y", *SMALL, *own)
    assert done.exit_code == 0, done.stderr
    monkeypatch.setenv("SECUREVFL_CODE", "")  # as in another process
    refused = call("predict", "own", "new.csv")
    assert refused.exit_code == 2
    assert "files must not name code" in refused.stderr
    again = call("predict", "own", "new.csv", "--code", "my_net_of_cli:head")
    assert again.exit_code == 0, again.stderr
    assert len(again.stdout.splitlines()) == 8
    monkeypatch.setenv("SECUREVFL_CODE", "")
    words = ("split", "split:own_centre=my_net_of_cli:head", *SMALL, "--seeds", "1", "--json")
    compared = call("compare", *words, "--out", "compared")
    assert compared.exit_code == 0, compared.stderr
    assert len(json.loads(compared.stdout.splitlines()[-1])["runs"]) == 2


def test_options_of_python_are_told_as_they_are_typed():
    write = Path("a.csv").write_text
    write("k,a\n1,2\n2,3\n")
    Path("b.csv").write_text("k,b\n1,2\n2,3\n")
    result = call("run", "split", "--party", "a.csv", "--party", "b.csv", "--label", "b")
    assert "party files need id_column=" in result.stderr
    assert "(On the command line id_column= is --id.)" in result.stderr
    assert in_flags("drop it with drop=['x'] or N=3 and --label=y") == (
        " (On the command line drop= is --set data.drop=VALUE.)"
    )
    assert in_flags("nothing of the kind") == ""


def test_two_parties_are_told_what_they_can_do():
    result = call("run", "fedvs", "--parties", "2")
    assert result.exit_code == 2
    assert "2 parties are too few" in result.stderr
    assert "`split` takes fewer" in result.stderr


def test_a_redirected_table_is_as_wide_as_its_cells(capsys):
    """A pipe is not 80 columns wide: nothing is cut or folded."""
    show.print_table(("name", *(f"measure {n}" for n in range(12))), [["x" * 40] * 13], "t" * 150)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].rstrip() == "t" * 150
    assert any(line.split() == ["x" * 40] * 13 for line in lines)


def test_a_terminal_keeps_figures_beside_units_and_leaves_room_for_sentences(capsys, monkeypatch):
    monkeypatch.setattr(
        show, "out", lambda: Console(force_terminal=True, width=80, color_system=None)
    )
    reason = "between parties " * 12
    row = ("[yellow]server; server + T clients[/]", "625.47 kB", "perfect, given sums", reason)
    show.print_table(("against", "sent", "secrecy", "why"), [row])
    shown = capsys.readouterr().out
    assert "625.47 kB" in shown
    assert "between parties between" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert shown.count("between") == 12


def test_a_narrow_terminal_folds_cells_and_cuts_none(capsys, monkeypatch):
    narrow = Console(force_terminal=True, width=30, color_system=None)
    monkeypatch.setattr(show, "out", lambda: narrow)
    show.print_table(("name", "value"), [["a" * 30, "12345678901234567890"]])
    shown = capsys.readouterr().out
    assert "…" not in shown
    assert shown.count("a") - "name".count("a") - "value".count("a") == 30
