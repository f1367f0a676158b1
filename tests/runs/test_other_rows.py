"""Tables of parties that do not hold the same rows in the same order give no predictions."""

import datetime

import numpy as np
import pandas as pd
import pytest

import securevfl as svfl
from securevfl.data import VerticalDataset, join_rows
from securevfl.data.preparation.ids import refuse_other_rows
from securevfl.errors import DataError


@pytest.fixture(scope="module")
def tables():
    values = np.random.Generator(np.random.Philox(3)).normal(size=(80, 3))
    ids = [f"u{k}" for k in range(80)]
    parts = [pd.DataFrame({"who": ids, f"x{n}": values[:, n]}) for n in range(3)]
    parts[0]["y"] = np.where(values.sum(axis=1) > 0, "yes", "no")
    return parts


@pytest.fixture(scope="module")
def run(tables):
    data = VerticalDataset.from_pandas(tables, label="y", id_column="who")
    return svfl.run("split", data, rounds=3, width=4, hidden=4, batch=16)


@pytest.fixture(scope="module", params=["run", "exported"])
def model(request, run, tmp_path_factory):
    if request.param == "run":
        return run
    folder = tmp_path_factory.mktemp("models")
    run.export(folder)
    return svfl.load_models(folder)


def test_the_same_rows_in_the_same_order_are_predicted_with_ids_or_without(model, tables):
    new = [table.head(20) for table in tables]
    without = [table.drop(columns="who") for table in new]
    assert (model.predict_proba(new) == model.predict_proba(without)).all()


def test_another_order_is_refused(model, tables):
    new = [tables[0].head(20), tables[1].head(20).iloc[::-1], tables[2].head(20)]
    with pytest.raises(DataError, match=r"tables 0 and 1 .* row 0 is 'u0' in the one and 'u19'"):
        model.predict_proba(new)


def test_other_people_are_refused(model, tables):
    new = [table.iloc[20 * n : 20 * n + 20] for n, table in enumerate(tables)]
    with pytest.raises(DataError, match="do not hold the same rows"):
        model.predict(new)
    with pytest.raises(DataError, match="no id of column 'who' is in all 3 tables"):
        join_rows(new, "who")


def test_ids_in_some_tables_only_are_refused(model, tables):
    new = [table.head(5) for table in tables]
    new[2] = new[2].drop(columns="who")
    with pytest.raises(DataError, match="table 0 has the id column 'who' and table 2 has not"):
        model.scores(new)


