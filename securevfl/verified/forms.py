"""Symbolic forms of values: linear combinations, over F_p, of linear maps of whole blocks.

A *block* is an array whose entries stay symbols: an input, a tape of uniform elements, one stream
of a PRF, or a function's result. A *view* is a public linear map from the entries of a block to an
array: a choice of rows, a transposition, a product with a public matrix. A *form* is

    constant + sum_b c_b L_b(b) + sum_w c_w (L_1(b_1) @ L_2(b_2) @ ...),

with one view per block of the linear part, so that equal linear maps of a block are added and
cancel exactly. Coefficients of codes are the same for all entries of a block, so a form has as many
terms as blocks, whatever the number of rows.

A non-linear result is its own block, an opaque function of its arguments' forms.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from securevfl.errors import SecureVFLError
from securevfl.verified import functions
from securevfl.verified.trace import MOST_CALLS, Node, Trace, in_order, key_of
from securevfl.verified.values import fitted

Array = np.ndarray[Any, Any]
Chain = tuple[tuple[int, int], ...]  # (block, view) of each factor
#: Terms of a form from which on all products of the trace are named.
MANY = 256


class _LongError(Exception):
    """A form became so long that the trace must be read again, with products abbreviated."""


class NotExpressibleError(ArithmeticError):
    """The result of an operation on forms cannot be written as a form."""


@dataclass(slots=True, eq=False)
class Block:
    """A block of symbols: the entries of one input, random value or function result.

    Attributes
    ----------
    number : int
        Number of the block.
    node : Node or None
        Node in which it first occurs; None for a block that the prover made.
    kind : str
        The operation of its node; "fresh" for a uniform value that the prover made, and "named"
        for an abbreviation of products, on which alone it depends (`Algebra`).
    name, shape, owner : str, tuple of int, int or None
        Name and shape of the value, and the party that has it from the beginning.
    deps : tuple of Form
        Arguments of a function; the key of a PRF stream.
    """

    number: int
    node: Node | None
    kind: str
    name: str
    shape: tuple[int, ...]
    owner: int | None = None
    deps: tuple[Form, ...] = ()
    _below: frozenset[int] | None = None

    @property
    def below(self) -> frozenset[int]:
        """Blocks from which this block's function or key is computed; cached."""
        if self._below is None:
            self._below = frozenset(b for dep in self.deps for b in dep.blocks)
        return self._below

    @property
    def size(self) -> int:
        """Number of entries of the block."""
        return math.prod(self.shape)


@dataclass(slots=True)
class Form:
    """Symbolic form of a value: constant, linear part and products of blocks.

    `linear` has view and coefficient by block, `products` the coefficient by chain of factors, and
    `constant` the flat entries, or None for zero.
    """

    shape: tuple[int, ...]
    linear: dict[int, tuple[int, int]] = field(default_factory=dict)  # block -> view, coefficient
    products: dict[Chain, int] = field(default_factory=dict)
    constant: tuple[int, ...] | None = None
    _held: dict[int, dict[Chain, None]] | None = field(default=None, compare=False, repr=False)

    @property
    def held(self) -> dict[int, dict[Chain, None]]:
        """Products of the form by the blocks in them; cached, and updated by `Algebra`."""
        if self._held is None:
            self._held = {}
            for chain in self.products:
                for block, _ in chain:
                    self._held.setdefault(block, {})[chain] = None
        return self._held

    def put(self, chain: Chain, c: int) -> None:
        """Set the coefficient of a product."""
        if c:
            self.products[chain] = c
        elif self.products.pop(chain, None) is None:
            return
        for block, _ in chain if self._held is not None else ():
            if c:
                self.held.setdefault(block, {})[chain] = None
            elif block in self.held:
                self.held[block].pop(chain, None)
                if not self.held[block]:
                    del self.held[block]

    def copied(self) -> Form:
        """A copy of the form that may be changed."""
        return Form(self.shape, dict(self.linear), dict(self.products), self.constant)

    def key(self) -> Any:
        """Hashable key, equal for equal forms."""
        return (
            self.shape,
            frozenset(self.linear.items()),
            frozenset(self.products.items()),
            self.constant,
        )

    @property
    def blocks(self) -> set[int]:
        """Blocks that the form contains."""
        if self._held is not None:
            return {*self.linear, *self._held}
        return {*self.linear, *(b for chain in self.products for b, _ in chain)}

    @property
    def empty(self) -> bool:
        """Whether the form contains no block."""
        return not self.linear and not self.products

    def __len__(self) -> int:
        return len(self.linear) + len(self.products)


