"""The sentence on attacks that stands behind what decoded sums tell."""

import json

import pytest

import securevfl as svfl
from securevfl.cli import output
from securevfl.data.source import DataSource
from securevfl.errors import DataError
from securevfl.report import page
from securevfl.report.loading import read_records
from securevfl.runs.attacked import ATTACKS, attacked, got

_CELL = {"role": "server", "about": "features", "metric": "columns found", "chance": 0.0}
_CELLS = [
    {**_CELL, "attack": "squares", "success": 0.25},
    {**_CELL, "attack": "binary columns of sums", "success": None},
    {**_CELL, "attack": "completion of sums", "success": 0.5, "chance": 0.4},
    {**_CELL, "attack": "inversion of sums", "success": 0.2},
    {**_CELL, "attack": "equality solving of sums", "success": 1.0},  # of a known secret seed
    {**_CELL, "attack": "gradient norm", "role": "client", "about": "labels", "success": 1.0},
]


def test_the_strongest_attacks_are_named_with_what_was_known():
    assert got(_CELLS) == (
        "with nothing known 0.25 by squares (columns found; chance 0.00), and with some rows known "
        "0.20 by inversion of sums (columns found; chance 0.00)"
    )
    assert got(_CELLS[1:2]).count("nothing: no attack had a view") == 2


def test_without_an_attack_the_sentence_names_the_command(tmp_path):
    command = f"`securevfl compare {tmp_path} --attacks`"
    assert attacked(tmp_path, "fedvs") == f"No attack was run on it: {command}"
    of_objects = "No attack was run on it: `securevfl compare fedvs --data DATA --attacks`"
    assert attacked(None, "fedvs") == attacked(tmp_path, "fedvs", own_data=True) == of_objects


@pytest.mark.parametrize("text", ["no JSON", "[]", '{"cells": [{"attack": "squares"}]}'])
def test_a_damaged_file_of_results_is_refused(tmp_path, text):
    (tmp_path / ATTACKS).write_text(text)
    with pytest.raises(DataError, match="is no result of `compare RUN --attacks`"):
        attacked(tmp_path, "fedvs")


def test_summary_and_report_say_what_attacks_got_behind_what_the_sums_tell(tmp_path, capsys):
    folder = tmp_path / "run"
    data = DataSource("breast-cancer", {"parties": 4})
    run = svfl.run("fedvs", data, rounds=2, width=2, batch=16, hidden=2, out=folder)
    before = f"No attack was run on it: `securevfl compare {folder} --attacks`"
    assert run.summary()["released"]["attacks"] == before
    output.print_summary(run.summary())
    said = " ".join(capsys.readouterr().out.split())
    assert f"{run.released.sentence()}. {before}." in said
    (folder / ATTACKS).write_text(json.dumps({"cells": _CELLS}))
    after = f"Built-in attacks on this configuration got {got(_CELLS)}"
    assert run.summary()["released"]["attacks"] == after
    [record] = read_records([folder])
    assert record.attacked == after
    found = page._run(record, 0)
    assert found["attacked"] == after
    claims = [claim for claim in found["claims"] if claim["given"]]
    assert claims
    assert all(claim["source"].endswith("What these sums tell stands above") for claim in claims)
