"""Clients of FedVS that deviate: shares, keys, uploads, and leaving."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from securevfl.field import FixedPoint
from securevfl.field.lagrange import interpolation_matrix
from securevfl.protocols.fedvs.algorithm import Client
from securevfl.protocols.fedvs.messages import Attempt, Batch
from securevfl.verified import Element
from tests.lies.dealing import (
    Inconsistent,
    KeepsKeys,
    OfAnotherShape,
    WrongKeys,
)
from tests.lies.fedvs_sums import HasKeys
from tests.lies.lie import Finding, Lie, Outcome, Size
from tests.lies.running import Played
from tests.lies.stage import VICTIM, play

SHIFT = 5 << 44  # 5.0 in the sum, with lx + lw = 44 bits
MOVED = "error of H"


class OfData(Inconsistent, Client):
    """Deals an inconsistent data share."""

    kind = "train-data"


class OfModel(Inconsistent, Client):
    """Deals an inconsistent model share."""

    kind = "model"


class OfKeys(WrongKeys, Client):
    """Sends one client other keys than the others."""


class ModelOfAnotherShape(OfAnotherShape, Client):
    """Deals one client a model share of another shape."""

    kind = "model"


class WrongUpload(Client):
    """Uploads random elements."""

    def masked(self, upload: Element, told: bytes) -> Element:
        """Nothing that was computed."""
        return self.uniform(upload.shape)


class ShortUpload(Client):
    """Uploads an array of another shape."""

    def masked(self, upload: Element, told: bytes) -> Element:
        """One column is missing."""
        return super().masked(upload, told)[:, :-1]


class Colluder(Client):
    """Adds a polynomial to its upload that vanishes at R-1 honest clients.

    Together with those, A+1 colluders are as many as the decoder believes. They need no uploads of
    others, only to know whose the server will have.
    """

    believed: tuple[int, ...] = ()

    def masked(self, upload: Element, told: bytes) -> Element:
        """E(alpha) is added, for E of degree R-1 with E = 5.0 at the first data point."""
        code, field = self.public.code, self.public.field
        nodes = [code.alphas[n] for n in self.believed] + [code.betas[0]]
        weights = interpolation_matrix(field, nodes, [code.alphas[self.index]])
        return super().masked(upload, told) + SHIFT * int(weights[0, -1]) % field.modulus


class Reshares(Client):
    """Deals its data once more, of other rows, in the round."""

    def share(self, kind: str, shares: Any) -> None:
        """The model, and before it other data."""
        if kind == "model":
            super().share("train-data", np.zeros((len(self.peers), 1, 1), self.public.field.dtype))
        super().share(kind, shares)


class Wraps(Client):
    """Shares a model whose part of the sum wraps."""

    def check_range(self, batch: Batch, model: Element) -> None:
        """Not checked."""

    def quantised_model(self) -> Element:
        """Uniform elements: no weights at all."""
        return self.uniform(super().quantised_model().shape)


def at_bound(model: np.ndarray, bound: float, point: FixedPoint) -> np.ndarray:
    """Weights at their bound, in a model's shape."""
    return point.quantize(np.full(model.shape, bound))


class LargeModel(Client):
    """Shares weights at their bound instead of its own: within the rules, but poison."""

    def quantised_model(self) -> Element:
        """The bound on every weight."""
        how = self.public.config.weight_bound, self.public.model_point
        made: Element = super().quantised_model().map(at_bound, *how)
        return made


class NoKeys(KeepsKeys, Client):
    """Draws keys, and never sends them."""


class Leaves(Client):
    """Shares, and never uploads."""

    def consistent(self, batch: Batch, attempt: Attempt) -> bool:
        """As if it had uploaded the rows to another sum."""
        return False


def moved(liars: Mapping[int, type[Client]], size: Size, **options: Any) -> Finding:
    """Distance of the decoded mean of the first round from that of an honest run."""
    lied = play(size, liars=liars, **options)
    honest = play(size, **options).judge.means[0]
    means = lied.judge.means
    value = float(np.abs(means[0] - honest).max()) if means else None
    noticed = lied.noticed()
    right = value == 0.0 and lied.count("corrected") > 0
    return Finding(MOVED, value, 0.0, noticed, corrected=right)


def colluders(size: Size) -> Finding:
    """A+1 = 2 of 9 clients, where the server has R + 2A = 9 uploads, A = 1."""
    code = {"segments": 3, "tolerate_corrupt": 1}
    believed = (2, 3, 4, 5, 6, 7)  # R - 1; client 8 is honest too, and is named
    liar = type("Pair", (Colluder,), {"believed": believed})
    return moved({0: liar, 1: liar}, size, parties=9, **code)


