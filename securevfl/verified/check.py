"""The check of a certificate: the part that must be trusted. It searches nothing.

It shares no algebra with the prover: every entry of every value is a polynomial over F_p in single
entries of inputs, tapes and functions' results. A certificate is a list of steps. Each is checked
by itself, and applied:

- *move*: entry e of a received part is c t + rest, with t an entry of a tape, or of a stream of a
  hidden key, that the coalition lacks, that occurs in no other term and that no function in `rest`
  depends on. For fixed others this is a bijection of t, so the entry is a fresh uniform s, and
  t = (s - rest) / c everywhere.
- *give*: a key or a tape is added to what the coalition has. This makes the claim stronger.
- *prf*: no received entry depends on a key but through its streams, and the coalition lacks it:
  its streams are uniform and independent from then on (ideal PRF). Keys are taken in the order of
  the certificate, so that no key depends on streams under itself.
- *release*: a released value is given, and counted; the verdict is one of differential privacy.

In the end every received entry must be a function of values that the coalition has: its own leaves,
fresh values, given values, and the declared outputs, which must be functions of inputs alone.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from securevfl.errors import SecureVFLError
from securevfl.verified import functions
from securevfl.verified.trace import MOST_CALLS, Node, Output, Trace, in_order

Poly = dict[tuple[int, ...], int]  # sorted symbols -> coefficient
DRAWN = ("uniform", "key", "prf", "agreed", "release", "public key")
#: Monomials of an entry from which on all products of the trace are named.
MANY = 1024


class Refused(Exception):  # noqa: N818
    """Error with the reason for which a certificate does not hold."""


class _LongError(Exception):
    """An entry became so long that the trace must be read again, with products abbreviated."""


class Atom:
    """A leaf or a function's result, whose entries are the symbols base, base + 1, ..."""

    __slots__ = ("base", "deps", "kind", "node", "size")

    def __init__(
        self, node: Node, base: int, size: int, deps: list[list[Poly]], kind: str = ""
    ) -> None:
        self.node, self.kind, self.base, self.size = node, kind or node.op, base, size
        self.deps = deps


