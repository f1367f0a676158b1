"""Numerical tests of a trace: effects of one changed record, and of one party's other inputs.

Functions run again on other inputs. What is seen can refuse a verdict, and never supports one.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import reprlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np

from securevfl.errors import SecureVFLError
from securevfl.verified.costs import charged, cost_of, counted, epsilon_of, inputs_of
from securevfl.verified.forms import Algebra, Block, Evaluation, Form
from securevfl.verified.functions import same
from securevfl.verified.trace import Node, Output, name_of

_MOST_RECORDS = 16
_TRIALS = 12  # random inputs, before an entry counts as one party's
_WIDE = 4  # standard deviations
_FAILED = (SecureVFLError, ArithmeticError, ValueError, TypeError, LookupError)
_INSTEAD = {
    "gaussian": "Compute each released row from one record alone, and give it that record's number "
    "in rows=; -1 is for padding",
    "labels": "Compute each randomised label from one record alone, and each record's once",
}
_OF_RECORDS = {"columns", "labels"}  # words in names of inputs with a row for each record


class Changes:
    """Effects of changed inputs on a trace's releases and outputs, computed when first needed.

    Parameters
    ----------
    algebra : Algebra
        Symbolic forms of the trace.
    anew : callable
        Function that returns another value of an input, from its block and a seed.
    """

    def __init__(self, algebra: Algebra, anew: Callable[[Block, int], Any]) -> None:
        self._algebra, self._anew = algebra, anew
        self._rows: dict[int, list[tuple[str, dict[int, list[int]]]]] = {}
        self._runs: dict[tuple[int, int | None], Evaluation] = {}
        inputs = [b for b in algebra.blocks if b.kind == "secret" and b.node is not None]
        self._owners = {b.owner for b in inputs if b.owner is not None}
        self._arrays = [b for b in inputs if b.node.kind != "model"]  # type: ignore[union-attr]

    # -- records ---------------------------------------------------------------------------------

    def dearer(self, numbers: Iterable[int], coalition: Collection[int]) -> str:
        """Sentence on a record whose releases cost more than is counted for it; "" if none is seen.

        Models and earlier releases stay as they are: a cost is given the weights.

        Parameters
        ----------
        numbers : iterable of int
            Numbers of the released nodes.
        coalition : collection of int
            Parties that see the releases.
        """
        world, every = self._algebra.world, set(numbers)
        for owner, nodes in charged(world, every, coalition).items():
            for node, inputs in nodes.items():
                trained = [] if inputs else inputs_of(node.args, every, models=True)
                if any(one.owner not in coalition for one in trained):
                    return (
                        f"{self._named(node, coalition)} is computed from weights trained on "
                        f"{trained[0].name}, and noise on it does not hide a row of that"
                    )
            for kind, of in (("gaussian", epsilon_of), ("labels", lambda cost, _: cost)):
                own = [node for node in nodes if node.data[0] == kind]
                most = counted(own)
                for record, changed in self._of_records(owner) if own else ():
                    true = sum(len(changed.get(n.number, ())) * cost_of(n) for n in own)
                    if true > most * (1 + 1e-9):
                        said = [
                            f"rows {reprlib.repr(changed[n.number])} of {self._named(n, coalition)}"
                            for n in own
                            if changed.get(n.number)
                        ]
                        more = f" and {len(said) - 3} more" * (len(said) > 3)
                        return (
                            f"{record} of {name_of(owner)} changes {'; '.join(said[:3])}{more}: "
                            f"these cost epsilon = {of(true, world.delta):.4g}, and "
                            f"{of(most, world.delta):.4g} is counted. {_INSTEAD[kind]}"
                        )
        return ""

    def _named(self, release: Node, coalition: Collection[int]) -> str:
        """Name of a release, author's functions on the way to it, and its first message."""
        titles = {
            node.data[0].title: None
            for node in _before(release.args, models=False)
            if node.op == "map" and node.data[0].title != "clip_finite_rows"
        }
        by = f" ({', '.join(titles)})" if titles else ""
        for message in self._algebra.world.messages:
            if message.seen_by(frozenset(coalition)) and release in _before(
                part.node for part in message.parts
            ):
                return f"{release.name}{by}, sent in {message}"
        return f"{release.name}{by}"

    def _of_records(self, owner: int) -> list[tuple[str, dict[int, list[int]]]]:
        """Records of a party, and the rows of each release that another value of one changes."""
        if owner not in self._rows:
            found = self._rows[owner] = []
            nodes = {b.number: b.node for b in self._algebra.blocks if b.node is not None}
            released = {node.number: self._algebra.blocks[n].deps[0]
                        for n, node in nodes.items() if node.op == "release"}  # fmt: skip
            kept = {("map", "model"), ("release", "noised")}
            fixed = {n: node.value for n, node in nodes.items() if (node.op, node.kind) in kept}
            told = {n: inputs_of(self._algebra.world.nodes[n].args, released) for n in released}
            before = Evaluation(self._algebra, fixed)
            for b in _tables([b for b in self._arrays if b.owner == owner], told.values()):
                some = {n: released[n] for n in told if nodes[b.number] in told[n]}
                rows = functools.partial(self._differing, b, fixed, before, some)
                M = b.shape[0]
                for i, sign in itertools.product(_records(M, rows), (1, -1)):
                    found.append((f"record {i} of {M} in {b.name}", rows([i], sign)))
        return self._rows[owner]

    def _differing(
        self,
        block: Block,
        fixed: dict[int, Any],
        before: Evaluation,
        some: dict[int, Form],
        records: Sequence[int],
        sign: int,
    ) -> dict[int, list[int]]:
        """Rows of releases that other values of a block's records change."""
        run = Evaluation(self._algebra, fixed | {block.number: _with_another(block, records, sign)})
        rows = dict[int, list[int]]()
        for n, form in some.items():
            with contextlib.suppress(*_FAILED):
                rows[n] = _differing(before.value(form), run.value(form))
        return rows

    # -- parties ---------------------------------------------------------------------------------

    def of_one(self, coalition: frozenset[int], outputs: Sequence[Output]) -> str:
        """Sentence on an output entry that only one honest party's inputs change; "" if none.

        It must change in every run: the largest of several values, or one behind dead units, can
        be one party's in some.

        Parameters
        ----------
        coalition : frozenset of int
            Numbers of the colluding parties; all others are honest.
        outputs : sequence of Output
            Outputs that functions compute from inputs of several honest parties.
        """
        honest = sorted({b.owner for b in self._arrays if b.owner is not None} - coalition)
        if not self._owners - coalition <= set(honest):
            return ""  # who has nothing but a model keeps it here
        for output in outputs if len(honest) > 1 else ():
            ever: dict[int, Any] = {}
            always: dict[int, Any] = {}
            for trial in range(_TRIALS):
                for n in honest:
                    changed = self._changed(output, trial, n)
                    ever[n] = ever.get(n, False) | changed
                    always[n] = always.get(n, True) & changed
                counts = sum(mask.astype(int) for mask in ever.values())
                own = {n: always[n] & (counts == 1) for n in honest}
                if not any(mask.any() for mask in own.values()):
                    break
            else:
                for n, mask in own.items():
                    if mask.any():
                        entry = int(np.flatnonzero(mask)[0])
                        return (
                            f"output {output.name}: in {_TRIALS} runs its entry {entry} changed "
                            f"with the inputs of {name_of(n)} alone. Declare what is one party's "
                            "apart, with alone=True, or leave it out"
                        )
        return ""

    def _changed(self, output: Output, trial: int, party: int) -> Any:
        """Entries of an output that another value of a party's inputs changes, in a trial."""
        try:
            form = self._algebra.form(output.node)
            pair = [np.asarray(self._run(trial, n).value(form)) for n in (None, party)]
        except _FAILED:
            return np.ones(np.shape(output.value), bool)  # nothing is said of it
        if same(*pair):
            return np.zeros(pair[0].shape, bool)
        return pair[0] != pair[1]

    def _run(self, trial: int, party: int | None) -> Evaluation:
        """Run on random inputs, those of one party drawn again."""
        if (trial, party) not in self._runs:
            leaves = {b.number: self._drawn(b, trial, b.owner == party) for b in self._arrays}
            self._runs[trial, party] = Evaluation(self._algebra, leaves)
        return self._runs[trial, party]

    def _drawn(self, block: Block, trial: int, again: bool) -> Any:
        """Input's value in a trial, another if `again`; reals near the run's, or wide around 0."""
        drawn = self._anew(block, 2 * trial + again)
        if drawn.dtype.kind != "f" or trial % 2:
            return drawn
        return (_WIDE * (drawn - block.node.value)).astype(drawn.dtype)  # type: ignore[union-attr]


