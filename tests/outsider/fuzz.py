"""Random programs: verdicts of `decide` against exact counting over all inputs and all tapes.

Written from the public documentation of `securevfl.verified` alone. A program is a list of steps.
It is run twice: by the parties of a `World`, and here, on arrays whose first axis runs over all
assignments of the variables (entries of secrets, of tapes, and of the streams of keys, which are
ideal: uniform and independent). A coalition's view is private if, among assignments of the secrets
that agree on the coalition's own secrets and on the outputs that it may have, the distribution of
the view over the rest is the same.

Run: ``python -m tests.outsider.fuzz --seed 1 --cases 1000 [--seconds 600]``.
"""

from __future__ import annotations

import argparse
import collections
import itertools
import json
import sys
import time
import traceback
from typing import Any

import numpy as np

from securevfl.verified import (
    FlowError,
    Judge,
    World,
    check,
    combination,
    concatenate,
    forms,
    stack,
)

BUDGET = {2: 12, 3: 8, 5: 5}  # variables: at most 4096, 6561, 3125 assignments
LINEAR = {"lin", "affine", "index", "T", "reshape", "sum", "concat", "stack", "left", "right"}


class VoidError(Exception):
    """A step that cannot be made: the generator draws another one."""


# ------------------------------------------------------------------------- functions for `map`
def table_each(values: Any, table: Any) -> Any:
    """Each entry by a table."""
    return table[np.asarray(values, dtype=np.int64)]


def table_real(values: Any, table: Any) -> Any:
    """Each real number by a table, of which it chooses the line by its whole part."""
    return table[np.floor(values).astype(np.int64) % len(table)]


def table_pair(values: Any, others: Any, table: Any) -> Any:
    """Each pair of entries by a table."""
    return table[np.asarray(values, dtype=np.int64), np.asarray(others, dtype=np.int64)]


def table_whole(values: Any, table: Any, modulus: int) -> Any:
    """The whole array, as one number, by a table with an array in each line."""
    number = 0
    for entry in np.asarray(values, dtype=np.int64).ravel():
        number = number * modulus + int(entry)
    return table[number]