class Entries:
    """Entries of a trace's values, as polynomials in symbols of inputs and random values.

    Where an entry is long, its products are abbreviated in all entries: a new symbol, its *name*,
    stands for each, as a function of the products. A linear combination of names is named, too, so
    that shares of one polynomial at all points are as short as at a few. Linear relations are
    unchanged. Only a move inside a product is no longer found, and values that a coalition computes
    from its own it has, abbreviated or not (`shortened`).

    Parameters
    ----------
    world : Trace
        The traced run.
    nodes : iterable of Node, optional
        Nodes to read, not abbreviated; all if not given. What they depend on is read and dropped.
    """

    def __init__(self, world: Trace, nodes: Iterable[Node] | None = None) -> None:
        self.world, self.p = world, world.field.modulus
        self.rounded: dict[int, int] | None = None  # see `verdicts.rounded_anew`
        self._long: Entries | None = None
        asked = None if nodes is None else {node.number: node for node in nodes}
        some = world.nodes if asked is None else _behind(asked.values())
        self._last: dict[int, int] = {}  # by node that is dropped, the last that is made of it
        for node in some if asked else ():
            self._last.update((arg.number, node.number) for arg in node.args)
        for number in asked or ():
            self._last.pop(number, None)
        try:
            self._all(some, None if asked is None else False)
        except _LongError:
            self._all(some, True)

    def _all(self, nodes: Iterable[Node], names: bool | None) -> None:
        """Read all nodes: name products (True), do not (False), or _LongError if needed (None)."""
        self.atoms: list[Atom] = []
        self.atom_of: list[int] = []  # of each symbol
        self._of: dict[int, list[Poly]] = {}
        self._same: dict[Any, Atom] = {}
        self._seeds: dict[int, bool] = {}  # keys that are expanded without a label
        self.by_node: dict[int, Atom] = {}
        #: Entries in names, with the arguments from which they were computed.
        self.shortened: list[tuple[list[Poly], list[list[Poly]]]] = []
        self._naming = names
        self._names: dict[tuple[int, ...], tuple[int, int, Poly]] = {}  # by pivot
        self._pivots: list[tuple[int, ...]] = []
        self._named: set[int] = set()  # symbols
        self._sums: dict[int, Poly] = {}  # of these, sums of others
        for node in nodes:
            self._of[node.number] = self._read(node)
            for arg in node.args:
                if self._last.get(arg.number) == node.number:
                    self._of.pop(arg.number, None)

    @property
    def told(self) -> Entries:
        """Entries of the declared outputs, not abbreviated."""
        if not self._named:
            return self
        if self._long is None:
            self._long = Entries(self.world, [one.node for one in self.world.outputs])
        return self._long

    def of(self, node: Node) -> list[Poly]:
        """Polynomials of a node's entries, flattened."""
        return self._of[node.number]

    def _read(self, node: Node) -> list[Poly]:
        args, p = [self._of[arg.number] for arg in node.args], self.p
        if node.op == "public":
            return [{(): int(x) % p} if int(x) % p else {} for x in node.data.flat]
        if node.op == "sum":
            return self._short(node, self._sum(args, node.data), args)
        if node.op == "weigh":
            pairs = zip(args[0], node.data.flat, strict=True)
            return [self.times(a, {(): int(w)}) for a, w in pairs]
        if node.op == "index":
            return [dict(args[0][i]) if i >= 0 else {} for i in node.data.reshape(-1).tolist()]
        if node.op == "matmul":
            return self._short(node, self._product(node, args), args)
        return self._symbols(node, args)

    def _short(self, node: Node, polys: list[Poly], args: list[list[Poly]]) -> list[Poly]:
        """Entries of a node, long products replaced by names; _LongError if none may be named."""
        if self._naming is None and max(map(len, polys), default=0) > MANY:
            raise _LongError
        if not self._naming:
            return polys
        found = [self._by_names(node, poly) for poly in polys]
        if any(one is not poly for one, poly in zip(found, polys, strict=True)):
            self.shortened.append((found, args))
        return found

    def _by_names(self, node: Node, poly: Poly) -> Poly:
        """An equal polynomial whose products are named."""
        left = {m: c for m, c in poly.items() if len(m) > 1 or (m[:1] and m[0] in self._named)}
        if not left:
            return poly
        found, names = {m: c for m, c in poly.items() if m not in left}, self._names
        todo = [names[m] for m in left.keys() & names.keys()]
        heapq.heapify(todo)
        while todo:  # in the order of names: what a name stands for has no earlier pivot in it
            number, symbol, known = heapq.heappop(todo)
            factor = left.get(self._pivots[number])
            if not factor:
                continue
            found[symbol,] = factor
            for m, c in known.items():
                value = (left.get(m, 0) - factor * c) % self.p
                if value and m not in left and m in names:
                    heapq.heappush(todo, names[m])
                if value:
                    left[m] = value
                else:
                    left.pop(m, None)
        if left:
            pivot = max(left, key=lambda m: (len(m), m))
            symbol, c = len(self.atom_of), left[pivot]
            known = self.times(left, {(): pow(c, -1, self.p)})
            names[pivot] = len(names), symbol, known
            self._pivots.append(pivot)
            self._named.add(symbol)
            if len(pivot) == 1:
                self._sums[symbol] = known
            self.atom_of.append(len(self.atoms))
            self.atoms.append(Atom(node, symbol, 1, [[known]], "named"))
            found[symbol,] = c
        return found

    def _sum(self, args: list[list[Poly]], factors: Sequence[int]) -> list[Poly]:
        found: list[Poly] = []
        for terms in zip(*args, strict=True):
            total: Poly = {}
            for poly, factor in zip(terms, factors, strict=True):
                for monomial, c in poly.items():
                    total[monomial] = total.get(monomial, 0) + factor * c
            found.append({m: c % self.p for m, c in total.items() if c % self.p})
        return found

    def _product(self, node: Node, args: list[list[Poly]]) -> list[Poly]:
        (rows, inner), columns = node.args[0].shape, node.args[1].shape[1]
        found = []
        for i in range(rows):
            for j in range(columns):
                total: Poly = {}
                for t in range(inner):
                    product = self.times(args[0][i * inner + t], args[1][t * columns + j])
                    total = self.plus(total, product)
                found.append(total)
        return found

    def _symbols(self, node: Node, args: list[list[Poly]]) -> list[Poly]:
        key: Any = ("leaf", node.number)
        args = [list(map(self.unfolded, arg)) for arg in args] if self._sums else args
        if node.op == "map":
            call, place, kind = node.data
            frozen = tuple(tuple(frozenset(q.items()) for q in arg) for arg in args)
            key = ("map", call.identity, place, kind[0], str(kind[1]), node.shape, frozen)
        elif node.op == "prf":
            key = ("prf", self.key_atom(node.args[0]).base, node.data)
        elif node.op == "agreed":
            pair = node.args[0], node.args[1].args[0]
            use, ends = node.data or ((), (0, 0))
            bases = (self.key_atom(one).base for one in pair)
            key = ("agreed", frozenset(zip(bases, ends, strict=True)), use)
        if key not in self._same:
            made = Atom(node, len(self.atom_of), math.prod(node.shape), args)
            self._same[key] = made
            self.atom_of.extend([len(self.atoms)] * made.size)
            self.atoms.append(made)
        atom = self._same[key]
        if node.op == "prf" and (atom.node.shape, atom.node.kind) != (node.shape, node.kind):
            raise Refused("one key and label in two shapes")
        if node.op == "prf" and atom.deps[1:] != args[1:]:
            both = " and in ".join(dict.fromkeys(map(self._first_with, (atom.node, node))))
            raise Refused(
                f"one key, {node.args[0].name}, and one label with two protected parts, in {both}: "
                "who sees both learns whether the parts are equal"
            )
        seed = node.data is None
        if node.op == "prf" and self._seeds.setdefault(key[1], seed) != seed:
            raise Refused("a seed of one stream has labels beside it")
        self.by_node[node.number] = atom
        return [{(atom.base + i,): 1} for i in range(atom.size)]

    def _first_with(self, node: Node) -> str:
        """The first message that is made of a node, in words."""
        for message in self.world.messages:
            if node in _behind(part.node for part in message.parts):
                return str(message)
        return "no message"

    def unfolded(self, poly: Poly) -> Poly:
        """A polynomial with each name of a sum of names replaced by that sum."""
        while True:
            some = [m[0] for m in poly if len(m) == 1 and m[0] in self._sums]
            if not some:
                return poly
            poly = dict(poly)
            for symbol in some:
                poly = self.plus(poly, self._sums[symbol], poly.pop((symbol,), 0))

    def key_atom(self, node: Node) -> Atom:
        """Key at a node: a leaf, an agreed or a derived key; raises Refused for any other node."""
        if node.op not in ("key", "agreed") and (node.op, node.kind) != ("prf", "key"):
            raise Refused(f"a stream under {node.op} {node.name}, which is no key")
        return self.by_node[node.number]

    def atom(self, symbol: int) -> Atom:
        """Atom (array of unknowns) to which a symbol (one unknown) belongs."""
        return self.atoms[self.atom_of[symbol]]

    def plus(self, one: Poly, other: Poly, factor: int = 1) -> Poly:
        """Polynomial one + factor * other."""
        total = dict(one)
        for monomial, c in other.items():
            value = (total.get(monomial, 0) + factor * c) % self.p
            if value:
                total[monomial] = value
            else:
                total.pop(monomial, None)
        return total

    def times(self, one: Poly, other: Poly) -> Poly:
        """Product of two polynomials."""
        total: Poly = {}
        for a, v in one.items():
            for b, w in other.items():
                monomial = tuple(sorted(a + b))
                value = (total.get(monomial, 0) + v * w) % self.p
                if value:
                    total[monomial] = value
                else:
                    total.pop(monomial, None)
        return total

    def put(self, poly: Poly, symbol: int, by: Poly) -> Poly:
        """A polynomial with `symbol` replaced by the polynomial `by`."""
        total = {m: c for m, c in poly.items() if symbol not in m}
        for monomial in poly.keys() - total.keys():
            product: Poly = {(): poly[monomial]}
            for one in monomial:
                product = self.times(product, by if one == symbol else {(one,): 1})
            total = self.plus(total, product)
        return total