def lost(liar: type[Client], size: Size, **options: Any) -> Finding:
    """Share of attempts that one client brings to nothing, with timeouts and 10 steps."""
    waits = {"share_timeout": 1.0, "result_timeout": 1.0, "rounds": 10} | options
    played = play(size, liars={VICTIM: liar}, **waits)
    steps, given_up = played.count("round"), played.count("given_up")
    share = given_up / max(1, steps + given_up)
    return Finding("share of attempts lost", share, 0.0, played.noticed())


def ended(liars: Mapping[int, type[Client]], size: Size, **options: Any) -> Finding:
    """Share of runs that a lie ends: 0 or 1."""
    played: Played = play(size, liars=liars, **options)
    return Finding("share of runs that end", float(played.error is not None), 0.0, played.noticed())


def told_keys(members: Sequence[int], size: Size) -> Finding:
    """Elements of psi that the server reads with the keys of some clients."""
    played = play(size, type("Told", (HasKeys,), {"of": tuple(members)}))
    return Finding("share of psi that is read", played.found["read"], 0.0, played.noticed())


def lie(name: str, who: str, does: str, limit: str, expected: Outcome,
        measure: Callable[[Size], Finding], options: str = "") -> Lie:  # fmt: skip
    """A lie of clients of FedVS."""
    return Lie(f"fedvs: {name}", f"fedvs{options}", who, does, limit, expected, measure)


def of(liar: type[Client], at: int = VICTIM, **options: Any) -> Callable[[Size], Finding]:
    """Measure of the change that one client makes."""
    return functools.partial(moved, {at: liar}, **options)


A1 = {"tolerate_corrupt": 1}
WITH = " --tolerate-corrupt 1"
ONE = "1 client"
LIES = (
    lie("inconsistent data", ONE, "deals client 1 a wrong data share", "nothing", "gains",
        of(OfData)),
    lie("inconsistent data, A = 1", ONE, "does the same",
        "corrected; honest client 1 is named", "corrected", of(OfData, **A1), WITH),
    lie("inconsistent model", ONE, "deals client 1 a wrong model share", "nothing", "gains",
        of(OfModel)),
    lie("inconsistent model, A = 1", ONE, "does the same",
        "corrected; honest client 1 is named", "corrected", of(OfModel, **A1), WITH),
    lie("inconsistent key", ONE, "sends client 1 other keys than the others", "nothing", "gains",
        of(OfKeys, 0)),
    lie("inconsistent key, A = 1", ONE, "does the same",
        "corrected; honest client 1 is named", "corrected", of(OfKeys, 0, **A1), WITH),
    lie("wrong upload", ONE, "uploads random elements", "nothing", "gains", of(WrongUpload, 0)),
    lie("wrong upload, A = 1", ONE, "does the same", "Reed-Solomon decoding", "corrected",
        of(WrongUpload, 0, **A1), WITH),
    lie("A+1 wrong uploads", "2 clients", "add a polynomial that vanishes at R-1 others",
        "nothing; an honest client is named", "gains", colluders, WITH),
    lie("upload of another shape", ONE, "uploads one column less",
        "nothing without --tolerate-corrupt", "gains",
        functools.partial(ended, {0: ShortUpload})),
    lie("share of another shape", ONE, "deals client 1 a share with one column less", "nothing",
        "gains", functools.partial(ended, {VICTIM: ModelOfAnotherShape})),
    lie("other data later", ONE, "deals other data in a later round",
        "data shares are taken in setup only", "nothing", of(Reshares)),
    lie("large weights", ONE, "shares weights at their bound", "nothing: poisoning", "gains",
        of(LargeModel)),
    lie("a model that wraps", ONE, "shares uniform elements as its model", "nothing", "gains",
        of(Wraps)),
    lie("a model that wraps, A = 1", ONE, "does the same",
        "nothing: its shares are consistent", "gains", of(Wraps, **A1), WITH),
    lie("keeps its keys", ONE, "never sends the keys that it draws", "nothing", "gains",
        functools.partial(ended, {0: NoKeys})),
    lie("never uploads", ONE, "shares, and never uploads", "R of N uploads are enough",
        "nothing", functools.partial(lost, Leaves)),
    lie("keys told", "T clients", "tell the server all their keys",
        "they lack the keys of their blocks", "nothing", functools.partial(told_keys, (3,))),
    lie("keys told, T+1", "T+1 clients", "do the same", "T bounds the colluders",
        "gains", functools.partial(told_keys, (3, 7))),
)  # fmt: skip