class Views:
    """Public linear maps; equal maps have equal numbers.

    A map to m entries is an (m, k) table of flat positions in the block (-1 for none), and an (m,
    k) table of weights, None if all are 1. The first weight of a map is normalised to 1, so methods
    return a map as its number and a factor. A `key` names a public argument for the cache.
    """

    def __init__(self, p: int) -> None:
        self.p = p
        self.shapes: list[tuple[int, ...]] = []
        self.places: list[Array] = []
        self.weights: list[Array | None] = []
        self._numbers: dict[Any, int] = {}
        self._done: dict[Any, Any] = {}

    def memo(self, key: Any, make: Callable[[], Any]) -> Any:
        """Cached result of `make` for a key."""
        if key not in self._done:
            self._done[key] = make()
        return self._done[key]

    def intern(
        self, shape: tuple[int, ...], places: Array, weights: Array | None
    ) -> tuple[int, int]:
        """Number and factor of the map with a row of (places, weights) an entry; 0 if zero."""
        p = self.p
        if weights is not None or places.shape[1] != 1:
            places, weights = _merged(places, weights, p)
        factor = 1
        if weights is not None:
            flat = [w for w, at in zip(weights.flat, places.flat, strict=True) if at >= 0]
            if not flat:
                return 0, 0
            factor = int(flat[0])
            if all(w == factor for w in flat):
                weights = None
            else:
                inverse = pow(factor, -1, p)
                weights = np.array([int(w) * inverse % p for w in weights.flat], dtype=object)
                weights = weights.reshape(places.shape)
        elif not (places >= 0).any():
            return 0, 0
        own = None if weights is None else tuple(weights.flat)
        key = shape, places.shape, np.ascontiguousarray(places, np.int64).tobytes(), own
        if key not in self._numbers:
            self._numbers[key] = len(self.shapes)
            self.shapes.append(shape)
            self.places.append(places)
            self.weights.append(weights)
        return self._numbers[key], factor

    def identity(self, shape: tuple[int, ...]) -> int:
        """Number of the identity map on a block of this shape."""
        return self.memo(  # type: ignore[no-any-return]
            ("identity", shape),
            lambda: self.intern(shape, np.arange(math.prod(shape)).reshape(-1, 1), None)[0],
        )

    def table(self, view: int) -> tuple[Array, Array]:
        """Positions and weights of a map, as a sparse matrix."""
        places, weights = self.places[view], self.weights[view]
        if weights is None:
            weights = np.where(places >= 0, 1, 0).astype(object)
        return places, weights

    def pairs(self, view: int) -> list[list[tuple[int, int]]]:
        """Positions with weights that each entry of a map's output is a sum of."""

        def make() -> list[list[tuple[int, int]]]:
            lists = (table.tolist() for table in self.table(view))
            return [
                [(i, int(w)) for i, w in zip(at, of, strict=True) if i >= 0]
                for at, of in zip(*lists, strict=True)
            ]

        return self.memo(("pairs", view), make)  # type: ignore[no-any-return]

    def index(self, view: int, key: Any, chosen: Array) -> tuple[int, int]:
        """Map with chosen entries of a map's output, -1 for zero; its number and a factor."""

        def make() -> tuple[int, int]:
            flat = chosen.reshape(-1)
            places = self.places[view][np.maximum(flat, 0)].copy()
            places[flat < 0] = -1
            weights = self.weights[view]
            if weights is not None:
                weights = weights[np.maximum(flat, 0)].copy()
                weights[flat < 0] = 0
            return self.intern(chosen.shape, places, weights)

        return self.memo(("index", view, key), make)  # type: ignore[no-any-return]

    def weigh(self, view: int, key: Any, factors: Array) -> tuple[int, int]:
        """Number and factor of map `view` times `factors` entrywise (public; `key` names them)."""

        def make() -> tuple[int, int]:
            places, weights = self.table(view)
            column = np.array([int(f) for f in factors.flat], dtype=object).reshape(-1, 1)
            return self.intern(self.shapes[view], places, weights * column % self.p)

        return self.memo(("weigh", view, key), make)  # type: ignore[no-any-return]

    def matrix(self, view: int, key: Any, matrix: Array, left: bool) -> tuple[int, int]:
        """Number and factor of a map, its output times a public matrix named `key`, from a side."""

        def make() -> tuple[int, int]:
            rows, columns = self.shapes[view]
            places, weights = self.table(view)
            k = places.shape[1]
            places, weights = places.reshape(rows, columns, k), weights.reshape(rows, columns, k)
            A = [[int(a) % self.p for a in row] for row in matrix.tolist()]
            if left:
                shape = (len(A), columns)
                parts = [
                    [(places[t, j], weights[t, j] * A[i][t] % self.p) for t in range(rows)]
                    for i in range(shape[0])
                    for j in range(columns)
                ]
            else:
                shape = (rows, len(A[0]) if A else 0)
                parts = [
                    [(places[i, t], weights[i, t] * A[t][j] % self.p) for t in range(columns)]
                    for i in range(rows)
                    for j in range(shape[1])
                ]
            found = np.array([np.concatenate([at for at, _ in part]) for part in parts])
            of = np.array([np.concatenate([w for _, w in part]) for part in parts], dtype=object)
            return self.intern(shape, found.reshape(len(parts), -1), of.reshape(len(parts), -1))

        return self.memo(("matrix", view, key, left), make)  # type: ignore[no-any-return]

    def add(self, one: int, c: int, other: int, d: int) -> tuple[int, int]:
        """Number and factor of a map equal to c L + d M, for the maps L = `one` and M = `other`."""
        if one == other:
            return one, (c + d) % self.p

        def make() -> tuple[int, int]:
            (a, v), (b, w) = self.table(one), self.table(other)
            places = np.concatenate([a, b], axis=1)
            weights = np.concatenate([v * c % self.p, w * d % self.p], axis=1)
            return self.intern(self.shapes[one], places, weights)

        return self.memo(("add", one, c, other, d), make)  # type: ignore[no-any-return]

    def compose(self, outer: int, inner: int) -> tuple[int, int]:
        """Number and factor of the composition: map `outer` applied to the result of `inner`."""

        def make() -> tuple[int, int]:
            at, weights = self.table(outer)
            places, of = self.table(inner)
            found, total = [], []
            for row, w in zip(at, weights, strict=True):
                some = [(i, int(c)) for i, c in zip(row, w, strict=True) if i >= 0]
                found.append([x for i, _ in some for x in places[i]])
                total.append([int(x) * c % self.p for i, c in some for x in of[i]])
            width = max((len(row) for row in found), default=0) or 1
            a = np.full((len(found), width), -1, np.int64)
            b = np.zeros((len(found), width), dtype=object)
            for i, (row, w2) in enumerate(zip(found, total, strict=True)):
                a[i, : len(row)], b[i, : len(row)] = row, w2
            return self.intern(self.shapes[outer], a, b)

        return self.memo(("compose", outer, inner), make)  # type: ignore[no-any-return]

    def sides(self, view: int, shape: tuple[int, ...]) -> tuple[bool, Array, Array] | None:
        """Whether transposed, and the rows and columns that a map selects; None for other maps."""

        def make() -> tuple[bool, Array, Array] | None:
            out, places = self.shapes[view], self.places[view]
            plain = self.weights[view] is None and places.shape[1] == 1
            if not plain or len(out) != 2 or len(shape) != 2 or not places.size:
                return None
            table = places.reshape(out)
            if (table < 0).any():
                return None
            for turned in (False, True):
                r, c = np.divmod(table, shape[1])
                r, c = (c, r) if turned else (r, c)
                if (r == r[:, :1]).all() and (c == c[:1]).all():
                    return turned, r[:, 0].copy(), c[0].copy()
            return None

        return self.memo(("sides", view, shape), make)  # type: ignore[no-any-return]

    def parts(self, view: int) -> list[tuple[int, int]]:
        """Maps with factors, each a selection of entries, whose sum is this map; or the map itself.

        A sum of parts of one block, such as of an owner's segments, is one map. Products with it
        are sums of products with its parts.
        """

        def make() -> list[tuple[int, int]]:
            places, weights = self.table(view)
            found = []
            for column, own in zip(places.T, weights.T, strict=True):
                factors = {int(w) for w, at in zip(own, column, strict=True) if at >= 0}
                if len(factors) != 1:
                    return [(view, 1)]
                chosen = np.ascontiguousarray(column).reshape(-1, 1)
                found.append((self.intern(self.shapes[view], chosen, None)[0], factors.pop()))
            return found

        return self.memo(("parts", view), make)  # type: ignore[no-any-return]

    def between(self, one: int, other: int) -> Array | None:
        """Places where `one` has a nonzero column and `other` a nonzero row; None for all."""

        def make() -> Array | None:
            both = sorted({*self.reads(one, 1)} & {*self.reads(other, 0)})
            return None if len(both) == self.shapes[one][1] else np.array(both, np.int64)

        return self.memo(("between", one, other), make)  # type: ignore[no-any-return]

    def reads(self, view: int, axis: int) -> tuple[int, ...]:
        """Rows (axis 0) or columns (axis 1) of a map that are not zero."""

        def make() -> tuple[int, ...]:
            some: Array = (self.places[view] >= 0).any(axis=1).reshape(self.shapes[view])
            return tuple(np.flatnonzero(np.any(some, axis=1 - axis)).tolist())

        return self.memo(("reads", view, axis), make)  # type: ignore[no-any-return]

    def pivots(self, view: int) -> list[int] | None:
        """A position in the block for each output entry, such that the map is invertible there.

        Elimination in the order of the entries: entry i is solved for the place i. None if the map
        is not onto, so that its result is not uniform.
        """

        def make() -> list[int] | None:
            places, weights = self.table(view)
            if self.weights[view] is None and places.shape[1] == 1:
                flat = places[:, 0].tolist()
                whole = len(set(flat)) == len(flat) and min(flat, default=0) >= 0
                return flat if whole else None
            p, chosen = self.p, []
            solved: dict[int, dict[int, int]] = {}
            for at, w in zip(places.tolist(), weights.tolist(), strict=True):
                row = {a: int(x) % p for a, x in zip(at, w, strict=True) if a >= 0}
                for pivot, known in solved.items():
                    factor = row.get(pivot, 0)
                    if factor:
                        for a, x in known.items():
                            row[a] = (row.get(a, 0) - factor * x) % p
                row = {a: x for a, x in row.items() if x}
                if not row:
                    return None
                pivot = min(row)
                inverse = pow(row[pivot], -1, p)
                solved[pivot] = {a: x * inverse % p for a, x in row.items()}
                chosen.append(pivot)
            return chosen

        return self.memo(("pivots", view), make)  # type: ignore[no-any-return]

    def pivoted(
        self, view: int, places: tuple[int, ...], shape: tuple[int, ...]
    ) -> tuple[int, int]:
        """Number and factor of the inverse of map `view` on pivots `places`; zero elsewhere."""

        def make() -> tuple[int, int]:
            size, m = math.prod(shape), len(places)
            if self.weights[view] is None and self.places[view].shape[1] == 1:
                back = np.full((size, 1), -1, np.int64)
                back[list(places), 0] = np.arange(m)
                return self.intern(shape, back, None)
            table, weights = self.table(view)
            order = {place: k for k, place in enumerate(places)}
            square = [[0] * m for _ in range(m)]
            for line, at, of in zip(square, table.tolist(), weights.tolist(), strict=True):
                for i, w in zip(at, of, strict=True):
                    if i in order:
                        line[order[i]] = int(w) % self.p
            every = np.full((size, m), -1, np.int64)
            found = np.zeros((size, m), dtype=object)
            for place, line in zip(places, _inverted(square, self.p), strict=True):
                every[place], found[place] = np.arange(m), line
            return self.intern(shape, every, found)

        return self.memo(("pivoted", view, places, shape), make)  # type: ignore[no-any-return]

    def apply(self, view: int, flat: Sequence[int]) -> list[int]:
        """Output of a map, modulo p, for a block's flat entries."""
        places, weights = self.places[view], self.weights[view]
        if weights is None and places.shape[1] == 1:
            return [flat[i] if i >= 0 else 0 for i in places[:, 0].tolist()]
        places, weights = self.table(view)
        return [
            sum(int(w) * flat[i] for i, w in zip(at, of, strict=True) if i >= 0) % self.p
            for at, of in zip(places.tolist(), weights.tolist(), strict=True)
        ]