# ---------------------------------------------------------------------------- the exact evaluator
class Exact:
    """Values have shape (assignments, *shape), entries in [0, p)."""

    def __init__(self, program: dict[str, Any], full: bool):
        self.p = program["p"]
        self.env: dict[str, Any] = {}
        self.messages: list[tuple[int, Any]] = []  # to whom (None: all), what
        self.secrets: list[tuple[int, Any]] = []
        self.tapes: list[tuple[int, Any]] = []
        self.streams: dict[tuple[Any, Any], Any] = {}
        self.outputs: list[tuple[str, Any, Any]] = []
        self.keys: list[tuple[int, Any]] = []  # made by whom, root
        self.splits: dict[str, tuple[Any, int]] = {}
        self.spent = 0
        self.full = full
        if full:
            self._count(program)

    def _count(self, program: dict[str, Any]) -> None:
        """Number the variables: secrets first, so that a row of secrets is a block."""
        first, second, seen = [], [], set()
        for step in program["steps"]:
            size = int(np.prod(step["shape"])) if "shape" in step else 0
            if step["op"] in ("secret", "real"):
                first += [(step["out"], i) for i in range(size)]
            elif step["op"] == "tape":
                second += [(step["out"], i) for i in range(size)]
            elif step["op"] == "prf":
                name = (step["root"], step["label"])
                if name not in seen:
                    seen.add(name)
                    second += [(name, i) for i in range(size)]
        self.place = {name: i for i, name in enumerate(first + second)}
        self.number = len(first) + len(second)
        self.rows = self.p ** len(first)
        self.n = self.p**self.number
        self.count = np.arange(self.n)

    def variable(self, name: Any, shape: Any) -> Any:
        size = int(np.prod(shape))
        if not self.full:
            self.spent += size
            if self.spent > BUDGET[self.p]:
                self.spent -= size
                raise VoidError
            return np.zeros((1, *shape), dtype=np.int64)
        out = np.empty((self.n, size), dtype=np.int64)
        for i in range(size):
            power = self.number - 1 - self.place[(name, i)]
            out[:, i] = self.count // self.p**power % self.p
        return out.reshape(self.n, *shape)

    def same(self, *ids: str) -> list[Any]:
        values = [self.env[i][1] for i in ids]
        if len({v.shape for v in values}) != 1:
            raise VoidError
        return values

    def step(self, step: dict[str, Any]) -> None:
        op, home = step["op"], step.get("home")
        args = [self.env[i] for i in step.get("args", ())]
        made = getattr(self, "op_" + op)(step, home, args)
        if "out" in step:
            self.env[step["out"]] = made

    # sources
    def op_secret(self, step: Any, home: Any, args: Any) -> Any:
        value = self.variable(step["out"], step["shape"])
        self.secrets.append((home, value))
        return ("field", value)

    def op_real(self, step: Any, home: Any, args: Any) -> Any:
        """Real numbers, of which the whole part counts, modulo p: `quant` reads no more."""
        return ("real", self.op_secret(step, home, args)[1])

    def op_quant(self, step: Any, home: Any, args: Any) -> Any:
        return self.op_each(step, home, args)

    def op_tape(self, step: Any, home: Any, args: Any) -> Any:
        value = self.variable(step["out"], step["shape"])
        self.tapes.append((home, value))
        return ("field", value)

    def op_key(self, step: Any, home: Any, args: Any) -> Any:
        self.keys.append((home, step["out"]))
        return ("key", step["out"])

    def op_agree(self, step: Any, home: Any, args: Any) -> Any:
        """Args: own key, key of the other (its public key was sent). The root is the pair."""
        return ("key", tuple(sorted((args[0][1], args[1][1]))))

    def op_prf(self, step: Any, home: Any, args: Any) -> Any:
        name = (step["root"], step["label"])
        if name not in self.streams:
            self.streams[name] = self.variable(name, step["shape"])
        value = self.streams[name]
        if value.shape[1:] != tuple(step["shape"]):
            raise VoidError
        return ("field", value)

    def op_split(self, step: Any, home: Any, args: Any) -> Any:
        self.splits[step["out"]] = (args[0][1], step["threshold"])
        return ("shares", step["out"])

    def op_share(self, step: Any, home: Any, args: Any) -> Any:
        return ("share", (args[0][1], step["point"]))

    def op_join(self, step: Any, home: Any, args: Any) -> Any:
        whole = {a[1][0] for a in args}
        if len(whole) != 1:
            raise VoidError
        root, threshold = self.splits[whole.pop()]
        if len({a[1][1] for a in args}) < threshold:
            raise VoidError
        return ("key", root)

    # linear
    def op_lin(self, step: Any, home: Any, args: Any) -> Any:
        values = self.same(*step["args"])
        return ("field", sum(c * v for c, v in zip(step["by"], values, strict=True)) % self.p)

    def op_affine(self, step: Any, home: Any, args: Any) -> Any:
        """Public constant and factor: by * x + plus, arrays of the shape of x."""
        factor, plus = np.array(step["by"]), np.array(step["plus"])
        if factor.shape != args[0][1].shape[1:]:
            raise VoidError
        return ("field", (factor * args[0][1] + plus) % self.p)

    def moved(self, value: Any, places: Any) -> Any:
        flat = value.reshape(value.shape[0], -1)
        return ("field", flat[:, places.ravel()].reshape(value.shape[0], *places.shape))

    def places(self, value: Any) -> Any:
        shape = value.shape[1:]
        return np.arange(int(np.prod(shape))).reshape(shape)

    def op_index(self, step: Any, home: Any, args: Any) -> Any:
        places = self.places(args[0][1])[decoded(step["key"])]
        if places.size == 0:
            raise VoidError
        return self.moved(args[0][1], np.asarray(places))

    op_rows = op_index

    def op_T(self, step: Any, home: Any, args: Any) -> Any:
        return self.moved(args[0][1], self.places(args[0][1]).T)

    def op_reshape(self, step: Any, home: Any, args: Any) -> Any:
        return self.moved(args[0][1], self.places(args[0][1]).reshape(step["to"]))

    def op_sum(self, step: Any, home: Any, args: Any) -> Any:
        value, axis = args[0][1], step["axis"]
        if axis is None:
            return ("field", value.reshape(value.shape[0], -1).sum(1) % self.p)
        if not 0 <= axis < value.ndim - 1:
            raise VoidError
        return ("field", value.sum(axis + 1) % self.p)

    def op_concat(self, step: Any, home: Any, args: Any) -> Any:
        values, axis = [a[1] for a in args], step["axis"]
        if len({v.ndim for v in values}) != 1 or axis + 1 >= values[0].ndim:
            raise VoidError
        return ("field", np.concatenate(values, axis + 1))

    def op_stack(self, step: Any, home: Any, args: Any) -> Any:
        return ("field", np.stack(self.same(*step["args"]), 1))

    def op_left(self, step: Any, home: Any, args: Any) -> Any:
        if args[0][1].ndim not in (2, 3):
            raise VoidError
        matrix = np.array(step["by"])
        name = "ij,nj->ni" if args[0][1].ndim == 2 else "ij,njk->nik"
        return ("field", np.einsum(name, matrix, args[0][1]) % self.p)

    def op_right(self, step: Any, home: Any, args: Any) -> Any:
        if args[0][1].ndim not in (2, 3):
            raise VoidError
        name = "nj,jk->nk" if args[0][1].ndim == 2 else "nij,jk->nik"
        return ("field", np.einsum(name, args[0][1], np.array(step["by"])) % self.p)

    # not linear
    def op_matmul(self, step: Any, home: Any, args: Any) -> Any:
        a, b = args[0][1], args[1][1]
        if a.ndim != 3 or b.ndim != 3:
            raise VoidError
        return ("field", np.einsum("nij,njk->nik", a, b) % self.p)

    def op_times(self, step: Any, home: Any, args: Any) -> Any:
        a, b = self.same(*step["args"])
        return ("field", a * b % self.p)

    def op_each(self, step: Any, home: Any, args: Any) -> Any:
        return ("field", np.array(step["table"])[args[0][1]])

    def op_pair(self, step: Any, home: Any, args: Any) -> Any:
        a, b = self.same(*step["args"])
        return ("field", np.array(step["table"])[a, b])

    def op_whole(self, step: Any, home: Any, args: Any) -> Any:
        flat = args[0][1].reshape(args[0][1].shape[0], -1)
        table = np.array(step["table"])
        number = np.zeros(flat.shape[0], dtype=np.int64)
        for i in range(flat.shape[1]):
            number = number * self.p + flat[:, i]
        if self.p ** flat.shape[1] != len(table):
            raise VoidError
        return ("field", table[number])

    # ciphertexts: (holder, plain)
    def op_encrypt(self, step: Any, home: Any, args: Any) -> Any:
        return ("sealed", (step["holder"], args[0][1]))

    def op_cadd(self, step: Any, home: Any, args: Any) -> Any:
        (h, a), (g, b) = args[0][1], args[1][1]
        if h != g or a.shape != b.shape:
            raise VoidError
        return ("sealed", (h, (a + b) % self.p))

    def op_decrypt(self, step: Any, home: Any, args: Any) -> Any:
        if args[0][1][0] != home:
            raise VoidError
        return ("field", args[0][1][1])

    def op_spec(self, step: Any, home: Any, args: Any) -> Any:
        return args[0]

    # messages
    def op_send(self, step: Any, home: Any, args: Any) -> Any:
        self.messages.append((step["to"], args[0]))
        return args[0]

    def op_record(self, step: Any, home: Any, args: Any) -> Any:
        self.messages.append((None, args[0]))

    def op_output(self, step: Any, home: Any, args: Any) -> Any:
        self.outputs.append((step["name"], step["to"], args[0][1]))

    # the decision
    def private(self, coalition: set[int]) -> bool:
        known, shares = set(), collections.defaultdict(set)
        known |= {root for home, root in self.keys if home in coalition}
        seen = [v for home, v in self.secrets + self.tapes if home in coalition]
        for to, (kind, value) in self.messages:
            if to is not None and to not in coalition:
                continue
            if kind == "field":
                seen.append(value)
            elif kind == "key":
                known.add(value)
            elif kind == "share":
                shares[value[0]].add(value[1])
            elif kind == "sealed" and value[0] in coalition:
                seen.append(value[1])
        while True:
            more = {
                self.splits[s][0]
                for s, points in shares.items()
                if len(points) >= self.splits[s][1]
            }
            if more <= known:
                break
            known |= more
        for (root, _), value in self.streams.items():
            if root in known or (isinstance(root, tuple) and any(r in known for r in root)):
                seen.append(value)
        told = [v for home, v in self.secrets if home in coalition]
        told += [v for _, to, v in self.outputs if to is None or set(to) & coalition]
        view = self.digest(seen).reshape(self.rows, -1)
        classes = self.digest(told).reshape(self.rows, -1)[:, 0]
        view.sort(axis=1)
        first: dict[int, int] = {}
        heads = np.array([first.setdefault(int(c), i) for i, c in enumerate(classes)])
        return bool((view == view[heads]).all())

    def digest(self, values: list[Any]) -> Any:
        """A 64-bit number of each assignment's entries; they collide with odds below 2^-30."""
        out = np.zeros(self.n, dtype=np.uint64)
        weights = np.random.default_rng(12345)
        for value in values:
            for column in value.reshape(self.n, -1).T:
                out += weights.integers(0, 2**64, size=self.p, dtype=np.uint64)[column]
        return out


