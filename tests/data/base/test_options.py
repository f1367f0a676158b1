"""Options of tables: one list, one place of defaults, one check."""

import dataclasses
import inspect
import typing

import numpy as np
import pandas as pd
import pytest

from securevfl.data import VerticalDataset
from securevfl.data.base.options import (
    ArrayKeywords,
    CodedKeywords,
    ScalingKeywords,
    SplitKeywords,
    TableKeywords,
    TableOptions,
    table_options,
)
from securevfl.data.builders import files, frame_columns, frames
from securevfl.data.catalogue.registry import load_dataset, loaders
from securevfl.errors import DataError, UnknownNameError
from tests.data import small_sets as small

FIELDS = {field.name: field for field in dataclasses.fields(TableOptions)}
TABLES = [VerticalDataset.from_pandas, VerticalDataset.from_files, VerticalDataset.from_csv]
ARRAYS = [VerticalDataset.from_numpy]


def frame(rows=40):
    n = np.arange(rows)
    return pd.DataFrame({"a": n % 7, "b": n % 3, "town": ["x", "y"] * (rows // 2), "y": n % 2})


def test_the_keywords_are_the_fields():
    assert set(TableKeywords.__annotations__) == set(FIELDS)


@pytest.mark.parametrize("part", [ScalingKeywords, SplitKeywords, CodedKeywords, ArrayKeywords])
def test_parts_have_the_types_of_the_whole(part):
    whole = typing.get_type_hints(TableKeywords)
    hints = typing.get_type_hints(part)
    assert hints
    assert {name: whole[name] for name in hints} == hints
    assert not part.__required_keys__


@pytest.mark.parametrize(
    ("function", "keywords"),
    [*((f, TableKeywords) for f in TABLES), *((f, ArrayKeywords) for f in ARRAYS)],
)
def test_signatures_and_help_show_every_option_and_its_default(function, keywords):
    parameters = inspect.signature(function).parameters
    text = inspect.getdoc(function)
    for name in keywords.__annotations__:
        assert parameters[name].kind is inspect.Parameter.KEYWORD_ONLY
        assert parameters[name].default == FIELDS[name].default
        assert f"\n{name} : " in text
    assert "options" not in parameters
    assert "**options" not in text


@pytest.mark.parametrize("name", sorted(loaders()))
def test_loaders_show_options_and_their_own_defaults(name):
    _, load = loaders()[name]
    parameters = inspect.signature(load).parameters
    assert {"seed", "scaling", "parties", "data_dir"} <= set(parameters)
    assert not any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def test_a_loader_s_own_default_holds_also_for_none(tmp_path):
    small.write_credit_card(tmp_path / "credit-card")  # 60 rows
    own = {"data_dir": tmp_path, "verify": False}
    for options, rows in (({}, 12), ({"test_fraction": None}, 12), ({"test_fraction": 0.5}, 30)):
        assert load_dataset("credit-card", **own, **options).test_rows == rows
    _, load = loaders()["credit-card"]
    assert load(test_fraction=None, **own).test_rows == 12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scaling": "log"}, "scaling='log' does not exist; use minmax, standard or none"),
        ({"coding": "hash"}, "coding='hash' does not exist; use onehot or codes"),
    ],
)
def test_what_does_not_exist_is_refused_at_once(changes, message):
    with pytest.raises(DataError, match=message):
        TableOptions(**changes)
    with pytest.raises(DataError, match=message):
        VerticalDataset.from_pandas(frame(), "y", **changes)


@pytest.mark.parametrize(
    "call",
    [
        lambda: VerticalDataset.from_pandas(frame(), "y", colour="red"),
        lambda: VerticalDataset.from_numpy(np.eye(4), [0, 1, 0, 1], colour="red"),
        lambda: loaders()["digits"][1](colour="red"),
        lambda: VerticalDataset.from_numpy(np.eye(4), [0, 1, 0, 1], drop=["x0"]),
        lambda: VerticalDataset.from_files(["a", "b"], id_column="id", label="y", test_frame=1),
    ],
)
def test_other_keywords_are_a_type_error(call):
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        call()


@pytest.mark.parametrize("option", ["drop", "task", "colour"])
def test_options_that_a_known_set_does_not_have_are_named(option):
    with pytest.raises(UnknownNameError, match=option):
        load_dataset("digits", **{option: "x"})


def test_none_means_not_given():
    given = dict.fromkeys(FIELDS)
    assert TableOptions.of(given) == TableOptions()
    assert TableOptions.of(given, name="mine").name == "mine"
    assert TableOptions.of({"name": "theirs"}, name="mine").name == "theirs"


def test_sequences_become_tuples_and_one_text_is_one_name():
    options = TableOptions(drop="town", party_names=["a", "b"], missing_values=["-"])
    assert (options.drop, options.party_names, options.missing) == (("town",), ("a", "b"), ("-",))
    # A single text is one: its letters would each be a missing value.
    assert TableOptions(missing_values="7.5x").missing == ("7.5x",)
    assert options.called(2) == ("a", "b")
    assert TableOptions().called(2) == ("party 0", "party 1")
    with pytest.raises(dataclasses.FrozenInstanceError):
        options.seed = 1
    with pytest.raises(TypeError):
        TableOptions("table")


def counted(monkeypatch):
    """Tables that are checked, by every module that can check one."""
    seen = []
    check = frame_columns.checked_frame

    def counting(table, what):
        seen.append(what)
        return check(table, what)

    monkeypatch.setattr(frames, "checked_frame", counting)
    # The reader of files refuses the same faults, once, before a frame is made of a file.
    read = files.read_table
    monkeypatch.setattr(
        files, "read_table", lambda path, *rest: seen.append(path.name) or read(path, *rest)
    )
    return seen


def test_a_frame_is_checked_once(monkeypatch):
    seen = counted(monkeypatch)
    VerticalDataset.from_pandas(frame(), "y", parties=2, name="mine")
    assert seen == ["mine"]


def test_parties_frames_are_checked_once(monkeypatch):
    seen = counted(monkeypatch)
    one, two = frame()[["a", "town"]], frame()[["b", "y"]]
    VerticalDataset.from_pandas({"left": one, "right": two}, "y")
    assert seen == ["left", "right"]


def test_a_file_is_checked_once(monkeypatch, tmp_path):
    frame().to_csv(tmp_path / "t.csv", index=False)
    seen = counted(monkeypatch)
    VerticalDataset.from_csv(tmp_path / "t.csv", "y", parties=2)
    assert seen == ["t.csv"]


def test_party_files_are_checked_once(monkeypatch, tmp_path):
    whole = frame().assign(id=np.arange(40))
    whole[["id", "a"]].to_csv(tmp_path / "a.csv", index=False)
    whole[["id", "b"]].to_csv(tmp_path / "b.csv", index=False)
    whole[["id", "y"]].to_csv(tmp_path / "y.csv", index=False)
    seen = counted(monkeypatch)
    VerticalDataset.from_files(
        [tmp_path / "a.csv", tmp_path / "b.csv"],
        id_column="id", label="y", label_file=tmp_path / "y.csv",
    )  # fmt: skip
    assert seen == ["a.csv", "b.csv", "y.csv"]


def test_a_method_can_be_decorated():
    class Loader:
        @table_options(SplitKeywords, test_fraction=0.4)
        def load(self, size, **options):
            """Load.

            Parameters
            ----------
            size : int
                How many.
            **options
                Fields of `TableOptions`.

            Returns
            -------
            tuple
            """
            return size, options

    assert Loader().load(3, seed=2) == (3, {"seed": 2, "test_fraction": 0.4})
    text = inspect.getdoc(Loader.load)
    assert "size : int\n    How many.\ntest_fraction : float\n    Fraction of" in text
    assert text.endswith("Returns\n-------\ntuple")


@pytest.mark.parametrize("group", [None, "who"])
def test_a_split_that_is_not_stratified_follows_from_no_label(group):
    stream = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"a": np.arange(600.0), "b": stream.random(600), "who": np.arange(600) // 3}
    )
    found = {}
    for stratified in (True, False):
        for labels in (np.arange(600) % 2, stream.permutation(np.arange(600) < 200)):
            frame["y"] = labels.astype(int)
            data = VerticalDataset.from_pandas(
                frame, label="y", group=group, stratified=stratified, parties=2, scaling="none"
            )
            found.setdefault(stratified, []).append(data.test[0][:, 0].tolist())
    assert found[False][0] == found[False][1]
    assert found[True][0] != found[True][1]