def _merged(places: Array, weights: Array | None, p: int) -> tuple[Array, Array]:
    """(places, weights) of a sparse map's rows, sorted, no place twice, no weight zero."""
    if weights is None:
        weights = np.where(places >= 0, 1, 0).astype(object)
    rows = []
    for at, of in zip(places.tolist(), weights.tolist(), strict=True):
        found: dict[int, int] = {}
        for i, w in zip(at, of, strict=True):
            if i >= 0:
                found[i] = (found.get(i, 0) + int(w)) % p
        rows.append(sorted((i, w) for i, w in found.items() if w))
    width = max((len(row) for row in rows), default=0) or 1
    a = np.full((len(rows), width), -1, np.int64)
    b = np.zeros((len(rows), width), dtype=object)
    for r, row in enumerate(rows):
        for k, (i, w) in enumerate(row):
            a[r, k], b[r, k] = i, w
    return a, b


def _inverted(square: list[list[int]], p: int) -> list[list[int]]:
    """Inverse matrix by Gauss-Jordan elimination."""
    size = len(square)
    rows = [[*line, *(int(r == k) for k in range(size))] for r, line in enumerate(square)]
    for c in range(size):
        r = next(i for i in range(c, size) if rows[i][c])
        rows[c], rows[r] = rows[r], rows[c]
        inverse = pow(rows[c][c], -1, p)
        rows[c] = [x * inverse % p for x in rows[c]]
        for i in range(size):
            factor = rows[i][c]
            if i != c and factor:
                rows[i] = [(x - factor * y) % p for x, y in zip(rows[i], rows[c], strict=True)]
    return [row[size:] for row in rows]


