"""Files of a finished run whose bytes were changed are named, whoever reads them."""

import json

import pytest

import securevfl as svfl
from securevfl.errors import CheckpointError
from securevfl.runs.folders.checksums import read_summary
from tests.runs.folders import small

FILES = ("config.toml", "history.jsonl", "messages.csv", "messages.npz", "model.npz")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checksums") / "run"
    small.run(folder)
    return folder


@pytest.fixture
def changed(folder, request):
    """The folder with a byte of a file flipped, put back afterwards."""
    path = folder / request.param
    content = path.read_bytes()
    at = len(content) // 2
    path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    yield path
    path.write_bytes(content)


@pytest.mark.parametrize("changed", [*FILES, "parties.state"], indirect=True)
def test_a_flipped_bit_is_noticed_and_the_file_is_named(folder, changed):
    with pytest.raises(CheckpointError, match=f"{changed.name} in .* is damaged"):
        read_summary(folder / "summary.json")


def test_a_flipped_digit_of_a_history_is_not_believed(folder):
    path = folder / "history.jsonl"
    text = path.read_text()
    path.write_text(text.replace('"step": 1', '"step": 7'))
    try:
        with pytest.raises(CheckpointError, match=r"history\.jsonl in .* is damaged"):
            svfl.load_run(folder, data=small.dataset())
    finally:
        path.write_text(text)
    assert svfl.load_run(folder, data=small.dataset()).history[0]["step"] == 1


def test_a_changed_summary_is_noticed_and_other_spaces_are_not(folder, tmp_path):
    content = json.loads((folder / "summary.json").read_text())
    (tmp_path / "same.json").write_text(json.dumps(content))
    assert read_summary(tmp_path / "same.json")["seed"] == 0
    (tmp_path / "other.json").write_text(json.dumps({**content, "seed": 1}))
    with pytest.raises(CheckpointError, match=r"other\.json is damaged"):
        read_summary(tmp_path / "other.json")


@pytest.mark.parametrize("text", ["", "[", "[]", "[" * 5000, "3", "\\ud800"])
def test_a_summary_that_is_no_object_is_damaged(tmp_path, text):
    (tmp_path / "summary.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"summary\.json is damaged"):
        read_summary(tmp_path / "summary.json")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("parties", value) for value in (None, "3", 2.5, [1], 10**400, 0, -1)),
        *(("party_names", value) for value in (None, 3, "ab", [1, 2], ["a"])),
        *(("wall_seconds", value) for value in (None, "1", [], 10**400, float("nan"))),
    ],
)
def test_a_stranger_s_summary_without_checksums_is_refused_by_name(folder, tmp_path, field, value):
    """It ended in errors of Python where it was used."""
    content = json.loads((folder / "summary.json").read_text())
    del content["files"], content["checksum"]
    (tmp_path / "summary.json").write_text(json.dumps({**content, field: value}))
    with pytest.raises(CheckpointError, match=r"summary\.json is damaged: "):
        read_summary(tmp_path / "summary.json")
    (tmp_path / "summary.json").write_text(json.dumps(content))
    assert read_summary(tmp_path / "summary.json")["parties"] == 2