def _differing(one: Any, other: Any) -> list[int]:
    """Rows in which two matrices, or entries in which two vectors, differ but for rounding."""
    one = np.asarray(one)
    apart = ~np.isclose(one, other, rtol=1e-4, atol=1e-6 * min(1, np.abs(one).max(initial=0)))
    return [int(k) for k in np.flatnonzero(apart.reshape(len(apart), -1).any(axis=1))]


def _tables(arrays: Sequence[Block], told: Iterable[Sequence[Node]]) -> list[Block]:
    """Arrays with a row for each record: in a release, those named so and as long, or the longest.

    Others may be weights, and each row of them may be in all that is released.
    """
    found = set[int]()
    for inputs in told:
        there = [b for b in arrays if b.shape and b.node in inputs]
        named = [b for b in there if _OF_RECORDS & set(b.name.split())]
        longest = max((b.shape[0] for b in named or there), default=0)
        found |= {b.number for b in [*named, *(b for b in there if b.shape[0] == longest)]}
    return [b for b in arrays if b.number in found]


def _records(M: int, rows: Callable[[Sequence[int], int], dict[int, list[int]]]) -> list[int]:
    """Records to change one by one: of many, those from which the most released rows are computed.

    For each binary digit, records whose number has it change together, then all others. A row that
    one record determines changes in just one of both, which gives the record's digits.
    """
    spread: list[int] = np.unique(np.linspace(0, M - 1, min(M, _MOST_RECORDS)).astype(int)).tolist()
    if M <= _MOST_RECORDS:
        return spread
    numbers, codes = np.arange(M), dict[tuple[int, int], int]()
    torn = set[tuple[int, int]]()
    for k in range((M - 1).bit_length()):
        has = numbers >> k & 1 == 1
        one, other = (
            {(n, row) for n, some in rows(numbers[own].tolist(), 1).items() for row in some}
            for own in (has, ~has)
        )
        torn |= one & other
        for row in one | other:
            codes[row] = codes.get(row, 0) + ((row in one) << k)
    often = Counter(code for row, code in codes.items() if row not in torn and code < M)
    most = [record for record, _ in often.most_common(_MOST_RECORDS // 2)]
    return most + [i for i in spread[::2] if i not in most]


def _with_another(block: Block, records: Sequence[int], sign: int) -> Any:
    """Value of an input with some records replaced: whole numbers by another record's."""
    old = np.asarray(block.node.value)  # type: ignore[union-attr]
    array, several = np.array(old), bool((old != old[:1]).any())
    if old.dtype.kind == "f" and not (several and (old == np.rint(old)).all()):
        rng = np.random.default_rng([block.number, *records])
        step = sign * 3 * (float(old.std()) or 1.0)
        by = step * (1 + rng.random((len(records), *old.shape[1:])))
        array[records] += by.astype(array.dtype)
    elif several:
        for record in records:
            others = np.flatnonzero((old != old[record]).reshape(len(old), -1).any(axis=1))
            array[record] = old[others[0 if sign > 0 else -1]]
    return array


def _before(nodes: Iterable[Node], *, models: bool = True) -> list[Node]:
    """Nodes of which values are computed, with these values; with or without models."""
    todo, found = list(nodes), dict[int, Node]()
    while todo:
        node = todo.pop()
        if node.number not in found and (models or node.kind != "model"):
            found[node.number] = node
            todo.extend(node.args)
    return list(found.values())