class Algebra:
    """Algebra of all symbolic forms of one trace.

    Where a form is long, the products in all forms are abbreviated by new blocks, their *names*, as
    in `check.Entries`: linear combinations of products become combinations of names.
    """

    def __init__(self, world: Trace) -> None:
        self.world, self.p = world, world.field.modulus
        self.views = Views(self.p)
        self._naming: bool | None = None
        self._begin()
        try:
            self._read()
        except _LongError:
            self._naming = True
            self._begin()
            self._read()

    def _read(self) -> None:
        """Read all nodes in the order of the trace."""
        for node in self.world.nodes:
            self.form(node)

    def _begin(self) -> None:
        self.blocks: list[Block] = []
        self.one_value: list[tuple[int, Node]] = []  # nodes that are blocks of other nodes
        self._forms: dict[int, Form] = {}
        self._known: dict[Any, int] = {}
        self._names: dict[Chain, tuple[int, Chain, int, Form]] = {}  # by pivot
        self._sums: dict[int, Form] = {}  # named blocks that are sums of others
        #: Forms in names, with the arguments from which they were computed.
        self.shortened: list[tuple[Form, list[Form]]] = []

    # -- blocks ------------------------------------------------------------------------------

    def block(self, kind: str, name: str, shape: tuple[int, ...], **more: Any) -> Block:
        """New block (an unknown array) of a kind; `more` are further fields of `Block`."""
        made = Block(len(self.blocks), more.pop("node", None), kind, name, shape, **more)
        self.blocks.append(made)
        return made

    def of(self, block: Block) -> Form:
        """The form that consists of one block."""
        return Form(block.shape, {block.number: (self.views.identity(block.shape), 1)})

    def form(self, node: Node) -> Form:
        """The symbolic form of a trace node."""
        todo = [node]
        while todo:  # without recursion: traces are deep
            top = todo[-1]
            if top.number in self._forms:
                todo.pop()
                continue
            missing = [arg for arg in top.args if arg.number not in self._forms]
            if missing:
                todo.extend(missing)
            else:
                todo.pop()
                self._forms[top.number] = self._made(top, [self._forms[a.number] for a in top.args])
        return self._forms[node.number]

    def _made(self, node: Node, args: list[Form]) -> Form:
        op, data = node.op, node.data
        if op == "public":
            flat = tuple(int(x) for x in data.flat)
            return Form(node.shape, constant=flat if any(flat) else None)
        if op == "sum":
            total = Form(node.shape)
            for form, factor in zip(args, data, strict=True):
                self.gather(total, form, factor)
            return self._short(total, args)
        if op in ("weigh", "index"):
            try:
                return self.weigh(args[0], data) if op == "weigh" else self.index(args[0], data)
            except NotExpressibleError:
                flat = tuple(int(x) for x in data.flat)
                return self._block_of(node, args, (op, data.shape, flat))
        if op == "matmul":
            return self._short(self.product(args[0], args[1]), args)
        args = list(map(self.unfolded, args))
        if op == "map":
            call, place, kind = data
            return self._block_of(node, args, (call.identity, place, kind[0], str(kind[1])))
        if op == "prf":
            of = tuple(form.key() for form in args[1:])  # the checker refuses two of one label
            return self._block_of(node, args, ("prf", key_of(node.args[0]), data, of))
        if op == "agreed":
            return self._block_of(node, args, ("agreed", key_of(node)))
        return self._block_of(node, args, ("leaf", node.number))

    def _short(self, form: Form, args: list[Form]) -> Form:
        """A form, products replaced by names if it is long; _LongError if none may be named."""
        if self._naming is None and len(form) > MANY:
            raise _LongError
        named = [b for b in form.linear if self.blocks[b].kind == "named"] if self._naming else []
        if not self._naming or not (named or form.products):
            return form
        total = Form(form.shape, dict(form.linear), constant=form.constant)
        products = dict(form.products)
        for block in named:
            view, c = total.linear.pop(block)
            for part, d in self.views.parts(view):
                products[(block, part),] = c * d % self.p
        for rows, some in self._by_rows(form.shape, products):
            for block, c in self._in_names(some).items():
                whole = self.views.identity(self.blocks[block].shape)
                view, d = (whole, 1) if rows is None else self._placed(whole, rows, form.shape)
                self._put(total, block, view, c * d)
        self.shortened.append((total, args))
        return total

    def _by_rows(
        self, shape: tuple[int, ...], products: dict[Chain, int]
    ) -> Iterable[tuple[Array | None, Form]]:
        """Rows of a matrix with the same nonzero products, as one form each; None for all rows."""
        if len(shape) != 2:
            yield None, Form(shape, products=products)
            return
        there: dict[int, list[Chain]] = {}
        for chain in products:
            for row in self.views.reads(chain[0][1], 0):
                there.setdefault(row, []).append(chain)
        groups: dict[tuple[Chain, ...], list[int]] = {}
        for row in sorted(there):
            groups.setdefault(tuple(there[row]), []).append(row)
        columns = np.arange(shape[1])
        for chains, some in groups.items():
            if len(some) == shape[0]:
                yield None, Form(shape, products=products)
                return
            rows = np.array(some, np.int64)
            part = Form((len(some), shape[1]))
            for chain in chains:
                seen, d = self._chain_sides(chain, False, rows, columns)
                self._put_chain(part, seen, products[chain] * d)
            yield rows, part

    def _placed(self, view: int, rows: Array, shape: tuple[int, ...]) -> tuple[int, int]:
        """Number and factor of a map into given rows of a matrix that is zero elsewhere."""
        places = np.full(shape, -1, np.int64)
        places[rows] = np.arange(len(rows) * shape[1]).reshape(len(rows), shape[1])
        return self.views.index(view, ("placed", shape, rows.tobytes()), places)

    def _in_names(self, rest: Form) -> dict[int, int]:
        """Names of products, with factors, whose sum equals `rest`; the last one may be new."""
        left, found = rest.products, dict[int, int]()
        todo = [self._names[chain] for chain in left.keys() & self._names.keys()]
        heapq.heapify(todo)
        while todo:  # in the order of names: what a name stands for has no earlier pivot in it
            _, pivot, block, known = heapq.heappop(todo)
            factor = left.get(pivot)
            if not factor:
                continue
            found[block] = factor
            for chain, c in known.products.items():
                if chain not in left and chain in self._names:
                    heapq.heappush(todo, self._names[chain])
                self._put_chain(rest, chain, -factor * c)
        if left:
            pivot = max(left, key=lambda chain: (len(chain), chain))
            factor, inverse = left[pivot], pow(left[pivot], -1, self.p)
            known = Form(rest.shape, products={m: c * inverse % self.p for m, c in left.items()})
            block = self._named(known, len(pivot) == 1)
            self._names[pivot] = len(self._names), pivot, block, known
            found[block] = factor
        return found

    def _named(self, known: Form, sums: bool) -> int:
        """Number of a new block: a name for products' combination, or with `sums` for names'."""
        of = Form(known.shape)
        for chain, c in known.products.items():
            if len(chain) == 1:
                self._put(of, *chain[0], c)
            else:
                of.put(chain, c)
        made = self.block("named", "a sum of products", known.shape, deps=(of,))
        if sums:
            self._sums[made.number] = of
        return made.number

    def unfolded(self, form: Form) -> Form:
        """A form with each name of a sum of names replaced by that sum."""
        while some := [block for block in form.linear if block in self._sums]:
            form = form.copied()
            for block in some:
                view, c = form.linear.pop(block, (0, 0))
                if c:
                    self.gather(form, self.seen(self._sums[block], view), c)
        return form

    def _block_of(self, node: Node, deps: list[Form], what: Any) -> Form:
        """Form of one block, shared by all nodes with the same function of equal forms."""
        # A key's streams and agreed keys go by the key alone.
        by_key = what[0] in ("prf", "agreed", "leaf")
        key = (what, node.shape, () if by_key else tuple(d.key() for d in deps))
        if key in self._known:
            number = self._known[key]
            self.one_value.append((number, node))
            return self.of(self.blocks[number])
        name = node.name
        if node.op == "map":
            name = node.data[0].title
        made = self.block(
            node.op, name or node.op, node.shape, node=node, owner=node.owner, deps=tuple(deps)
        )
        self._known[key] = made.number
        return self.of(made)

    # -- operations --------------------------------------------------------------------------

    def add(self, one: Form, other: Form, factor: int = 1) -> Form:
        """Form one + factor * other."""
        total = Form(one.shape, dict(one.linear), dict(one.products), one.constant)
        self.gather(total, other, factor)
        return total

    def gather(self, total: Form, other: Form, factor: int) -> None:
        """Add factor * other to `total` in place."""
        p = self.p
        for block, (view, c) in other.linear.items():
            self._put(total, block, view, c * factor % p)
        for chain, c in other.products.items():
            self._put_chain(total, chain, c * factor)
        if other.constant is not None:
            own = total.constant or (0,) * len(other.constant)
            both = zip(own, other.constant, strict=True)
            self._set_constant(total, [(a + factor * b) % p for a, b in both])

    def _put(self, total: Form, block: int, view: int, c: int) -> None:
        """Add c times a map of a block to `total`."""
        if not c % self.p:
            return
        if block in total.linear:
            view, c = self.views.add(*total.linear[block], view, c)
        if c % self.p:
            total.linear[block] = view, c % self.p
        else:
            total.linear.pop(block, None)

    def _put_chain(self, total: Form, chain: Chain, c: int) -> None:
        total.put(chain, (total.products.get(chain, 0) + c) % self.p)

    def _set_constant(self, total: Form, flat: Sequence[int]) -> None:
        total.constant = tuple(flat) if any(flat) else None

    def scale(self, form: Form, factor: int) -> Form:
        """The form factor * form."""
        return self.add(Form(form.shape), form, factor % self.p)

    def index(self, form: Form, chosen: Array) -> Form:
        """The form of chosen entries.

        NotExpressibleError if entries of a product are not chosen by rows and columns.
        """
        total, key = Form(chosen.shape), (chosen.shape, chosen.tobytes())
        for block, (view, c) in form.linear.items():
            found, d = self.views.index(view, key, chosen)
            self._put(total, block, found, c * d % self.p)
        if form.products:
            where = self.views.intern(chosen.shape, chosen.reshape(-1, 1), None)[0]
            sides = self.views.sides(where, form.shape)
            if sides is None:
                raise NotExpressibleError("entries of a product, neither rows nor columns")
            turned, rows, columns = sides
            for chain, c in form.products.items():
                seen, d = self._chain_sides(chain, turned, rows, columns)
                self._put_chain(total, seen, c * d)
        if form.constant is not None:
            own = form.constant
            self._set_constant(total, [own[i] if i >= 0 else 0 for i in chosen.reshape(-1)])
        return total

    def _chain_sides(
        self, chain: Chain, turned: bool, rows: Array, columns: Array
    ) -> tuple[Chain, int]:
        """A product, transposed if `turned`, then restricted to rows and columns."""
        factor = 1
        if turned:
            back = []
            for block, view in reversed(chain):
                r, c = self.views.shapes[view]
                seen, d = self.views.index(view, ("T",), np.arange(r * c).reshape(r, c).T)
                back.append((block, seen))
                factor *= d
            chain = tuple(back)
        whole = list(chain)
        for place, by, chosen in ((0, "rows", rows), (-1, "columns", columns)):
            block, view = whole[place]
            r, c = self.views.shapes[view]
            every = np.arange(r * c).reshape(r, c)
            some = every[chosen] if by == "rows" else every[:, chosen]
            seen, d = self.views.index(view, (by, chosen.tobytes()), some)
            whole[place] = block, seen
            factor *= d
        return tuple(whole), factor

    def weigh(self, form: Form, factors: Array) -> Form:
        """Form with each entry multiplied by its public number in `factors`, of the form's shape.

        NotExpressibleError if the form contains products.
        """
        if form.products:
            raise NotExpressibleError("entries of a product, each times a number")
        total, key = Form(form.shape), factors.tobytes()
        for block, (view, c) in form.linear.items():
            found, d = self.views.weigh(view, key, factors)
            self._put(total, block, found, c * d % self.p)
        if form.constant is not None:
            both = zip(form.constant, factors.flat, strict=True)
            self._set_constant(total, [a * int(b) % self.p for a, b in both])
        return total

    def product(self, one: Form, other: Form) -> Form:
        """Matrix product one @ other as a form, distributed over the terms."""
        total, rights = Form((one.shape[0], other.shape[1])), list(self._terms(other))
        by_row: dict[int, list[int]] = {}
        for k, (right, _) in enumerate(rights):
            for row in self._reads(right, 0):
                by_row.setdefault(row, []).append(k)
        for left, a in self._terms(one):
            for k in sorted({k for row in self._reads(left, 1) for k in by_row.get(row, ())}):
                right, b = rights[k]
                self._put_product(total, left, right, a * b % self.p)
        return total

    def _reads(self, term: Any, axis: int) -> Sequence[int]:
        """Nonzero rows of a right factor, or nonzero columns of a left factor."""
        if isinstance(term, np.ndarray):
            return range(term.shape[axis])
        return self.views.reads(term[-axis][1], axis)

    def _terms(self, form: Form) -> Iterable[tuple[Any, int]]:
        """Products of a form with their coefficients; an array for the constant."""
        for block, (view, c) in form.linear.items():
            for part, d in self.views.parts(view):
                yield ((block, part),), c * d % self.p
        yield from form.products.items()
        if form.constant is not None:
            flat = np.array(form.constant, dtype=object)
            yield flat.reshape(form.shape), 1

    def _put_product(self, total: Form, left: Any, right: Any, c: int) -> None:
        constants = isinstance(left, np.ndarray), isinstance(right, np.ndarray)
        if all(constants):
            flat = [int(x) * c % self.p for x in (left @ right).reshape(-1)]
            own = total.constant or (0,) * len(flat)
            self._set_constant(total, [(a + b) % self.p for a, b in zip(own, flat, strict=True)])
            return
        if any(constants):
            matrix, chain = (left, list(right)) if constants[0] else (right, list(left))
            place = 0 if constants[0] else -1
            block, view = chain[place]
            key = (matrix.shape, tuple(matrix.flat))
            seen, d = self.views.matrix(view, key, matrix, constants[0])
            c = c * d % self.p
            if not c:
                return
            chain[place] = block, seen
            whole = tuple(chain)
        else:
            met = self._met(left, right)
            if met is None:
                return
            whole, d = met
            c = c * d % self.p
        if len(whole) == 1:
            self._put(total, whole[0][0], whole[0][1], c)
        else:
            self._put_chain(total, whole, c)

    def _met(self, left: Chain, right: Chain) -> tuple[Chain, int] | None:
        """Two products concatenated, without inner positions at which either is zero.

        Parts of an array that is joined with others have zeros there. None for the zero matrix.
        """
        (one, u), (other, v) = left[-1], right[0]
        inner = self.views.between(u, v)
        if inner is None:
            return (*left, *right), 1
        if not inner.size:
            return None
        (rows, m), (_, columns) = self.views.shapes[u], self.views.shapes[v]
        some = inner.tobytes()
        places = np.arange(rows * m).reshape(rows, m)[:, inner]
        u, c = self.views.index(u, ("columns", some), places)
        places = np.arange(m * columns).reshape(m, columns)[inner]
        v, d = self.views.index(v, ("rows", some), places)
        return (*left[:-1], (one, u), (other, v), *right[1:]), c * d % self.p

    def named(self, form: Form, block: int) -> Form:
        """The terms of a form that contain a block."""
        linear = {block: form.linear[block]} if block in form.linear else {}
        chains = form.held.get(block, {}) if form.products else {}
        return Form(form.shape, linear, {chain: form.products[chain] for chain in chains})

    def exchange(self, form: Form, block: int, terms: Form) -> None:
        """Replace, in place, the terms of a form that contain a block by other terms."""
        form.linear.pop(block, None)
        for chain in list(form.held.get(block, {})) if form.products else ():
            form.put(chain, 0)
        self.gather(form, terms, 1)

    def substitute(
        self, form: Form, block: int, by: Form, seen: dict[int, Form] | None = None
    ) -> Form:
        """The form with a block replaced everywhere by another form.

        Parameters
        ----------
        seen : dict, optional
            Cache of views of `by`, shared between forms.

        Raises
        ------
        NotExpressibleError
            If entries of a product would not be chosen by rows and columns.
        """
        chains = form.held.get(block, {}) if form.products else {}
        if block not in form.linear and not chains:
            return form
        seen = {} if seen is None else seen
        total, terms = form.copied(), Form(form.shape)
        for view in {v for b, v in (p for chain in chains for p in chain) if b == block}:
            if view not in seen:
                seen[view] = self.seen(by, view)
        if block in form.linear:
            view, c = form.linear[block]
            if view not in seen:
                seen[view] = self.seen(by, view)
            self.gather(terms, seen[view], c)
        for chain in chains:
            product: Form | None = None
            for b, view in chain:
                one = seen[view] if b == block else Form(self.views.shapes[view], {b: (view, 1)})
                product = one if product is None else self.product(product, one)
            assert product is not None
            self.gather(terms, product, form.products[chain])
        self.exchange(total, block, terms)
        return total

    def seen(self, form: Form, view: int) -> Form:
        """Linear map number `view` applied to a form; NotExpressibleError behind a product."""
        total = Form(self.views.shapes[view])
        for block, (inner, c) in form.linear.items():
            found, d = self.views.compose(view, inner)
            self._put(total, block, found, c * d % self.p)
        if form.products:
            sides = self.views.sides(view, form.shape)
            if sides is None:
                raise NotExpressibleError("a product behind a linear map")
            for chain, c in form.products.items():
                whole, d = self._chain_sides(chain, *sides)
                self._put_chain(total, whole, c * d)
        if form.constant is not None:
            self._set_constant(total, self.views.apply(view, form.constant))
        return total

    # -- reading -----------------------------------------------------------------------------

    def evaluate(self, form: Form, value: Callable[[int], Any]) -> list[int]:
        """Entries of a form, flat, from the flat entries of its blocks."""
        p = self.p
        total = list(form.constant or (0,) * math.prod(form.shape))
        for block, (view, c) in form.linear.items():
            seen = self.views.apply(view, value(block))
            total = [(t + c * x) % p for t, x in zip(total, seen, strict=True)]
        for chain, c in form.products.items():
            product: Any = None
            for block, view in chain:
                seen = self.views.apply(view, value(block))
                array = np.array(seen, dtype=object).reshape(self.views.shapes[view])
                product = array if product is None else product.dot(array) % p
            total = [(t + c * int(x)) % p for t, x in zip(total, product.flat, strict=True)]
        return total

    def text(self, form: Form, most: int = 6) -> str:
        """A form as text for readers: its first `most` terms."""
        parts = []
        for chain, c in [
            *((((b, v),), c) for b, (v, c) in form.linear.items()),
            *form.products.items(),
        ][:most]:
            names = []
            for block, view in chain:
                own = self.blocks[block]
                whole = view == self.views.identity(own.shape)
                names.append(own.name if whole else f"{own.name}[{self._seen(view)}]")
            sign = c - self.p if c > self.p // 2 else c
            parts.append(f"{'' if sign == 1 else f'{sign} '}{' @ '.join(names)}")
        if form.constant is not None:
            parts.append("a constant")
        more = f" + ... ({len(form)} terms)" if len(form) > most else ""
        return (" + ".join(parts) or "0") + more

    def _seen(self, view: int) -> str:
        places = self.places_text(view)
        return places if len(places) < 24 else f"{places[:20]}..."

    def places_text(self, view: int) -> str:
        """Text for the positions that a map reads."""
        places = self.views.places[view]
        if self.views.weights[view] is not None or places.shape[1] != 1:
            return "a linear map"
        return "entries " + " ".join(str(i) for i in places[:, 0].tolist())


