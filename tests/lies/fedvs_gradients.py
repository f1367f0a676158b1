"""A server of FedVS that sends gradients of its choice, or asks for the same rows again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from securevfl.verified import bare_of
from tests.lies.lie import Finding, Lie, Outcome, Size
from tests.lies.stage import VICTIM, LyingServer, play, relative

ORDER = (4, 5, 9, 0, 1, 2, 3, 6, 7, 8)
AGAIN = 20  # times that the same rows are asked for


class ChosenGradient(LyingServer):
    """Has the same sum made before and after a gradient that has one entry for each column of H.

    With SGD a client's step is then -lr/|S| times one of its rows a column, so the difference of
    the sums has inner products of rows: columns of X X^T. Adam's first step is almost
    proportional to gradients far below its 1e-8.
    """

    moved: ClassVar[tuple[int, ...] | None] = None  # clients that get the gradient; None for all

    async def run(self) -> None:
        """Two sums over the same clients."""
        batch, layout = self.rows(), self.public.batches["train"]
        true = np.flatnonzero(layout.samples(batch.rows) >= 0)[: self.public.config.width]
        first = self.sums(await self.ask(batch))
        assert first is not None
        gradient, products = self.chosen(batch.rows, true, first)
        to = self.peers if self.moved is None else self.moved
        self.gradient(gradient, to)
        self.gradient(0.0, self.all_but(*to))
        second = self.sums(await self.ask(batch))
        every = [self.judge.powers(n, batch) for n in self.peers]
        mine = [every[n] for n in to]
        truth = sum(x @ x.T for x in mine)[:, true]
        mean = sum(x @ x.T for x in every)[:, true] / len(every)
        self.found |= {"mean": mean, "guess": relative(mean, truth)}
        if second is not None:
            self.found["products"] = (first - second) @ products
            self.found["error"] = relative(self.found["products"], truth)
        self.found["rows"] = true
        self.conclude()

    def chosen(
        self, rows: np.ndarray, true: np.ndarray, sums: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The gradient, and what turns the change of sums into columns `true` of X X^T."""
        config, N = self.public.config, len(self.peers)
        lr = config.client_lr or config.lr
        size, step = (N * 1e-10, lr * 1e-2) if config.optimizer == "adam" else (0.1 * N / lr, 0.1)
        gradient = np.zeros(sums.shape)
        gradient[true, np.arange(len(true))] = size
        return gradient, np.eye(sums.shape[1])[:, : len(true)] / step