def faithful(entries: Entries) -> None:
    """Compare the trace with the run: recompute functions, and every message from inputs and draws.

    Raises Refused if a value differs; the message names it.
    """
    world = entries.world
    p: int = entries.p
    values: dict[int, int] = {}
    ran: dict[int, Any] = {}  # a call with many results is run once

    def evaluated(poly: Poly) -> int:
        total = 0
        for monomial, c in poly.items():
            for symbol in monomial:
                c = c * values[symbol] % p
            total += c
        return total % p

    for atom in entries.atoms:
        if atom.kind == "named":
            values[atom.base] = evaluated(atom.deps[0][0])
        elif atom.node.kind in ("field", "key") and atom.kind != "public key":
            flat = np.asarray(atom.node.value).reshape(-1)
            values.update({atom.base + i: int(x) for i, x in enumerate(flat.tolist())})

    def value(node: Node) -> Any:
        if node.kind != "field":
            return entries.by_node[node.number].node.value
        flat = list(map(evaluated, entries.of(node)))
        array = np.array(flat, dtype=object).astype(world.field.dtype)
        return array.reshape(node.shape)

    from securevfl.verified.values import fitted

    for node in world.nodes:
        if node.op == "map":
            call, place, kind = node.data
            if id(call) not in ran:
                ran[id(call)] = call.run([value(one) for one in call.nodes])
            found = ran[id(call)]
            found = fitted(found if place is None else found[place], node.shape, kind)
            if not functions.same(found, node.value):
                raise Refused(f"{call.title} gives another result when it is run again")
        plain = node.value is not None and node.kind != "model"
        if plain and not functions.same(value(node), node.value):
            raise Refused(f"{node.op} {node.name}: one block with two values")
    for message in world.messages:
        for part in message.parts:
            if not functions.same(value(part.node), part.value):
                raise Refused(f"{message}: what left is not what the trace says")
    for output in world.outputs:
        if not functions.same(value(output.node), output.value):
            raise Refused(f"output {output.name} is not what the trace says")
    for one, other, why in world.equal:
        if entries.of(one) != entries.of(other):
            raise Refused(f"{why}: not the key that it seems to be")
    if world.faults:
        raise Refused(world.faults[0])


