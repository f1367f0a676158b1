"""Search for a proof that a coalition's view is simulated from what it may know.

The view is a list of forms, one for each protected part of a message. Steps are taken until none
applies:

- *move*: a row c L(R) + rest, with R a uniform block that the coalition lacks, L onto, and `rest`
  not dependent on R. For fixed others the row is a bijection of R: it is a uniform block s of its
  own, and R is L^-1 (s - rest) / c everywhere.
- *give*: a key that a row reveals, or a tape that masks nothing else, is known from then on. Giving
  enlarges the view, so it can only make a proof harder.
- *prf*: streams of a key that no row depends on otherwise are uniform blocks from then on.
- *release*: a release of a mechanism of differential privacy is known, and is counted.

A row is simulated if it is a function of known blocks and of declared outputs. If all are, the list
of steps is a certificate, which `securevfl.verified.check` checks in its own algebra. Only a
checked certificate gives a verdict.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.errors import SecureVFLError
from securevfl.verified import functions
from securevfl.verified.forms import (
    Algebra,
    Block,
    Evaluation,
    Form,
    NotExpressibleError,
    entries,
)
from securevfl.verified.functions import FlowError
from securevfl.verified.trace import MOST_CALLS, Message, Node, Output, Trace, in_order, name_of
from securevfl.verified.values import fitted

_MOST_LISTED = 4  # messages that a text names one by one
_MOST_ENTRIES = 4000  # rows are looked at entry by entry, where there are no more


@dataclass(frozen=True)
class Step:
    """One step of a certificate.

    Attributes
    ----------
    what : str
        "move", "give", "prf" or "release".
    node : int
        Number of the node in the trace: a tape, a stream, a key, a release.
    places : tuple of int
        For a move: entries of the block, in the order of `entries`.
    part : int or None
        For a move: number of the protected part in the coalition's view.
    entries : tuple of int
        For a move: entries of this part, each solved for the corresponding entry in `places`.
    text : str
        Description for readers.
    """

    what: str
    node: int
    places: tuple[int, ...] = ()
    part: int | None = None
    entries: tuple[int, ...] = ()
    text: str = ""


@dataclass
class Found:
    """Result of the search: "PROVED", "DP", "NOT PROVED" or "VIOLATED"."""

    verdict: str
    steps: list[Step] = field(default_factory=list)
    text: str = ""
    rows: int = 0  # protected parts in the coalition's view
    releases: int = 0
    messages: list[str] = field(default_factory=list)  # that the text is about


def view_of(world: Trace, coalition: Iterable[int]) -> list[tuple[Message, Any]]:
    """Protected message parts that a coalition receives and can open."""
    some = frozenset(coalition)
    return [
        (message, part)
        for message in world.messages
        if message.seen_by(some)
        for part in message.parts
        if part.holder is None or part.holder in some
    ]


class _Look:
    """A form after the moves so far, with what is known of it.

    `lacks` is a block in it that is neither known nor in an output. The form is examined again once
    that block is, and its entries are computed again once a block of it is moved.
    """

    __slots__ = ("blocks", "done", "form", "lacks", "of", "rows")

    def __init__(self, of: Form, form: Form) -> None:
        self.of, self.form, self.blocks = of, form, form.blocks  # `of` keeps its id for this one
        self.done = False  # whether the coalition computes it
        self.lacks: int | None = None  # an unknown block in it, and in nothing that is told
        self.rows: list[dict[Any, int]] | None = None  # entries without their known part


@dataclass
class _Row:
    part: int
    entries: tuple[int, ...]
    form: Form
    look: _Look | None = None
    _own: bool = False  # whether the form is no other row's, and no node's
    _named: set[int] | None = None

    @property
    def blocks(self) -> set[int]:
        """Blocks of the row's form; cached."""
        if self._named is None:
            self._named = self.form.blocks
        return self._named

    def exchange(self, algebra: Algebra, block: int, terms: Form) -> None:
        """Replace the terms of the row's form that contain a block."""
        if not self._own:
            self.form, self._own = self.form.copied(), True
        algebra.exchange(self.form, block, terms)
        self._named = self.look = None


