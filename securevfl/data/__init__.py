"""Data sets whose columns belong to several parties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from securevfl.data.about import About
    from securevfl.data.dataset import VerticalDataset
    from securevfl.data.preprocess import PartyPreprocessor, Preprocessor
    from securevfl.data.registry import CatalogueEntry, dataset_catalogue, load_dataset

__all__ = [
    "About",
    "CatalogueEntry",
    "PartyPreprocessor",
    "Preprocessor",
    "VerticalDataset",
    "dataset_catalogue",
    "load_dataset",
]

_HOMES = {
    "About": "about",
    "CatalogueEntry": "registry",
    "PartyPreprocessor": "preprocess",
    "Preprocessor": "preprocess",
    "VerticalDataset": "dataset",
    "dataset_catalogue": "registry",
    "load_dataset": "registry",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
