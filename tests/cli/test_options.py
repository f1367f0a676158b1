"""Texts of options, and displays of progress."""

from __future__ import annotations

import json

import pytest

from securevfl.cli import displays
from securevfl.cli import output as show
from securevfl.cli.common import shared_options
from securevfl.cli.options import metavar, plain_number, power_form, toml_value
from securevfl.errors import ConfigurationError, UnknownNameError
from securevfl.privacy.released_equations import Odometer
from securevfl.protocols.base.defaults import ALIASES, our_name
from securevfl.protocols.base.registry import find_protocols, get_protocol, make_config
from securevfl.runs.history import Progress
from securevfl.studies.variant import parse_variant


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


def test_the_bar_shows_what_sums_told_within_eighty_columns():
    from io import StringIO

    from rich.console import Console

    text = StringIO()
    told = Odometer(4, 13, 27, 6, 9, 10, budget=False)
    with displays.Bar("fedvs on x", Console(file=text, force_terminal=True, width=80)) as bar:
        bar(Progress(60, 500, 0.25, 0.951, 1391.0, 5, 7, told))
    assert "sums 24/13" in text.getvalue()
    assert "sums gave 24 of 13" in displays.figures(Progress(6, 9, 0.2, 0.5, 7.0, 5, 7, told))


def test_lines_are_one_for_each_tenth(capsys):
    lines = displays.Lines("x")
    for round_ in range(1, 101):
        lines(Progress(round_, 100, None, None, 0.0, 1, 0))
    assert len(capsys.readouterr().err.splitlines()) == 10


@pytest.mark.parametrize(
    ("name", "known", "ours"),
    [
        ("learning_rate", {"lr", "rounds"}, "lr"),
        ("learning_rate", {"rounds"}, "learning_rate"),
        ("learning_rate", {"learning_rate", "lr"}, "learning_rate"),
        ("batch_size", {"batch"}, "batch"),
        ("lr", {"lr"}, "lr"),
    ],
)
def test_other_names_of_options(name, known, ours):
    assert our_name(name, known) == ours


def test_other_names_and_names_that_do_not_exist_are_no_options():
    fields = {name for cls in find_protocols().values() for name in cls.Config.model_fields}
    options = fields | set(shared_options())
    assert set(ALIASES.values()) <= options
    assert not set(ALIASES) & options


def test_a_name_in_another_program_is_told_in_python():
    with pytest.raises(ConfigurationError, match="'learning_rate': it is called lr"):
        make_config(get_protocol("fedvs"), {"learning_rate": 0.1})
    with pytest.raises(ConfigurationError, match="'epochs': a run counts rounds"):
        make_config(get_protocol("fedvs"), {"epochs": 1})


@pytest.mark.parametrize(
    ("asked", "known", "near"),
    [
        ("--gpu", ["--out", "--until"], []),
        ("--fold", ["--folds", "--golds"], ["--folds"]),
        ("--hit", ["--hits", "--chit"], ["--hits", "--chit"]),
    ],
)
def test_hints_are_right_or_absent(asked, known, near):
    assert sorted(UnknownNameError("option", asked, known).near) == sorted(near)


def test_steps_before_the_first_round_are_told_now_and_then(monkeypatch):
    said: list[str] = []
    monkeypatch.setattr(displays, "say", said.append)
    lines = displays.Lines("run")
    lines.preparing("1 %")
    lines.preparing("2 %")
    assert said == ["run: 1 %"]
    monkeypatch.setattr(displays, "PAUSE", 0.0)
    other = displays.Lines("run")
    other.preparing("1 %")
    other.preparing("2 %")
    assert said[1:] == ["run: 1 %", "run: 2 %"]