class Prover:
    """Search for a proof about one coalition of one trace."""

    def __init__(
        self, algebra: Algebra, coalition: Iterable[int], outputs: Sequence[Output]
    ) -> None:
        self.algebra, self.world = algebra, algebra.world
        self.coalition = frozenset(coalition)
        self.outputs = [algebra.form(output.node) for output in outputs]
        if algebra.shortened:
            self.outputs += map(algebra.unfolded, self.outputs[:])
        self._seen: dict[tuple[int, int], Form] = {}  # what views see of a moved block
        self._had: set[int] = set()  # of `Algebra.shortened`, what the coalition computes
        self.view = view_of(self.world, self.coalition)
        self.steps: list[Step] = []
        self.rows: dict[int, _Row] = {}
        self.subst: dict[int, Form] = {}
        self._rising: list[tuple[int, int]] = []  # blocks in whose place later ones stand
        self.given: set[int] = set()
        self.ideal: set[int] = set()  # keys
        self._relied: set[int] = set()  # of these, keys of answers that a step took as independent
        self.released: set[int] = set()
        self.source: dict[int, tuple[int, tuple[int, ...]]] = {}  # part of a block -> places in it
        self.shown: dict[int, _Row] = {}  # uniform value s -> the row that it is
        self._shown_by: dict[int, Message] = {}  # keys that a message shows
        self._yes: set[int] = set()
        self._no: set[int] = set()
        self._told_by: dict[int, frozenset[int]] = {}
        self._looks: dict[int, _Look] = {}  # by the id of a form of the trace
        self._wholes: dict[int, _Look] = {}  # of blocks
        self._basis: dict[Any, tuple[int, Any, dict[Any, int]]] = {}
        self._numbers = itertools.count()  # of its rows
        self._pivots: dict[int, list[Any]] = {}  # of the basis, by the blocks in them
        self._untold = dict(enumerate(algebra.shortened))  # what the coalition lacks of these
        self._news: list[int] = []  # blocks known since the basis was mended
        self._behind = True  # whether the basis is to be brought up to date
        self._failed: set[tuple[int, int]] = set()
        self._calls = 0  # of `known`, one in the other
        self._naming: dict[int, set[int]] = {}  # of a block rows that name it, or did in this pass
        self._next = 0
        self._generous = False  # a tape was given that no row shows
        self._named = {
            b for form in self.outputs for b in form.linear if algebra.blocks[b].kind != "model"
        }
        self._output_entries = [entries(algebra, form) for form in self.outputs]  # not yet told
        self._declared = {b for form in self.outputs for b in form.blocks}
        self._public: set[int] = set()  # public keys that were received
        for number, (_, part) in enumerate(self.view):
            self._add(number, algebra.unfolded(algebra.form(part.node)))

    def _add(self, part: int, form: Form) -> None:
        """Add the rows of a message part; entries with the same blocks form one row."""
        for block in form.blocks:
            self._public.update(b for b in self.told(block) if self._kind_of(b) == "public key")
        size = math.prod(form.shape)
        groups: dict[Any, list[int]] = {}
        tables = [self.algebra.views.table(view)[0] for view, _ in form.linear.values()]
        masks: list[Any] = [(table >= 0).any(axis=1).tolist() for table in tables]
        for entry in range(size):
            groups.setdefault(tuple(mask[entry] for mask in masks), []).append(entry)
        whole = _Row(part, tuple(range(size)), form)
        if len(groups) > 1:
            try:
                for some in groups.values():
                    self._put(_Row(part, tuple(some), self._cut(form, some)))
                return
            except NotExpressibleError:
                pass
        self._put(whole)

    def _put(self, row: _Row) -> None:
        self.rows[self._next] = row
        self._next += 1

    def _cut(self, form: Form, some: Sequence[int]) -> Form:
        return self.algebra.index(form, np.array(some, np.int64))

    # -- what is known -----------------------------------------------------------------------

    def known(self, number: int) -> bool:
        """Whether the coalition can compute a block."""
        if number in self._yes:
            return True
        if number in self._no:
            return False
        if self._calls >= MOST_CALLS:
            self._look_below(number)
        self._calls += 1
        self._no.add(number)  # while it is looked at
        found = self._look(self.algebra.blocks[number])
        self._calls -= 1
        if found:
            self._no.discard(number)
            self._yes.add(number)
            self._news.append(number)
        return found

    def _look_below(self, number: int) -> None:
        """Examine the blocks that a block is computed from, in trace order.

        Recursion would be as deep as the model's number of rounds: see `in_order`.
        """

        def below(one: int) -> Iterable[int]:
            found = self.subst[one].blocks if one in self.subst else self.algebra.blocks[one].below
            return (b for b in found if b not in self._yes and b not in self._no)

        calls, self._calls = self._calls, 0
        for one in in_order(number, below):
            self.known(one)
        self._calls = calls

    def _look(self, block: Block) -> bool:
        number, kind = block.number, block.kind
        if kind in ("fresh", "public key") or number in self.given or number in self.released:
            return True
        if kind != "release" and block.owner is not None and block.owner in self.coalition:
            return True
        if kind == "release" and block.owner in self.coalition:
            return True
        if number in self.subst:
            return all(map(self.known, self.subst[number].blocks))
        if number in self._named and self._told_of(block):
            return True
        if kind in ("map", "index", "weigh", "prf", "named"):
            return all(map(self.computable, block.deps))
        if kind == "agreed":
            return any(self.computable(dep) for dep in self._secret_keys(block))
        return False

    def _secret_keys(self, block: Block) -> list[Form]:
        """Both secret keys behind an agreed key."""
        assert block.node is not None
        own, other = block.node.args
        return [self.algebra.form(own), self.algebra.form(other.args[0])]

    def computable(self, form: Form) -> bool:
        """Whether a form of the trace is a function of known blocks and outputs."""
        look = self._looks.get(id(form))
        if look is None and all(map(self.known, form.blocks)):
            return True
        if look is None or not self.subst.keys().isdisjoint(look.blocks):
            try:
                look = _Look(form, self.resolved(form if look is None else look.form))
            except NotExpressibleError:
                return False
            self._looks[id(form)] = look
        return self._computes(look)

    def _computes(self, look: _Look) -> bool:
        """Whether a form after all moves is a function of known blocks and outputs."""
        if not look.done and not self._lacking(look):
            look.done = all(map(self.known, look.blocks)) or (
                bool(self.outputs or self._had) and not self._beyond(look)
            )
            if look.done:
                look.rows = None
        return look.done

    def _told_of(self, block: Block) -> bool:
        """Whether outputs determine a block."""
        if block.number not in self._wholes:
            form = self.algebra.of(block)
            self._wholes[block.number] = _Look(form, form)
        look = self._wholes[block.number]
        return not self._lacking(look) and not self._beyond(look)

    def _lacking(self, look: _Look) -> bool:
        """Whether a form still contains an unknown block that no output contains."""
        return look.lacks is not None and self._lack((look.lacks,)) is not None

    def _lack(self, blocks: Iterable[int]) -> int | None:
        """An unknown block in no output, so that nothing can cancel it; None if none."""
        return next((b for b in blocks if b not in self._declared and not self.known(b)), None)

    def resolved(self, form: Form) -> Form:
        """A form after all moves of random blocks; NotExpressibleError as `Algebra.substitute`."""
        while True:
            moved = [b for b in form.blocks if b in self.subst]
            if not moved:
                return form
            if form.products:
                for block in moved:
                    form = self.algebra.substitute(form, block, self.subst[block])
                continue
            form = form.copied()
            for block in (b for b in moved if b in form.linear):  # one may take another away
                view, c = form.linear.pop(block)
                if (block, view) not in self._seen:
                    self._seen[block, view] = self.algebra.seen(self.subst[block], view)
                self.algebra.gather(form, self._seen[block, view], c)

    # -- outputs, entry by entry -------------------------------------------------------------

    def _hidden(self, monomial: Any) -> bool:
        return not all(self.known(b) for b, _ in monomial)

    def _without_known(self, rows: list[dict[Any, int]]) -> list[dict[Any, int]]:
        return [{m: c for m, c in row.items() if self._hidden(m)} for row in rows]

    def _tell_all(self) -> None:
        """Bring the basis up to date: what outputs and known names tell, in echelon form.

        The basis (linear combinations that the coalition can compute) has by pivot the row's
        number, the pivot and the combination, in which there may be known monomials. No row is
        rewritten after later moves: it holds in the old coordinates as well.
        """
        if not self._behind:
            return
        self._behind = False
        while self._output_entries:
            self._tell(self._output_entries.pop(0))
        for block in list(self._pivots):
            self.known(block)
        while self._news:
            some = self._pivots.pop(self._news.pop(), ())
            known = [m for m in some if m in self._basis and not self._hidden(m)]
            self._tell([self._basis.pop(m)[2] for m in known if m in self._basis])
        for number, (form, args) in list(self._untold.items()):
            if all(map(self.computable, args)):
                del self._untold[number]
                self._had.add(number)
                self._declared |= form.blocks
                with contextlib.suppress(NotExpressibleError):
                    self._tell(entries(self.algebra, self.resolved(form)))

    def _tell(self, rows: list[dict[Any, int]]) -> None:
        """Add rows that the coalition has to the basis."""
        for row in self._without_known(rows):
            (left,) = self._without_known([self._reduced(row)])
            if left:
                pivot = next(iter(left))
                inverse = pow(left[pivot], -1, self.algebra.p)
                scaled = {m: c * inverse % self.algebra.p for m, c in left.items()}
                self._basis[pivot] = (next(self._numbers), pivot, scaled)
                self._declared.update(b for m in scaled for b, _ in m)
                for block in {b for b, _ in pivot}:
                    self._pivots.setdefault(block, []).append(pivot)

    def _reduced(self, row: dict[Any, int]) -> dict[Any, int]:
        p, basis, row = self.algebra.p, self._basis, dict(row)
        todo = [basis[m] for m in row if m in basis]
        heapq.heapify(todo)
        while todo:  # in the order in which they were found: each names none of the earlier pivots
            _, pivot, known = heapq.heappop(todo)
            factor = row.get(pivot)
            if not factor:
                continue
            for m, c in known.items():
                value = (row.get(m, 0) - factor * c) % p
                if not value:
                    row.pop(m, None)
                    continue
                if m not in row and m in basis and self._hidden(m):
                    heapq.heappush(todo, basis[m])
                row[m] = value
        return row

    def _beyond(self, look: _Look) -> bool:
        """Whether a form reveals more than known blocks and outputs."""
        look.lacks = self._lack(look.form.linear)
        if look.lacks is not None:
            return True
        self._tell_all()
        rows = entries(self.algebra, look.form) if look.rows is None else look.rows
        rows, look.rows = self._without_known(rows), None
        for row in rows:
            look.lacks = self._lack({b for m in row for b, _ in m})
            if look.lacks is not None:
                return True
        look.rows = rows
        return any(any(map(self._hidden, self._reduced(row))) for row in rows)

    # -- dependence --------------------------------------------------------------------------

    def told(self, number: int) -> frozenset[int]:
        """Numbers of the releases and public keys on which a block depends, itself included.

        A stream depends on its key. An agreed key counts as independent of secret keys, by the
        assumption on key agreement.
        """
        todo = [number]
        while todo:
            top = todo[-1]
            if top in self._told_by:
                todo.pop()
                continue
            block = self.algebra.blocks[top]
            below = () if block.kind in ("agreed", "public key") else block.below
            missing = [b for b in below if b not in self._told_by]
            if missing:
                todo.extend(missing)
            else:
                todo.pop()
                own = {top} if block.kind in ("release", "public key") else set()
                self._told_by[top] = frozenset(own.union(*(self._told_by[b] for b in below)))
        return self._told_by[number]

    def _kind_of(self, number: int) -> str:
        return self.algebra.blocks[number].kind

    def depends(
        self,
        blocks: Iterable[int],
        on: frozenset[int] | set[int],
        skip: int = -1,
        *,
        halves: bool = False,
    ) -> bool:
        """Whether any of `blocks` depends on any of `on`, also through moved blocks.

        Streams under the key `skip` do not count as dependent on it, but on the protected parts of
        their labels; with `halves`, public and agreed keys depend on secret ones.
        """
        todo, seen, first = list(blocks), set(), self._first(min(on))
        while todo:
            one = todo.pop()
            if one < first or one in seen:
                continue
            seen.add(one)
            if one in on:
                return True
            if one in self.subst:
                todo.extend(self.subst[one].blocks)
                continue
            block = self.algebra.blocks[one]
            if self._random(block):
                key = self._key(block)  # while it is hidden, what is in a label does not count
                if len(block.deps) > 1 or self.algebra.blocks[key].kind == "prf":
                    self._relied.add(key)
                continue
            if block.kind in ("agreed", "public key") and not halves:
                continue
            own = block.kind == "prf" and self._key(block) == skip
            todo.extend({b for dep in block.deps[1:] for b in dep.blocks} if own else block.below)
        return False

    def _first(self, target: int) -> int:
        """First block that may depend on `target` or a later block: see `Checker._first`."""
        first, before = target, target + 1
        while first < before:
            before = first
            first = min(first, *(b for b, latest in self._rising if latest >= before), before)
        return first

    def _moves(self, block: int, by: Form) -> None:
        """Substitute a form for a block from now on."""
        self.subst[block] = by
        latest = max(
            (b for b in by.blocks if self.algebra.blocks[b].kind != "fresh"), default=block
        )
        if latest > block:
            self._rising.append((block, latest))

    def _key(self, block: Block) -> int:
        """Number of the block that is the key of a stream."""
        return next(iter(block.deps[0].blocks))

    def _random(self, block: Block) -> bool:
        """Whether a block is a stream of a hidden key, and so uniform."""
        return block.kind == "prf" and self._key(block) in self.ideal

    def _is_key(self, block: Block) -> bool:
        """Whether a block is a key that may be hidden or given."""
        derived = block.node is not None and block.node.kind == "key" and self._random(block)
        return derived or block.kind in ("key", "agreed")

    def uses_key(self, blocks: Iterable[int], key: int) -> bool:
        """Whether blocks depend on a key in other ways than through its streams."""
        own = self.algebra.blocks[key]
        hidden = {key}
        if own.kind == "agreed":
            hidden |= {b for form in self._secret_keys(own) for b in form.blocks}
        return self.depends(blocks, hidden, skip=key, halves=own.kind == "key")

    # -- steps -------------------------------------------------------------------------------

    def run(self) -> Found:
        """Take proof steps until none is left."""
        self._release()
        refined = False
        while self.rows:
            before = len(self.steps)
            self._drop()
            while self._tapes():
                self._drop()
            self._keys()
            if len(self.steps) == before:
                self._streams()
            if len(self.steps) == before and not self._computes_more():
                if not refined and self._refine():
                    refined = True
                    continue
                if self._accused() or not self._give_leaves():
                    break
                refined = True
        self._drop()
        return self._result()

    def _drop(self) -> None:
        """Drop rows that can be simulated."""
        while True:
            before = len(self._yes), len(self._had), len(self._basis)
            self._no.clear()
            self._behind = True
            for number, row in list(self.rows.items()):
                with contextlib.suppress(NotExpressibleError):
                    row.look = row.look or _Look(row.form, self.resolved(row.form))
                    if self._computes(row.look):
                        del self.rows[number]
            if (len(self._yes), len(self._had), len(self._basis)) == before:
                return

    def _computes_more(self) -> bool:
        """Update the basis; return whether the coalition computes more abbreviated forms by it."""
        before = len(self._had)
        self._no.clear()
        self._behind = True
        self._tell_all()
        return len(self._had) > before

    def _release(self) -> None:
        """Take noised releases of others in rows and outputs as given, each a step of the proof."""
        found = set()
        rows = (row.blocks for row in self.rows.values())
        for blocks in (*rows, *(form.blocks for form in self.outputs)):
            for block in blocks:
                found |= {b for b in self.told(block) if self._kind_of(b) == "release"}
        for number in sorted(found):
            own = self.algebra.blocks[number]
            if own.owner in self.coalition:
                continue
            self.released.add(number)
            self._step("release", own, text=f"{own.name} is released with noise")

    def _step(self, what: str, block: Block, **more: Any) -> None:
        assert block.node is not None
        self.steps.append(Step(what, block.node.number, **more))

    def _free(self, number: int) -> bool:
        """Whether a block is a random value that may still be moved."""
        block = self.algebra.blocks[number]
        if block.kind == "prf":
            drawn = self._random(block) and block.node is not None and block.node.kind == "field"
        else:
            drawn = block.kind == "uniform"
        return drawn and number not in self.subst and not self.known(number)

    def _candidates(self, row: _Row, where: Mapping[int, int]) -> Iterable[int]:
        """Random blocks for which a row can be solved, those of the fewest rows first."""
        chained = {b for chain in row.form.products for b, _ in chain}
        for block in sorted(row.form.linear, key=lambda b: (where.get(b, 0), b)):
            if block in chained or not self._free(block):
                continue
            if self.algebra.views.pivots(row.form.linear[block][0]) is None:
                continue
            if not self.depends(row.blocks - {block}, {block}):
                yield block

    def _tapes(self) -> bool:
        """Try one move (substitution of a random block) a row of the view; whether any was made."""
        done = False
        self._naming = {}
        for number, row in self.rows.items():
            for block in row.blocks:
                self._naming.setdefault(block, set()).add(number)
        where = {block: len(some) for block, some in self._naming.items()}
        for number in list(self.rows):
            row = self.rows[number]
            for block in self._candidates(row, where):
                if (number, block) in self._failed:
                    continue
                if self._move(number, block):
                    done = True
                    break
                self._failed.add((number, block))
        return done

    def _move(self, number: int, block: int) -> bool:
        """Solve a row for a random block; False if other rows could not be rewritten."""
        row, algebra, tape = self.rows[number], self.algebra, block
        view, c = row.form.linear[block]
        places = algebra.views.pivots(view)
        assert places is not None
        naming = [n for n in sorted(self._naming[block]) if n in self.rows]
        terms = {
            n: algebra.named(self.rows[n].form, block)
            for n in naming
            if block in self.rows[n].blocks
        }
        whole = view == algebra.views.identity(algebra.blocks[block].shape)
        try:
            if not whole or algebra.blocks[block].shape != row.form.shape:
                block, terms = self._turned(block, view, places, row.form.shape, terms)
            rest = row.form.copied()
            algebra.exchange(rest, tape, terms.pop(number))
            rest.linear.pop(block)
            s = algebra.block("fresh", f"s{len(self.shown)}", row.form.shape)
            solved = algebra.scale(algebra.add(algebra.of(s), rest, -1), pow(c, -1, algebra.p))
            seen: dict[int, Form] = {}
            for other, one in terms.items():
                terms[other] = algebra.substitute(one, block, solved, seen)
        except NotExpressibleError:
            self.subst.pop(tape, None)
            return False
        self._moves(block, solved)
        for other, one in terms.items():
            self.rows[other].exchange(algebra, tape, one)
            for named in self.rows[other].blocks:
                self._naming.setdefault(named, set()).add(other)
        del self.rows[number]
        self.shown[s.number] = row
        origin, above = self._origin(tape)
        first = algebra.blocks[origin]
        self._step(
            "move", first, places=tuple(above[i] for i in places), part=row.part,
            entries=row.entries, text=f"{self.view[row.part][0]} is uniform by {first.name}",
        )  # fmt: skip
        self._no.clear()
        return True

    def _turned(
        self,
        block: int,
        view: int,
        places: Sequence[int],
        shape: tuple[int, ...],
        forms: dict[int, Form],
    ) -> tuple[int, dict[int, Form]]:
        """Write a random block R as b = L(R) in the row's shape, with the entries beside pivots.

        R = L_P^-1 (b - L_F(F)) at the pivots P (`places`), and F elsewhere: a bijection; b and F
        are uniform and independent, too. L is the map `view`. Return b's number and the `forms`
        with R replaced.
        """
        algebra, own = self.algebra, self.algebra.blocks[block]
        others = sorted(set(range(own.size)) - set(places))
        made = algebra.block(own.kind, own.name, shape, owner=own.owner)
        made.node, made.deps = own.node, own.deps
        inner, total = algebra.of(made), Form(own.shape)
        if others:
            part = algebra.block(own.kind, own.name, (len(others),), owner=own.owner)
            part.node, part.deps = own.node, own.deps
            first, above = self._origin(block)
            self.source[part.number] = (first, tuple(above[i] for i in others))
            back = np.full(own.size, -1, np.int64)
            back[others] = np.arange(len(others))
            total = algebra.index(algebra.of(part), back.reshape(own.shape))
            inner = algebra.add(inner, algebra.seen(total, view), -1)
        turned, factor = algebra.views.pivoted(view, tuple(places), own.shape)
        total = algebra.add(total, algebra.seen(inner, turned), factor)
        seen: dict[int, Form] = {}
        forms = {n: algebra.substitute(form, block, total, seen) for n, form in forms.items()}
        self._moves(block, total)
        return made.number, forms

    def _origin(self, block: int) -> tuple[int, tuple[int, ...]]:
        """Original trace block of a part, and the part's positions in it."""
        if block in self.source:
            return self.source[block]
        return block, tuple(range(self.algebra.blocks[block].size))

    def _keys(self) -> None:
        """Give the coalition keys, and tags of hidden keys, that a row shows."""
        for row in list(self.rows.values()):
            unknown = [b for b in row.blocks if not self.known(b)]
            if len(unknown) != 1 or unknown[0] not in row.form.linear:
                continue
            block = self.algebra.blocks[unknown[0]]
            tag = block.node is not None and block.node.kind == "real" and self._random(block)
            if not (tag or self._is_key(block)) or unknown[0] in self.ideal:
                continue
            places = self.algebra.views.pivots(row.form.linear[unknown[0]][0])
            if places is None or len(places) < block.size:
                continue
            self.given.add(block.number)
            self._shown_by[block.number] = self.view[row.part][0]
            self._step("give", block, text=f"{self.view[row.part][0]} shows {block.name}")
            self._no.clear()

    def _give_leaves(self) -> bool:
        """Give the coalition the random blocks and keys that are the only unknowns of a row.

        Streams of hidden keys are included. A key on which a hidden key depends is never given.
        """
        kept = set(self.ideal)
        for key in self.ideal:
            own = self.algebra.blocks[key]
            if own.kind == "agreed":
                kept |= {b for form in self._secret_keys(own) for b in form.blocks}
        for row in self.rows.values():
            todo, seen, leaves = list(row.blocks), set(), set()
            while todo:
                one = todo.pop()
                if one in seen or self.known(one):
                    continue
                seen.add(one)
                block = self.algebra.blocks[one]
                drawn = block.kind in ("uniform", "key", "agreed") or self._random(block)
                if one in kept or one in self.source or block.kind in ("secret", "release"):
                    break
                if one in self.subst:
                    todo.extend(self.subst[one].blocks)
                elif drawn:
                    leaves.add(one)
                else:
                    left = (dep for dep in block.deps if not self.computable(dep))
                    todo.extend(b for dep in left for b in dep.blocks)
            else:
                if leaves:
                    self._generous = True
                    for one in sorted(leaves):
                        self.given.add(one)
                        block = self.algebra.blocks[one]
                        self._step("give", block, text=f"{block.name} is given")
                    self._no.clear()
                    return True
        return False

    def _streams(self) -> None:
        """Find hidden keys that rows use only as seeds of PRF streams; those become uniform."""
        every = {b for row in self.rows.values() for b in row.blocks}
        blocks = [self.algebra.blocks[b] for b in self._reachable(every)]
        named = {self._key(block) for block in blocks if block.kind == "prf"}
        for key in sorted(named - self.ideal):
            if self.known(key) or not self._is_key(self.algebra.blocks[key]):
                continue
            if self.uses_key(every | self._public, key):  # known rows are gone, and count as well
                continue
            self.ideal.add(key)
            own = self.algebra.blocks[key]
            self._step("prf", own, text=f"streams of {own.name} are uniform: it is hidden")

    def _reachable(self, blocks: Iterable[int]) -> set[int]:
        """Blocks that the given ones depend on now, also through moved blocks."""
        todo, seen = list(blocks), set()
        while todo:
            one = todo.pop()
            if one not in seen:
                seen.add(one)
                below = [self.subst[one]] if one in self.subst else self.algebra.blocks[one].deps
                todo.extend(b for form in below for b in form.blocks)
        return seen

    def _refine(self) -> bool:
        """Split rows into entries; if there are too many, only rows with a movable random block."""
        rows = {n: row for n, row in self.rows.items() if len(row.entries) > 1}
        if sum(len(row.entries) for row in rows.values()) > _MOST_ENTRIES:
            rows = {n: row for n, row in rows.items() if any(map(self._free, row.form.linear))}
        if sum(len(row.entries) for row in rows.values()) > _MOST_ENTRIES:
            return False
        done = False
        for number, row in rows.items():
            try:
                flat = self.algebra.index(row.form, np.arange(len(row.entries)))
                some = [self._cut(flat, [i]) for i in range(len(row.entries))]
            except NotExpressibleError:
                continue
            del self.rows[number]
            for i, form in enumerate(some):
                self._put(_Row(row.part, (row.entries[i],), form))
            done = True
        return done

    # -- what was found ----------------------------------------------------------------------

    def _result(self) -> Found:
        found = Found("PROVED", self.steps, rows=len(self.view), releases=len(self.released))
        if not self.rows:
            found.verdict = "DP" if self.released else "PROVED"
            used = self._moved_keys()
            found.steps = [one for one in self.steps if one.what != "prf" or one.node in used]
            return found
        found.verdict = "NOT PROVED"
        accused = self._accused()
        if accused:
            row, why = accused
            found.verdict = "VIOLATED"
            found.text, found.messages = self._told(row)
            found.text += f"; {why}"
        else:
            found.text, found.messages = self._told((self._fixed_rows() or self._by_length())[0])
        return found

    def _by_length(self) -> list[_Row]:
        """Remaining rows, the shortest first."""
        return sorted(self.rows.values(), key=lambda row: (len(row.form), row.part))

    def _fixed_rows(self) -> list[_Row]:
        return [row for row in self._by_length() if self._fixed(row.form)]

    def _accused(self) -> tuple[_Row, str] | None:
        """(Row that refutes the claim, reason); None if there is none."""
        if self.released or self._generous:
            return None
        for row in self._fixed_rows()[:4]:
            why = self._violated(row.form)
            if why:
                return row, why
        return None

    def _moved_keys(self) -> set[int]:
        """Key nodes whose streams were moved or stood beside a move; only these must be hidden."""
        found: set[int] = set()
        todo = [self.world.nodes[step.node] for step in self.steps if step.what in ("move", "give")]
        for number in self._relied:
            node = self.algebra.blocks[number].node
            assert node is not None
            found.add(node.number)
            todo.append(node)
        while todo:
            node = todo.pop()
            if node.op == "prf":
                key = self.algebra.blocks[next(iter(self.algebra.form(node.args[0]).blocks))]
                assert key.node is not None
                found.add(key.node.number)
                todo.append(key.node)  # a derived key is uniform because its own key is hidden
        return found

    def _fixed(self, form: Form) -> bool:
        """Whether a form depends on no random value unknown to the coalition."""
        todo, seen = list(form.blocks), set()
        while todo:
            one = todo.pop()
            if one in seen or self.known(one):
                continue
            seen.add(one)
            own = self.algebra.blocks[one]
            if one in self.subst:
                todo.extend(self.subst[one].blocks)
            elif own.kind in ("uniform", "prf", "key", "agreed", "release"):
                return False
            todo.extend(own.below)
        return True

    def _told(self, row: _Row) -> tuple[str, list[str]]:
        """Description of a remaining row, and the messages that show it."""
        algebra = self.algebra
        used = [b for b in row.form.linear if b in self.shown]
        shown = [self.view[row.part][0], *(self.view[self.shown[b].part][0] for b in used)]
        shown += [self._shown_by[b] for b in sorted(self._keys_of(row.form) & {*self._shown_by})]
        hidden = Form(
            row.form.shape,
            {b: v for b, v in row.form.linear.items() if not self.known(b)},
            {w: c for w, c in row.form.products.items() if not all(self.known(b) for b, _ in w)},
        )
        by_name = {str(message): message for message in shown}
        said = listed(list(by_name.values()))
        return f"{said} together show {algebra.text(hidden)}", list(by_name)

    def _keys_of(self, form: Form) -> set[int]:
        """Keys of the streams in a form, and keys that these are derived from."""
        todo, found = [b for b in form.blocks if self.algebra.blocks[b].kind == "prf"], set[int]()
        while todo:
            for key in self.algebra.blocks[todo.pop()].deps[0].blocks - found:
                found.add(key)
                todo += [key] * (self.algebra.blocks[key].kind == "prf")
        return found

    def _violated(self, form: Form) -> str:
        """Two inputs with equal outputs for which a row differs, found by running the functions."""
        try:
            form = self.resolved(form)
            base = self._values({})
            seen, known = base.value(form), [base.value(o) for o in self.outputs]
        except (SecureVFLError, ArithmeticError, ValueError, TypeError, LookupError):
            return ""
        for why, changed in self._changes():
            try:
                other = self._values(changed)
                if any(
                    not functions.same(np.asarray(other.value(o)), np.asarray(k))
                    for o, k in zip(self.outputs, known, strict=True)
                ):
                    continue
                if not functions.same(np.asarray(other.value(form)), np.asarray(seen)):
                    return f"{why}: the outputs are equal, and this differs"
            except (SecureVFLError, ArithmeticError, ValueError, TypeError, LookupError):
                continue
        return ""

    def _values(self, changed: Mapping[int, Any]) -> Evaluation:
        leaves = dict(changed)
        field = self.world.field
        for block in self.algebra.blocks:
            if block.kind == "fresh":
                rng = np.random.default_rng([block.number, 5])
                flat = [int(rng.integers(0, field.modulus)) for _ in range(block.size)]
                array = np.array(flat, dtype=object).astype(field.dtype)
                leaves[block.number] = array.reshape(block.shape)
        return Evaluation(self.algebra, leaves, self.resolved)

    def _changes(self) -> Iterable[tuple[str, dict[int, Any]]]:
        """Changed inputs of honest parties, to test a claim."""
        honest = [
            b
            for b in self.algebra.blocks
            if b.kind == "secret" and b.owner not in self.coalition and b.node is not None
        ]
        arrays = [b for b in honest if b.node is not None and b.node.kind != "model"]
        yield "with other inputs", {b.number: self._anew(b, 0) for b in arrays}
        for block in arrays:
            for seed in range(3):
                yield f"with another {block.name}", {block.number: self._anew(block, seed)}
        for one, other in itertools.combinations(arrays, 2):
            if one.shape != other.shape or _kind(one) != _kind(other):
                continue
            if _kind(one) == "field":
                field, rng = self.world.field, np.random.default_rng([one.number, other.number])
                shift = field.reduce(rng.integers(0, min(field.modulus, 2**62), one.shape))
                yield (
                    f"with {one.name} up and {other.name} down by as much",
                    {
                        one.number: field.add(_value(one), shift),
                        other.number: field.subtract(_value(other), shift),
                    },
                )
        owners = sorted({b.owner for b in honest if b.owner is not None})
        for a, b in itertools.combinations(owners, 2):
            own = [x for x in honest if x.owner == a]
            theirs = [x for x in honest if x.owner == b]
            if [(x.shape, _kind(x)) for x in own] == [(x.shape, _kind(x)) for x in theirs]:
                pairs = list(zip(own, theirs, strict=True))
                yield (
                    f"with {name_of(a)} and {name_of(b)} in each other's place",
                    {x.number: _value(y) for x, y in pairs}
                    | {y.number: _value(x) for x, y in pairs},
                )

    def _anew(self, block: Block, seed: int) -> Any:
        """Other value of an input: a random one, or the same entries in another order."""
        rng, old = np.random.default_rng([block.number, seed, 3]), np.asarray(_value(block))
        if _kind(block) == "field":
            field = self.world.field
            flat = [int(rng.integers(0, field.modulus)) for _ in range(block.size)]
            return np.array(flat, dtype=object).astype(field.dtype).reshape(block.shape)
        if old.dtype.kind == "f":
            noise = rng.standard_normal(old.shape) * (old.std() or 1.0)
            return (old + noise).astype(old.dtype)
        return rng.permutation(old.reshape(-1)).reshape(old.shape)