def _behind(nodes: Iterable[Node]) -> list[Node]:
    """Nodes with all that they are made of, in the order of the trace."""
    found: dict[int, Node] = {}
    todo = list(nodes)
    while todo:
        node = todo.pop()
        if node.number not in found:
            found[node.number] = node
            todo.extend(node.args)
    return [found[number] for number in sorted(found)]


class Checker:
    """Check of one claim on one trace."""

    def __init__(self, entries: Entries, coalition: Iterable[int], outputs: Sequence[Output]):
        self.e, self.world = entries, entries.world
        self.coalition = frozenset(coalition)
        self.told = outputs
        self.outputs = [poly for out in outputs for poly in entries.of(out.node)]
        self.outputs += map(entries.unfolded, self.outputs[:] if entries.shortened else ())
        self.moved: dict[int, Poly] = {}
        self.fresh: set[int] = set()
        self.given: set[int] = set()  # bases of atoms
        self.hidden: set[int] = set()  # bases of keys whose streams are uniform
        self.secret: set[int] = set()  # bases of secret keys that hidden ones were agreed with
        self.have: dict[int, bool] = {}  # symbols
        self.computed: set[int] = set()  # bases of atoms, all symbols of which the coalition has
        self.shortened: set[int] = set()  # of `Entries.shortened`, what it has
        self.releases = 0
        self._rising: list[tuple[int, int]] = []  # moved tapes, with the latest symbol of each
        self._next = len(entries.atom_of)
        self._calls = 0  # of `has`, one in the other
        self.rows: list[list[Poly]] = []
        #: Row, entry and monomial of each place of a symbol, so that a move touches these alone.
        self.where: dict[int, set[tuple[int, int, tuple[int, ...]]]] = {}
        self.receive()

    def receive(self) -> None:
        """Read all messages to the coalition from others that it can open."""
        parts = (
            part
            for message in self.world.messages
            if message.sender not in self.coalition
            and (message.to is None or message.to in self.coalition)
            for part in message.parts
            if part.holder is None or part.holder in self.coalition
        )
        self.rows = [[dict(self.e.unfolded(q)) for q in self.e.of(part.node)] for part in parts]
        for r, row in enumerate(self.rows):
            for i, poly in enumerate(row):
                for monomial in poly:
                    for symbol in monomial:
                        self.where.setdefault(symbol, set()).add((r, i, monomial))

    # -- steps -------------------------------------------------------------------------------

    def apply(self, step: Any) -> None:
        """Check a step of the certificate, then apply it.

        Raises
        ------
        Refused
            If the step is not allowed at this place of the proof.
        """
        atom = self.e.by_node.get(step.node)
        if atom is None:
            raise Refused(f"{step.what}: node {step.node} is no block")
        if step.what == "move":
            self._moves(step, atom)
        elif step.what == "give":
            drawn = atom.kind in ("key", "agreed", "uniform") or self._uniform(atom)
            if not drawn or atom.base in self.hidden | self.secret:
                raise Refused(f"give: {atom.node.name} is not drawn, or was taken for hidden")
            if any(atom.base + i in self.moved for i in range(atom.size)):
                raise Refused(f"give: {atom.node.name} was moved")
            self.given.add(atom.base)
        elif step.what == "prf":
            self._hide(atom)
        elif step.what == "release":
            if atom.kind != "release":
                raise Refused("release: not what a mechanism made")
            if atom.base not in self.given:
                self.releases += 1
            self.given.add(atom.base)
        else:
            raise Refused(f"an unknown step {step.what}")

    def _moves(self, step: Any, atom: Atom) -> None:
        if step.part is None or not 0 <= step.part < len(self.rows):
            raise Refused("move: no such part")
        row = self.rows[step.part]
        if len(step.entries) != len(step.places):
            raise Refused("move: entries and places must be pairs")
        if atom.kind not in ("uniform", "prf") or atom.node.owner in self.coalition:
            raise Refused(f"move: {atom.node.name} is no tape that the coalition lacks")
        if atom.node.kind != "field":
            raise Refused(f"move: {atom.node.name} is no array of uniform elements")
        if atom.kind == "prf" and not self._uniform(atom):
            raise Refused(f"move: the key of {atom.node.name} was not shown to be hidden")
        for entry, place in zip(step.entries, step.places, strict=True):
            if not (0 <= entry < len(row) and 0 <= place < atom.size):
                raise Refused("move: no such entry")
            self._move(step.part, entry, atom.base + place, atom)

    def _move(self, part: int, entry: int, t: int, atom: Atom) -> None:
        poly, p = self.rows[part][entry], self.e.p
        c = poly.get((t,), 0)
        rest = {m: v for m, v in poly.items() if m != (t,)}
        said = f"{atom.node.name}[{t - atom.base}]"
        if t in self.moved or atom.base in self.given or not c:
            raise Refused(f"move: {said} does not stand alone in entry {entry} of part {part}")
        if self._reaches((s for m in rest for s in m), {t}):
            raise Refused(f"move: the rest of entry {entry} of part {part} depends on {said}")
        s, self._next = self._next, self._next + 1
        self.fresh.add(s)
        inverse = pow(c, -1, p)
        self.moved[t] = self.e.plus({(s,): inverse}, rest, -inverse)
        latest = max((x for m in rest for x in m if x not in self.fresh), default=t)
        if latest > t:
            self._rising.append((t, latest))
        for r, i, monomial in list(self.where.get(t, ())):
            there = self.rows[r][i]
            factor = there[monomial]
            others = tuple(one for one in monomial if one != t)
            product = self.moved[t]
            for _ in range(len(monomial) - len(others) - 1):
                product = self.e.times(product, self.moved[t])
            self._set(r, i, monomial, 0)
            for m, v in product.items():
                if others:
                    m = tuple(sorted(m + others))
                self._set(r, i, m, (there.get(m, 0) + v * factor) % p)

    def _set(self, row: int, entry: int, monomial: tuple[int, ...], c: int) -> None:
        """Set the coefficient of a monomial in a received entry."""
        poly = self.rows[row][entry]
        if c and monomial not in poly:
            for symbol in monomial:
                self.where.setdefault(symbol, set()).add((row, entry, monomial))
        if c:
            poly[monomial] = c
        elif poly.pop(monomial, None) is not None:
            for symbol in monomial:
                self.where[symbol].discard((row, entry, monomial))

    def _hide(self, key: Atom) -> None:
        """Raise Refused unless received values depend on a key only through its PRF streams."""
        derived = key.node.kind == "key" and self._uniform(key)
        if not (derived or key.kind in ("key", "agreed")) or key.base in self.given:
            raise Refused(f"prf: {key.node.name} is no key, or was given")
        roots = self._secret_keys(key) if key.kind == "agreed" else [key]
        for one in roots:
            if one.node.owner in self.coalition or one.base in self.given:
                raise Refused(f"prf: the coalition has {one.node.name}")
        hidden = {a.base + i for a in (key, *roots) for i in range(a.size)}
        every = (s for row in self.rows for poly in row for m in poly for s in m)
        if self._reaches(every, hidden, key.base, halves=key.kind == "key"):
            raise Refused(f"prf: what was received depends on {key.node.name} itself")
        self.hidden.add(key.base)
        self.secret |= {one.base for one in roots}

    def _key(self, atom: Atom) -> Atom:
        return self.e.key_atom(atom.node.args[0])

    def _uniform(self, atom: Atom) -> bool:
        """Whether an atom is a stream of a hidden key: uniform, and independent of all else."""
        return atom.kind == "prf" and self._key(atom).base in self.hidden

    def _secret_keys(self, atom: Atom) -> list[Atom]:
        own, other = atom.node.args
        return [self.e.key_atom(own), self.e.key_atom(other.args[0])]

    def _reaches(
        self, symbols: Iterable[int], targets: set[int], skip: int = -1, *, halves: bool = False
    ) -> bool:
        """Whether symbols depend on targets, through functions, moved values or stream keys.

        Streams under the key `skip` do not count as dependent on it, but on the protected parts of
        their labels. Agreed and public keys do not count as dependent on secret keys: that is the
        assumption on key agreement. The assumption does not cover a secret key that is also a PRF
        key; for this case `halves` counts them.
        """
        first = self._first(min(targets))
        todo, seen, atoms = list(symbols), set(), set()
        while todo:
            one = todo.pop()
            if one < first or one in seen:
                continue
            seen.add(one)
            if one in targets:
                return True
            if one in self.fresh:
                continue
            if one in self.moved:
                todo.extend(s for m in self.moved[one] for s in m)
                continue
            atom = self.e.atom(one)
            if atom.base in atoms:
                continue
            atoms.add(atom.base)
            if atom.kind == "prf":
                key = self._key(atom)
                if key.base in self.hidden:
                    continue
                if key.base != skip:
                    todo.extend(range(key.base, key.base + key.size))
                todo.extend(s for arg in atom.deps[1:] for q in arg for m in q for s in m)
            elif halves or atom.kind not in ("agreed", "public key"):
                todo.extend(s for arg in atom.deps for q in arg for m in q for s in m)
        return False

    def _first(self, target: int) -> int:
        """First symbol that may depend on a given symbol or a later one.

        Atoms depend only on earlier atoms. So nothing before the symbol depends on it, except
        through a moved random value that now represents something later.
        """
        first = target
        while True:
            before = min((t for t, latest in self._rising if latest >= first), default=first)
            if before >= first:
                return first
            first = before

    # -- the end -----------------------------------------------------------------------------

    def finish(self) -> None:
        """Check that all received values are functions of outputs and the coalition's own values.

        Raises Refused if an entry is no such function, or an output depends on a draw; the message
        names the first.
        """
        seen: set[int] = set()
        for output in self.told:
            drawn = self._drawn(output.node, seen)
            if drawn:
                raise Refused(f"an output depends on {drawn}: it is no function of inputs")
        for t in reversed(list(self.moved)):  # a move's rest has later moves in it
            self.moved[t] = self._settled(self.moved[t])
        before = -1
        while True:
            self.have = {s: True for s, found in self.have.items() if found}
            self._echelon()
            self.have = {s: True for s, found in self.have.items() if found}
            left = [
                (r, i)
                for r, row in enumerate(self.rows)
                for i, poly in enumerate(row)
                if not self._spanned(poly)
            ]
            if not left:
                return
            before, last = sum(self.have.values()) + len(self.shortened), before
            if before == last:
                raise Refused(
                    f"entry {left[0][1]} of part {left[0][0]} is no function of outputs and of "
                    "what the coalition has"
                )

    def _drawn(self, node: Node, seen: set[int]) -> str:
        """Name of a random leaf behind a node that the coalition does not have; "" if none.

        Nodes in `seen` were examined before, and depend on no such leaf.
        """
        todo = [node]
        while todo:
            one = todo.pop()
            if one.number in seen:
                continue
            seen.add(one.number)
            paid = one.op == "release" and (
                self.e.by_node[one.number].base in self.given or one.owner in self.coalition
            )
            if one.op in DRAWN and not paid:
                return one.name or one.op
            todo.extend(one.args)
        return ""

    def has(self, symbol: int) -> bool:
        """Whether the coalition can compute a symbol."""
        if symbol in self.fresh:
            return True
        if symbol not in self.have:
            if self._calls >= MOST_CALLS:
                calls, self._calls = self._calls, 0
                for one in in_order(symbol, self._below):
                    self.has(one)
                self._calls = calls
            self._calls += 1
            self.have[symbol] = False
            self.have[symbol] = self._has(symbol)
            self._calls -= 1
        return self.have[symbol]

    def _below(self, symbol: int) -> set[int]:
        """Symbols that a symbol is computed from and that are not yet examined."""
        moved = self.moved.get(symbol)
        polys = [q for arg in self.e.atom(symbol).deps for q in arg] if moved is None else [moved]
        return {s for q in polys for m in q for s in m} - self.have.keys() - self.fresh

    def _has(self, symbol: int) -> bool:
        if symbol in self.moved:
            return all(self.has(s) for m in self.moved[symbol] for s in m)
        atom = self.e.atom(symbol)
        if atom.base in self.computed or self._computes(atom):
            self.computed.add(atom.base)
            return True
        own = atom.kind in ("prf", "agreed", "uniform", "key", "release")
        return not own and self._spanned({(symbol,): 1})

    def _computes(self, atom: Atom) -> bool:
        """Whether the coalition can compute an atom's symbols from the atom's arguments.

        Once it can it always can, so the answer is kept for the atom's other symbols.
        """
        if atom.base in self.given or atom.kind == "public key":
            return True
        if atom.kind in ("secret", "uniform", "key", "release"):
            return atom.node.owner in self.coalition
        if atom.kind == "prf":
            known = all(self._spanned(q) for arg in atom.deps[1:] for q in arg)
            return known and self._has_key(self._key(atom))
        if atom.kind == "agreed":
            return any(map(self._has_key, self._secret_keys(atom)))
        return all(self._spanned(q) for arg in atom.deps for q in arg)

    def _has_key(self, key: Atom) -> bool:
        return key.base in self.given or self.has(key.base)

    def _settled(self, poly: Poly) -> Poly:
        """A polynomial after all moves of random symbols."""
        while True:
            gone = next((s for m in poly for s in m if s in self.moved), None)
            if gone is None:
                return poly
            poly = self.e.put(poly, gone, self.moved[gone])

    def _beyond(self, poly: Poly) -> Poly:
        if all(s in self.fresh or self.have.get(s) for m in poly for s in m):
            return {}
        poly = self._settled(poly)
        return {m: c for m, c in poly.items() if not all(map(self.has, m))}

    def _echelon(self) -> None:
        self.basis = {}
        for output in self.outputs:
            self._tell(output)
        for number, (polys, args) in enumerate(self.e.shortened):
            if number in self.shortened or all(self._spanned(q) for arg in args for q in arg):
                self.shortened.add(number)
                for poly in polys:
                    self._tell(poly)

    def _tell(self, poly: Poly) -> None:
        """Add a polynomial, whose value the coalition has, to the echelon basis of such ones."""
        left = self._reduced(self._beyond(poly))
        if left:
            pivot = min(left)
            scaled = self.e.times(left, {(): pow(left[pivot], -1, self.e.p)})
            self.basis[pivot] = len(self.basis), pivot, scaled

    basis: dict[tuple[int, ...], tuple[int, tuple[int, ...], Poly]]

    def _reduced(self, poly: Poly) -> Poly:
        todo = [self.basis[m] for m in poly.keys() & self.basis.keys()]
        heapq.heapify(todo)
        while todo:  # in the order in which they were found: each names none of the earlier pivots
            _, pivot, known = heapq.heappop(todo)
            if pivot in poly:
                poly = self.e.plus(poly, known, -poly[pivot])
                for m in known.keys() & self.basis.keys() & poly.keys():
                    heapq.heappush(todo, self.basis[m])
        return poly

    def _spanned(self, poly: Poly) -> bool:
        return not self._reduced(self._beyond(poly))


