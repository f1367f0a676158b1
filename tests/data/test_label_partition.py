import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securevfl.data.label_partition import (
    CLASS_LISTS,
    check_label_sets,
    partition_labels,
    unheld_classes,
)
from securevfl.errors import DataError

LABELS = np.random.default_rng(0).integers(0, 10, size=3000)


def assert_disjoint(sets):
    together = np.concatenate(sets)
    assert len(np.unique(together)) == len(together)
    assert all((np.diff(rows) > 0).all() for rows in sets)


@settings(deadline=None)
@given(st.integers(1, 9), st.integers(0, 5), st.sampled_from(["equal", "dirichlet:5"]))
def test_every_label_has_one_owner(owners, seed, rule):
    sets = partition_labels(rule, LABELS, owners, seed=seed)
    assert len(sets) == owners
    assert_disjoint(sets)
    assert sum(map(len, sets)) == len(LABELS)


def test_equal_is_equal_and_random_and_repeats():
    sets = partition_labels("equal", LABELS, 4, seed=0)
    assert {len(rows) for rows in sets} == {750}
    assert not np.array_equal(sets[0], np.arange(750))
    again, other = (partition_labels("equal", LABELS, 4, seed=s) for s in (0, 1))
    assert all((a == b).all() for a, b in zip(sets, again, strict=True))
    assert any((a != b).any() for a, b in zip(sets, other, strict=True))


def test_dirichlet_is_the_more_uneven_the_smaller_its_parameter():
    def spread(rule):
        sets = partition_labels(rule, LABELS, 3, seed=3)
        shares = [np.bincount(LABELS[rows], minlength=10) / len(rows) for rows in sets]
        return np.std(shares, axis=0).mean()

    assert spread("dirichlet:0.2") > 2 * spread("dirichlet:5") > spread("dirichlet:1000")


@pytest.mark.parametrize("rule", CLASS_LISTS)
def test_owners_have_the_papers_classes_only(rule):
    lists = CLASS_LISTS[rule]
    sets = partition_labels(rule, LABELS, len(lists), seed=0)
    assert_disjoint(sets)
    for rows, classes in zip(sets, lists, strict=True):
        assert set(LABELS[rows].tolist()) == set(classes)


def test_the_papers_lists_are_those_that_it_states():
    mnist, cifar = CLASS_LISTS["cvfl-mnist"], CLASS_LISTS["cvfl-cifar10"]
    assert mnist[:2] == ((0, 1, 2), (2, 3, 4))
    assert all(len(own) == 3 for own in mnist)
    pairs = [(a, b) for i, a in enumerate(mnist) for b in mnist[:i]]
    assert all(len(set(a) & set(b)) <= 1 for a, b in pairs)
    assert set().union(*mnist) == set(range(10))
    assert [set(own) - {0, 1, 2, 3, 4, 5} for own in cifar] == [{6}, {7}, {8}, {9}]
    assert CLASS_LISTS["4niid"][1:] == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert [sum(len(own) == 2 for own in CLASS_LISTS[f"{n}niid"]) for n in (1, 2, 3, 4)] == [
        1, 2, 3, 4,
    ]  # fmt: skip


def test_a_shared_class_is_dealt_in_equal_parts():
    labels = np.zeros(9, np.int64)
    sets = partition_labels("classes:0/0/0", labels, 3, seed=0)
    assert [len(rows) for rows in sets] == [3, 3, 3]


def test_samples_are_so_many_of_each_class():
    sets = partition_labels("4niid", LABELS, 5, seed=0, samples=103)
    assert_disjoint(sets)
    counts = [np.bincount(LABELS[rows], minlength=10) for rows in sets]
    assert [len(rows) for rows in sets] == [103] * 5
    assert counts[0].tolist() == [11, 11, 11, 10, 10, 10, 10, 10, 10, 10]
    assert counts[1][:2].tolist() == [52, 51]
    assert {len(r) for r in partition_labels("equal", LABELS, 5, seed=0, samples=7)} == {7}


@pytest.mark.parametrize(
    ("rule", "owners", "samples", "wanted"),
    [
        ("equall", 2, None, "does not exist; use equal"),
        ("dirichlet:0", 2, None, "positive number"),
        ("dirichlet:x", 2, None, "positive number"),
        ("classes:0,x", 1, None, "write class numbers"),
        ("classes:0/1", 3, None, "is for 2 label owners, and there are 3"),
        ("4niid", 4, None, "is for 5 label owners"),
        ("classes:0/11", 2, None, "label owner 1 of 2 has no labels"),
        ("dirichlet:0.001", 9, None, "has no labels"),
        ("equal", 3001, None, "has no labels"),
        ("equal", 0, None, "at least 1"),
        ("equal", 2, 1501, "1501 samples are wanted; use 1 to 1500"),
        ("4niid", 5, 2000, "use fewer samples"),
    ],
)
def test_what_cannot_be_dealt_is_refused(rule, owners, samples, wanted):
    with pytest.raises(DataError, match=wanted):
        partition_labels(rule, LABELS, owners, seed=0, samples=samples)


def test_real_labels_have_no_classes():
    real = np.linspace(0, 1, 10, dtype=np.float32)
    assert sum(map(len, partition_labels("equal", real, 3, seed=0))) == 10
    with pytest.raises(DataError, match="labels are real"):
        partition_labels("classes:0/1", real, 2, seed=0)


def test_sets_that_cannot_be_are_refused():
    a, b = np.array([0, 1]), np.array([1, 2])
    with pytest.raises(DataError, match="owners 0 and 1 both have the label of the same row"):
        check_label_sets([a, b], 3)
    with pytest.raises(DataError, match="owners 0 and 0 both"):
        check_label_sets([np.array([1, 1])], 3)
    with pytest.raises(DataError, match="rows 0 to 1 exist"):
        check_label_sets([a, b + 1], 2)
    with pytest.raises(DataError, match="has no labels"):
        check_label_sets([a, b[:0]], 3)
    check_label_sets([a, b[1:]], 3)


def test_classes_that_nobody_holds_are_named():
    labels = np.array([0, 0, 1, 2])
    sets = (np.array([0, 1]), np.array([3]))
    assert unheld_classes(labels, sets, np.array([0, 1, 1, 2])) == (1,)
    assert unheld_classes(labels, sets, np.array([0, 2])) == ()


@pytest.mark.parametrize("rule", ["equal", "dirichlet:100"])
def test_samples_of_an_owner_are_of_all_its_classes(rule):
    labels = np.repeat(np.arange(4), 300)
    for rows in partition_labels(rule, labels, 2, seed=0, samples=60):
        assert np.bincount(labels[rows], minlength=4).min() >= 3