def entries(algebra: Algebra, form: Form) -> list[dict[Any, int]]:
    """Entries of a form as polynomials in block entries: monomial -> coefficient.

    A monomial is a sorted tuple of (block, place); the constant has the empty one.
    """
    p, size = algebra.p, math.prod(form.shape)
    rows: list[dict[Any, int]] = [{} for _ in range(size)]

    def put(row: dict[Any, int], monomial: Any, c: int) -> None:
        value = (row.get(monomial, 0) + c) % p
        if value:
            row[monomial] = value
        else:
            row.pop(monomial, None)

    for block, (view, c) in form.linear.items():
        for row, pairs in zip(rows, algebra.views.pairs(view), strict=True):
            for i, w in pairs:
                row[((block, i),)] = c * w % p
    for chain, c in form.products.items():
        product = None
        for block, view in chain:
            shape = algebra.views.shapes[view]
            flat = [{((block, i),): w for i, w in pairs} for pairs in algebra.views.pairs(view)]
            table = [flat[r * shape[1] : (r + 1) * shape[1]] for r in range(shape[0])]
            product = table if product is None else _times(product, table, p)
        assert product is not None
        for row, entry in zip(rows, (e for line in product for e in line), strict=True):
            for monomial, w in entry.items():
                put(row, monomial, c * w % p)
    for row, k in zip(rows, form.constant or (), strict=False):
        put(row, (), k)
    return rows