def _kind(block: Block) -> str:
    assert block.node is not None
    return block.node.kind


def _value(block: Block) -> Any:
    assert block.node is not None
    return block.node.value


def randomness_in(node: Node, seen: set[int]) -> str | None:
    """Name of a random value that a node depends on; None for a function of inputs only.

    Releases do not count, because values computed from one are given with it and its cost is
    counted. Nodes in `seen` are skipped; those behind this one are added to it.
    """
    todo = [node]
    while todo:
        one = todo.pop()
        if one.number in seen:
            continue
        seen.add(one.number)
        if one.op in ("uniform", "key", "prf", "agreed", "public key"):
            return one.name or one.op
        todo.extend(one.args)
    return None


def listed(messages: Sequence[Message]) -> str:
    """Text on messages: some of them, and the rounds of the others."""
    said = "; ".join(map(str, messages[:_MOST_LISTED]))
    rest = messages[_MOST_LISTED:]
    rounds = sorted({message.round for message in rest})
    some = ", ".join(map(str, rounds))
    of = f"round {some}" if len(rounds) == 1 else f"rounds {some}"
    return f"{said} and {len(rest)} more of {of}" if rest else said


def another(algebra: Algebra) -> Callable[[Block, int], Any]:
    """Function that returns another value of an input, from its block and a seed."""
    return Prover(algebra, (), [])._anew


