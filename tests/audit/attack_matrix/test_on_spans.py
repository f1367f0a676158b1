"""Columns and rows that a server finds in real runs, no attacked row being known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from securevfl.audit.attack_matrix.on_spans import other_rows, squares, views_of
from securevfl.audit.attack_matrix.setting import AttackCase, AttackSettings
from securevfl.audit.attacks.outcome import NoView, Outcome
from securevfl.data.dataset import VerticalDataset
from securevfl.data.source import DataSource
from securevfl.studies.compare import comparison


def case(variant: str, watched: int = 4, **settings: Any) -> AttackCase:
    """Wine, whose 13 columns are real numbers, at five owners."""
    from sklearn.datasets import load_wine

    source = DataSource("breast-cancer", {"parties": 5})  # not loaded
    free = "" if variant.startswith("split") else ",sum_budget=0,lr_decay=none"
    job = comparison([variant + free], source, options={}, seeds=[0], conditions="none").jobs[0]
    made = AttackCase(job, AttackSettings(watched=watched, **settings))
    made.data = VerticalDataset.from_numpy(*load_wine(return_X_y=True), parties=5)
    return made


def test_a_few_rounds_of_the_defaults_give_the_columns():
    found = squares(case("fedvs:width=64,degree=2,batch=128"))
    assert isinstance(found, Outcome)
    assert found.success > 0.75
    assert found.chance == 0
    assert "rank 27" in found.note


def test_single_embeddings_are_of_fewer_columns():
    found = squares(case("split:width=64,degree=2,batch=128"))
    assert isinstance(found, Outcome)
    assert (found.success, found.samples) == (1.0, 3)


def test_segments_with_models_of_their_own_are_views_of_their_own():
    attacked = case("coded_split:width=64,degree=2,batch=64,segments=2,helpers=2", watched=2)
    views = views_of(attacked.watched)
    assert not isinstance(views, NoView)
    assert [len(v.rows) for v in views] == [32] * 4
    assert not np.intersect1d(views[0].rows, views[1].rows).size


def test_fewer_sums_than_the_rank_are_filled_up():
    found = squares(case("fedvs:width=25,degree=2,batch=134", watched=1))
    assert isinstance(found, Outcome)
    assert found.success > 0.5
    assert "1 of its dimensions were fitted" in found.note


@pytest.mark.parametrize("variant", ["width=8,degree=2,batch=134", "width=9,degree=1,batch=134"])
def test_no_more_sums_than_columns_determine_nothing(variant):
    found = squares(case(f"fedvs:{variant}", watched=1))
    assert isinstance(found, NoView)
    assert "do not determine the space, of 13 columns" in found.reason


def test_degree_one_gives_the_space_and_no_column():
    found = squares(case("fedvs:width=64,degree=1,batch=128"))
    assert isinstance(found, Outcome)
    assert found.success == 0
    assert "0 guesses; rank 14" in found.note


def test_other_rows_need_steps_that_are_linear():
    found = other_rows(case("fedvs:width=64,degree=1,rounds=2"))
    assert isinstance(found, NoView)
    assert "adam" in found.reason


def test_inner_products_are_used_with_other_rows():
    found = other_rows(case("coded_split:width=64,degree=1,rounds=2"))
    assert isinstance(found, Outcome)
    assert found.samples == 134
    assert found.success > 0.3
    assert found.note.startswith("44 other rows and their labels")
