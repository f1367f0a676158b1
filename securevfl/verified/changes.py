"""Numerical tests of a trace: effects of one changed record, and of one party's other inputs.

Functions run again on other inputs. What is seen can refuse a verdict, and never supports one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from securevfl.errors import SecureVFLError
from securevfl.verified.costs import cost_of, counted, epsilon_of
from securevfl.verified.forms import Algebra, Block, Evaluation
from securevfl.verified.functions import same
from securevfl.verified.trace import Output, name_of

_MOST_RECORDS = 16
_TRIALS = 12  # random inputs, before an entry counts as one party's
_WIDE = 4  # standard deviations
_FAILED = (SecureVFLError, ArithmeticError, ValueError, TypeError, LookupError)
_OF_RECORDS = {"columns", "labels"}  # words in names of inputs that have a row for each record


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
        self._rows: list[tuple[str, dict[int, list[int]]]] | None = None
        self._runs: dict[tuple[int, int | None], Evaluation] = {}
        inputs = [b for b in algebra.blocks if b.kind == "secret" and b.node is not None]
        self._owners = {b.owner for b in inputs if b.owner is not None}
        self._arrays = [b for b in inputs if b.node.kind != "model"]  # type: ignore[union-attr]

    # -- records ---------------------------------------------------------------------------------

    def dearer(self, numbers: Iterable[int]) -> str:
        """Sentence on a record whose releases cost more than is counted for it; "" if none is seen.

        Models and earlier releases stay as they are: a cost is given the weights.

        Parameters
        ----------
        numbers : iterable of int
            Numbers of the released nodes.
        """
        nodes = [self._algebra.world.nodes[n] for n in sorted(set(numbers))]
        for owner in sorted({node.owner for node in nodes if node.owner is not None}):
            for kind, of in (("gaussian", epsilon_of), ("labels", lambda cost, _: cost)):
                own = [n for n in nodes if n.owner == owner and n.data[0] == kind]
                most = counted(own)
                for record, changed in self._of_records() if own else ():
                    true = sum(len(changed.get(n.number, ())) * cost_of(n) for n in own)
                    if true > most * (1 + 1e-9):
                        worst = max(own, key=lambda n: len(changed.get(n.number, ())))
                        delta = self._algebra.world.delta
                        return (
                            f"{record} changes rows {changed[worst.number]} of what is released as "
                            f"{worst.name}{self._titles(worst)}: its releases cost epsilon = "
                            f"{of(true, delta):.4g}, and {of(most, delta):.4g} is counted. Each "
                            "released row must depend on one record, and have its number"
                        )
        return ""

    def _titles(self, release: Any) -> str:
        """Author's functions on the way to a release, in brackets."""
        found, todo, seen = dict[str, None](), list(release.args), set()
        while todo:
            node = todo.pop()
            if node.number not in seen and node.kind != "model":
                seen.add(node.number)
                if node.op == "map" and node.data[0].title != "clip_finite_rows":
                    found[node.data[0].title] = None
                todo.extend(node.args)
        return f" ({', '.join(found)})" if found else ""

    def _of_records(self) -> list[tuple[str, dict[int, list[int]]]]:
        """Each record, and the rows of each release that another value of it changes."""
        if self._rows is None:
            self._rows = []
            blocks = [b for b in self._algebra.blocks if b.node is not None]
            fixed = {b.number: b.node.value for b in blocks  # type: ignore[union-attr]
                     if b.kind == "release" or (b.kind == "map" and b.node.kind == "model")}  # type: ignore[union-attr]  # fmt: skip
            released = [b for b in blocks if b.kind == "release"]
            arrays = [b for b in self._arrays if _OF_RECORDS & set(b.name.split()) and b.shape]
            before = Evaluation(self._algebra, fixed)
            for M in sorted({b.shape[0] for b in arrays}):
                same_size = [b for b in arrays if b.shape[0] == M]
                for i in np.unique(np.linspace(0, M - 1, min(M, _MOST_RECORDS)).astype(int)):
                    other = {b.number: self._with_another(b, int(i)) for b in same_size}
                    run = Evaluation(self._algebra, fixed | other)
                    rows = dict[int, list[int]]()
                    for b in released:
                        try:
                            pair = [np.asarray(e.value(b.deps[0])) for e in (before, run)]
                        except _FAILED:
                            continue
                        rows[b.node.number] = _differing(*pair)  # type: ignore[union-attr]
                    self._rows.append((f"record {i} of {M}", rows))
        return self._rows

    def _with_another(self, block: Block, record: int) -> Any:
        """Value of an input with one record replaced."""
        array = np.array(block.node.value)  # type: ignore[union-attr]
        if array.dtype.kind == "f":
            rng = np.random.default_rng([block.number, record])
            step = 3 * (float(array.std()) or 1.0)
            array[record] += (step * (1 + rng.random(array.shape[1:]))).astype(array.dtype)
            return array
        others = [k for k in range(len(array)) if (array[k] != array[record]).any()]
        if others:
            array[record] = array[others[0]]
        return array

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
        """Another value of an input; real ones lie around the run's, or wide around zero."""
        drawn = self._anew(block, 2 * trial + again)
        if drawn.dtype.kind != "f" or trial % 2:
            return drawn
        return (_WIDE * (drawn - block.node.value)).astype(drawn.dtype)  # type: ignore[union-attr]


def _differing(one: Any, other: Any) -> list[int]:
    """Rows in which two matrices, or entries in which two vectors, differ but for rounding."""
    apart = ~np.isclose(one, other, rtol=1e-4, atol=1e-6)
    return [int(k) for k in np.flatnonzero(apart.reshape(len(apart), -1).any(axis=1))]