def erring(algebra: Algebra, runs: int = 16) -> str:
    """Sentence on a function that fails, or changes its shape, on other inputs; "" if none does.

    A trace records one path, and a party that catches an error takes another. So functions are run
    on random other inputs of all parties, at most `runs` times; fewer if there are many calls.
    """
    calls = [b for b in algebra.blocks if b.kind == "map"]
    prover = Prover(algebra, (), [])
    inputs = [
        b
        for b in algebra.blocks
        if b.kind == "secret" and b.node is not None and b.node.kind != "model"
    ]
    for seed in range(min(runs, max(2, 400 // len(calls))) if calls else 0):
        run = prover._values({b.number: prover._anew(b, seed) for b in inputs})
        for block in calls:
            assert block.node is not None
            try:
                run.raw(block.number)
            except Exception as error:
                refusal = isinstance(error, SecureVFLError) and not isinstance(error, FlowError)
                if refusal and algebra.world.may_abort:
                    continue  # nobody can catch it: the run ends for all
                title = block.node.data[0].title
                return (
                    f"{title} ends in an error for other inputs ({type(error).__name__}: "
                    f"{error!s:.80}). Make it a part of the result, and declare it as an output if "
                    "somebody learns it"
                )
    return ""


def remembering(algebra: Algebra) -> str:
    """Sentence on a function that seems to read state besides its arguments; "" if none does.

    After `erring` ran all functions on other inputs, each is run on its own arguments again, the
    last one first. A cache that functions share then has values of another run.
    """
    calls = [b for b in algebra.blocks if b.kind == "map"]
    first = Evaluation(algebra, {b.number: _value(b) for b in calls})
    found: dict[int, Any] = {}
    for block in reversed(calls):
        assert block.node is not None
        call, place, kind = block.node.data
        if id(call) not in found:
            found[id(call)] = call.run([first.value(form) for form in block.deps])
        again = found[id(call)] if place is None else found[id(call)][place]
        if not functions.same(fitted(again, block.shape, kind), _value(block)):
            return (
                f"{call.title} gives another result after functions ran on other inputs: it reads "
                "what was kept from another call. Make that an argument"
            )
    return ""


def search(algebra: Algebra, coalition: Iterable[int], outputs: Sequence[Output]) -> Found:
    """Look for a proof that a coalition learns only `outputs`, or for two inputs that refute it."""
    seen: set[int] = set()
    for output in outputs:
        drawn = randomness_in(output.node, seen)
        if drawn is not None:
            why = f"output {output.name} depends on {drawn}: it is no function of inputs"
            return Found("NOT PROVED", text=why)
    prover = Prover(algebra, coalition, outputs)
    return prover.run()