class Given(Checker):
    """Values that a coalition can compute from its inputs, outputs and releases alone.

    `Checker.finish` ensures that outputs are computed from no release that is not given.
    """

    def __init__(self, entries: Entries, coalition: Iterable[int], outputs: Sequence[Output]):
        super().__init__(entries, coalition, outputs)
        self.given |= {atom.base for atom in entries.atoms if atom.kind == "release"}
        for _ in range(2):  # functions of outputs may be in outputs
            self._echelon()
            self.have = {s: True for s, found in self.have.items() if found}

    def receive(self) -> None:
        """Do nothing: received values do not count here."""

    def spanned(self, poly: Poly) -> bool:
        """Whether a polynomial is a function of the values that are given."""
        return self._spanned(poly)


def check(
    world: Trace,
    coalition: Iterable[int],
    outputs: Sequence[Output],
    steps: Sequence[Any],
    entries: Entries | None = None,
) -> tuple[str | None, int]:
    """Reason for which the certificate `steps` fails (None: it holds), and releases it counts."""
    try:
        if entries is None:
            entries = Entries(world)
            faithful(entries)
        checker = Checker(entries, coalition, outputs)
        for step in steps:
            checker.apply(step)
        checker.finish()
    except Refused as why:
        return str(why), 0
    except (SecureVFLError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        return f"the check ended in {type(error).__name__}: {error}", 0
    return None, checker.releases
