"""The examples do what they say: scripts, notebooks, and a protocol from outside the package."""

from __future__ import annotations

import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from securevfl.cli.app import app
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.protocols.base.registry import get_protocol
from securevfl.testing.conformance import CHECKS
from tests.conftest import look_again
from tests.docs.notebooks import NOTEBOOKS, executed, printed

EXAMPLES = Path(__file__).parents[2] / "examples"
OWN = EXAMPLES / "own_protocol"


def script(name: str, monkeypatch: Any) -> ModuleType:
    """A script as a module; what it puts on the path, or imports from there, goes again."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "additive_split", raising=False)
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# -- what the page shows ---------------------------------------------------------------------------

PAGE = Path(__file__).parents[2] / "docs" / "quick-start.md"
PRINTED = Path(__file__).parent / "printed"


def without_numbers(text: str) -> set[str]:
    """The lines of a text, with signs for numbers and for what braces hold, and single spaces."""
    masked = re.sub(r"-?\d[\d.,]*(e-?\d+)?", "#", re.sub(r"{.*?}", "{}", text))
    masked = re.sub(r"\[(#? ?)+\]", "[#]", " ".join(masked.replace("\n", " / ").split()))
    return {line.strip() for line in masked.split("/") if line.strip()}


def expected(name: str) -> str:
    """What an example prints: a file of its own, or the page's block."""
    file = PRINTED / f"{name}.txt"
    if file.is_file():
        return file.read_text()
    (block,) = re.findall(
        rf"<!-- printed by examples/{name} -->\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    return str(block)


def check_page(name: str, printed: str, *, part: bool = False) -> None:
    """An example prints the expected lines; all of them, unless it ran in part."""
    found, shown = without_numbers(printed), without_numbers(expected(name))
    assert found <= shown, found - shown
    assert part or found == shown, shown - found


def test_other_words_are_not_what_the_page_shows():
    with pytest.raises(AssertionError, match="late letters"):
        check_page("first_run.py", "fedvs 90.6% held-out accuracy, 300 late letters")


# -- scripts ---------------------------------------------------------------------------------------


def test_first_run_shows_that_fedvs_waits_for_nobody(monkeypatch, capsys):
    runs = script("first_run", monkeypatch).main(rounds=12)
    assert runs["fedvs"].virtual_seconds < runs["split"].virtual_seconds / 4
    assert runs["fedvs"].summary()["late"] > 0 == runs["split"].summary()["late"]
    printed = capsys.readouterr().out
    assert "client             labels    none" in printed
    check_page("first_run.py", printed)


def test_the_threshold_is_that_of_the_theorem(monkeypatch, capsys):
    study = script("straggler_threshold", monkeypatch)
    times = study.main(rounds=2, largest=2)
    for (K, s), seconds in times.items():
        assert (seconds >= study.SLOW) == (s > study.N - (2 * (K + study.T - 1) + 1))
    printed = capsys.readouterr().out
    assert "0 differ from the theorem" in printed
    check_page("straggler_threshold.py", printed, part=True)


def test_the_audit_tells_a_sound_protocol_from_broken_ones(monkeypatch, capsys):
    found = script("privacy_audit", monkeypatch).main(runs=18)
    assert found == {  # (a leak in the views, masks of another origin)
        "Client": (False, False),  # wrong with probability 1e-7
        "SmallMasks": (True, True),
        "SeededMasks": (False, True),
    }
    printed = capsys.readouterr().out
    assert printed.count("VIOLATED") == 1
    check_page("privacy_audit.py", printed)


def test_own_csv_files_are_matched_and_trained_on(monkeypatch, capsys):
    found = script("own_csv", monkeypatch).main(rounds=25)
    assert found["fedvs"] > found["local"] > 0.8
    printed = capsys.readouterr().out
    assert "330 common rows" in printed
    check_page("own_csv.py", printed)


def test_optuna_chooses_on_rows_that_are_no_test_rows(monkeypatch, capsys):
    pytest.importorskip("optuna", reason="pip install optuna")
    module = script("optuna_search", monkeypatch)
    monkeypatch.setitem(module.SIZE, "rounds", 6)
    study, run = module.main(trials=3)
    assert study.best_value == max(trial.value for trial in study.trials)
    assert run.protocol.config.lr == study.best_params["lr"]
    assert (
        module.data(validation=0.2).rows + module.data(validation=0.2).test_rows
        == run.protocol.data.rows
    )
    check_page("optuna_search.py", capsys.readouterr().out)


def test_every_script_is_tested():
    tested = Path(__file__).read_text()
    for path in EXAMPLES.glob("*.py"):
        assert f'script("{path.stem}"' in tested


# -- notebooks -------------------------------------------------------------------------------------


def code_cells(path: Path) -> list[dict[str, Any]]:
    return [c for c in json.loads(path.read_text())["cells"] if c["cell_type"] == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run_from_top_to_bottom(path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    found = executed(path, lambda code: code.replace("ROUNDS = 60", "ROUNDS = 5"), look_again)
    monkeypatch.undo()
    look_again()
    shown = without_numbers(printed([cell["outputs"] for cell in code_cells(path)]))
    assert without_numbers(printed(found)) == shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_committed_with_outputs_of_one_run(path):
    cells = code_cells(path)
    assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
    kinds = {one["output_type"] for cell in cells for one in cell["outputs"]}
    assert "stream" in kinds <= {"stream", "display_data"}
    assert path.stat().st_size < 100_000


def test_there_are_five_scripts_and_five_notebooks():
    assert len(list(EXAMPLES.glob("*.py"))) == 5
    assert len(NOTEBOOKS) == 5


# -- a protocol in one file outside the package ----------------------------------------------------


@pytest.fixture
def installed(outside):
    """Name of the example, which is on the path as pip would install it."""
    return outside


def securevfl(line: str) -> str:
    """Standard output of a command that succeeds."""
    done = CliRunner().invoke(app, line.split())
    assert done.exit_code == 0, done.output
    return done.stdout


def last(line: str) -> dict[str, Any]:
    """The JSON object that a command prints last."""
    return json.loads(securevfl(f"{line} --json").splitlines()[-1])


@pytest.mark.usefixtures("in_this_process")
def test_an_installed_protocol_is_in_every_command(installed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    listed = {card["name"]: card for card in last("protocols")["protocols"]}
    assert listed[installed]["options"]["fraction_bits"]["default"] == 24
    assert "additive shares" in securevfl(f"protocols {installed}")

    small = "--rounds 3 --batch 32 --width 8 --hidden 8"
    run = last(f"run {installed} {small} --fraction-bits 20 --out one")
    assert (run["rounds"], run["late"]) == (3, 0)
    assert {"config.toml", "history.jsonl", "model.npz"} <= {p.name for p in Path("one").iterdir()}

    results = last(f"compare {installed} split {small} --seeds 1 --out two")
    assert set(results["runs"]) == {installed, "split"}

    report = last(f"verify {installed}")
    verdicts = {(c["who"], c["about"]): c["verdict"] for c in report["claims"]}
    assert verdicts["server", "features"] == "NOT PROVED"  # it has no protected values
    assert report["protocol"] == installed

    securevfl("report one --out page.html")
    page = Path("page.html").read_text()
    assert installed in page
    assert "N - 1 of N additive shares are uniform" in page  # its claims, with their reasons


@pytest.mark.parametrize("check", CHECKS)
def test_an_installed_protocol_conforms(installed, check):
    CHECKS[check](installed)


def test_the_sum_is_that_of_plain_split_learning(installed):
    from securevfl.testing.runs import simulate

    options = {"rounds": 5}
    shared = simulate(installed, **options)
    plain = simulate("split", **options)
    np.testing.assert_allclose(shared.losses, plain.losses, rtol=1e-5)  # 2^-24 a value, no more


def test_values_that_could_wrap_are_refused(installed):
    from securevfl.errors import RangeError
    from securevfl.testing.runs import make

    client = make(get_protocol(installed), fraction_bits=40).parties()[0]
    with pytest.raises(RangeError, match=r"client 0 .* lower fraction_bits"):
        client.quantised(np.full((1, 2), 2.0**19, np.float32))


# -- attacks, data sets and conditions in files outside the package --------------------------------


def test_an_installed_attack_is_in_the_matrix(install, tmp_path, monkeypatch):
    from securevfl.audit.attack_matrix.run import AttackSettings, attack_matrix
    from securevfl.data.source import DataSource

    digits = DataSource("digits", {"parties": 4})
    few = AttackSettings(rows=300, auxiliary=60)
    small = {"width": 8, "hidden": 8, "batch": 100, "rounds": 9}
    with pytest.raises(UnknownNameError, match="unknown attack 'nearest_row'"):
        attack_matrix(["split"], digits, attacks=["nearest_row"])
    module = install("own_attack")
    found = attack_matrix(
        ["split", "fedvs"], digits, options=small, seeds=[0], attacks=["nearest_row"], settings=few
    )
    plain, secure = (found.cell(name, module) for name in ("split", "fedvs"))
    assert (plain["role"], plain["about"]) == ("server", "features")
    assert plain["verdict"] == "above chance"
    assert secure["verdict"] == "no view"
    with pytest.raises(UnknownNameError, match="did you mean nearest_row"):
        attack_matrix(["split"], digits, attacks=["nearest_rows"])


def test_an_installed_attack_is_in_the_command(install, tmp_path, monkeypatch):
    from securevfl.audit.attack_matrix import registry, run

    monkeypatch.chdir(tmp_path)
    name = install("own_attack")
    monkeypatch.setattr(registry, "_BUILT_IN", ())  # which take a minute
    monkeypatch.setattr(
        run, "AttackSettings", lambda: registry.AttackSettings(rows=200, auxiliary=50)
    )
    small = "--parties 4 --width 8 --hidden 8 --batch 100 --rounds 3 --seeds 1"
    found = last(f"compare split fedvs {small} --attacks --out one")
    assert {cell["attack"] for cell in found["cells"]} == {name}
    assert name in securevfl(f"compare split fedvs {small} --attacks --out one")


def test_an_installed_data_set_is_loaded_by_name(install):
    import securevfl as svfl

    install("own_dataset")
    data = svfl.load_dataset("pump_faults", seed=1, blur=0.1)
    assert data.widths == (3, 3, 3)
    assert data.rows == 900
    assert svfl.load_dataset("pump_faults", parties=4).parties == 4
    with pytest.raises(UnknownNameError, match="option of data set 'pump_faults' 'blurr'"):
        svfl.load_dataset("pump_faults", blurr=0.1)
    with pytest.raises(UnknownNameError, match="did you mean pump_faults"):
        svfl.load_dataset("pump_fault")
    learnt = svfl.run("split", data, rounds=150, seed=0, conditions="none")
    assert learnt.summary()["test_accuracy"] > 0.8  # 0.66 of the pumps run


def test_an_installed_data_set_is_in_every_command(install, tmp_path, monkeypatch):
    from securevfl.cli.completion import data_names

    monkeypatch.chdir(tmp_path)
    install("own_dataset")
    entry = last("datasets pump_faults")
    assert (entry["available"], entry["parties"]) == (True, 3)
    assert "pump_faults" in {entry["name"] for entry in last("datasets")["datasets"]}
    assert "pump_faults" in data_names("pump")
    small = "--rounds 3 --batch 32 --width 8 --hidden 8"
    run = last(f"run split --data pump_faults --set data.blur=0.3 {small} --out one")
    assert run["rounds"] == 3
    assert "blur = 0.3" in Path("one/config.toml").read_text()
    securevfl("report one --out page.html")
    assert "pump_faults" in Path("page.html").read_text()


def test_installed_conditions_are_made_by_name(install):
    import securevfl as svfl
    from securevfl.engine.conditions_file import load_conditions

    with pytest.raises(ConfigurationError, match="'distance' is neither 'none' nor 'paper'"):
        load_conditions("distance", parties=4, batch_rows=10)
    install("own_conditions")
    found = load_conditions("distance", parties=4, batch_rows=10)
    assert [delay.shift for delay in found.uploads] == pytest.approx([0, 0.2, 0.4, 0.6])
    table = {"pattern": "distance", "step": 1.0}
    assert load_conditions(table, parties=2, batch_rows=10).uploads[1].shift == 1.0
    with pytest.raises(ConfigurationError, match="did you mean 'distance'"):
        load_conditions("distanc", parties=4, batch_rows=10)
    with pytest.raises(UnknownNameError, match="parameter of conditions 'distance' 'stepp'"):
        load_conditions({"pattern": "distance", "stepp": 1.0}, parties=4, batch_rows=10)
    data = svfl.load_dataset("digits", parties=4)
    small = {"rounds": 3, "batch": 32, "width": 8, "hidden": 8}
    near, far = (
        svfl.run("split", data, conditions={**table, "step": step}, **small).summary()
        for step in (0.0, 2.0)
    )
    assert far["virtual_seconds"] - near["virtual_seconds"] == pytest.approx(3 * 3 * 2.0, abs=3)


def test_installed_conditions_are_in_every_command(install, tmp_path, monkeypatch):
    from securevfl.cli.completion import condition_names

    monkeypatch.chdir(tmp_path)
    known = condition_names("")
    assert known[:2] == ["none", "paper"]
    install("own_conditions")
    assert condition_names("") == [*known, "distance"]
    small = "--rounds 3 --batch 32 --width 8 --hidden 8 --parties 4"
    run = last(f"run split --conditions distance {small} --out one")
    assert run["conditions"] == "distance"
    assert "distance" in securevfl("plan --rows 100 --features 8 --parties 4 --conditions distance")
    Path("far.toml").write_text('pattern = "distance"\nstep = 1.5\n')
    slow = last(f"run split --conditions far.toml {small} --out two")
    assert slow["virtual_seconds"] > run["virtual_seconds"] + 3


# -- a verifier in a file outside the package ------------------------------------------------------


def evidence_of(claims: Any, verifier: str) -> list[Any]:
    """What a verifier found out about the claims of a report."""
    return [one for claim in claims for one in claim.evidence if one.verifier == verifier]


@pytest.fixture
def only_own(install, monkeypatch):
    """The example verifier alone, beside the example protocol."""
    registry = pytest.importorskip("securevfl.audit.verifiers.registry")
    install("own_protocol")
    name = install("own_verifier")
    monkeypatch.setattr(registry.VERIFIERS, "_built_in", dict)
    registry.VERIFIERS.forget()
    return name


def test_an_installed_verifier_examines_claims(only_own, monkeypatch):
    import securevfl as svfl

    small = svfl.load_dataset("digits", parties=4)
    report = svfl.verify("additive_split", small)
    found = evidence_of(report.claims, only_own)
    assert [one.effect for one in found] == ["supports", "supports"]  # features and model
    assert "0 of 128 arrays" in found[0].text  # 3 rounds, 4 clients, 3 shares and an upload

    module = sys.modules["additive_split"]
    monkeypatch.setattr(module.Client, "uniform", lambda self, shape: np.zeros(shape, np.uint64))
    report = svfl.verify("additive_split", small)
    found = evidence_of(report.claims, only_own)
    assert {one.effect for one in found} == {"accuses"}
    accused = {claim.claim.asset for claim in report.claims if claim.verdict == "VIOLATED"}
    assert accused == {"features", "model"}


@pytest.mark.usefixtures("in_this_process")
def test_an_installed_verifier_is_in_the_command(only_own):
    report = last("verify additive_split --parties 4")
    assert "arrays of field elements that clients send" in json.dumps(report)