def test_joined_tables_give_each_person_its_own_prediction(model, tables):
    whole = model.scores(tables)
    draw = np.random.Generator(np.random.Philox(4))
    mixed = [table.iloc[draw.permutation(80)[:60]] for table in tables]
    joined = join_rows(mixed, "who")
    rows = [int(key[1:]) for key in joined[0]["who"]]
    assert 10 < len(rows) < 60
    np.testing.assert_allclose(model.scores(joined), whole[rows], rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def files(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    run.export(folder)
    clients = [svfl.load_model(folder / f"party-{n}.npz") for n in range(3)]
    return clients, svfl.load_model(folder / "server.npz")


def test_embeddings_of_tables_in_other_orders_are_matched_by_id(run, files, tables, tmp_path):
    clients, server = files
    draw, sent = np.random.Generator(np.random.Philox(5)), {}
    for n, (client, table) in enumerate(zip(clients, tables, strict=True)):
        mixed = table.iloc[draw.permutation(80)[:60]]
        client.embed(mixed).to_csv(tmp_path / "sent.csv")
        sent[n] = pd.read_csv(tmp_path / "sent.csv", index_col="who", dtype={"who": str})
    scores = server.scores(sent)
    common = set.intersection(*(set(frame.index) for frame in sent.values()))
    assert 10 < len(common) < 60
    assert list(scores.index) == [key for key in sent[0].index if key in common]
    whole = pd.DataFrame(run.scores(tables), index=tables[0]["who"])
    np.testing.assert_allclose(scores, whole.loc[scores.index], rtol=1e-4, atol=1e-6)
    labels = pd.Series(run.predict(tables), index=tables[0]["who"])
    assert (server.predict(sent) == labels.loc[scores.index]).all()
    shares = server.predict_proba(sent)
    assert [*shares.columns] == [*run.classes]
    known = pd.DataFrame(run.predict_proba(tables), index=tables[0]["who"], columns=run.classes)
    np.testing.assert_allclose(shares, known.loc[shares.index], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_embeddings_that_are_not_finite_are_refused(files, tables, value):
    """A row of them was predicted as the first class."""
    clients, server = files
    sent = {n: client.embed(tables[n]) for n, client in enumerate(clients)}
    sent[1].iloc[3, 0] = value
    with pytest.raises(DataError, match="party 1 has a number in row 3 that is not finite"):
        server.predict(sent)


def test_embeddings_without_ids_must_have_equally_many_rows(files, tables):
    clients, server = files
    plain = [table.drop(columns="who") for table in tables]
    whole = {n: clients[n].embed(own) for n, own in enumerate(plain)}
    assert isinstance(server.scores(whole), np.ndarray)
    with pytest.raises(DataError, match="party 1 has 8 rows, and that of party 0 80"):
        server.predict(whole | {1: whole[1][:8]})
    with pytest.raises(DataError, match="party 2 has the shape"):
        server.predict(whole | {2: whole[2][:, :3]})
    with pytest.raises(DataError, match="party 0 has ids and that of party 1 has none"):
        server.predict(whole | {0: clients[0].embed(tables[0])})


def test_ids_that_match_no_row_or_two_are_refused(files, tables):
    clients, server = files
    own = {n: clients[n].embed(table) for n, table in enumerate(tables)}
    with pytest.raises(DataError, match=r"whose index is None, .* read it with index_col='who'"):
        server.predict(own | {1: own[1].reset_index(drop=True)})
    with pytest.raises(DataError, match="no id is in the embeddings of all 3 parties"):
        server.predict(own | {1: own[1].set_axis(own[1].index + "x")})
    with pytest.raises(DataError, match="party 2 has the id 'u0' more than once"):
        server.predict(own | {2: own[2].set_axis(pd.Index(["u0"] * 80, name="who"))})
    with pytest.raises(DataError, match="the id 'u0' occurs more than once"):
        clients[0].embed(pd.concat([tables[0], tables[0].head(1)]))


def test_an_embedding_under_another_partys_number_is_refused(files, tables, tmp_path):
    clients, server = files
    own = {n: clients[n].embed(table) for n, table in enumerate(tables)}
    for n, frame in own.items():
        frame.to_csv(tmp_path / f"{n}.csv")
    read = {n: pd.read_csv(tmp_path / f"{n}.csv", index_col="who", dtype={"who": str}) for n in own}
    with pytest.raises(DataError, match="party 0 has the column 'party_1_0' where 'party_0_0'"):
        server.predict(read | {0: read[1], 1: read[0]})
    with pytest.raises(DataError, match="party 2 has the column 'party_2_1' where 'party_2_0'"):
        server.predict(read | {2: read[2].iloc[:, [1, 0, *range(2, read[2].shape[1])]]})
    older = {n: frame.set_axis(range(frame.shape[1]), axis=1) for n, frame in read.items()}
    assert (server.predict(older) == server.predict(read)).all()


def test_one_index_in_two_orders_is_refused_without_ids(model, tables):
    new = [table.head(20).drop(columns="who") for table in tables]
    new[1] = new[1].iloc[::-1]
    with pytest.raises(DataError, match=r"0 and 1 have one index in two orders: row 0 is 0 .* 19"):
        model.predict_proba(new)
    with pytest.raises(DataError, match="two orders"):
        VerticalDataset.from_pandas(new, label="y")
    truth = pd.DataFrame({"z": [0, 1] * 10}).iloc[::-1]
    with pytest.raises(DataError, match="two orders"):
        VerticalDataset.from_pandas(new[::2], label="z", label_frame=truth)
    new[1] = new[1].reset_index(drop=True)
    assert VerticalDataset.from_pandas(new, label="y").parties == 3


@pytest.mark.parametrize("most", [np.float16(2**11), np.float32(2**24), np.float64(2**53)])
def test_ids_that_floats_rounded_are_refused(most):
    below, own = (pd.DataFrame({"id": [each]}) for each in (most - 1, int(most) + 1))
    assert len(join_rows([below, below.astype(int)], "id")[0]) == 1
    rounded = own.astype(most.dtype)  # to the id of another row
    for form in (rounded, *([] if most.itemsize == 2 else [rounded.set_index("id")])):
        with pytest.raises(DataError, match=r"whole numbers from .* are rounded"):
            join_rows([own, form], "id")


@pytest.mark.parametrize("tables", [[], [np.zeros((2, 2))]])
def test_what_is_no_table_has_no_rows_to_join(tables):
    with pytest.raises(DataError, match="join_rows: "):
        join_rows(tables, "id")


DAYS = pd.date_range("2020-01-01", periods=3, tz="UTC")
PAIRS = pd.MultiIndex.from_tuples([(1, "a"), (1, "b"), (2, "a")])


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (pd.Index([1, 2, 3]), pd.Index([1, 2, 3], dtype="Int64")),
        (DAYS, DAYS.tz_convert("Asia/Tokyo")),
        (PAIRS, pd.RangeIndex(3)),
        (PAIRS, pd.MultiIndex.from_tuples([(*pair, 0) for pair in PAIRS])),
        (pd.Index(["a", "b", pd.NA]), pd.Index(["a", "c", pd.NA])),
    ],
    ids=["kinds of integers", "time zones", "pairs and none", "pairs and triples", "missing"],
)
def test_rows_with_one_order_or_other_labels_are_taken_as_they_stand(first, other):
    """Each ended in an error of pandas or Python."""
    refuse_other_rows([pd.DataFrame(index=first), pd.DataFrame(index=other)], None)


def test_one_index_of_texts_with_a_missing_one_in_two_orders_is_refused():
    index = pd.Index([pd.NA, "a", "b"], dtype="string")
    with pytest.raises(DataError, match="row 1 is 'a' in the one and 'b'"):
        refuse_other_rows([pd.DataFrame(index=index), pd.DataFrame(index=index[[0, 2, 1]])], None)


@pytest.mark.parametrize("ids", [[datetime.date(2020, 1, day) for day in (1, 2)], [(1, 2), (3, 4)]])
def test_objects_that_are_dates_or_tuples_are_ids(ids):
    days, texts = pd.DataFrame({"id": ids}), pd.DataFrame({"id": [str(one) for one in ids[::-1]]})
    assert list(join_rows((table for table in (days, texts)), "id")[1]["id"]) == [*map(str, ids)]


def test_two_columns_of_ids_are_refused():
    twice = pd.DataFrame([[1, 2], [2, 3]], columns=["id", "id"])
    with pytest.raises(DataError, match="2 columns are named 'id'"):
        join_rows([twice, twice], "id")