def _times(one: Any, other: Any, p: int) -> Any:
    """The product of two matrices of polynomials."""
    columns = len(other[0]) if other else 0
    found = []
    for line in one:
        made: list[dict[Any, int]] = []
        for j in range(columns):
            total: dict[Any, int] = {}
            for t, left in enumerate(line):
                for a, v in left.items():
                    for b, w in other[t][j].items():
                        key = tuple(sorted(a + b))
                        total[key] = (total.get(key, 0) + v * w) % p
            made.append({k: v for k, v in total.items() if v})
        found.append(made)
    return found


class Evaluation:
    """Evaluator of blocks and forms in a run, or in a run with other inputs.

    Functions are run again on the values of their arguments.

    Parameters
    ----------
    algebra : Algebra
        Algebra of the trace.
    leaves : mapping of int to object
        Values by block number, for blocks whose value differs from the run.
    resolved : callable, optional
        Function that returns a form after the moves of a proof.
    """

    def __init__(
        self,
        algebra: Algebra,
        leaves: dict[int, Any] | None = None,
        resolved: Callable[[Form], Form] | None = None,
    ) -> None:
        self.algebra, self._raw = algebra, dict(leaves or {})
        self._flat: dict[int, list[int]] = {}
        self._resolved = resolved or (lambda form: form)
        self._calls: dict[Any, Any] = {}
        self._deep = 0  # calls of `raw`, one in the other

    def raw(self, number: int) -> Any:
        """Value of a block: an array, a model, or the limbs of a key."""
        if number not in self._raw:
            if self._deep >= MOST_CALLS:
                blocks, deep, self._deep = self.algebra.blocks, self._deep, 0
                for one in in_order(number, lambda b: blocks[b].below - self._raw.keys()):
                    self.raw(one)
                self._deep = deep
            self._deep += 1
            try:
                self._raw[number] = self._made(self.algebra.blocks[number])
            finally:
                self._deep -= 1
        return self._raw[number]

    def _made(self, block: Block) -> Any:
        node, kind = block.node, block.kind
        if kind == "named":
            return self.value(block.deps[0])
        assert node is not None
        if kind in ("secret", "uniform", "key", "release"):
            return node.value
        values = [self.value(form) for form in block.deps]
        field = self.algebra.world.field
        if kind == "map":
            call, place, declared = node.data
            key = (id(call), tuple(id(v) for v in values))
            if key not in self._calls:  # a call with many results is run once
                self._calls[key] = call.run(values), values
            found = self._calls[key][0]
            return fitted(found if place is None else found[place], node.shape, declared)
        if kind == "index":
            flat = np.asarray(values[0]).reshape(-1)
            seen = np.where(node.data < 0, 0, flat[np.maximum(node.data, 0)])
            return seen.astype(field.dtype)
        if kind == "weigh":
            return field.multiply(values[0], node.data)
        return derived(node, values, field)

    def flat(self, number: int) -> list[int]:
        """Entries of a block of field elements."""
        if number not in self._flat:
            self._flat[number] = [int(x) for x in np.asarray(self.raw(number)).flat]
        return self._flat[number]

    def value(self, form: Form) -> Any:
        """Value of a form."""
        form = self._resolved(form)
        if len(form.linear) == 1 and not form.products and form.constant is None:
            ((number, (view, c)),) = form.linear.items()
            block = self.algebra.blocks[number]
            if c == 1 and view == self.algebra.views.identity(block.shape):
                return self.raw(number)
        flat = self.algebra.evaluate(form, self.flat)
        array = np.array(flat, dtype=object).astype(self.algebra.world.field.dtype)
        return array.reshape(form.shape)