class OwnGradient(ChosenGradient):
    """Sends the gradient of its loss, as an honest server does, and has the sum made again."""

    def chosen(
        self, rows: np.ndarray, true: np.ndarray, sums: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The best that it can do: the least solution of its equations."""
        samples, N = self.public.batches["train"].samples(rows), len(self.peers)
        mean, labels = (sums / N).astype(np.float32), bare_of(self.labels["train"])
        _, gradient = bare_of(self.centre).step(mean, samples, labels)
        step = (self.public.config.client_lr or self.public.config.lr) / N
        return gradient, np.linalg.pinv(step * np.float64(gradient), rcond=1e-6)[:, true]


class OneIsMoved(ChosenGradient):
    """Sends the gradient to the victim alone, and zeros to all others."""

    moved: ClassVar[tuple[int, ...] | None] = (VICTIM,)


class SameRows(LyingServer):
    """Asks for the same sum again and again."""

    async def run(self) -> None:
        """Count sums that say something new."""
        batch, found = self.rows(), []
        for _ in range(AGAIN):
            found.append(self.sums(await self.ask(batch)))
            self.gradient(0.0)
        sums = [one for one in found if one is not None]
        bits, width = (
            self.public.config.model_bits,
            sum(self.judge.powers(n, batch).shape[1] for n in self.peers),
        )
        rounding = width * 2.0**-bits  # of the weights, in each round anew
        self.found["new"] = sum(float(np.abs(one - sums[0]).max()) > rounding for one in sums[1:])
        self.conclude()


class Turned(ChosenGradient):
    """Sends no number at all."""

    def chosen(
        self, rows: np.ndarray, true: np.ndarray, sums: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Not a number."""
        gradient, products = super().chosen(rows, true, sums)
        return np.full_like(gradient, np.nan), products


def products(server: type[ChosenGradient], size: Size, honest: bool, **options: Any) -> Finding:
    """Columns of X X^T of the clients that are moved, as their networks take the rows.

    The control is the same server with its own gradient or, of a single client, the mean of all.
    """
    played = play(size, server, **options)
    guess = (
        play(size, OwnGradient, **options).found["error"]
        if honest
        else played.found.get("guess", 1.0)
    )
    whose = "X X^T of all (h columns)" if honest else "X X^T of one client"
    return Finding(
        *(f"relative error of {whose}", played.found.get("error"), guess),
        played.noticed(),
        sign=-1,
    )


def columns(size: Size) -> Finding:
    """Raw columns that come out of each client's inner products, one client after the other.

    The control is the same attack on the mean of all clients' inner products.
    """
    read, control, noticed = list[bool](), list[bool](), "nobody"
    for victim in ORDER[: size.victims]:
        alone = type("Alone", (ChosenGradient,), {"moved": (victim,)})
        played = play(size, alone, optimizer="sgd")
        rows = played.found["rows"]
        own = played.judge.powers(victim, played.server.rows())[rows]
        columns = own[:, : own.shape[1] // 2].T
        columns = columns[(columns > 1 / 32).mean(axis=1) > 1 / 4]  # blank pixels prove nothing
        for products, found in (("products", read), ("mean", control)):
            guesses = raw_columns(played.found[products][rows], 20 * size.victims)
            found += [among(column, guesses) for column in columns]
        noticed = played.noticed() if played.noticed() != "nobody" else noticed
    quantity = "share of columns read, every row within 1/32"
    return Finding(quantity, float(np.mean(read)), float(np.mean(control)), noticed)


def among(column: np.ndarray, guesses: Sequence[np.ndarray]) -> bool:
    """Whether one of the guesses is the column, every row within 1/32."""
    return any(bool(np.abs(guess - column).max() < 1 / 32) for guess in guesses)


def raw_columns(products: np.ndarray, starts: int) -> list[np.ndarray]:
    """Columns x of a client, in no order, from its inner products x y + x^2 y^2 + 1 (D = 2).

    A factor U of the products is [X | X^2 | 1] up to a rotation. No rotation keeps that some
    directions are squares of others: those u for which (U u)^2 lies in the span of U are the
    columns of X. They are found by least squares from random starts, at right angles to the
    direction of the ones.
    """
    from scipy.optimize import least_squares

    sizes, vectors = np.linalg.eigh((products + products.T) / 2)
    kept = sizes > 1e-4 * sizes.max() / len(sizes)
    factor = vectors[:, kept] * np.sqrt(sizes[kept])
    outside = np.eye(len(products)) - vectors[:, kept] @ vectors[:, kept].T
    ones = np.linalg.lstsq(factor, np.ones(len(products)), rcond=None)[0]
    free = factor @ np.linalg.svd(ones[None])[2][1:].T

    def column(direction: np.ndarray) -> np.ndarray:
        made: np.ndarray = free @ (direction / np.linalg.norm(direction))
        return made if made.sum() > 0 else -made

    def misfit(direction: np.ndarray) -> np.ndarray:
        square = column(direction) ** 2
        part: np.ndarray = outside @ square / np.linalg.norm(square)
        return part

    rng, found = np.random.Generator(np.random.Philox(0)), list[np.ndarray]()
    for _ in range(starts):
        fit = least_squares(misfit, rng.normal(size=free.shape[1]), max_nfev=100)
        new = column(fit.x)
        if fit.cost < 1e-6 and all(np.abs(new - one).max() > 0.05 for one in found):
            found.append(new)
    return found or [np.zeros(len(products))]


def same_rows(size: Size) -> Finding:
    """Sums that differ by more than the rounding of weights."""
    played = play(size, SameRows)
    quantity = f"new sums among {AGAIN} of the same rows"
    return Finding(quantity, played.found.get("new"), 0.0, played.noticed())


def lie(name: str, does: str, limit: str, expected: Outcome,
        measure: Callable[[Size], Finding], options: str = "") -> Lie:  # fmt: skip
    """A lie of the server of FedVS."""
    return Lie(f"fedvs: {name}", f"fedvs{options}", "server", does, limit, expected, measure)


def of(server: type[ChosenGradient], honest: bool, optimizer: str) -> Callable[[Size], Finding]:
    """Measure of a chosen gradient."""
    return functools.partial(products, server, honest=honest, optimizer=optimizer)


LIES = (
    lie("chosen gradient", "sends a gradient with one entry a column, and sums the rows again",
        "nothing", "gains", of(ChosenGradient, True, "sgd"), " --optimizer sgd"),
    lie("one client is moved", "sends that gradient to one client and zeros to the others",
        "nothing: S is the same", "gains", of(OneIsMoved, False, "sgd"), " --optimizer sgd"),
    lie("one client is moved, Adam", "the same, with a gradient far below Adam's 1e-8",
        "nothing: S is the same", "gains", of(OneIsMoved, False, "adam")),
    lie("one client's columns", "the same to each client in turn, and solves for columns (D = 2)",
        "nothing: S is the same", "gains", columns, " --optimizer sgd"),
    lie("gradient of NaN", "sends a gradient that is no number", "the next round's range check",
        "refused", of(Turned, False, "sgd")),
    lie("same rows", f"asks for the same rows {AGAIN} times, without a step",
        "the sum is the same", "nothing", same_rows),
)  # fmt: skip
