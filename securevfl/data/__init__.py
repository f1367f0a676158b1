"""Data sets whose columns belong to several parties."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from securevfl.data.alignment.join import join_rows
    from securevfl.data.base.origin import About
    from securevfl.data.catalogue.registry import CatalogueEntry, dataset_catalogue, load_dataset
    from securevfl.data.dataset import VerticalDataset
    from securevfl.data.preparation.party_preprocessor import PartyPreprocessor
    from securevfl.data.preparation.preprocess import Preprocessor

__all__ = [
    "About",
    "CatalogueEntry",
    "PartyPreprocessor",
    "Preprocessor",
    "VerticalDataset",
    "dataset_catalogue",
    "join_rows",
    "load_dataset",
]

_EXPORTS = {
    "About": "base.origin",
    "CatalogueEntry": "catalogue.registry",
    "PartyPreprocessor": "preparation.party_preprocessor",
    "Preprocessor": "preparation.preprocess",
    "VerticalDataset": "dataset",
    "dataset_catalogue": "catalogue.registry",
    "join_rows": "alignment.join",
    "load_dataset": "catalogue.registry",
}


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