def decoded(key: Any) -> Any:
    """A JSON index: {"s": [start, stop, step]}, {"f": [...]} or an integer, or a list of these."""
    if isinstance(key, list):
        return tuple(decoded(k) for k in key)
    if isinstance(key, dict):
        return slice(*key["s"]) if "s" in key else np.array(key["f"])
    return key


# ------------------------------------------------------------------------------ the run in a World
def traced(program: dict[str, Any]) -> World:
    p = program["p"]
    world = World(p)
    party = {i: world.party(i) for i in (-1, 0, 1, 2)}
    env: dict[str, Any] = {}
    publics: dict[tuple[str, int], Any] = {}
    paired = agreeing(program)

    def plain(x: Any) -> Any:
        return x if isinstance(x, int) else np.array(x, dtype=np.int64)

    for step in program["steps"]:
        op, home, data = step["op"], step.get("home"), step
        args = [env[i] for i in step.get("args", ())]
        who = party.get(home)
        made: Any = None
        if op == "secret":
            made = world.secret(home, step["out"], tuple(step["shape"]))
        elif op == "real":
            made = world.secret(home, step["out"], tuple(step["shape"]), real=True)
        elif op == "quant":
            made = args[0].map(table_real, plain(data["table"]), field=world.field)
        elif op == "tape":
            made = who.uniform(*step["shape"])
        elif op == "key":
            made = who.key()
            public = who.public_key(made) if step["out"] in paired else None
            if public is not None:
                who.record("public", public)
            for other in party if public is not None else ():
                publics[(step["out"], other)] = (
                    who.send(other, "public", public) if other != home else public
                )
        elif op == "agree":
            made = who.agree(args[0], publics[(step["base"], home)])
        elif op == "prf":
            made = who.prf(args[0], step["label"], *step["shape"])
        elif op == "split":
            made = who.split_key(args[0], step["threshold"], step["points"])
        elif op == "share":
            made = args[0][step["point"]]
        elif op == "join":
            made = who.join_key(dict(zip(step["points"], args, strict=True)))
        elif op == "lin":
            if step["style"] == 0:
                made = combination(list(zip(step["by"], args, strict=True)))
            else:
                made = args[0] * step["by"][0]
                for c, a in zip(step["by"][1:], args[1:], strict=True):
                    made = made + a if c == 1 else made - a if c == -1 else made + c * a
        elif op == "affine":
            made = plain(data["plus"]) + args[0] * plain(data["by"])
            if step["style"]:
                made = plain(data["by"]) * args[0] - (-plain(data["plus"]))
        elif op == "index":
            made = args[0][decoded(step["key"])]
        elif op == "rows":
            made = args[0].rows(step["key"]["f"])
        elif op == "T":
            made = args[0].T
        elif op == "reshape":
            made = args[0].reshape(*step["to"])
        elif op == "sum":
            made = args[0].sum(step["axis"])
        elif op == "concat":
            made = concatenate(args, axis=step["axis"])
        elif op == "stack":
            made = stack(args)
        elif op == "left":
            made = plain(data["by"]) @ args[0]
        elif op == "right":
            made = args[0] @ plain(data["by"])
        elif op == "matmul":
            made = args[0] @ args[1]
        elif op == "times":
            made = args[0] * args[1]
        elif op == "each":
            made = args[0].map(table_each, plain(data["table"]))
        elif op == "pair":
            made = args[0].map(table_pair, args[1], plain(data["table"]))
        elif op == "whole":
            table = plain(data["table"])
            made = args[0].map(table_whole, table, p, shape=table.shape[1:])
        elif op == "encrypt":
            made = who.encrypt(args[0], step["holder"])
        elif op == "cadd":
            made = args[0] + args[1]
        elif op == "decrypt":
            made = who.decrypt(args[0])
        elif op == "send":
            made = who.send(step["to"], step["kind"], args[0])
        elif op == "record":
            who.record(step["kind"], args[0])
        elif op == "output":
            world.output(step["name"], args[0], to=step["to"], alone=step["alone"])
        elif op == "spec":
            made = world.spec(args[0])
        else:
            raise AssertionError(op)
        if "out" in step:
            env[step["out"]] = made
    return world


