"""Local tables: rows, splits, columns and runs are those of one process that has all."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits

from securevfl.data.alignment import psi
from securevfl.data.alignment.psi import id_order
from securevfl.data.dataset import VerticalDataset
from securevfl.data.local_tables import PublicFacts, TableOwner, Tables
from securevfl.engine.conditions import NONE
from securevfl.engine.party import SERVER
from securevfl.engine.simulation.simulator import Simulation
from securevfl.errors import DataError
from securevfl.protocols.base.registry import find_protocols
from securevfl.runs.threads import one_thread
from securevfl.testing.runs import make

PARTIES = 4
PEOPLE, OWN = 120, 110  # and how many of them each table has: matching takes a millisecond a row
APART = sorted(name for name, cls in find_protocols().items() if cls.apart)


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    """Four tables of digits with ids in orders of their own, a text column, and labels apart."""
    folder = tmp_path_factory.mktemp("tables")
    digits = load_digits()
    draw = np.random.default_rng(0)
    everybody = np.array([f"p-{i:04d}" for i in range(PEOPLE)])
    for n, columns in enumerate(np.array_split(np.arange(64), PARTIES)):
        rows = draw.permutation(PEOPLE)[:OWN]
        table = pd.DataFrame(digits.data[rows][:, columns], columns=[f"x{c}" for c in columns])
        if n == 2:
            table["kind"] = np.where(digits.data[rows, 20] > 8, "dark", "light")
            table.loc[::7, "x40"] = np.nan
        table.insert(0, "id", everybody[rows])
        table.to_csv(folder / f"{n}.csv", index=False)
    rows = draw.permutation(PEOPLE)
    labels = pd.DataFrame({"id": everybody[rows], "digit": digits.target[rows] % 3})
    labels.to_csv(folder / "labels.csv", index=False)
    return {
        "party_files": [str(folder / f"{n}.csv") for n in range(PARTIES)],
        "label_file": str(folder / "labels.csv"),
        "label": "digit",
        "id_column": "id",
        "seed": 3,
    }


def prepared(tables, folder):
    """The facts, once every holder has its rows in a folder of its own."""
    peers = range(len(tables.party_files))
    owners = {n: TableOwner(n, peers, tables, folder / str(n)) for n in (SERVER, *peers)}
    Simulation(owners).run()
    return PublicFacts.of(owners[SERVER].facts)


@pytest.fixture(scope="module")
def apart(options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("apart")
    tables = Tables.of(options)
    facts = prepared(tables, folder)
    return {
        n: tables.seen_by(n, facts, None if n is None else folder / str(n))
        for n in (None, SERVER, *range(PARTIES))
    }


@pytest.fixture(scope="module")
def whole(options, tmp_path_factory):
    """In one process, from a table of labels in the order that owners of tables find."""
    labels = pd.read_csv(options["label_file"])
    ordered = tmp_path_factory.mktemp("ordered") / "labels.csv"
    labels.iloc[id_order(labels["id"].tolist())].to_csv(ordered, index=False)
    return VerticalDataset.from_files(**options | {"label_file": str(ordered)})


def test_everybody_has_its_own_part_of_the_whole(apart, whole):
    for n in range(PARTIES):
        for side in ("train", "test"):
            np.testing.assert_array_equal(getattr(apart[n], side)[n], getattr(whole, side)[n])
        assert apart[n].columns[n] == whole.columns[n]
        assert apart[n].widths == whole.widths
    for side in ("train_labels", "test_labels"):
        np.testing.assert_array_equal(getattr(apart[SERVER], side), getattr(whole, side))
    assert apart[SERVER].classes == whole.classes
    for data in apart.values():
        assert data.class_values.dtype == np.dtype("int64")
        assert data.class_values.tolist() == whole.class_values.tolist() == [0, 1, 2]


def test_parties_elsewhere_are_known_as_such(apart, whole):
    for n, data in apart.items():
        assert data.unseen == tuple(k for k in range(PARTIES) if k != n)
    assert whole.unseen == ()


def test_nobody_has_anything_of_the_others(apart):
    for n, data in apart.items():
        others = [k for k in range(PARTIES) if k != n]
        assert not any(data.train[k].any() or data.test[k].any() for k in others)
        assert not any("x" in name for k in others for name in data.columns[k])
        if n != SERVER:
            assert not data.train_labels.any()
            assert not data.test_labels.any()


@pytest.mark.parametrize("protocol", APART)
def test_runs_are_those_of_one_process_that_has_all(protocol, apart, whole):
    """What the class attribute `apart` claims, held against real runs."""
    pytest.importorskip("tenseal") if protocol == "he_split" else None
    options = {"rounds": 4, "batch": 16, "width": 4, "hidden": 6}
    cls = find_protocols()[protocol]
    options = {k: v for k, v in options.items() if k in cls.Config.model_fields}
    checked = dict(cls.check_options)
    with one_thread():
        together = make(protocol, whole, **options, **checked)
        wanted = run_of(together.parties())
        parties = {
            n: make(protocol, apart[n], **options, **checked).party(n) for n in together.parties()
        }
        found = run_of(parties)
    assert found == wanted
    scores = together.scores(parties, whole.test)
    assert np.isfinite(scores).all()


def run_of(parties):
    losses = []

    class Observer:
        def record(self, event):
            if event.name == "round":
                losses.append(event.fields["loss"])

        def round_over(self, *_):
            pass

    Simulation(parties, seed=0, conditions=NONE, observer=Observer()).run()
    assert len(losses) >= 4
    return losses


def test_tables_in_one_order_need_no_ids(options, tmp_path):
    frames = [pd.read_csv(file).drop(columns="id") for file in options["party_files"]]
    labels = pd.read_csv(options["label_file"]).drop(columns="id").head(OWN)
    files = [tmp_path / f"{n}.csv" for n in range(PARTIES)]
    for frame, file in zip(frames, files, strict=True):
        frame.to_csv(file, index=False)
    labels.to_csv(tmp_path / "y.csv", index=False)
    given = {"party_files": files, "label_file": tmp_path / "y.csv", "label": "digit", "seed": 3}
    facts = prepared(Tables.of(given), tmp_path)
    assert facts.rows + facts.test_rows == OWN
    labels.head(100).to_csv(tmp_path / "y.csv", index=False)
    with pytest.raises(DataError, match=r"110, 110, 110, 110, 100\] rows, the labels last"):
        prepared(Tables.of(given), tmp_path)


def test_nobody_tells_another_which_rows_are_whose(options, tmp_path):
    """A server that did gave one number to different people, or named one person many times."""
    tables = Tables.of(options)
    peers = range(PARTIES)
    owners = {n: TableOwner(n, peers, tables, tmp_path / str(n)) for n in (SERVER, *peers)}
    simulation = Simulation(owners)
    simulation.run()
    told = simulation.transcript.columns()
    from_server = set(told["kind"][told["sender"] == SERVER].tolist())
    told = ("keys", "matrix", "opening", "more", "common", "places", "rows")
    assert {str(kind) for kind in from_server} == {f"psi {one}" for one in told}


def test_the_order_of_rows_says_nothing_of_the_order_of_labels(options, tmp_path):
    """Files are often sorted by label; their order was the order of rows, told to all."""
    labels = pd.read_csv(options["label_file"])
    rows = []
    for name, own in (("sorted", labels.sort_values("digit")), ("shuffled", labels.sample(frac=1))):
        own.to_csv(tmp_path / f"{name}.csv", index=False)
        given = options | {"label_file": str(tmp_path / f"{name}.csv")}
        prepared(Tables.of(given), tmp_path / name)
        kept = np.load(tmp_path / name / "0" / "rows.npz")
        rows.append((kept["train"], kept["test"]))
    np.testing.assert_array_equal(rows[0][0], rows[1][0])
    np.testing.assert_array_equal(rows[0][1], rows[1][1])


def test_columns_to_drop_are_dropped_where_they_are_and_must_be_somewhere(options, whole, tmp_path):
    facts = prepared(Tables.of(options | {"drop": ["x0", "kind"]}), tmp_path)
    assert facts.widths == (whole.widths[0] - 1, *whole.widths[1:2], whole.widths[2] - 2, 16)
    with pytest.raises(DataError, match="drop= names 'x99', which no party's table has"):
        prepared(Tables.of(options | {"drop": ["x0", "x99"]}), tmp_path)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"label_file": None}, "need label_file=, the server's own table"),
        ({"label": None}, "need label="),
        ({"group": "kind"}, "cannot have group = 'kind'"),
        ({"unmatched": "kept"}, "cannot have unmatched = 'kept'"),
    ],
)
def test_what_needs_all_columns_in_one_process_is_refused(changed, said, options):
    with pytest.raises(DataError, match=said):
        Tables.of(options | changed)


def test_who_is_a_test_row_follows_from_no_label(options, tmp_path):
    """A client that knows the seed told rows of two classes apart by a stratified split."""
    labels = pd.read_csv(options["label_file"])
    labels["digit"] = np.random.default_rng(1).permutation(labels["digit"])
    labels.to_csv(tmp_path / "y.csv", index=False)
    own, other = (
        VerticalDataset.from_files(**options | given)
        for given in ({}, {"label_file": tmp_path / "y.csv"})
    )
    for side in ("train", "test"):
        np.testing.assert_array_equal(getattr(other, side)[0], getattr(own, side)[0])
    kept = {}
    for name, given in {"own": {}, "other": {"label_file": tmp_path / "y.csv"}}.items():
        prepared(Tables.of(options | given), tmp_path / name)
        kept[name] = np.load(tmp_path / name / "0" / "rows.npz")
    for side in ("train", "test"):
        np.testing.assert_array_equal(kept["own"][side], kept["other"][side])
    with pytest.raises(DataError, match="stratified"):
        Tables.of(options | {"stratified": True})


def test_a_restart_goes_on_from_pairs_that_were_finished(options, tmp_path, monkeypatch):
    """Once its rows are known no party keeps more of the intersection than its own rows."""
    compared = []
    compare = psi._compare

    def counted(link, *rest):
        compared.append(link.peer)
        return compare(link, *rest)

    async def stopped(*rest):
        raise KeyboardInterrupt

    monkeypatch.setattr(psi, "_compare", counted)
    tables = Tables.of(options)
    with monkeypatch.context() as patched:
        patched.setattr(psi, "_agree", stopped)
        with pytest.raises(KeyboardInterrupt):
            prepared(tables, tmp_path)
    assert compared == list(range(PARTIES))
    prepared(tables, tmp_path)
    assert compared == list(range(PARTIES))
    assert not list(tmp_path.glob("*/pairs"))