def unfaithful(algebra: Algebra) -> str | None:
    """First fault of a trace and its forms, as a sentence; None if there is none.

    Each node with a value (models apart), message and output is evaluated from the leaves of its
    form, running functions again, and must equal the traced array. Other faults are an error of
    this evaluation, joined keys with unequal forms, and what tracing noted (``world.faults``).
    """
    world, again = algebra.world, Evaluation(algebra)
    try:
        for node in world.nodes:
            if node.value is None or (node.op == "secret" and node.kind == "model"):
                continue
            form = algebra.form(node)
            if not functions.same(_plain(again.value(form)), _plain(node.value)):
                return f"{node.name or node.op} ({node.shape}) has two values: run again it differs"
        for message in world.messages:
            for part in message.parts:
                found = again.value(algebra.form(part.node))
                if not functions.same(_plain(found), _plain(part.value)):
                    return f"{message} is not what its form says"
        for output in world.outputs:
            found = again.value(algebra.form(output.node))
            if not functions.same(_plain(found), _plain(output.value)):
                return f"output {output.name} is not what its form says"
    except (ArithmeticError, ValueError, TypeError, LookupError, SecureVFLError) as error:
        return f"the trace cannot be run again: {error}"
    for one, other, why in world.equal:
        if algebra.form(one).key() != algebra.form(other).key():
            return f"{why}: what was joined is not the key that it seems to be"
    return world.faults[0] if world.faults else None


def _plain(value: Any) -> Any:
    return np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value


def derived(node: Node, values: list[Any], field: Any) -> Any:
    """Value of a stream, agreed or public key at a node, from limbs of keys and label parts."""
    from securevfl.field.prss import derive
    from securevfl.verified.parties import agreed_key, asked, bytes_of, fill, limbs_of, public_half

    if node.op == "agreed":
        own = bytes_of(values[0], field)
        assert own is not None
        return limbs_of(agreed_key(own, values[1], *(node.data or ())), field)
    key = bytes_of(values[0], field)
    assert key is not None
    if node.op == "public key":
        return public_half(key)
    use = None if node.data is None else asked(node.data, values[1:])
    if node.kind != "field":
        assert use is not None
        found = derive(key, use)
        return limbs_of(found, field) if node.kind == "key" else np.frombuffer(found, np.uint8)
    out = np.empty(math.prod(node.shape), field.dtype)
    fill(field.modulus, out, key, use)
    return out.reshape(node.shape)
