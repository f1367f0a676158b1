"""Preprocessing in files: checks of untrusted content before objects are made."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from securevfl.reading import Stored


class StoredColumn(Stored):
    """Fields of `securevfl.data.preparation.columns.Column.to_json`."""

    name: str
    categories: Annotated[list[str], Field(min_length=1)] | None = None
    fill: float | None = None
    indicator: bool = False
    coded: bool = False

    @model_validator(mode="after")
    def _of_one_kind(self) -> Self:
        if self.coded and (self.categories is None or self.indicator):
            raise ValueError("a column of category codes has categories and no indicator")
        if len(set(self.categories or ())) != len(self.categories or ()):
            raise ValueError("a category stands twice")
        return self

    @property
    def encoded(self) -> int:
        """Number of encoded columns."""
        own = 1 if self.categories is None or self.coded else len(self.categories)
        return own + self.indicator


class StoredTree(Stored):
    """Fields of `securevfl.data.preparation.forest.Tree`."""

    column: Annotated[list[int], Field(min_length=3)]
    threshold: list[float]
    left: list[int]
    right: list[int]

    @model_validator(mode="after")
    def _ends(self) -> Self:
        size = len(self.column)
        if {len(self.threshold), len(self.left), len(self.right)} != {size}:
            raise ValueError("the lists of a tree have different lengths")
        for node, children in enumerate(zip(self.left, self.right, strict=True)):
            if children != (-1, -1) and not all(node < child < size for child in children):
                raise ValueError(f"node {node} of a tree has the children {children}")
        return self


class StoredPreprocessing(Stored):
    """Fields of `PartyPreprocessor.to_json`: an offset and a divisor for each encoded column."""

    columns: Annotated[list[StoredColumn], Field(min_length=1)]
    offset: list[float]
    divisor: list[Annotated[float, Field(ge=0)]]
    clip: bool
    missing: list[str]
    forest: list[StoredTree] | None = None

    @property
    def encoded(self) -> int:
        """Number of encoded columns, leaves of trees among them."""
        leaves = sum(child < 0 for tree in self.forest or () for child in tree.left)
        return len(self.offset) + leaves

    @model_validator(mode="after")
    def _of_one_length(self) -> Self:
        wanted = sum(column.encoded for column in self.columns)
        if {len(self.offset), len(self.divisor)} != {wanted}:
            raise ValueError(
                f"{len(self.offset)} offsets and {len(self.divisor)} divisors for {wanted} columns"
            )
        for tree in self.forest or ():
            splits = zip(tree.column, tree.left, strict=True)
            if any(child >= 0 and not 0 <= column < wanted for column, child in splits):
                raise ValueError(f"a tree splits a column that is none of the {wanted}")
        return self