# ---------------------------------------------------------------------------------- the generator
class Maker:
    """Draws one program. Pools hold what each party has; `spec` is the pool of the outputs."""

    def __init__(self, rng: Any):
        self.rng = rng
        self.p = int(rng.choice([2, 3, 5], p=[0.45, 0.35, 0.2]))
        self.program: dict[str, Any] = {"p": self.p, "steps": []}
        self.exact = Exact(self.program, full=False)
        self.pools: dict[Any, list[str]] = {i: [] for i in (-1, 0, 1, 2, "spec")}
        self.count = 0
        self.products = int(rng.choice([2, 2, 12]))

    def chance(self, q: float) -> bool:
        return bool(self.rng.random() < q)

    def pick(self, items: Any) -> Any:
        items = list(items)
        if not items:
            raise VoidError
        return items[int(self.rng.integers(len(items)))]

    def number(self) -> int:
        return int(self.rng.integers(-self.p, 2 * self.p + 1))

    def array(self, shape: Any, low: int | None = None) -> Any:
        if low is None:
            return self.rng.integers(-self.p, 2 * self.p + 1, size=shape).tolist()
        return self.rng.integers(low, self.p, size=shape).tolist()

    def of(self, home: Any, kind: str = "field") -> list[str]:
        return [i for i in self.pools[home] if self.exact.env[i][0] == kind]

    def value(self, home: Any, recent: float = 0.5) -> str:
        mine = self.of(home)
        if mine and self.chance(recent):
            return mine[-1 - int(self.rng.integers(min(3, len(mine))))]
        return self.pick(mine)

    def shape(self, i: str) -> tuple[int, ...]:
        return tuple(self.exact.env[i][1].shape[1:])

    def mate(self, home: Any, i: str) -> str:
        return self.pick(j for j in self.of(home) if self.shape(j) == self.shape(i))

    def add(
        self, op: str, home: Any, args: Any = (), into: Any = None, out: bool = True, **data: Any
    ) -> str:
        step = {"op": op, "home": home, "args": list(args), **data}
        name = f"v{self.count}"
        if out:
            step["out"] = name
        self.exact.step(step)
        if out and self.exact.env[name][0] == "field" and self.exact.env[name][1].size > 6:
            raise VoidError
        self.count += 1
        self.program["steps"].append(step)
        if out:
            self.pools[home if into is None else into].append(name)
        return name

    def small(self) -> list[int]:
        return self.pick([[1, 1], [1, 1], [1, 1], [2, 1], [1, 2], [2], [1], [2, 2], []])

    # what parties do
    def local(self, home: Any) -> str:
        """A value computed from values of one party, or of the outputs' pool."""
        if (real := self.of(home, "real")) and self.chance(0.3):
            return self.add("quant", home, [self.pick(real)], table=self.array(self.p, 0))
        a = self.value(home)
        shape = self.shape(a)
        op = self.pick(
            ["lin"] * 9
            + ["affine"] * 2
            + ["index"] * 2
            + ["rows", "T", "reshape", "sum", "concat", "stack", "left", "left", "right"]
            + ["matmul"] * self.products
            + ["times", "each", "each", "pair", "whole"]
        )
        if op == "lin":
            others = [self.mate(home, a) for _ in range(int(self.rng.integers(1, 3)))]
            by = [self.pick([1, 1, 1, -1, -1, self.number()]) for _ in range(len(others) + 1)]
            return self.add(op, home, [a, *others], by=by, style=int(self.chance(0.6)))
        if op == "affine":
            if not shape:
                raise VoidError
            return self.add(
                op,
                home,
                [a],
                by=self.array(shape),
                plus=self.array(shape),
                style=int(self.chance(0.5)),
            )
        if op == "index":
            if not shape:
                raise VoidError
            key: list[Any] = []
            for n in shape[: int(self.rng.integers(1, len(shape) + 1))]:
                kind = int(self.rng.integers(4))
                if kind == 0:
                    key.append(int(self.rng.integers(-n, n)))
                elif kind == 1 and not any(isinstance(k, dict) and "f" in k for k in key):
                    key.append({"f": self.rng.integers(-n, n, size=2).tolist()})
                else:
                    key.append(
                        {
                            "s": self.pick(
                                [
                                    [None, None, -1],
                                    [0, 1, None],
                                    [1, None, None],
                                    [None, None, 2],
                                    [-1, None, None],
                                ]
                            )
                        }
                    )
            return self.add(op, home, [a], key=key)
        if op == "rows":
            if not shape:
                raise VoidError
            some = self.rng.integers(-shape[0], shape[0], size=int(self.rng.integers(1, 4)))
            return self.add(op, home, [a], key={"f": some.tolist()})
        if op == "T":
            return self.add(op, home, [a])
        if op == "reshape":
            size = int(np.prod(shape))
            return self.add(
                op,
                home,
                [a],
                to=self.pick(
                    [[size], [1, size], [size, 1], [-1], [2, size // 2] if size % 2 == 0 else [-1]]
                ),
            )
        if op == "sum":
            return self.add(op, home, [a], axis=self.pick([None, *range(len(shape))]))
        if op in ("concat", "stack"):
            others = [self.mate(home, a)]
            more = {"axis": int(self.rng.integers(max(1, len(shape))))} if op == "concat" else {}
            return self.add(op, home, [a, *others], **more)
        if op == "left":
            if len(shape) != 2:
                raise VoidError
            return self.add(op, home, [a], by=self.array((int(self.rng.integers(1, 3)), shape[0])))
        if op == "right":
            if len(shape) != 2:
                raise VoidError
            return self.add(op, home, [a], by=self.array((shape[-1], int(self.rng.integers(1, 3)))))
        if op == "matmul":
            mates = [
                j
                for j in self.of(home)
                if len(shape) == 2 and len(self.shape(j)) == 2 and self.shape(j)[0] == shape[1]
            ]
            return self.add(op, home, [a, self.pick(mates)])
        if op == "times":
            return self.add(op, home, [a, self.mate(home, a)])
        if op == "each":
            return self.add(op, home, [a], table=self.array(self.p, 0))
        if op == "pair":
            return self.add(
                op, home, [a, self.mate(home, a)], table=self.array((self.p, self.p), 0)
            )
        size = int(np.prod(shape))
        if self.p**size > 32:
            raise VoidError
        to = self.pick([[], [1], [1, 1], [2], [1, 2], list(shape)])
        return self.add("whole", home, [a], table=self.array((self.p**size, *to), 0))

    def send(self, home: Any, i: str) -> None:
        if self.chance(0.08):
            self.add("record", home, [i], out=False, kind="event")
            return
        to = self.pick([j for j in (-1, -1, 0, 1, 2) if j != home])
        self.add("send", home, [i], into=to, to=to, kind="m")

    def masked(self, home: Any) -> str:
        """A value plus fresh uniform elements, or plus elements of a stream."""
        a = self.value(home)
        mask = (
            self.add("tape", home, shape=list(self.shape(a)))
            if self.chance(0.6)
            else (self.stream(home, list(self.shape(a))))
        )
        args = [a, mask] if self.chance(0.8) else [mask, a]
        return self.add("lin", home, args, by=[1, self.pick([1, -1, 1, self.number()])], style=1)

    def stream(self, home: Any, shape: list[int]) -> str:
        key = self.pick(self.of(home, "key"))
        root = self.exact.env[key][1]
        return self.add(
            "prf", home, [key], shape=shape, root=root, label=f"{int(self.rng.integers(2))}/{shape}"
        )

    def once(self) -> None:
        homes = [-1, 0, 0, 0, 1, 1, 1, 2, 2]
        home = self.pick(homes)
        what = self.pick(
            ["local"] * 10
            + ["send"] * 8
            + ["masked"] * 7
            + ["tape"] * 3
            + ["stream"] * 3
            + [
                "key",
                "sendkey",
                "agree",
                "agree",
                "encrypt",
                "cadd",
                "decrypt",
                "split",
                "shares",
                "join",
                "pairmask",
                "pairmask",
                "resend",
            ]
        )
        if what == "local":
            i = self.local(home)
            if self.chance(0.3):
                self.send(home, i)
        elif what == "send":
            self.send(home, self.value(home, 0.8))
        elif what == "masked":
            i = self.masked(home)
            if self.chance(0.85):
                self.send(home, i)
        elif what == "tape":
            self.add("tape", home, shape=self.small())
        elif what == "stream":
            self.stream(home, self.small())
        elif what == "key":
            self.add("key", home)
        elif what in ("sendkey", "encrypt", "cadd", "decrypt", "join", "shares", "split"):
            self.crypto(what, home)
        elif what == "agree":
            other = self.pick(j for j in homes if j != home)
            base = self.add("key", home)
            mate = self.add("key", other)
            # each names the other's key by its step: its public key was sent to all
            root = tuple(sorted((base, mate)))
            for mine, theirs, who in ((base, mate, home), (mate, base, other)):
                name = f"v{self.count}"
                step = {
                    "op": "agree",
                    "home": who,
                    "args": [mine],
                    "base": theirs,
                    "out": name,
                    "root": root,
                }
                self.exact.env[name] = ("key", root)
                self.count += 1
                self.program["steps"].append(step)
                self.pools[who].append(name)
        elif what == "pairmask":
            # two parties share a mask, and use it with opposite signs
            a = self.value(home)
            other, b = self.pick(
                [
                    (j, b)
                    for j in (0, 1, 2)
                    if j != home
                    for b in self.of(j)
                    if self.shape(b) == self.shape(a)
                ]
            )
            mask = self.add("tape", home, shape=list(self.shape(a)))
            got = self.add("send", home, [mask], into=other, to=other, kind="mask")
            self.send(home, self.add("lin", home, [a, mask], by=[1, 1], style=1))
            if self.chance(0.7):
                self.send(other, self.add("lin", other, [b, got], by=[1, -1], style=1))
        elif what == "resend":
            self.send(home, self.pick(self.of(home)))

    def crypto(self, what: str, home: Any) -> None:
        if what == "sendkey":
            if self.chance(0.4):
                key = self.pick(self.of(home, "key"))
                to = self.pick([j for j in (-1, 0, 1, 2) if j != home])
                self.add("send", home, [key], into=to, to=to, kind="key")
        elif what == "encrypt":
            i = self.add("encrypt", home, [self.value(home)], holder=self.pick([-1, 0, 1, 2]))
            self.send(home, i)
        elif what == "cadd":
            a = self.pick(self.of(home, "sealed"))
            i = self.add("cadd", home, [a, self.pick(self.of(home, "sealed"))])
            self.send(home, i)
        elif what == "decrypt":
            self.add("decrypt", home, [self.pick(self.of(home, "sealed"))])
        elif what == "split":
            points = list(range(1, self.p))
            key = self.pick(self.of(home, "key"))
            threshold = int(self.rng.integers(1, len(points) + 1))
            whole = self.add("split", home, [key], threshold=threshold, points=points)
            for point in points:
                share = self.add("share", home, [whole], point=point)
                if self.chance(0.6):
                    self.send(home, share)
        elif what == "shares":
            self.send(home, self.pick(self.of(home, "share")))
        elif what == "join":
            mine = self.of(home, "share")
            whole = self.exact.env[self.pick(mine)][1][0]
            by_point = {
                self.exact.env[i][1][1]: i for i in mine if self.exact.env[i][1][0] == whole
            }
            points = sorted(by_point)
            self.add("join", home, [by_point[q] for q in points], points=points)

    def output(self) -> None:
        i = self.value("spec", 0.7)
        to = self.pick([None, [-1], [-1], [0], [1, -1]])
        self.add(
            "output", "spec", [i], out=False, name=f"o{self.count}", to=to, alone=self.chance(0.9)
        )

    def make(self) -> dict[str, Any]:
        for owner in (0, 1, 2, -1):
            for _ in range(int(self.rng.integers(0 if owner else 1, 2))):
                shape = self.small()
                if 2 * (self.exact.spent + int(np.prod(shape))) > BUDGET[self.p] + 1:
                    continue
                i = self.add(self.pick(["secret"] * 4 + ["real"]), owner, shape=shape)
                self.add("spec", None, [i], into="spec")
        tries, wanted = 0, int(self.rng.integers(3, self.pick([16, 30])))
        while tries < 100 and wanted:
            tries += 1
            try:
                self.once()
                wanted -= 1
            except VoidError:
                continue
        for _ in range(int(self.rng.integers(0, 4))):
            for act in (self.pick([lambda: self.local("spec"), self.output]), self.output):
                try:
                    act()
                except VoidError:
                    continue
        return self.program


def linear(program: dict[str, Any]) -> bool:
    return not any(
        s["op"] in ("matmul", "times", "each", "pair", "whole", "quant") for s in program["steps"]
    )


def agreeing(program: dict[str, Any]) -> set[str]:
    """Keys that parties agree on others with: their public keys are sent to all."""
    agreed = [s for s in program["steps"] if s["op"] == "agree"]
    return {s["base"] for s in agreed} | {s["args"][0] for s in agreed}


def doubled(program: dict[str, Any]) -> bool:
    """Whether a key of an agreement answers as well, of which no assumption speaks (L5)."""
    roots = [s["root"] for s in program["steps"] if s["op"] == "prf"]
    return any(isinstance(r, str) and r in agreeing(program) for r in roots)


def exact_of(program: dict[str, Any]) -> Exact:
    exact = Exact(program, full=True)
    for step in program["steps"]:
        if step["op"] == "agree":
            exact.env[step["out"]] = ("key", tuple(step["root"]))
        else:
            exact.step(step)
    return exact


def receives(program: dict[str, Any], coalition: set[int]) -> bool:
    """Whether a message goes into the coalition: the other verdicts are dull."""
    return any(
        s["op"] in ("send", "record")
        and s["home"] not in coalition
        and s.get("to", -9) in {*coalition, -9}
        for s in program["steps"]
    )


COALITIONS = [set(c) for n in (1, 2, 3) for c in itertools.combinations((-1, 0, 1, 2), n)]


def judged(program: dict[str, Any], coalition: set[int]) -> tuple[str, bool]:
    """What `decide` says, and whether the view is private."""
    verdict = Judge(traced(program)).decide(coalition)
    return verdict.verdict, exact_of(program).private(coalition)


def wrong(verdict: str, private: bool) -> str:
    if verdict in ("PROVED", "NOT PROTECTED") and not private:
        return "wrong PROVED"
    return "wrong VIOLATED" if verdict == "VIOLATED" and private else ""


def shrunk(program: dict[str, Any], failing: Any) -> dict[str, Any]:
    """Steps are left out, with all that stand on them, as long as it still fails."""
    again = True
    while again:
        again = False
        for i in reversed(range(len(program["steps"]))):
            gone, rest = set(), []
            for j, step in enumerate(program["steps"]):
                base = [step["base"]] if "base" in step else []
                if j == i or gone & {*step.get("args", ()), *base}:
                    gone.add(step.get("out"))
                    gone.discard(None)
                else:
                    rest.append(step)
            smaller = {**program, "steps": rest}
            try:
                fails = failing(smaller)
            except Exception:  # a program that cannot be run is no smaller failure
                fails = False
            if fails:
                program, again = smaller, True
                break
    return program


def text(program: dict[str, Any]) -> str:
    return "\n".join(json.dumps(s) for s in program["steps"])


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--keep", default="")
    parser.add_argument("--names", action="store_true", help="name products from the first one on")
    asked = parser.parse_args()
    if asked.names:
        check.MANY = forms.MANY = 0
    return report(*run(asked.seed, asked.cases, asked.seconds, asked.keep), asked.seed)


def run(seed: int, cases: int, seconds: float = 1e9, keep: str = "") -> Any:
    counts: collections.Counter[str] = collections.Counter()
    bad, number, begun = [], 0, time.monotonic()
    while counts["cases"] < cases and time.monotonic() - begun < seconds:
        rng = np.random.default_rng([seed, number])
        number += 1
        program = Maker(rng).make()
        counts["programs"] += 1
        try:
            judge = Judge(traced(program))
        except FlowError as error:
            counts["refused: " + str(error).split(":")[0][:40]] += 1
            continue
        except Exception:
            counts["crash"] += 1
            bad.append(("crash", number - 1, program, set(), traceback.format_exc()))
            note(keep, bad[-1])
            continue
        exact = exact_of(program)
        told = [c for c in COALITIONS if receives(program, c)]
        for j in rng.permutation(len(told))[:5]:
            coalition = told[j]
            if counts["cases"] >= cases:
                break
            counts["cases"] += 1
            try:
                verdict = judge.decide(coalition)
            except Exception:
                counts["crash"] += 1
                bad.append(("crash", number - 1, program, coalition, traceback.format_exc()))
                note(keep, bad[-1])
                continue
            if " ended in " in verdict.text:  # an error that `decide` caught
                counts["crash"] += 1
                bad.append(("crash", number - 1, program, coalition, verdict.text))
                note(keep, bad[-1])
            private = exact.private(coalition)
            sort = "linear" if linear(program) else "other"
            name = f"{sort} {'private' if private else 'leaks'} {verdict.verdict}"
            if "alone" in verdict.text and verdict.verdict == "NOT PROVED":
                name += " (outputs tell of one alone)"
            elif doubled(program) and verdict.verdict == "NOT PROVED":
                name += " (a key in two uses)"
            counts[name] += 1
            if fault := wrong(verdict.verdict, private):
                counts[fault] += 1

                def failing(smaller: Any, fault: str = fault, coalition: Any = coalition) -> bool:
                    return wrong(*judged(smaller, coalition)) == fault

                bad.append((fault, number - 1, shrunk(program, failing), coalition, verdict.text))
                note(keep, bad[-1])
    counts["seconds"] = int(time.monotonic() - begun)
    return counts, bad


def note(keep: str, found: Any) -> None:
    if keep:
        with open(keep, "a") as file:
            fault, number, program, coalition, words = found
            file.write(
                f"## {fault}, case {number}, p={program['p']}, coalition {sorted(coalition)}\n"
            )
            file.write(f"{text(program)}\n{words}\n\n")


def report(counts: Any, bad: Any, seed: int) -> int:
    lines = [f"{counts[name]:8d}  {name}" for name in sorted(counts)]
    for fault, number, program, coalition, words in bad[:10]:
        lines.append(f"{fault}: seed {seed}, number {number}, p={program['p']}, {coalition}")
        lines += [text(program), words]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
