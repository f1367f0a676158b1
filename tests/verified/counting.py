"""Random programs over F_2, F_3 and F_5, and whether they leak, by counting in their semantics.

Every expression is written twice: with protected values, and as a function of an enumeration of all
inputs, tapes and streams. Whether the coalition's view has the same distribution for all inputs
with equal outputs is counted, with the functions that were drawn. No form is looked at.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from securevfl.verified import SERVER, FlowError, World, concatenate, decide
from securevfl.verified.trace import received

ENTRIES = {2: 11, 3: 7, 5: 4}
SHAPES = [(2, 2), (2, 1), (1, 2), (1, 1), (2, 1), (1, 1)]


def table(*arrays, seed, p, shape):
    """A function drawn by a seed: its value at the number that its arguments make."""
    code, size = 0, 1
    for array in arrays:
        for digit in array.reshape(-1).tolist():
            code, size = code * p + digit, size * p
    values = np.random.default_rng([seed, p]).integers(0, p, (size, *shape))
    return values[code].astype(np.uint32)


def table_of_all(arrays, seed, p, shape):
    """The same function on arrays of all cases, (cases, *shape) each."""
    code, size = np.zeros(len(arrays[0]), np.int64), 1
    for array in arrays:
        for digit in array.reshape(len(array), -1).T:
            code, size = code * p + digit, size * p
    return np.random.default_rng([seed, p]).integers(0, p, (size, *shape))[code]


@dataclass
class Leaf:
    value: Any
    role: str
    owner: int
    place: Any  # of a tag its answers in all cases
    shape: tuple[int, int]
    key: int = -1

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]


class Case:
    """One random program, with `tags` also of answers of a key to values, which may be shown."""

    def __init__(self, seed: Any, tags: bool = False) -> None:
        self.rng = rng = random.Random(repr(seed))
        self.p = p = rng.choice([2, 2, 3, 3, 5])
        self.world = World(p)
        self.parties = {n: self.world.party(n) for n in (0, 1, SERVER)}
        self.leaves: list[Leaf] = []
        self.used = 0
        self.keys: list[Any] = []
        self.rows: list[tuple[Any, Any]] = []
        self.opened: set[int] = set()
        for owner in (0, 1, *([rng.choice([0, SERVER])] if rng.random() < 0.3 else [])):
            self.leaf("secret", owner)
        for _ in range(rng.choice([1, 2, 2, 3, 3])):
            self.leaf("tape", rng.choice([0, 1, 0, 1, 0, 1, SERVER]))
        if rng.random() < 0.4:
            self.keys.append(self.parties[0].key())
            for _ in range(rng.choice([1, 2])):
                self.leaf("stream", 0)
        self.tables: dict[int, int] = {}  # by label: where a table of all answers begins
        self.tag_key = self.parties[0].key()
        for label in range(rng.choice([1, 2]) if tags else 0):
            if self.used + p <= ENTRIES[p]:
                self.tables[label] = self.used
                self.used += p
        cases = p**self.used
        code = np.arange(cases)
        self.every = np.empty((cases, self.used), np.int64)
        for column in range(self.used):
            self.every[:, column] = code % p
            code //= p

    def tag(self, label: int) -> None:
        """The answer of a key to a label and one entry: by a table that was drawn, (cases, p)."""
        value, all_of = self.total(self.leaves, 0, self.rng.choice([1, 2, 3]))
        value, all_of = value[:1, :1], all_of[:, :1, :1]
        made = self.parties[0].prf(self.tag_key, label, 1, 1, of=[value])
        at = self.tables[label] + all_of.reshape(-1)
        answer = self.every[np.arange(len(at)), at].reshape(-1, 1, 1)
        self.leaves.append(Leaf(self.home(made), "tag", 0, answer, (1, 1), label))

    def leaf(self, role: str, owner: int) -> None:
        fit = [s for s in SHAPES if s[0] * s[1] <= ENTRIES[self.p] - self.used]
        if not fit:
            return
        shape = self.rng.choice(fit)
        if role == "secret":
            value = self.world.secret(owner, f"x{len(self.leaves)}", shape)
        elif role == "tape":
            value = self.parties[owner].uniform(*shape)
        else:
            label = len(self.leaves) if self.rng.random() < 0.8 else 0
            try:
                value = self.parties[0].prf(self.keys[0], label, *shape)
            except FlowError:
                return
            same = [one for one in self.leaves if one.role == "stream" and one.key == label]
            if same:  # the same stream again: the same entries
                place = same[0].place
                self.leaves.append(Leaf(self.home(value), role, owner, place, shape, label))
                return
            self.leaves.append(Leaf(self.home(value), role, owner, self.used, shape, label))
            self.used += shape[0] * shape[1]
            return
        self.leaves.append(Leaf(self.home(value), role, owner, self.used, shape))
        self.used += shape[0] * shape[1]

    def home(self, value: Any) -> Any:
        """A value that all parties have, so that any expression can be written."""
        return received(value, 0)

    def term(self, pool: list[Leaf], square: float) -> tuple[Any, Any]:
        one = self.seen(*self.read(self.rng.choice(pool)))
        if self.rng.random() < square:
            other = self.seen(*self.read(self.rng.choice(pool)))
            if one[0].shape[1] == other[0].shape[0]:
                return one[0] @ other[0], one[1] @ other[1] % self.p
            if one[0].shape == other[0].shape:
                return one[0] * other[0], one[1] * other[1] % self.p
        return one

    def read(self, leaf: Leaf) -> tuple[Any, Any]:
        if leaf.role == "tag":
            return leaf.value, leaf.place
        columns = self.every[:, leaf.place : leaf.place + leaf.size]
        return leaf.value, columns.reshape(-1, *leaf.shape)

    def seen(self, value: Any, all_of: Any) -> tuple[Any, Any]:
        """A value behind a public linear map."""
        rng = self.rng
        if rng.random() < 0.3:
            n = value.shape[0]
            chosen = [rng.randrange(-n, n) for _ in range(rng.choice([1, n]))]
            value, all_of = value.rows(chosen), all_of[:, chosen]
        if rng.random() < 0.25:
            value, all_of = value.T, np.swapaxes(all_of, 1, 2)
        if rng.random() < 0.2:
            matrix = self.numbers(rng.choice([1, 2]), value.shape[0])
            value, all_of = matrix @ value, matrix @ all_of % self.p
        if rng.random() < 0.15:
            w = self.numbers(*value.shape)
            value, all_of = w * value, w * all_of % self.p
        if rng.random() < 0.1:
            r, c = value.shape
            value, all_of = value.reshape(c, r), all_of.reshape(-1, c, r)
        return value, all_of

    def numbers(self, rows: int, columns: int) -> Any:
        """A public matrix."""
        return np.array([[self.rng.randrange(self.p) for _ in range(columns)] for _ in range(rows)])

    def total(self, pool: list[Leaf], square: float, terms: int) -> tuple[Any, Any]:
        value, all_of = self.term(pool, square)
        for _ in range(terms * 3):
            other, theirs = self.term(pool, square)
            c = self.rng.randrange(1, self.p)
            if other.shape == value.shape:
                value, all_of = value + c * other, (all_of + c * theirs) % self.p
                terms -= 1
            if terms <= 1:
                break
        if self.rng.random() < 0.2:
            value, all_of = value + 1, (all_of + 1) % self.p
        return value, all_of

    def function(self, parts: list[tuple[Any, Any]], shape: tuple[int, int]) -> tuple[Any, Any]:
        seed = self.rng.randrange(10**6)
        while sum(np.prod(v.shape) for v, _ in parts) * np.log(self.p) > np.log(10**6):
            parts = parts[:-1]
        if not parts:
            return self.term([leaf for leaf in self.leaves if leaf.role == "secret"], 0)
        import functools

        f = functools.partial(table, seed=seed, p=self.p, shape=shape)
        first, *others = parts
        value = first[0].map(f, *(v for v, _ in others), shape=shape)
        return value, table_of_all([a for _, a in parts], seed, self.p, shape)

    def write(self) -> None:
        """Messages and outputs."""
        rng = self.rng
        square = rng.choice([0, 0, 0.15, 0.4])
        for label in self.tables:
            self.tag(label if rng.random() < 0.9 else 0)
        for _ in range(rng.choice([1, 2, 2, 3, 3, 4])):
            self.rows.append(self.total(self.leaves, square, rng.choice([1, 2, 2, 3, 4])))
        if rng.random() < 0.4:
            self.rows.append(self.hashed(square))
        if rng.random() < 0.2 and len(self.rows) > 1:
            (a, x), (b, y) = self.rows[:2]
            if a.shape[1] == b.shape[1]:
                self.rows[:2] = [(concatenate([a, b]), np.concatenate([x, y], axis=1))]
        secrets = [leaf for leaf in self.leaves if leaf.role == "secret"]
        self.outputs = [
            self.total(secrets, rng.choice([0, 0.3]), rng.choice([1, 2, 3]))
            for _ in range(rng.choice([0, 1, 1, 2]))
        ]
        if self.outputs and rng.random() < 0.3:
            self.outputs.append(self.function([rng.choice(self.outputs)], (1, 1)))
        if self.outputs and rng.random() < 0.3:
            self.rows.append(self.function([rng.choice(self.outputs)], (1, 1)))
        if self.outputs and rng.random() < 0.3:
            self.rows.append(rng.choice(self.outputs))
        for value, _ in self.rows:
            self.parties[0].send(SERVER, "m", value)
        if self.keys and rng.random() < 0.3:
            self.parties[0].send(SERVER, "key", self.keys[0])
            self.opened.add(0)
        if self.tables and rng.random() < 0.2:
            self.parties[0].send(SERVER, "tag key", self.tag_key)
            self.opened.add(1)
        for number, (value, _) in enumerate(self.outputs):
            self.world.output(f"o{number}", value, alone=True)

    def hashed(self, square: float) -> tuple[Any, Any]:
        rng = self.rng
        shape = rng.choice([(2, 1), (1, 1), (1, 2), (2, 2)])
        parts = [rng.choice(self.rows)] if rng.random() < 0.5 else []
        parts += [self.term(self.leaves, 0) for _ in range(rng.choice([1, 2]))]
        value, all_of = self.function(parts, shape)
        masks = [one for one in self.leaves if one.role != "secret" and one.shape == value.shape]
        if masks and rng.random() < 0.7:
            mask, theirs = self.read(rng.choice(masks))
            return value + mask, (all_of + theirs) % self.p
        return value, all_of

    def private(self) -> bool | None:
        """Whether the view has one distribution for all inputs with equal outputs."""
        view = [a.reshape(len(a), -1) for _, a in self.rows]
        secrets, own = [], []
        for start in self.tables.values() if 1 in self.opened else ():
            view.append(self.every[:, start : start + self.p])
        for leaf in self.leaves:
            if leaf.role == "tag":
                continue
            columns = self.every[:, leaf.place : leaf.place + leaf.size]
            if leaf.role == "secret":
                secrets.append(columns)
            if leaf.owner == SERVER and leaf.role != "stream":
                view.append(columns)
                if leaf.role == "secret":
                    own.append(columns)
            if leaf.role == "stream" and 0 in self.opened:
                view.append(columns)
        outputs = [a.reshape(len(a), -1) for _, a in self.outputs] + own
        v, s = numbered(view), numbered(secrets)
        o = numbered(outputs) if outputs else np.zeros(len(v), np.int64)
        counts = Counter(zip(s.tolist(), v.tolist(), strict=True))
        by_secret: dict[int, dict[int, int]] = {}
        for (secret, seen), count in counts.items():
            by_secret.setdefault(secret, {})[seen] = count
        first: dict[int, dict[int, int]] = {}
        pairs = dict(zip(s.tolist(), o.tolist(), strict=True))
        return all(first.setdefault(pairs[k], found) == found for k, found in by_secret.items())


def numbered(columns: list[Any]) -> Any:
    """A number for each row, equal for equal rows."""
    whole = np.concatenate(columns, axis=1)
    return np.unique(whole, axis=0, return_inverse=True)[1].reshape(-1)


def judge(seed: Any, tags: bool = False) -> tuple[str, bool | None, Case, Any]:
    """A verdict, the truth, and the case."""
    case = Case(seed, tags)
    case.write()
    found = decide(case.world, {SERVER})
    return found.verdict, case.private(), case, found
