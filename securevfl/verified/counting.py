"""Exact counting: whether a small program leaks, by all of its inputs and draws.

Counting uses no symbolic form and no search, so it is independent of prover and checker. The result
holds for one program with its functions, sizes and modulus; streams of keys are taken as
independent and uniform.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.errors import SecureVFLError
from securevfl.verified.trace import OPENED, Array, Node, Output, Trace, key_of, name_of

#: Most cases, each an assignment of all entries of inputs, tapes and streams: some seconds.
MOST_CASES = 2**16
_Law = dict[int, int]  # how many cases have a view, by its number
_HOW = (
    f"Exact counting takes programs of a `World` with p^entries up to {MOST_CASES}: write this "
    "exchange as one, of field elements, with p = 2, 3 or 5 and few entries "
    "(securevfl.verified.count)"
)


@dataclass(frozen=True)
class Counted:
    """Result of counting a coalition's views.

    Attributes
    ----------
    leaks : bool or None
        Whether two inputs with equal outputs give views of different distributions; None if the
        program could not be counted.
    cases : int
        Number of counted assignments.
    text : str
        Two such inputs, or a sentence on what was counted, or the reason why nothing was.
    """

    leaks: bool | None
    cases: int
    text: str


class _Uncountable(Exception):  # noqa: N818
    """A program that cannot be counted, with the reason."""


def count(
    world: Trace, coalition: Iterable[int], outputs: Sequence[Output] | None = None
) -> Counted:
    """Count the views of a coalition over all inputs, tapes and streams of a traced program.

    Parameters
    ----------
    world : World
        Program with at most 65,536 cases, p^entries over the entries of all inputs, tapes and
        streams.
    coalition : iterable of int
        Numbers of the colluding parties; the server is -1.
    outputs : sequence of Output, optional
        Outputs to use instead of those declared for its members.

    Examples
    --------
    >>> from securevfl.verified import SERVER, World, count
    >>> world = World(3)
    >>> alice, server = world.party(0), world.party(SERVER)
    >>> x, mask = world.secret(0, "x", (2,)), alice.uniform(1)
    >>> _ = alice.send(SERVER, "up", x + mask[[0, 0]])  # one mask for both entries
    >>> found = count(world, {SERVER})
    >>> found.leaks, found.cases
    (True, 27)
    """
    some = frozenset(coalition)
    given = world.outputs_of(some) if outputs is None else outputs
    try:
        return _All(world).compared(some, given)
    except _Uncountable as why:
        return Counted(None, 0, f"not counted: {why}. {_HOW}")


class _All:
    """Values of a trace in all cases: arrays of shape (cases, *shape)."""

    def __init__(self, world: Trace) -> None:
        self.world, self.p = world, int(world.field.modulus)
        if any(message.kind.startswith(OPENED) for message in world.messages):
            raise _Uncountable("the run opens a value, and another input may lead it elsewhere")
        self.places: dict[Any, tuple[int, int]] = {}  # of leaves: first column and size
        self.used = 0
        for node in world.nodes:
            self._place(node)
        if world.faults:
            raise _Uncountable(world.faults[0])
        self.cases = self.p**self.used
        numbers = np.arange(self.cases)
        self.every = np.stack(
            [numbers // self.p**i % self.p for i in range(self.used)] or [numbers], axis=1
        )
        self.of: dict[int, Array] = {}
        for node in world.nodes:
            if node.kind in ("field", "real"):
                self.of[node.number] = self._value(node)

    def _place(self, node: Node) -> None:
        """Reserve a column of `every`, the cases, for each entry of a leaf.

        Raises
        ------
        _Uncountable
            If there are too many cases, or its values cannot be listed.
        """
        who = "" if node.owner is None else f" of {name_of(node.owner)}"
        if node.op in ("key", "agreed", "public key") or (node.op, node.kind) == ("prf", "key"):
            if node.op == "prf" and len(node.args) > 1:
                raise _Uncountable("a key follows from a protected value")
            return
        if node.kind not in ("field", *(("real",) if node.op == "map" else ())):
            kind = {"real": "of real numbers", "noised": "a release with noise"}.get(node.kind)
            raise _Uncountable(f"{node.name or node.op}{who} is {kind or 'a ' + node.kind}")
        if node.op not in ("secret", "uniform", "prf"):
            if any(arg.kind not in ("field", "real") for arg in node.args):
                raise _Uncountable("a key is computed with")
            return
        size = math.prod(node.shape)
        if node.op == "prf":  # one answer for each value of the protected part of a label
            size *= self.p ** min(sum(math.prod(arg.shape) for arg in node.args[1:]), 64)
        leaf = self._leaf(node)
        if leaf not in self.places:
            self.places[leaf] = (self.used, size)
            self.used += size
        if self.used * math.log(self.p) > math.log(MOST_CASES) + 1e-9:
            raise _Uncountable(f"{self.p}^{self.used} cases or more are too many")

    def _leaf(self, node: Node) -> Any:
        return (key_of(node.args[0]), node.data) if node.op == "prf" else node.number

    def _columns(self, node: Node) -> Array:
        start, size = self.places[self._leaf(node)]
        return self.every[:, start : start + size]

    def _value(self, node: Node) -> Array:
        args = [self.of[arg.number] for arg in node.args if arg.number in self.of]
        whole = (self.cases, *node.shape)
        if node.op in ("secret", "uniform"):
            return self._columns(node).reshape(whole)
        if node.op == "prf":
            flat = [arg.reshape(self.cases, -1) for arg in args]
            asked = np.zeros(self.cases, np.int64)
            for column in np.concatenate([*flat, np.empty((self.cases, 0), np.int64)], axis=1).T:
                asked = asked * self.p + column.astype(np.int64)
            answers = self._columns(node).reshape(self.cases, -1, *node.shape)
            return answers[np.arange(self.cases), asked]
        if node.op == "map":
            return self._run(node, args)
        if node.op == "index":
            places = node.data.reshape(-1)
            taken = args[0].reshape(self.cases, -1)[:, places]
            return np.where(places >= 0, taken, 0).reshape(whole)
        if node.op == "public":
            return np.broadcast_to(self._reduced(node.data), whole)
        if node.op == "weigh":
            found = args[0] * self._reduced(node.data)
        elif node.op == "matmul":
            found = args[0] @ args[1]
        else:
            found = np.zeros(whole, np.int64)
            for arg, c in zip(args, node.data, strict=True):
                found = found + arg * (int(c) % self.p)
        return np.asarray(found % self.p).reshape(whole)

    def _reduced(self, array: Any) -> Array:
        return np.asarray(np.asarray(array, object) % self.p).astype(np.int64)

    def _run(self, node: Node, args: Sequence[Array]) -> Array:
        """Results of a function, run once for each value of its arguments; or _Uncountable."""
        from securevfl.verified.values import fitted

        call, place, kind = node.data
        _, first, which = np.unique(_codes(args, self.cases), return_index=True,
                                    return_inverse=True)  # fmt: skip
        dtypes = [self.world.field.dtype if n.kind == "field" else None for n in call.nodes]
        made = []
        for case in first:
            values = [
                arg[case] if dtype is None else arg[case].astype(dtype)
                for arg, dtype in zip(args, dtypes, strict=True)
            ]
            try:
                found = call.run(values)
                made.append(fitted(found if place is None else found[place], node.shape, kind))
            except (SecureVFLError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                said = f"{call.title} ends in {type(error).__name__} for some inputs"
                raise _Uncountable(said) from None
        results = np.stack(made)
        return (results.astype(np.int64) if node.kind == "field" else results)[which.reshape(-1)]

    # -- views -------------------------------------------------------------------------------

    def compared(self, coalition: frozenset[int], outputs: Sequence[Output]) -> Counted:
        """Comparison of the laws of views, for inputs that agree in outputs and in own inputs.

        The text has the first pair that does not.
        """
        inputs = [node for node in self.world.nodes if node.op == "secret"]
        own = [self.of[node.number] for node in inputs if node.owner in coalition]
        given = _codes([self.of[output.node.number] for output in outputs] + own, self.cases)
        views = _codes(self._view(coalition) + own, self.cases)
        secrets = _codes([self.of[node.number] for node in inputs], self.cases)
        seen, counts = np.unique(np.stack([secrets, views]), axis=1, return_counts=True)
        laws: dict[int, _Law] = {}
        for secret, view, times in zip(*seen.tolist(), counts.tolist(), strict=True):
            laws.setdefault(secret, {})[view] = times
        where = dict(zip(secrets.tolist(), range(self.cases), strict=True))  # one case of each
        first: dict[int, int] = {}
        said = f"counted at p = {self.p}, all {self.cases:,} cases, with the functions of this run"
        for secret, case in where.items():
            other = first.setdefault(int(given[case]), secret)
            if laws[secret] != laws[other]:
                text = self._told(inputs, where[other], case, laws[other], laws[secret])
                return Counted(True, self.cases, f"{said}: it leaks. {text}")
        return Counted(False, self.cases, f"{said}: no leak")

    def _told(self, inputs: Sequence[Node], one: int, other: int, law: _Law, than: _Law) -> str:
        """Text: two inputs (cases `one`, `other`), and views that differ, of laws `law`, `than`."""
        differ = [n for n in inputs if (self.of[n.number][one] != self.of[n.number][other]).any()]
        values = [
            ", ".join(f"{n.name} = {self.of[n.number][case].tolist()}" for n in differ)
            for case in (one, other)
        ]
        total = sum(law.values())
        view = max({**law, **than}, key=lambda v: abs(law.get(v, 0) - than.get(v, 0)))
        return (
            f"{values[0]} and {values[1]} have equal outputs, and one view comes in "
            f"{law.get(view, 0)} of {total} cases of the first and in {than.get(view, 0)} of the "
            "second"
        )

    def _view(self, coalition: frozenset[int]) -> list[Array]:
        """Values that the coalition draws and receives, and streams of keys that it has."""
        parts = [
            part
            for message in self.world.messages
            if message.seen_by(coalition)
            for part in message.parts
            if part.holder is None or part.holder in coalition
        ]
        keys = {key_of(part.node) for part in parts if part.node.kind == "key"}
        found = [self.of[p.node.number] for p in parts if p.node.kind in ("field", "real")]
        for node in self.world.nodes:
            if node.op == "uniform" and node.owner in coalition:
                found.append(self.of[node.number])
            elif node.op == "key" and node.owner in coalition:
                keys.add(key_of(node))
        for node in self.world.nodes:
            if (node.op, node.kind) == ("prf", "field") and _has(keys, node.args[0]):
                found.append(self._columns(node))
        return found


def _has(keys: set[Any], node: Node) -> bool:
    """Whether a key is among some, or follows from one of them."""
    if key_of(node) in keys:
        return True
    if node.op == "agreed":
        return any(_has(keys, one) for one in (node.args[0], node.args[1].args[0]))
    return node.op == "prf" and _has(keys, node.args[0])


def _codes(values: Sequence[Array], cases: int) -> Array:
    """Number of each case, (cases,) int64, equal for equal rows of all `values` (reals: bits)."""
    code = np.zeros(cases, np.int64)
    for value in values:
        for column in np.ascontiguousarray(value).reshape(cases, -1).T:
            if column.dtype.kind not in "iub":
                column = column.astype(np.float64).view(np.int64)
            own = np.unique(column, return_inverse=True)[1].reshape(-1)
            code = np.unique(code * (int(own.max()) + 1) + own, return_inverse=True)[1].reshape(-1)
    return code


__all__ = ["MOST_CASES", "Counted", "count"]
