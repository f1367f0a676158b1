"""What `securevfl new` writes works as it stands, and replaces nothing."""

import importlib
import sys

import pytest
from typer.testing import CliRunner

from securevfl.cli.app import app
from securevfl.studies.study import read_study
from tests.docs.pages import DOCS, files_of


def new(*words):
    return CliRunner().invoke(app, ["new", *map(str, words)])


def test_a_protocol_is_that_of_the_page_and_its_tests_pass(tmp_path, install, monkeypatch):
    """All its checks but those of conformance, which are run on the page's protocol."""
    said = new("protocol", "my_sums", "--out", tmp_path)
    assert said.exit_code == 0, said.output
    assert "securevfl verify my_sums" in said.output
    page = files_of((DOCS / "own-protocol.md").read_text())["shared_sum.py"]
    text = (tmp_path / "my_sums.py").read_text()
    assert text == page.replace("shared_sum", "my_sums").replace("SharedSum", "MySums")
    install(str(tmp_path))
    tests = made(tmp_path, "test_my_sums", monkeypatch)
    tests.test_it_learns()
    tests.test_its_claims_are_proved()


def test_a_data_set_is_found_and_its_tests_pass(tmp_path, install, monkeypatch):
    assert new("data", "clinic", "--out", tmp_path).exit_code == 0
    install(str(tmp_path))
    tests = made(tmp_path, "test_clinic", monkeypatch)
    tests.test_it_is_found_by_its_name()
    tests.test_both_parties_together_learn_it()


def made(folder, module, monkeypatch):
    """The module of tests that was written."""
    monkeypatch.syspath_prepend(folder)
    monkeypatch.delitem(sys.modules, module, raising=False)
    return importlib.import_module(module)


def test_a_study_is_one_that_can_be_read(tmp_path):
    assert new("study", "delays", "--out", tmp_path).exit_code == 0
    study = read_study(tmp_path / "delays.toml")
    assert study.title.startswith("delays: ")


def test_nothing_is_replaced_and_a_name_is_one(tmp_path):
    (tmp_path / "mine.py").write_text("")
    for words in (("protocol", "mine"), ("data", "mine")):
        said = new(*words, "--out", tmp_path)
        assert said.exit_code == 2
        assert "is there already" in said.stderr
    assert [*tmp_path.iterdir()] == [tmp_path / "mine.py"]
    for kind, name in (("protocol", "split"), ("data", "digits"), ("data", "random")):
        assert "is taken" in new(kind, name, "--out", tmp_path).stderr
    for name in ("My", "a-b", "1a", "../x", "class"):
        assert "is no name" in new("protocol", name, "--out", tmp_path).stderr


@pytest.mark.parametrize("kind", ["protocols", "nothing"])
def test_a_kind_is_one_of_three(kind, tmp_path):
    assert new(kind, "mine", "--out", tmp_path).exit_code == 2
