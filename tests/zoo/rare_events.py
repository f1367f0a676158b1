"""Leaks of FedVS that come with rare events, or tell what the usual comparisons leave as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from securevfl.testing.runs import Outcome
from tests.zoo.encrypted import every
from tests.zoo.fedvs_masks import (
    UPLOADS,
)
from tests.zoo.planting import (
    messages,
    planted,
    upload_masks,
)


def _of_batch(which: Callable[[Any, Any], bool]) -> Callable[[Any], None]:
    """Plant of a client whose rho is zero in the rounds of some batches."""

    def plant(client: Any) -> None:
        checked, own, chosen = client.checked, client.rho, set()

        def checking(batch: Any, attempt: Any) -> Any:
            if which(client, batch):
                chosen.add(client.round)
            return checked(batch, attempt)

        def rho(told: bytes, shape: tuple[int, ...]) -> np.ndarray:
            values: np.ndarray = own(told, shape)
            return np.zeros_like(values) if client.round in chosen else values

        client.checked, client.rho = checking, rho

    return plant


# -- seeing them -----------------------------------------------------------------------------------


def _rho_zero_where(asked: Callable[[Any, Any], bool]) -> Callable[[Outcome], bool]:
    def shows(outcome: Outcome) -> bool:
        opened = {int(one["round"]): one["payload"] for one in messages(outcome, "round")
                  if one["receiver"] == 0}  # fmt: skip
        client = outcome.parties[0]
        summed = {int(one["round"]) for one in messages(outcome, "attempt")}
        told = [round for round in sorted(summed) if asked(client, opened[round])]
        return bool(told) and not any(
            one.any() for round in told for one in upload_masks(outcome, round).values()
        )

    return shows


LEAKS = (
    planted(
        "fedvs",
        "secure: rho zero in inference",
        "only with an option",
        "Masks of uploads are zero while test rows are inferred.",
        every(_of_batch(lambda client, batch: batch.part == "test")),
        UPLOADS,
        _rho_zero_where(lambda client, batch: getattr(batch, "part", "") == "test"),
        {"secure": True},
    ),
)
