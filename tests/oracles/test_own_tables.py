"""Messages before a training that depend on columns or labels, and orders that tell labels."""

import numpy as np
import pytest

from securevfl.data import load_dataset
from securevfl.data.local_tables import TableOwner
from securevfl.engine.party import SERVER
from securevfl.testing.runs import make
from tests.oracles import own_tables
from tests.oracles.own_tables import order_tells_labels, told_before_training


def test_owners_of_the_library_tell_nothing_of_columns_or_labels():
    assert told_before_training(make("fedvs")) == ""


def test_methods_that_have_no_own_tables_are_left_out(monkeypatch):
    monkeypatch.setattr(own_tables, "_differences", lambda protocol: iter(["something"]))
    assert told_before_training(make("cvfl")) == ""
    assert told_before_training(make("split")) == "something"


def test_ranges_of_columns_are_found(monkeypatch):
    keep = TableOwner.keep

    def telling(self, train, test):
        keep(self, train, test)
        if self.index != SERVER:
            table = self.tables.checked(self.index).frame
            self.send(SERVER, "range", float(table.iloc[:, 1].max()))

    monkeypatch.setattr(TableOwner, "keep", telling)
    assert told_before_training(make("fedvs")).startswith("before training 'range' of party 0")


def test_facts_that_depend_on_labels_are_found(monkeypatch):
    partition = TableOwner.partition

    async def labelled(self, table, rows):
        await partition(self, table, rows)
        self.facts |= {"first": str(table.frame["class"].iloc[rows[0]])}

    monkeypatch.setattr(TableOwner, "partition", labelled)
    assert told_before_training(make("fedvs")).endswith("depend on labels")


def test_an_order_by_labels_is_found(monkeypatch):
    split = TableOwner.split

    def sorted_by_class(self, rows):
        train, test = split(self, rows)
        if self.index == SERVER:
            classes = self.tables.checked(SERVER).frame["class"].to_numpy()
            train = train[np.argsort(classes[train], kind="stable")]
        return train, test

    monkeypatch.setattr(TableOwner, "split", sorted_by_class)
    assert "the rows that parties keep" in told_before_training(make("fedvs"))


@pytest.mark.parametrize("name", ["digits", "breast-cancer"])
def test_orders_of_known_sets_tell_nothing(name):
    assert order_tells_labels(load_dataset(name, parties=4).train_labels) == ""


def test_orders_that_tell_labels_are_told_from_groups_of_rows():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 120)
    assert order_tells_labels(labels) == ""
    assert order_tells_labels(np.repeat(rng.integers(0, 2, 80), 3)) == ""  # three rows a person
    assert "tells labels" in order_tells_labels(np.sort(labels))
    assert "classes take turns" in order_tells_labels(np.arange(300) % 3)
    assert order_tells_labels(labels.astype(np.float32)) == order_tells_labels(None) == ""


def test_a_split_that_sorts_by_class_is_found(monkeypatch):
    assert own_tables.split_tells_labels(0) == ""
    split = own_tables.split_stratified

    def by_class(labels, *given):
        return tuple(
            rows[np.argsort(labels[rows], kind="stable")] for rows in split(labels, *given)
        )

    monkeypatch.setattr(own_tables, "split_stratified", by_class)
    assert "(stratified) stand in an order that tells" in own_tables.split_tells_labels(0)
