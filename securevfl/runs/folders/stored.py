"""Descriptions of trained models in files: checks before a model is made."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from securevfl.data.base.class_values import StoredClassValues
from securevfl.data.preparation.party_preprocessor import PartyPreprocessor
from securevfl.models.client_networks import Kind
from securevfl.models.split import Task
from securevfl.reading import Stored

FORMAT = 1
#: Description of a party's model, in JSON types.
About = Mapping[str, Any]
MOST_PARTIES = 2**16  # an embedding of each has its place in memory, whether it is there or not
_Size = Annotated[int, Field(ge=1)]
_Number = Annotated[int, Field(ge=0)]


class _Network(Stored):
    """Description of a client's network."""

    kind: Kind
    features: _Size
    width: _Size
    depth: _Size
    image_shape: Annotated[list[_Size], Field(min_length=3, max_length=3)] | None
    cardinalities: list[_Number]
    embedding: _Size
    layers: list[_Size]
    own: str

    @model_validator(mode="after")
    def _of_its_columns(self) -> Self:
        shape, coded = self.image_shape, self.cardinalities
        if shape is not None and prod(shape) != self.features:
            raise ValueError(f"an image of {shape} for {self.features} columns")
        if coded and len(coded) != self.features:
            raise ValueError(f"{len(coded)} cardinalities for {self.features} columns")
        return self


class _Description(Stored):
    format: Literal[1]
    protocol: str
    id_column: str | None = None


class _Client(_Description):
    """Fields of a client's description."""

    role: Literal["client"]
    party: _Number
    name: str
    network: _Network | None
    preprocessing: Annotated[PartyPreprocessor, BeforeValidator(PartyPreprocessor.from_json)] | None

    @model_validator(mode="after")
    def _of_its_columns(self) -> Self:
        network, columns = self.network, self.preprocessing
        if network is not None:
            found = 0 if columns is None else len(columns.encoded)
            if found != network.features:
                raise ValueError(f"a network of {network.features} columns, and {found} are made")
        return self


class _Centre(Stored):
    """Description of a server model."""

    name: str
    width: _Size
    hidden: _Size
    outputs: _Size
    own: str


class _Server(_Description):
    """Fields of the server's description."""

    role: Literal["server"]
    parties: Annotated[int, Field(ge=1, le=MOST_PARTIES)]
    task: Task
    classes: list[str]
    class_values: StoredClassValues | None = None  # texts, in the first folders
    aggregation: str
    evaluated: list[_Number]
    network: _Centre | None

    @model_validator(mode="after")
    def _of_its_parties(self) -> Self:
        fewest, most = {"regression": (0, inf), "binary": (2, 2), "multiclass": (2, inf)}[self.task]
        if not fewest <= len(self.classes) <= most:
            raise ValueError(f"{len(self.classes)} classes of a {self.task} task")
        values = None if self.class_values is None else self.class_values.values
        if values is not None and len(values) != len(self.classes):
            raise ValueError(f"{len(values)} values of {len(self.classes)} classes")
        if self.network is None:
            return self
        outputs = len(self.classes) if self.task == "multiclass" else 1
        if self.network.outputs != outputs:
            raise ValueError(f"{self.network.outputs} outputs, and {outputs} are needed")
        if not self.evaluated or len(set(self.evaluated)) != len(self.evaluated):
            raise ValueError(f"evaluated = {self.evaluated} names no party, or one twice")
        if max(self.evaluated) >= self.parties:
            raise ValueError(f"evaluated = {self.evaluated} of {self.parties} parties")
        return self


def check_description(about: About) -> None:
    """Check a description against this version's format; ValueError names the wrong field."""
    (_Server if about.get("role") == "server" else _Client).check(about)
